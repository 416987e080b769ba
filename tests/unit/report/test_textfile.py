"""The metrics of a report: Prometheus' own parser takes them, and they say what the report says."""

from __future__ import annotations

import subprocess

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.textfile import textfile
from doctor_reports import HEALTHY, HOPS, REPORTS, autoscaler, finding, report
from programs import program


@pytest.mark.parametrize("name", REPORTS)
def test_prometheus_can_read_it(name: str) -> None:
    done = subprocess.run(
        [program("promtool"), "check", "metrics"], input=textfile(REPORTS[name]), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_healthy_chain() -> None:
    lines = textfile(HEALTHY).splitlines()

    assert "kubegpu_doctor_run_timestamp_seconds 1772334000" in lines
    assert [line for line in lines if line.startswith("kubegpu_doctor_hop{")] == [
        f'kubegpu_doctor_hop{{hop="{hop}",status="ok"}} 1' for hop in HOPS
    ]
    assert not [line for line in lines if line.startswith("kubegpu_doctor_findings{")]


def test_findings_of_one_type_are_counted() -> None:
    found = [finding("RULE_FAILS", "rule"), finding("RULE_FAILS", "rule"), finding("SLOW", "rule", severity="warning")]

    text = textfile(report({"rule": "broken", "metric": "consequence"}, found))

    assert 'kubegpu_doctor_findings{id="RULE_FAILS",hop="rule",severity="error"} 2\n' in text
    assert 'kubegpu_doctor_findings{id="SLOW",hop="rule",severity="warning"} 1\n' in text
    assert 'kubegpu_doctor_hop{hop="metric",status="consequence"} 1\n' in text


def test_an_autoscaler_is_proven_or_not() -> None:
    text = textfile(report(autoscalers=[autoscaler("chat", verified=True), autoscaler("other", verified=False)]))

    assert 'kubegpu_doctor_autoscaler_proven{namespace="ml",name="chat"} 1\n' in text
    assert 'kubegpu_doctor_autoscaler_proven{namespace="ml",name="other"} 0\n' in text
