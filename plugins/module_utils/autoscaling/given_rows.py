# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""What is wrong with the variable of the autoscalers as a whole, and with names of variables. `spec` parses rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

VARIABLE = "gpu_autoscaling_autoscalers"
_EXAMPLE = f"""-e '{{"{VARIABLE}": [{{"namespace": "ml", "target": {{"name": "inference"}}, "max_replicas": 8}}]}}'"""


def row_faults(rows: Any) -> list[str]:
    """Errors if the value is not a list of mappings. No value, and an empty list, are none."""
    if rows is None or rows == "":
        return []
    if isinstance(rows, str):
        seen = "is text, which is what -e name=value makes of everything"
    elif isinstance(rows, Mapping) or not isinstance(rows, Sequence):
        seen = f"is {_kind(rows)}, not a list"
    else:
        wrong = [(number, row) for number, row in enumerate(rows) if not isinstance(row, Mapping)]
        if not wrong:
            return []
        seen = f"has {_kind(wrong[0][1])} in place {wrong[0][0]}, not an autoscaler"
    return [f"autoscaler spec: {VARIABLE} {seen}. Nothing was changed. Next: pass JSON, {_EXAMPLE}, or -e @file.yml"]


def unknown_options(names: Iterable[str], options: Iterable[str]) -> list[str]:
    """Errors of variables that are no option of the role, but nearly the name of one. Others are a user's own."""
    known = [*options]
    return [
        f'inventory: unknown variable "{name}". Nothing was changed. Next: did you mean {close[0]}?'
        for name in sorted(set(names) - set(known))
        if (close := get_close_matches(name, known, n=1, cutoff=0.9))
    ]


def _kind(value: Any) -> str:
    return {str: "text", bool: "a truth value"}.get(
        type(value), "a mapping" if isinstance(value, Mapping) else "a number"
    )
