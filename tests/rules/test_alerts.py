"""Alerts fire only for their faults, and link to an existing page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.hops import CHAIN
from collection import ROOT
from test_rules import promtool

FILES = sorted((ROOT / "roles" / "gpu_alerts" / "files").glob("*.yml"))
RULES = [rule for file in FILES for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
WRITTEN: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "alerts.yml").read_text())
CASES: list[dict[str, Any]] = [{"case": "nothing is wrong", "at": "40m", "fires": {}}, *WRITTEN["cases"]]
STEP_S = 30


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_prometheus_accepts_the_rules_of_the_alerts(path: Path) -> None:
    promtool("check", "rules", "--lint-fatal", path)


def test_what_is_wrong_alerts_once(tmp_path: Path) -> None:
    """All cases in one process: promtool names the one that does not hold."""
    judge(tmp_path, [alerts_test(case) for case in CASES])


def alerts_test(case: dict[str, Any]) -> dict[str, Any]:
    """All that fires at that time; and each of it with the labels that its texts name."""
    firing = {
        'count by (alertname) (ALERTS{alertstate="firing"})': [f'{{alertname="{name}"}}' for name in case["fires"]]
    }
    for name, labels in case["fires"].items():
        shown = "".join(f',{label}="{value}"' for label, value in labels.items())
        firing[f'group (ALERTS{{alertstate="firing",alertname="{name}"{shown}}})'] = ["{}"]
    return cluster_test(
        case["case"],
        case.get("change", []),
        [
            {
                "expr": expr,
                "eval_time": case.get("at", "25m"),
                "exp_samples": [{"labels": labels, "value": 1} for labels in expected],
            }
            for expr, expected in firing.items()
        ],
    )


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_a_case_whose_labels_its_texts_name(alert: str) -> None:
    told = set().union(*(re.findall(r"\$labels\.(\w+)", text) for text in ALERTS[alert]["annotations"].values()))
    cases = [case["fires"][alert] for case in CASES if alert in case["fires"]]

    assert cases
    assert all(told <= set(labels) for labels in cases)


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_says_how_bad_it_is_where_and_what_to_read(alert: str) -> None:
    labels, texts = ALERTS[alert]["labels"], ALERTS[alert]["annotations"]
    repository = yaml.safe_load((ROOT / "galaxy.yml").read_text())["repository"]
    page, anchor = texts["runbook_url"].removeprefix(f"{repository}/blob/main/").split("#")
    titles = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)

    assert labels["severity"] in ("critical", "warning", "info")
    assert labels["hop"] in CHAIN
    assert set(texts) == {"summary", "description", "runbook_url"}
    assert all(len(sentence.split()) <= 25 for sentence in re.split(r"[.:] ", texts["description"]))
    assert anchor in [title.lower().replace(" ", "-") for title in titles]


def test_each_hop_has_a_light(tmp_path: Path) -> None:
    lights = [rule["labels"]["hop"] for rule in RULES if rule.get("record") == "hop:kubegpu_chain:state"]
    broken = [
        'kube_node_status_condition{node="gpu1",condition="Ready",status="true"} 1x10 0x200',
        'aggregator_unavailable_apiservice{name="v1beta1.custom.metrics.k8s.io"} 0x10 1x200',
    ]
    shown = dict.fromkeys(CHAIN, 0) | {"node": 1, "metrics_api": 2}
    expected = [{"labels": f'hop:kubegpu_chain:state{{hop="{hop}"}}', "value": value} for hop, value in shown.items()]

    assert lights == list(CHAIN)
    judged = [{"expr": "hop:kubegpu_chain:state", "eval_time": "25m", "exp_samples": expected}]
    judge(tmp_path, [cluster_test("two hops are broken", broken, judged)])


def cluster_test(name: str, change: list[str], expected: list[dict[str, Any]]) -> dict[str, Any]:
    """The healthy cluster with these series in place of, or beside, its own."""
    series = {name: values for name, _, values in (named(row).partition("} ") for row in WRITTEN["healthy"] + change)}
    return {
        "name": name,
        "interval": f"{STEP_S}s",
        "input_series": [{"series": f"{name}}}", "values": values} for name, values in series.items()],
        "promql_expr_test": expected,
    }


def judge(folder: Path, tests: list[dict[str, Any]]) -> None:
    file = {"rule_files": [str(path) for path in FILES], "evaluation_interval": f"{STEP_S}s", "tests": tests}
    (folder / "alerts_test.yml").write_text(json.dumps(file))
    promtool("test", "rules", folder / "alerts_test.yml")


def named(row: str) -> str:
    return re.sub(r"<(\w+)>", lambda match: WRITTEN["names"][match[1]], row)
