from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.junit import junit
from doctor_reports import BROKEN, FLEET, HEALTHY, HOPS, HOSTILE, REPORTS, autoscaler, finding, report


def suite(of: dict[str, Any]) -> ElementTree.Element:
    (only,) = ElementTree.fromstring(junit(of).encode())
    return only


@pytest.mark.parametrize("name", REPORTS)
def test_a_case_for_each_hop_then_for_each_autoscaler(name: str) -> None:
    cases = suite(REPORTS[name]).findall("testcase")
    classes = [case.get("classname") for case in cases]
    assert classes == ["gpu_doctor.hop"] * len(HOPS) + ["gpu_doctor.autoscaler"] * len(REPORTS[name]["autoscalers"])
    assert [case.get("name") for case in cases[: len(HOPS)]] == [title for title, _ in HOPS.values()]


@pytest.mark.parametrize("name", REPORTS)
def test_the_counts_are_those_of_the_cases(name: str) -> None:
    its = suite(REPORTS[name])
    assert int(its.get("tests", -1)) == len(its.findall("testcase"))
    assert int(its.get("failures", -1)) == len(its.findall("testcase/failure"))
    assert int(its.get("skipped", -1)) == len(its.findall("testcase/skipped"))


@pytest.mark.parametrize(
    ("of", "failures", "skipped"),
    [(HEALTHY, 0, 0), (BROKEN, 3, 5), (FLEET, 0, 3)],
    ids=["healthy", "broken: hop and autoscalers", "unproven, nothing broken"],
)
def test_what_fails_and_what_is_skipped(of: dict[str, Any], failures: int, skipped: int) -> None:
    assert (suite(of).get("failures"), suite(of).get("skipped")) == (str(failures), str(skipped))


def test_a_failure_carries_its_finding() -> None:
    failure = suite(BROKEN).find("testcase[@name='Series name the pods']/failure")
    assert failure is not None
    assert failure.get("type") == "EXPORTER_NO_POD_RESOURCES"
    for text in (finding()["object"], *finding()["seen"], finding()["cause"], f"fix: {finding()['fix']}"):
        assert text in (failure.text or "")


def test_a_warning_passes_and_is_told() -> None:
    case = suite(FLEET).find("testcase[@name='Recording rules']")
    assert case is not None
    assert [child.tag for child in case] == ["system-out"]
    assert "REACTION_SLOW (warning)" in (case.findtext("system-out") or "")


def test_a_hop_that_is_broken_without_a_finding_fails_too() -> None:
    failure = suite(report({"rule": "broken"}, verdict="broken")).find("testcase/failure")
    assert failure is not None
    assert failure.get("message") == HOPS["rule"][1]


def test_control_characters_of_a_message_do_not_break_the_xml() -> None:
    text = suite(HOSTILE).findtext("testcase/failure") or ""
    assert '<script>alert("x")</script>&\ufffd[31m' in text


def test_an_autoscaler_that_is_proven_has_nothing_to_say() -> None:
    case = suite(report(autoscalers=[autoscaler()])).find("testcase[@name='ml/chat']")
    assert case is not None
    assert list(case) == []
