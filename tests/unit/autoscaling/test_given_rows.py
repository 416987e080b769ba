"""The variable of the autoscalers as people pass it: what is no list of mappings gets one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.given_rows import (
    row_faults,
    unknown_options,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.role_plan import specification
from hypothesis import given
from hypothesis import strategies as st

ROW = {"namespace": "ml", "target": {"name": "inference"}, "max_replicas": 8}
SCALARS = st.text() | st.integers() | st.booleans() | st.floats()
ANYTHING = st.recursive(SCALARS | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
# Of the roles that check the names of their variables.
ROLES = ("gpu_autoscaling", "gpu_doctor")
OPTIONS = [name for role in ROLES for name in specification(role) if name.startswith(f"{role}_")]


@given(ANYTHING)
def test_all_but_lists_of_mappings_are_one_error(value: Any) -> None:
    is_right = value in (None, "") or (isinstance(value, list) and all(isinstance(row, dict) for row in value))
    assert len(row_faults(value)) == (0 if is_right else 1)


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ('[{"namespace": "ml"}]', "is text, which is what -e name=value makes of everything"),
        (ROW, "is a mapping, not a list"),
        (True, "is a truth value, not a list"),
        ([ROW, "ml/chat"], "has text in place 1, not an autoscaler"),
    ],
)
def test_the_error_says_what_it_is(value: Any, seen: str) -> None:
    [said] = row_faults(value)
    assert f"autoscaler spec: gpu_autoscaling_autoscalers {seen}. Nothing was changed. Next: pass JSON, -e '" in said


@pytest.mark.parametrize("option", OPTIONS)
def test_each_option_is_known_when_a_letter_is_missing_or_doubled(option: str) -> None:
    [role] = [role for role in ROLES if option.startswith(f"{role}_")]
    for place in range(len(role) + 1, len(option)):
        for typo in {option[:place] + option[place + 1 :], option[:place] + option[place] + option[place:]}:
            [said] = unknown_options([option, typo], OPTIONS)
            assert f'unknown variable "{typo}"' in said
            assert f"did you mean {role}_" in said


@pytest.mark.parametrize("name", ["gpu_autoscaling_team", "gpu_autoscaling_defaults", "gpu_doctor_report", *OPTIONS])
def test_options_and_variables_of_a_user_are_no_error(name: str) -> None:
    assert unknown_options([name], OPTIONS) == []
