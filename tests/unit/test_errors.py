from __future__ import annotations

from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError, enumeration, first_of_all


def test_one_error_for_all() -> None:
    errors = [HopError("hop", f"seen {number}", f"fix {number}") for number in range(7)]
    error = first_of_all(errors)
    assert (error.hop, error.seen, error.fix) == ("hop", "seen 0", "fix 0")
    text = str(error)
    assert all(f"seen {number}\n  fix: fix {number}" in text for number in range(5))
    assert "seen 5" not in text
    assert text.endswith("and 2 more")
    assert str(first_of_all(errors[:1])) == str(errors[0])


def test_an_enumeration_ends_in_a_number() -> None:
    assert enumeration(list("abcde")) == "a, b, c, d, e"
    assert enumeration(list("abcdef")) == "a, b, c, d, e and 1 more"
