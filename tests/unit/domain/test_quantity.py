from __future__ import annotations

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.domain import format_quantity, parse_quantity
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "value"),
    [("60", 60), ("19600m", 19.6), ("0", 0), ("1k", 1000), ("1.5", 1.5), ("2Ki", 2048), ("1500u", 0.0015), ("-1", -1)],
)
def test_parse_quantity(text: str, value: float) -> None:
    assert parse_quantity(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "m", "60%", "1.2.3", "12mm", "sixty"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="not a Kubernetes quantity"):
        parse_quantity(text)


@pytest.mark.parametrize(("value", "text"), [(60, "60"), (60.5, "60500m"), (0.05, "50m"), (0, "0"), (1000, "1000")])
def test_format_quantity(value: float, text: str) -> None:
    assert format_quantity(value) == text


@given(st.integers(-(10**9), 10**9))
def test_what_is_formatted_reads_back(milli: int) -> None:
    assert parse_quantity(format_quantity(milli / 1000)) == pytest.approx(milli / 1000)
