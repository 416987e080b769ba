"""What Prometheus makes of the rules.

`<profile>_test.yml` is what is particular to a profile; `cases.yml` is what holds for each profile of GPUs. Both are on
the golden files.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.dcgm_fields import in_1x
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.inputs import with_selectors
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import (
    RuleOptions,
    prometheus_rules,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import PROFILES, Metric
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from collection import ROOT
from fleet import LAST_TICK, Device, Exporter, Pod, expects, promtool_file, series, timeline
from golden import CASES, GOLDEN
from programs import program

HERE = Path(__file__).parent
METRICS = {metric.name: metric for profile in PROFILES.values() for metric in profile.metrics}
LAYOUTS = ("exported", "honored", "bare", "half")
MEMORY_MIB = 80_000
CASES_OF_ALL: list[dict[str, Any]] = yaml.safe_load((HERE / "cases.yml").read_text())

# Fields that make a profile read a GPU as `busy` percent. Utilisation is what makes a 0 of the others believed.
READINGS: dict[str, Callable[[float], dict[str, float]]] = {
    "gpu": lambda busy: {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": busy / 100, "DCGM_FI_DEV_GPU_UTIL": busy},
    "gpu_util": lambda busy: {"DCGM_FI_DEV_GPU_UTIL": busy},
    "gpu_compute": lambda busy: {
        "DCGM_FI_PROF_SM_ACTIVE": busy / 100,
        "DCGM_FI_PROF_DRAM_ACTIVE": busy / 200,
        "DCGM_FI_DEV_GPU_UTIL": busy,
    },
    "gpu_memory": lambda busy: {
        "DCGM_FI_DEV_FB_USED": MEMORY_MIB * busy / 100,
        "DCGM_FI_DEV_FB_FREE": MEMORY_MIB * (100 - busy) / 125,
        "DCGM_FI_DEV_FB_RESERVED": MEMORY_MIB * (100 - busy) / 500,
    },
    "mig": lambda busy: {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": busy / 100},
    "shared": lambda busy: {"DCGM_FI_DEV_GPU_UTIL": busy},
}


def promtool(*arguments: object, folder: Path = HERE) -> None:
    command = [program("promtool"), *map(str, arguments)]
    # Garbage is collected seldom, for a sixth of the time. Not at all would take gigabytes: new memory costs as much.
    environment = {**os.environ, "GOGC": "1000"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES)
def test_prometheus_accepts_the_rule(case: str) -> None:
    promtool("check", "rules", "--lint-fatal", GOLDEN / f"{case}.rules.yaml")


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_prometheus_parses_the_query(metric: Metric, tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    rules = [{"record": series, "expr": with_selectors(query, {})} for series, query in metric.recordings()]
    path.write_text(json.dumps({"groups": [{"name": "a", "rules": rules}]}))
    promtool("check", "rules", "--lint-fatal", path)


@pytest.mark.parametrize("path", sorted(HERE.glob("*_test.yml")), ids=lambda path: path.stem)
def test_the_rule_records(path: Path) -> None:
    promtool("test", "rules", path.name)


def test_the_records_are_the_same_from_the_names_of_1x(tmp_path: Path) -> None:
    """Those of dashboards and alerts."""
    path = tmp_path / "records_test.yml"
    rows = (HERE / path.name).read_text().replace("../../roles", str(ROOT / "roles"))
    path.write_text(in_1x(rows))
    assert path.read_text() != rows
    promtool("test", "rules", path)


def test_the_page_counts_gpu_hours(tmp_path: Path) -> None:
    """By the query of docs/monitoring.md: ml/chat held two GPUs for an hour, and ml/next has no node yet."""
    page = (ROOT / "docs" / "monitoring.md").read_text()
    query = page.partition("## GPU hours")[2].partition("```promql\n")[2].partition("```")[0]
    asks, phase = "kube_pod_container_resource_requests", "kube_pod_status_phase"
    gpu = 'container="main", resource="nvidia_com_gpu"'
    rows = {
        f'{asks}{{namespace="ml", pod="chat", node="a", {gpu}, instance="1"}}': "2x180",
        f'{asks}{{namespace="ml", pod="chat", node="a", {gpu}, instance="2"}}': "2x180",
        f'{asks}{{namespace="ml", pod="chat", node="a", container="main", resource="cpu"}}': "8x180",
        f'{asks}{{namespace="ml", pod="next", node="", {gpu}}}': "1x180",
        f'{asks}{{namespace="web", pod="done", node="a", {gpu}}}': "1x180",
        f'{phase}{{namespace="ml", pod="chat", phase="Running"}}': "1x59 0x120",
        f'{phase}{{namespace="ml", pod="chat", phase="Succeeded"}}': "0x59 1x120",
        f'{phase}{{namespace="ml", pod="next", phase="Pending"}}': "1x180",
        f'{phase}{{namespace="web", pod="done", phase="Failed"}}': "1x180",
    }
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in rows.items()],
        "promql_expr_test": [
            {"expr": query, "eval_time": "180m", "exp_samples": [{"labels": '{namespace="ml"}', "value": 2}]}
        ],
    }
    (tmp_path / "hours_test.yml").write_text(json.dumps(promtool_file([], [test])))
    promtool("test", "rules", tmp_path / "hours_test.yml")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("profile", READINGS)
def test_each_case_holds(profile: str, layout: str, tmp_path: Path) -> None:
    tests = [promtool_test(case, profile, layout) for case in CASES_OF_ALL if profile in case.get("only", READINGS)]
    path = tmp_path / f"{profile}_test.yml"
    path.write_text(json.dumps(promtool_file([str(GOLDEN / f"{profile}.rules.yaml")], tests)))
    promtool("test", "rules", path)


@pytest.mark.parametrize("profile", READINGS)
def test_each_case_holds_with_the_names_of_1x(profile: str, tmp_path: Path) -> None:
    """As an exporter serves them with 1.x-compatibility-metrics.csv, scraped as the best-known recipe does."""
    tests = [promtool_test(case, profile, "bare") for case in CASES_OF_ALL if profile in case.get("only", READINGS)]
    for entry in (entry for test in tests for entry in test["input_series"]):
        entry["series"] = in_1x(entry["series"])
    path = tmp_path / f"{profile}_test.yml"
    path.write_text(json.dumps(promtool_file([str(GOLDEN / f"{profile}.rules.yaml")], tests)))
    promtool("test", "rules", path)


def promtool_test(case: dict[str, Any], profile: str, layout: str) -> dict[str, Any]:
    metric = METRICS[profile].latest
    rows = [entry for index, row in enumerate(case["rows"]) for entry in row_series(row, profile, layout, index)]
    after = {Pod.parse(name): value for name, value in case["expect"].items()}
    before = {Pod.parse(name): value for name, value in case.get("before", {}).items()}
    expected = [expects(metric, after)] + ([expects(metric, before, tick=3)] if before else [])
    return {"name": case["case"], "input_series": rows, "promql_expr_test": expected}


def row_series(row: dict[str, Any], profile: str, layout: str, index: int) -> Iterator[dict[str, str]]:
    """The fields of a row of cases.yml, one series each."""
    exporter = {
        "first": Exporter(layout),
        "restarted": Exporter(layout, name="dcgm-exporter-9f8d7"),
        "second": Exporter(LAYOUTS[(LAYOUTS.index(layout) + 1) % len(LAYOUTS)], name="nvidia-dcgm-exporter-qqqqq"),
    }[row.get("exporter", "first")]
    instance = "" if row.get("whole") else str(row.get("instance", "0" if profile == "mig" else ""))
    labels = {
        **Device(row["gpu"], instance).labels(),
        **exporter.labels(Pod.parse(row["pod"]) if "pod" in row else None, row.get("container", "main")),
        **({"vgpu": str(row["vgpu"])} if "vgpu" in row else {}),
        # Spelt differently by version, and no two rows agree in it.
        ("Hostname", "hostname")[index % 2]: f"node-{index}",
    }
    for field, value in READINGS[profile](row.get("busy", 0)).items():
        yield series(field, labels, timeline(row.get("raw", value), row.get("from", 0), row.get("until", LAST_TICK)))


def test_two_namespaces_give_one_name_to_different_queries(tmp_path: Path) -> None:
    """Each records its own pods, whatever its query would give for those of the other."""

    def own(namespace: str, query: str) -> Autoscaler:
        metric = {"name": "queue", "query": query}
        spec = {"namespace": namespace, "target": {"name": "chat"}, "metric": metric}
        return Autoscaler.from_params({**spec, "target_value": 1, "max_replicas": 2})

    wanted = [own("ml", "queue_length"), own("web", "10 * queue_length or queue_absent # of all")]
    files = []
    for rule in prometheus_rules(wanted, RuleOptions()):
        files.append(f"{rule['metadata']['name']}.yaml")
        (tmp_path / files[-1]).write_text(json.dumps(rule["spec"]))
    rows = [f'queue_length{{namespace="{name}", pod="chat-0"}}' for name in ("ml", "web", "other")]
    expected = [
        {"labels": f'namespace_pod:queue:avg{{namespace="{name}", pod="chat-0"}}', "value": value}
        for name, value in (("ml", 3), ("web", 30))
    ]
    test = {
        "interval": "2s",
        "input_series": [{"series": row, "values": "3x5"} for row in rows],
        "promql_expr_test": [{"expr": "namespace_pod:queue:avg", "eval_time": "10s", "exp_samples": expected}],
    }
    path = tmp_path / "queue_test.yml"
    path.write_text(json.dumps({"rule_files": files, "evaluation_interval": "2s", "tests": [test]}))
    promtool("test", "rules", path.name, folder=tmp_path)
