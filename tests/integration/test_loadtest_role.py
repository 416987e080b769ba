"""The role gpu_loadtest with its generator as a process, against the sample service with an HPA on its GPU.

The pod is an object, and its GPU a stand-in that sleeps, as busy as the service counts.
"""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from control_plane import ControlPlane, free_port
from job_kubelet import generators
from kubernetes import client
from metric_chain import MetricChain
from model_servers import sample_server
from playbook import run_playbook
from workloads import Workloads

Run = Any
TOKEN = "a-secret-token"


def busy_s(port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        [value] = re.findall(rb"^sample_gpu_busy_seconds_total (\S+)$", answer.read(), re.MULTILINE)
    return float(value)


@pytest.fixture
def sample(
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], chain: MetricChain, workloads: Workloads
) -> Iterator[int]:
    """Port of a ready pod of the Deployment `chat`, whose GPU utilisation the exporter has."""
    port, core, stopped = free_port(), client.CoreV1Api(plane[1]), threading.Event()
    workloads.deployment("chat")
    client.AppsV1Api(plane[1]).patch_namespaced_deployment_status(
        "chat", workloads.namespace, {"status": {"replicas": 1, "readyReplicas": 1}}
    )
    container = {"name": "main", "image": "service", "ports": [{"containerPort": port}]}
    pod = {"metadata": {"name": "chat-0", "labels": {"app": "chat"}}, "spec": {"containers": [container]}}
    core.create_namespaced_pod(workloads.namespace, pod)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    address = {"podIP": plane[0].address, "podIPs": [{"ip": plane[0].address}]}
    status = {"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "conditions": [ready], **address}}
    core.patch_namespaced_pod_status("chat-0", workloads.namespace, status)

    def follow() -> None:
        then, had = time.monotonic(), busy_s(port)
        while not stopped.wait(1):
            now, has = time.monotonic(), busy_s(port)
            chain.exporter.gpus(workloads.namespace, {"chat-0": round(min(100, 100 * (has - had) / (now - then)))})
            then, had = now, has

    with sample_server(tmp_path, port):
        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        yield port
        stopped.set()
        thread.join()


@pytest.fixture
def scaled(run: Run, workloads: Workloads, sample: int) -> int:
    """The same with an autoscaler that has its value."""
    wanted = {
        "name": "chat",
        "namespace": workloads.namespace,
        "target": {"name": "chat"},
        "metric": "gpu",
        "target_value": 95,
        "max_replicas": 1,
    }
    run("gpu_autoscaler", autoscalers=[wanted])
    return sample


def loadtest(folder: Path, plane: ControlPlane, namespace: str, **options: Any) -> tuple[str, Path]:
    given = {"namespace": namespace, "name": "chat", "url": "http://chat/work?ms=20", "budget": 4, **options}
    report = folder / "report"
    variables = {f"gpu_loadtest_{name}": value for name, value in given.items()}
    variables |= {"kubegpu_kubeconfig": str(plane.kubeconfig), "gpu_loadtest_report_dir": str(report)}
    return run_playbook(folder, "kubegpu.autoscale.loadtest", variables).stdout, report


def test_a_target_is_found_from_a_goal(
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], workloads: Workloads, scaled: int
) -> None:
    """One request takes 60 ms: two users wait 120, four wait 240. One user alone does not keep the GPU busy."""
    options = {
        "find_target": True,
        "goals": {"p95_ms": 200},
        "level": 4,
        "url": "http://chat/work?ms=60",
        "headers": {"Authorization": TOKEN},
    }
    with generators(*plane, workloads.namespace, tmp_path / "pods"):
        told, report = loadtest(tmp_path, plane[0], workloads.namespace, **options)
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
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], workloads: Workloads, scaled: int
) -> None:
    """More than one pod can serve, and its metric ends below the target: the HPA cannot see it."""
    times = {"low": 5, "high": 90, "settle": 4, "hold": 12, "fall": 4}
    url = f"http://{plane[0].address}:{scaled}/work?ms=20"
    with generators(*plane, workloads.namespace, tmp_path / "pods"):
        told, report = loadtest(tmp_path, plane[0], workloads.namespace, url=url, goals={"p95_ms": 100}, **times)
    run = json.loads((report / "loadtest.json").read_text())
    before, load, after, settled = run["requests"]["parts"]
    assert (before["served"], after["served"] + after["rejected"]) == (20, 20)
    assert load["served"] + load["rejected"] == 12 * 90
    assert settled["served"] + settled["rejected"] == 6 * 90
    assert load["rejected"] > 200
    assert "95th percentile of the latency under load" in told
    assert "the HPA did not scale up under load" in told
    assert "What users got" in (report / "loadtest.html").read_text()
