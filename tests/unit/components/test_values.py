"""Values that an inventory adds to those of a chart role."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.filter.roles import chart_values

A, B = {"key": "a"}, {"key": "b"}
ENV = (("N", "1"), ("N", "2"), ("M", "3"), ("U", ""))
OFTEN, SELDOM, OTHER, UNSET = ({"name": name, "value": value} for name, value in ENV)


@pytest.mark.parametrize(
    ("how", "own", "given", "expected"),
    [
        ("each", [A], [B], [A, B]),
        ("each", [A, B], [B, A, A], [A, B]),
        ("env", [OFTEN, OTHER], [SELDOM], [OTHER, SELDOM]),
        ("env", [OFTEN], [A], [OFTEN, A]),
        ("env", [UNSET, OTHER], [], [OTHER]),
        ("env", [OTHER], [UNSET], [OTHER, UNSET]),
        ("flags", ["--v=2", "--port=80"], ["--v=6", "--new"], ["--port=80", "--v=6", "--new"]),
        ("flags", ["--v=2"], [], ["--v=2"]),
        ("each", [A], None, [A]),
    ],
)
def test_given_entries_are_added_to_a_list(how: str, own: Any, given: Any, expected: Any) -> None:
    values = {"rules": {"custom": own, "kept": 1}}
    merged = chart_values(values, {"rules": {"custom": given}}, {"rules.custom": how})
    assert merged == {"rules": {"custom": expected, "kept": 1}}
    assert values == {"rules": {"custom": own, "kept": 1}}, "the role's own values stay"


def test_all_else_replaces_what_the_role_has() -> None:
    own = {"a": {"b": 1, "c": [1]}, "d": {"e": 1}}
    assert chart_values(own, {"a": {"c": [2]}, "d": None}) == {"a": {"b": 1, "c": [2]}, "d": None}
    assert chart_values(own) == own


@pytest.mark.parametrize("given", [None, {}, {"a": None}, {"a": {"b": None}}])
def test_nothing_given_leaves_the_list_of_the_role(given: Any) -> None:
    assert chart_values({"a": {"b": [1]}}, given, {"a.b": "each"}) == {"a": {"b": [1]}}


@pytest.mark.parametrize("given", ["--v=6", {"v": 6}])
def test_what_is_no_list_is_rejected_with_its_path(given: Any) -> None:
    with pytest.raises(ValueError, match=r"chart values: a\.b is .* not a list\. Next: give a list"):
        chart_values({"a": {"b": []}}, {"a": {"b": given}}, {"a.b": "each"})
