from __future__ import annotations

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.quantity import format_quantity, parse_quantity
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("60", 60),
        ("19600m", 19.6),
        ("0", 0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("5.", 5),
        ("-1", -1),
        ("+1", 1),
        ("20n", 2e-8),
        ("1500u", 0.0015),
        ("1k", 1e3),
        ("3M", 3e6),
        ("3G", 3e9),
        ("3T", 3e12),
        ("3P", 3e15),
        ("3E", 3e18),
        ("2Ki", 2**11),
        ("2Mi", 2**21),
        ("2Gi", 2**31),
        ("2Ti", 2**41),
        ("2Pi", 2**51),
        ("2Ei", 2**61),
        ("1e3", 1e3),
        ("1E3", 1e3),
        ("12.5e-1", 1.25),
        ("9e+18", 9e18),
    ],
)
def test_parse_quantity(text: str, value: float) -> None:
    assert parse_quantity(text) == pytest.approx(value)


NO_QUANTITIES = ["", "m", "60%", "1.2.3", "12mm", "sixty", ".", "1_000", "Infinity", "NaN", "1K", "1e", "1e3m", "1\n"]


@pytest.mark.parametrize("text", NO_QUANTITIES)
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="not a Kubernetes quantity"):
        parse_quantity(text)


@pytest.mark.parametrize(("value", "text"), [(60, "60"), (60.5, "60500m"), (0.05, "50m"), (0, "0"), (1000, "1000")])
def test_format_quantity(value: float, text: str) -> None:
    assert format_quantity(value) == text


@given(st.integers(-(10**9), 10**9))
def test_what_is_formatted_reads_back(milli: int) -> None:
    assert parse_quantity(format_quantity(milli / 1000)) == pytest.approx(milli / 1000)
