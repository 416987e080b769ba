# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Label selectors, so that pods that were listed once can be told apart without asking again."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.kubernetes.core.plugins.module_utils.selector import LabelSelectorFilter

_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")
_FORMATS = {"In": "{0} in ({1})", "NotIn": "{0} notin ({1})", "Exists": "{0}", "DoesNotExist": "!{0}"}


def format_selector(selector: Mapping[str, Any]) -> str:
    """A selector as objects keep it, matchLabels and matchExpressions, in the way that requests and scales write it."""
    equal = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    others = [
        _FORMATS[each["operator"]].format(each["key"], ",".join(each.get("values") or ()))
        for each in selector.get("matchExpressions") or ()
    ]
    return ",".join([*equal, *others])


def selects(selector: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether an object is selected. The empty selector selects nothing: it would take others' pods too."""
    if not selector:
        return lambda _manifest: False
    return LabelSelectorFilter(_COMMA_OUTSIDE_PARENTHESES.split(selector)).isMatching
