"""What the rules of KEDA's HPAs decide, against the arithmetic of a Pods metric.

A hundred states are workloads of one Prometheus, each in its namespace: a rule that mixed them would fail too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from math import isnan
from pathlib import Path
from random import Random
from typing import Any

import pytest
import replica_cases
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.inputs import with_selectors
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.keda_rules import Decisions
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.replicas import DEFAULT_TOLERANCE, Tolerance
from replica_cases import Case, Metric, Pod
from test_rules import promtool

DECISIONS = Decisions("gpu")
VALUES = "namespace_pod:gpu:avg"
PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
SEED = 49
DRAWN = 400  # states of each kind
BATCH = 100  # states of one Prometheus: promtool lets no query load more than 10,000 samples
# Cut, the values are on the edge of the tolerance. Their mean before the cut is above.
NUMBERS = {
    "each-value-is-cut": Case((Pod(value=66.0019), Pod(value=66.0009)), (Metric("pods", 60),), spec=7),
}


def states() -> dict[str, Case]:
    """The decisions on one Pods metric that the controller was seen to make, and random ones."""
    known = replica_cases.cases()
    found = {name: case for name, case in known.items() if [metric.form for metric in case.metrics] == ["pods"]}
    random = Random(SEED)
    drawn = (make(random) for make in (*replica_cases.KINDS, _many) for _ in range(DRAWN))
    pods_only = (case for case in drawn if [metric.form for metric in case.metrics] == ["pods"])
    return found | NUMBERS | {f"drawn-{number}": case for number, case in enumerate(pods_only)}


def _many(random: Random) -> Case:
    """Up to 40 pods, any tolerance, counts that are far from the number of pods."""
    target = round(random.uniform(1, 100), random.choice([0, 1, 3]))
    width = Tolerance(up=random.randint(0, 999) / 1000, down=random.randint(0, 999) / 1000)
    level = target * random.choice([0, 0.3, 0.9, 1, 1 + width.up, 1 - width.down, random.uniform(0, 3)])
    number, silent = random.choice([1, 2, 5, 13, 40]), random.choice([0, 0.1, 0.5, 0.9])
    pods = tuple(
        Pod(state, None if random.random() < silent else round(level * random.uniform(0.7, 1.3), random.choice([0, 3])))
        for state in random.choices([*replica_cases.STATES], weights=[40, 5, 30, 5, 5, 15], k=number)
    )
    spec = max(1, random.choice([number, number - 1, number + 4, 2 * number, random.randint(1, 60)]))
    return Case(pods, (Metric("pods", target),), spec=spec, tolerance=width)


def series(namespace: str, case: Case) -> Iterator[tuple[str, str]]:
    """What Prometheus has of a workload, and the value of each."""
    if is_stateful(namespace):
        owner = 'owner_kind="StatefulSet",owner_name="chat"'
        yield f'kube_statefulset_replicas{{namespace="{namespace}",statefulset="chat",job="ksm"}}', str(case.spec)
    else:
        owner = 'owner_kind="ReplicaSet",owner_name="chat-6d5f"'
        controller = 'owner_kind="Deployment",owner_name="chat",owner_is_controller="true"'
        yield f'kube_replicaset_owner{{namespace="{namespace}",replicaset="chat-6d5f",{controller}}}', "1"
        yield f'kube_deployment_spec_replicas{{namespace="{namespace}",deployment="chat",job="ksm"}}', str(case.spec)
    for number, pod in enumerate(case.pods):
        labels = f'namespace="{namespace}",pod="chat-6d5f-{number}"'
        yield f'kube_pod_owner{{{labels},{owner},owner_is_controller="true",uid="{number}"}}', "1"
        for phase in PHASES:
            yield (
                f'kube_pod_status_phase{{{labels},phase="{phase}",uid="{number}"}}',
                str(int(phase == pod.state.phase)),
            )
        if pod.state.terminating:
            yield f'kube_pod_deletion_timestamp{{{labels},uid="{number}"}}', "1700000000"
        if pod.value is not None:
            yield f"{VALUES}{{{labels}}}", "NaN" if isnan(pod.value) else repr(pod.value)


def rules(cases: dict[str, Case]) -> dict[str, Any]:
    constants = [
        {"record": name, "expr": query, "labels": of_workload(namespace)}
        for namespace, case in cases.items()
        for name, query in DECISIONS.of_target(case.metrics[0].target, case.tolerance or DEFAULT_TOLERANCE)
    ]
    shared = [
        {"record": name, "expr": with_selectors(query, {})}
        for name, query in DECISIONS.recordings(VALUES, interval_s=2)
    ]
    return {"groups": [{"name": "targets", "rules": constants}, {"name": "decisions", "rules": shared}]}


def is_stateful(namespace: str) -> bool:
    """Half of the states are of StatefulSets."""
    return namespace[-1] in "02468"


def of_workload(namespace: str) -> dict[str, str]:
    kind = "statefulset" if is_stateful(namespace) else "deployment"
    return {"namespace": namespace, "workload": "chat", "workload_type": kind}


def decision(namespace: str, current: int) -> str:
    """PromQL of what an HPA makes of the two series: the larger proposal."""
    within = f'{{namespace="{namespace}"}}'
    unchanged = f'label_replace({current} * {DECISIONS.unchanged}{within}, "of", "unchanged", "", "")'
    return f"max({DECISIONS.desired_replicas}{within} or {unchanged})"


def expected(case: Case) -> list[dict[str, Any]]:
    wanted = case._of_the_pods(case.metrics[0].target, case.tolerance or DEFAULT_TOLERANCE)
    return [] if wanted is None else [{"labels": "{}", "value": wanted}]


def promtool_file(folder: Path, number: int, cases: dict[str, Case]) -> Path:
    rule_file, path = folder / f"rules-{number}.yml", folder / f"test-{number}.yml"
    rule_file.write_text(json.dumps(rules(cases)))
    rows = [row for name, case in cases.items() for row in series(name, case)]
    test = {
        "interval": "2s",
        "input_series": [{"series": row, "values": f"{value} {value} {value}"} for row, value in rows],
        "promql_expr_test": [
            {"expr": decision(name, case.spec), "eval_time": "4s", "exp_samples": expected(case)}
            for name, case in cases.items()
        ],
    }
    path.write_text(json.dumps({"rule_files": [rule_file.name], "evaluation_interval": "2s", "tests": [test]}))
    return path


@pytest.mark.timeout(300)
def test_the_decision_is_that_of_a_pods_metric(tmp_path: Path) -> None:
    cases = iter(states().items())
    batches = iter(lambda: dict(islice(cases, BATCH)), {})
    promtool("test", "rules", *(promtool_file(tmp_path, *batch) for batch in enumerate(batches)))


def test_a_count_that_stayed_is_held_until_both_series_were_read(tmp_path: Path) -> None:
    """An evaluation between two reads must not give the HPA two zeros, which propose its minimum."""
    steady = {"ml": Case((Pod(value=60.0),) * 4, (Metric("pods", 60),), spec=4)}
    (tmp_path / "rules.yml").write_text(json.dumps(rules(steady)))
    falls = [
        {"series": row, "values": "60x10 15x20 stale" if row.startswith(VALUES) else f"{value}x50"}
        for row, value in series("ml", steady["ml"])
    ]
    labels = ",".join(f'{name}="{value}"' for name, value in of_workload("ml").items())

    def expects(at_s: int, recorded: str, value: int | None) -> dict[str, Any]:
        samples = [] if value is None else [{"labels": f"{recorded}{{{labels}}}", "value": value}]
        return {"expr": recorded, "eval_time": f"{at_s}s", "exp_samples": samples}

    tests = [
        expects(10, DECISIONS.desired_replicas, 0),
        expects(10, DECISIONS.unchanged, 1),
        expects(11, DECISIONS.desired_replicas, 1),
        expects(11, DECISIONS.unchanged, 1),
        expects(19, DECISIONS.unchanged, 1),
        expects(22, DECISIONS.unchanged, 0),
        expects(50, DECISIONS.desired_replicas, None),
        expects(50, DECISIONS.unchanged, None),
    ]
    test = {"interval": "1s", "input_series": falls, "promql_expr_test": tests}
    file = {"rule_files": ["rules.yml"], "evaluation_interval": "1s", "tests": [test]}
    (tmp_path / "test.yml").write_text(json.dumps(file))
    promtool("test", "rules", tmp_path / "test.yml")


def test_the_rules_of_one_namespace_look_at_no_other(tmp_path: Path) -> None:
    up = {name: Case((Pod(value=90.0),) * 4, (Metric("pods", 60),), spec=4) for name in ("ml", "web")}
    file = rules(up)
    file["groups"][1]["rules"] = [
        {"record": name, "expr": with_selectors(query, {})}
        for name, query in DECISIONS.recordings(VALUES, interval_s=2, namespace="ml")
    ]
    (tmp_path / "rules.yml").write_text(json.dumps(file))
    labels = ",".join(f'{name}="{value}"' for name, value in of_workload("ml").items())
    tests = [
        {
            "expr": DECISIONS.desired_replicas,
            "eval_time": "4s",
            "exp_samples": [{"labels": f"{DECISIONS.desired_replicas}{{{labels}}}", "value": 6}],
        }
    ]
    rows = [{"series": row, "values": f"{value}x2"} for name, case in up.items() for row, value in series(name, case)]
    test = {"interval": "2s", "input_series": rows, "promql_expr_test": tests}
    whole = {"rule_files": ["rules.yml"], "evaluation_interval": "2s", "tests": [test]}
    (tmp_path / "test.yml").write_text(json.dumps(whole))
    promtool("test", "rules", tmp_path / "test.yml")
