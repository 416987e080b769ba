"""The role gpu_loadtest with its generator as a process, against sample services with an HPA on their GPUs.

Each replica is a process, its pod an object, and its GPU a stand-in that sleeps, as busy as the service counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.stage_results import SENT
from control_plane import ControlPlane, eventually
from job_kubelet import generators, loadtest
from kubernetes import client
from metric_chain import MetricChain
from served_fleet import Fleet
from workloads import Workloads

Run = Any
TOKEN = "a-secret-token"


@pytest.fixture
def fleet(
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], chain: MetricChain, workloads: Workloads
) -> Iterator[Fleet]:
    """Of the Deployment `chat`, with one replica."""
    workloads.deployment("chat")
    with Fleet(*plane, chain.exporter, workloads.namespace, tmp_path / "fleet") as fleet:
        eventually(fleet.ports, "a replica serves", 30)
        yield fleet


def scale(run: Run, workloads: Workloads, **options: Any) -> None:
    """Give it an autoscaler that has its value."""
    wanted = {"name": "chat", "namespace": workloads.namespace, "target": {"name": "chat"}, "metric": "gpu", **options}
    assert not run("gpu_autoscaler", autoscalers=[wanted]).get("failed")


def test_a_target_is_found_from_a_goal(
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], run: Run, workloads: Workloads, fleet: Fleet
) -> None:
    """One request takes 60 ms: two users wait 120, four wait 240. One user alone does not keep the GPU busy."""
    scale(run, workloads, target_value=95, max_replicas=1)
    options = {
        "find_target": True,
        "budget": 4,
        "goals": {"p95_ms": 200},
        "level": 4,
        "url": "http://chat/work?ms=60",
        "headers": {"Authorization": TOKEN},
    }
    with generators(*plane, workloads.namespace, tmp_path / "pods") as kubelet:
        told, report = loadtest(tmp_path, plane[0], workloads.namespace, **options)
    assert kubelet.orphans == []
    found = json.loads((report / "target.json").read_text())
    [row] = found["metrics"]
    users = [level["users"] for level in found["levels"]]
    assert users[:3] == [1, 2, 4]
    assert row["users"] in (1, 2, 3)
    assert 50 <= row["value"] <= 91
    assert row["top"] > 80
    # The GPU is used up by two users, so a target of 95 and the tolerance are never reached.
    assert any("the present target of 95 cannot be reached" in note for note in row["notes"])
    assert found["confirmation"]["level"]["users"] == row["users"]
    metrics = [level["metrics"]["gpu"] for level in found["levels"]]
    assert min(metrics) > 20
    assert f"target_value: {row['value']:g} # of gpu" in told
    assert "<svg" in (report / "target.html").read_text()
    assert TOKEN not in told + (report / "target.json").read_text() + (report / "target.html").read_text()
    assert client.BatchV1Api(plane[1]).list_namespaced_job(workloads.namespace).items == []


def test_a_load_is_sent_and_judged(
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], run: Run, workloads: Workloads, fleet: Fleet
) -> None:
    """1.5 GPUs of requests at a target of 60 %: three replicas, and latency falls once they serve."""
    down = {"stabilization_window_seconds": 5, "policies": [{"type": "Pods", "value": 4, "period_seconds": 15}]}
    scale(run, workloads, target_value=60, max_replicas=4, dead_time_seconds=5, scale_down=down)
    url = f"http://{plane[0].address}:{fleet.port}/work?ms=50"
    times = {"low": 2, "high": 30, "settle": 10, "hold": 60, "fall": 60, "budget": 15}
    with generators(*plane, workloads.namespace, tmp_path / "pods"):
        told, report = loadtest(
            tmp_path, plane[0], workloads.namespace, url=url, goals={"p95_ms": 400, "rejected_percent": 90}, **times
        )
    seen = json.loads((report / "loadtest.json").read_text())
    before, load, after, settled = seen["requests"]["parts"]
    sent = [sum(part[outcome] for outcome in SENT) for part in (before, load, after, settled)]
    assert sent == [20, 60 * 30, 60 * 2, 30 * 30]
    assert load["served"] > 300
    assert max(sample["desired"] for sample in seen["samples"]) >= 2
    # The queue of one pod is full for a while; three pods have room.
    assert settled["latency_ms"]["p50"] <= load["latency_ms"]["p95"]
    assert "p95_ms, second half of the load" in told
    assert "What users got" in (report / "loadtest.html").read_text()
