from __future__ import annotations

import re

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.doctor_texts import failure
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.text import text_lines
from doctor_reports import BROKEN, EVIL, FLEET, HEALTHY, HOPS, HOSTILE, MANY, REPORTS, autoscaler, finding, report


@pytest.mark.parametrize("name", REPORTS)
def test_a_line_for_each_hop_in_the_order_of_the_chain(name: str) -> None:
    every = text_lines(REPORTS[name], width=200)
    start = every.index("") + 1
    lines = every[start : start + len(HOPS)]
    assert [line.split()[0] for line in lines] == [hop["status"] for hop in REPORTS[name]["hops"]]
    assert all(
        f"{hop['title']}: {hop['summary']}" in line for hop, line in zip(REPORTS[name]["hops"], lines, strict=True)
    )


@pytest.mark.parametrize("width", [60, 72, 80])
@pytest.mark.parametrize("name", ["healthy", "broken", "many", "fleet"])
def test_no_line_is_wider_than_asked_for(name: str, width: int) -> None:
    assert [line for line in text_lines(REPORTS[name], width=width) if len(line) > width] == []


@pytest.mark.parametrize("name", REPORTS)
def test_narrow_lines_say_what_wide_ones_say(name: str) -> None:
    assert (
        " ".join(text_lines(REPORTS[name], width=40)).split() == " ".join(text_lines(REPORTS[name], width=999)).split()
    )


def test_a_finding_says_what_was_seen_the_cause_and_the_fix() -> None:
    lines = text_lines(BROKEN, width=200)
    its = finding()
    start = lines.index(f"1. error {its['id']}")
    assert lines[start + 1 : start + 10] == [
        f"   Series name the pods: {its['object']}",
        f"   seen   {its['seen'][0]}",
        f"          {its['seen'][1]}",
        f"   since  {its['since']}",
        f"   cause  {its['cause']}",
        f"   fix    {its['fix']}",
        f"   then   {its['consequences'][0]}",
        f"          {its['consequences'][1]}",
        f"   more   {its['doc']}",
    ]


@pytest.mark.parametrize("name", REPORTS)
def test_colours_are_all_that_colour_adds(name: str) -> None:
    plain = text_lines(REPORTS[name])
    coloured = text_lines(REPORTS[name], colour=True)
    assert "\x1b" not in "".join(plain)
    assert [re.sub(r"\x1b\[[\d;]*m", "", line) for line in coloured] == plain
    assert sum("\x1b[" in line for line in coloured) == len(HOPS) + len(REPORTS[name]["findings"])


def test_what_a_cluster_says_cannot_steer_the_terminal() -> None:
    assert "\x1b" in EVIL
    assert "\x1b" not in "\n".join(text_lines(HOSTILE))


def test_of_many_autoscalers_the_unproven_come_first_and_the_rest_is_counted() -> None:
    lines = text_lines(FLEET, width=200)
    start = lines.index("Autoscalers: 57 of 60 proven")
    assert [line.split(":")[0] for line in lines[start + 1 : start + 4]] == [
        f"- ml/model-{number} not proven" for number in ("07", "27", "47")
    ]
    assert len(lines) == start + 12
    assert lines[-1] == "- and 50 more"


def test_an_autoscaler_in_one_line() -> None:
    one = report(autoscalers=[autoscaler(desired_replicas=3)])
    assert text_lines(one, width=200)[-1] == (
        "- ml/chat proven: gpu 58 % for 60 %, 2 of 1 to 8 replicas, wants 3, reacts within 10 s"
    )


def test_what_is_not_known_is_not_made_up() -> None:
    one = report(autoscalers=[autoscaler(replicas=None, desired_replicas=None, budget=None, history=None)])
    assert text_lines(one, width=200)[-1] == "- ml/chat proven: gpu no value for 60 %, ? of 1 to 8 replicas"


def test_what_was_not_checked_comes_with_its_reason() -> None:
    assert text_lines(BROKEN, width=200)[-1] == (
        "- Metrics API: APIService of custom.metrics.k8s.io: the user may not get apiservices.apiregistration.k8s.io"
    )


def test_the_failure_names_the_first_broken_hop_and_its_fix_in_one_line() -> None:
    # The chart's order, not the report's: a finding further right comes first here.
    turned = {**MANY, "findings": MANY["findings"][::-1]}
    assert failure(turned).startswith("The chain is broken at: GPU nodes and drivers: node gpu-needs_reboot")
    assert failure(turned).endswith(f"(fix: {finding()['fix']})")
    assert "\n" not in failure(report({"rule": "broken"}, [finding(hop="rule", cause="two\nlines")]))


def test_the_failure_of_a_report_with_warnings_alone() -> None:
    assert failure(FLEET).startswith("The chain works, with 1 warning: DaemonSet monitoring/dcgm-exporter: ")
    assert failure(HEALTHY) == "The chain works"


def test_the_failure_of_a_report_that_rests_on_too_little() -> None:
    partial = report({"rule": "unknown", "hpa": "partial"})
    assert failure(partial) == (
        "No errors found, but some hops were not checked: Recording rules, HorizontalPodAutoscaler: "
        "Recording rules: 2 rules, every 2 s, no error"
    )
    nothing = report(dict.fromkeys([hop for hop in HOPS if hop != "access"], "unknown"))
    assert failure(nothing).startswith("No part of the chain could be checked: GPU nodes and drivers: ")
    rights = finding("RIGHTS_MISSING", "access", severity="warning", object="user looker")
    assert failure({**nothing, "findings": [rights]}).startswith("No part of the chain could be checked: user looker: ")


def test_checks_that_one_finding_explains_are_one_line() -> None:
    rows = [
        {"check": f"check {index}", "hop": hop, "reason": "no right to list pods", "finding": "RIGHTS_MISSING"}
        for hop in ("exporter", "workload")
        for index in range(30)
    ]
    lines = text_lines(report(not_checked=rows), width=200)
    assert lines[lines.index("Not checked") + 1 :] == [
        "- dcgm-exporter, Workload: 60 checks: see the finding RIGHTS_MISSING",
    ]
