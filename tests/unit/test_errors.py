from __future__ import annotations

from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import (
    Finding,
    HopError,
    enumeration,
    first_of_all,
    merged,
)

PROBE = Finding("workload", "no probe", "add one", subjects=("ml/a",))


def test_what_is_said_alike_is_said_once() -> None:
    others = [Finding("workload", "no probe", "add one", subjects=(f"ml/{number}",)) for number in range(7)]
    alone, together = merged([Finding("workload", "no limit", "add it", subjects=("ml/a",)), *others])
    assert str(alone) == "workload: autoscaler ml/a: no limit (fix: add it)"
    assert str(together) == "workload: autoscalers ml/0, ml/1, ml/2, ml/3, ml/4 and 2 more: no probe (fix: add one)"


def test_what_differs_in_anything_else_stays_apart() -> None:
    warning = Finding("workload", "no probe", "add one", subjects=("ml/b",), severity="warning")
    awaited = Finding("workload", "no probe", "add one", subjects=("ml/c",), awaited=True)
    assert merged([PROBE, warning, awaited]) == [PROBE, warning, awaited]


def test_a_subject_is_named_once() -> None:
    assert merged([PROBE, PROBE]) == [PROBE]


def test_a_finding_about_the_cluster_names_no_autoscaler() -> None:
    assert str(Finding("a -> b", "nothing there", "look")) == "a -> b: nothing there (fix: look)"


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
