# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Label selectors in objects (matchLabels, matchExpressions), in requests and in scales."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Selector = Mapping[str, Any]

_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")
_SET = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)")
_EQUALITY = re.compile(r"(?P<key>[^=!\s]+)\s*(?P<operator>==?|!=)\s*(?P<value>\S*)")
_OPERATORS = {"in": "In", "notin": "NotIn"}
_FORMATS = {"In": "{0} in ({1})", "NotIn": "{0} notin ({1})", "Exists": "{0}", "DoesNotExist": "!{0}"}


def labels_match(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """None selects nothing, an empty selector everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(expression, labels) for expression in selector.get("matchExpressions") or ())


def labels_that_match(selector: Selector) -> dict[str, str]:
    """Labels that an object needs to be selected; empty if none are needed, or if none suffice."""
    labels = dict(selector.get("matchLabels") or {})
    for expression in selector.get("matchExpressions") or ():
        values = expression.get("values") or ("true",)
        if expression["operator"] in ("In", "Exists") and labels.get(expression["key"]) not in values:
            labels.setdefault(expression["key"], values[0])
    return labels if labels_match(selector, labels) else {}


def labels_that_match_both(first: Selector, second: Selector) -> dict[str, str]:
    """Labels that both selectors select; those for the first one if they contradict each other."""
    for one, other in ((first, second), (second, first)):
        labels = labels_that_match(
            {
                "matchLabels": {**(one.get("matchLabels") or {}), **(other.get("matchLabels") or {})},
                "matchExpressions": [*(one.get("matchExpressions") or ()), *(other.get("matchExpressions") or ())],
            }
        )
        if labels_match(first, labels) and labels_match(second, labels):
            return labels
    return labels_that_match(first)


def format_selector(selector: Selector) -> str:
    """The text of a selector, for a request."""
    equal = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    others = [
        _FORMATS[expression["operator"]].format(expression["key"], ",".join(expression.get("values") or ()))
        for expression in selector.get("matchExpressions") or ()
    ]
    return ",".join([*equal, *others])


def parse_selector(text: str) -> Selector | None:
    """The selector in the text of a scale subresource; None for an empty text, which would select other pods.

    Source: k8s.io/apimachinery pkg/labels/selector.go
    """
    terms = [term.strip() for term in _COMMA_OUTSIDE_PARENTHESES.split(text) if term.strip()]
    return {"matchExpressions": [_parse_term(term) for term in terms]} if terms else None


def _parse_term(term: str) -> dict[str, Any]:
    if found := _SET.fullmatch(term):
        values = [value.strip() for value in found["values"].split(",")]
        return {"key": found["key"], "operator": _OPERATORS[found["operator"]], "values": values}
    if found := _EQUALITY.fullmatch(term):
        operator = "NotIn" if found["operator"] == "!=" else "In"
        return {"key": found["key"], "operator": operator, "values": [found["value"]]}
    if term.startswith("!"):
        return {"key": term[1:].strip(), "operator": "DoesNotExist"}
    return {"key": term, "operator": "Exists"}


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    return {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }[expression["operator"]]
