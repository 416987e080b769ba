# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads the configuration of prometheus-adapter, and checks whether its rules can work.

Source: kubernetes-sigs/prometheus-adapter pkg/config, pkg/naming/metric_namer.go. Reports only certain faults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from ..kube.objects import Manifest, containers_of, flag, pod_spec
from .state.api import AdapterConfig

_STRING = r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`'
# Characters that may follow a backslash in PromQL.
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = frozenset("abfnrtv\\'\"xuU01234567")
# Prometheus 3 accepts quoted names, too.
_MATCHER = re.compile(rf"\s*(?:(\w+|{_STRING})\s*(=~|!~|!=|=)\s*({_STRING})|({_STRING}))\s*(,|$)", re.DOTALL)
_SELECTOR = re.compile(r"\s*([a-zA-Z_:][\w:]*)?\s*(?:\{(.*)\})?\s*", re.DOTALL)
# The adapter rejects unknown options, including those with a wrong indentation.
_KINDS = frozenset({"rules", "externalRules", "resourceRules"})
_OPTIONS = frozenset({"seriesQuery", "seriesFilters", "resources", "name", "metricsQuery", "labelValueReplacements"})
# Python's messages for errors in any regular expression dialect; other errors are specific to Python.
_BROKEN = ("missing ), unterminated", "unbalanced parenthesis", "unterminated character set", "nothing to repeat")
# Character classes, which Python interprets differently.
_ONLY_GO = "[["
_LOOKAROUND = re.compile(r"\(\?<?[=!]")


def config_map_of(adapter: Manifest) -> tuple[str, str] | None:
    """ConfigMap and key of the adapter's --config; None if it is another kind of file."""
    volumes = {volume["name"]: volume for volume in pod_spec(adapter).get("volumes") or ()}
    for container in containers_of(adapter):
        path = flag(container, "--config")
        for mount in container.get("volumeMounts") or ():
            source = volumes.get(mount["name"], {}).get("configMap") or {}
            folder, _slash, file = path.rpartition("/")
            if source.get("name") and mount["mountPath"].rstrip("/") in (folder, path):
                keys = {item["path"]: item["key"] for item in source.get("items") or ()}
                file = mount.get("subPath") or file
                return source["name"], keys.get(file, file)
    return None


def adapter_config(config_map: Manifest, content: Any) -> AdapterConfig:
    """content: content of the file, None if it is empty."""
    content = {} if content is None else content
    if not isinstance(content, Mapping):
        return AdapterConfig(config_map, "it is not a mapping of options")
    if unknown := sorted(map(str, content.keys() - _KINDS)):
        return AdapterConfig(config_map, f"unknown option {unknown[0]}")
    return AdapterConfig(config_map, rules=[*_list(content.get("rules")), *_list(content.get("externalRules"))])


def _list(value: Any) -> list[Any]:
    """Wraps a value that is not a list as its only item."""
    return value if isinstance(value, list) else [value] if value else []


def fault_of(rule: Any) -> str:
    """Why the adapter does not start with a rule, or Prometheus rejects its series query; empty if neither is known."""
    if not isinstance(rule, Mapping):
        return "the rule is not a mapping of options"
    return next(filter(None, _faults(rule)), "")


def _faults(rule: Mapping[str, Any]) -> Iterator[str]:
    unknown = sorted(map(str, rule.keys() - _OPTIONS))
    yield f"unknown option {unknown[0]}" if unknown else ""
    yield _fault_of_selector(str(rule.get("seriesQuery") or ""))
    for series_filter in _list(rule.get("seriesFilters")):
        yield _fault_of_filter(series_filter)
    yield _fault_of_name(rule.get("name") or {})
    query = str(rule.get("metricsQuery") or "")
    yield f"metricsQuery has `<<` without `>>`: `{query}`" if query.count("<<") != query.count(">>") else ""


def _fault_of_name(name: Any) -> str:
    if not isinstance(name, Mapping):
        return "name is not a mapping of options"
    if unknown := sorted(map(str, name.keys() - {"matches", "as"})):
        return f"unknown option name.{unknown[0]}"
    pattern = str(name.get("matches") or "")
    compiled = _tried(pattern)
    if not name.get("as") and compiled and compiled.groups > 1:
        return f"name.matches `{pattern}` has several groups, and there is no name.as"
    return _fault_of_pattern(pattern)


def name_given(rule: Any) -> str:
    """The name of a rule's metric, if it is literal."""
    name = rule.get("name") if isinstance(rule, Mapping) else None
    return str(name.get("as") or "") if isinstance(name, Mapping) else ""


def _fault_of_filter(series_filter: Any) -> str:
    given = [key for key in ("is", "isNot") if isinstance(series_filter, Mapping) and series_filter.get(key)]
    if len(given) != 1:
        return "a filter of seriesFilters needs `is` or `isNot`, and not both"
    return _fault_of_pattern(str(series_filter[given[0]]))


def _fault_of_selector(text: str) -> str:
    """Prometheus requires a matcher that does not match the empty string."""
    matchers = _matchers(text)
    if not text.strip():
        return "seriesQuery is empty"
    if matchers is None:
        return 'seriesQuery is not a selector, which is `series{label="value"}` and nothing else'
    for literal in re.findall(_STRING, text):
        characters = _ESCAPE.findall(literal)
        escaped = next((character for character in characters if character not in _ESCAPED), "")
        if escaped and literal[0] != "`":
            return f"seriesQuery has `\\{escaped}` in {literal}: a backslash must be doubled there"
    broken = next(filter(None, (_fault_of_pattern(value) for _label, kind, value in matchers if "~" in kind)), "")
    if not broken and all(_fits_nothing(kind, value) for _label, kind, value in matchers):
        return "each matcher of seriesQuery also matches the empty string, which Prometheus rejects"
    return broken


def _matchers(text: str) -> list[tuple[str, str, str]] | None:
    """Label, operator and value of each matcher of a selector, its name as __name__; None if it is not a selector."""
    found = _SELECTOR.fullmatch(text)
    if not found:
        return None
    name, rest = found.groups()
    matchers = [("__name__", "=", name)] if name else []
    place = 0
    rest = (rest or "").strip()
    while place < len(rest):
        one = _MATCHER.match(rest, place)
        if not one:
            return None
        label, kind, value, quoted = one.groups()[:4]
        matchers.append(("__name__", "=", _text(quoted)) if quoted else (_text(label), kind, _text(value)))
        place = one.end()
    return matchers


def _text(literal: str) -> str:
    return literal[1:-1].replace("\\\\", "\\") if literal[0] in "\"'`" else literal


def _fits_nothing(kind: str, value: str) -> bool:
    """Whether a matcher matches a missing label."""
    if "~" not in kind:
        return (value == "") != kind.startswith("!")
    compiled = _tried(value)
    return compiled is not None and bool(compiled.fullmatch("")) != kind.startswith("!")


def _fault_of_pattern(pattern: str) -> str:
    """Go's regular expressions do not support lookaround."""
    if _LOOKAROUND.search(pattern):
        return f"the regular expression `{pattern}` uses lookaround, which Go does not support"
    try:
        _compiled(pattern)
    except re.error as err:
        return f"the regular expression `{pattern}` is wrong: {err.msg}" if err.msg.startswith(_BROKEN) else ""
    return ""


def _compiled(pattern: str) -> re.Pattern[str] | None:
    return None if _ONLY_GO in pattern else re.compile(pattern)


def _tried(pattern: str) -> re.Pattern[str] | None:
    """None for a pattern that only Go supports."""
    with suppress(re.error):
        return _compiled(pattern)
    return None


def takes_all(rule: Any) -> bool:
    """Whether a rule matches series of any name, as the chart's default rules do."""
    matchers = _matchers(str(rule.get("seriesQuery") or "")) if isinstance(rule, Mapping) else None
    names = [(kind, value) for label, kind, value in matchers or () if label == "__name__"]
    return bool(matchers) and not any(
        kind == "=" or (kind == "=~" and value not in (".*", ".+", "^.*", "^.+")) for kind, value in names
    )
