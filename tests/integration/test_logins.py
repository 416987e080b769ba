"""What the doctor makes of a cluster that works, by what its user may read: verdict, exit code, and the last words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from control_plane import ControlPlane, eventually
from guests import HEARD_S, LOOK, LOOKER, allowed
from kubernetes import client
from metric_chain import MONITORING, PROOF_S, MetricChain
from module_process import run_module
from playbook import run_playbook
from test_missing_rights import without
from workloads import Workloads

ONE_RIGHT = [rule for rule in LOOK["rules"] if rule["resources"] == ["horizontalpodautoscalers"]]


@dataclass(frozen=True)
class Case:
    """A user, and the doctor's report for that user.

    rules: of the ClusterRole that the user has; None for no role. user: as the kubeconfig has it; None for the looker.
    verdict: None where there is no report. unchecked: hops of the report that are not known.
    words: of what is printed.
    """

    rules: list[dict[str, Any]] | None
    verdict: str | None
    exit_code: int
    words: str
    user: dict[str, Any] | None = None
    unchecked: set[str] = field(default_factory=set)


HOPS = {
    *("node", "device_plugin", "node_labels", "exporter", "scrape", "labels", "rule", "metrics_api", "metric", "hpa"),
    "workload",
}
EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
CASES = {
    "all rights": Case(LOOK["rules"], "ok", 0, "The chain works"),
    "one right less": Case(
        without("prometheuses"),
        "partial",
        0,
        "No errors found, but some hops were not checked: Prometheus scrapes the exporter, Recording rules",
        unchecked={"scrape", "rule"},
    ),
    "one right": Case(ONE_RIGHT, "partial", 0, "RIGHTS_MISSING", unchecked=HOPS),
    "no right": Case(None, "unknown", 2, "No part of the chain could be checked: user looker", unchecked=HOPS),
    "no login": Case(None, None, 2, "the API server treats it as system:anonymous", user={}),
    "a wrong token": Case(None, None, 2, "log in again", user={"token": "wrong"}),
    "a plugin that is not installed": Case(
        None,
        None,
        2,
        "logs in with `no-such-aws`, which is not in the PATH",
        user={"exec": {**EXEC, "command": "no-such-aws"}},
    ),
    "a plugin that fails": Case(
        None,
        None,
        2,
        "logs in with `false`, which returned no credentials",
        user={"exec": {**EXEC, "command": "false"}},
    ),
}


@pytest.fixture
def proven(run: Callable[..., dict[str, Any]], chain: MetricChain, workloads: Workloads) -> str:
    """The namespace of an autoscaler that works."""
    workloads.deployment("chat")
    workloads.node("gpu1", gpus=4)
    workloads.ready_pod("chat-0", app="chat")
    chain.exporter.gpus(workloads.namespace, {"chat-0": 50})
    spec = {"namespace": workloads.namespace, "target": {"name": "chat"}, "max_replicas": 4}
    assert not run(verify=True, wait_timeout=PROOF_S, autoscalers=[spec]).get("failed")
    return workloads.namespace


@contextmanager
def kubeconfig(plane: ControlPlane, kube: client.ApiClient, case: Case) -> Iterator[Path]:
    path = plane.kubeconfig_of(LOOKER)
    if case.user is not None:
        settings = json.loads(path.read_text())
        settings["users"] = [{"name": "admin", "user": case.user}]
        path.write_text(json.dumps(settings))
    if case.rules is None:
        yield path
        return
    with allowed(kube, LOOKER, {**LOOK, "rules": case.rules}):
        yield path


READERS = [name for name, case in CASES.items() if case.rules]


@pytest.mark.parametrize("name", READERS)
def test_what_a_user_may_read_decides_the_verdict(
    name: str, plane: tuple[ControlPlane, client.ApiClient], proven: str, tmp_path: Path
) -> None:
    examine(CASES[name], plane, proven, tmp_path)


@pytest.mark.parametrize("name", [name for name in CASES if name not in READERS])
def test_who_may_read_nothing_is_told_so(
    name: str, plane: tuple[ControlPlane, client.ApiClient], tmp_path: Path
) -> None:
    """Whatever is in the cluster."""
    examine(CASES[name], plane, "default", tmp_path)


def examine(case: Case, plane: tuple[ControlPlane, client.ApiClient], namespace: str, tmp_path: Path) -> None:
    """Run the playbook as that user."""
    with kubeconfig(*plane, case) as path:
        if case.rules:  # the authorizer hears of a role that names resources a moment later
            options = {"kubeconfig": str(path), "namespace": namespace, "grace": False}

            def is_heard() -> bool:
                return bool(run_module("gpu_doctor", options)["result"]["verdict"] == case.verdict)

            eventually(is_heard, f"the verdict is {case.verdict}", HEARD_S)
        folder = tmp_path / "report"
        done = run_playbook(
            tmp_path,
            "kubegpu.autoscale.doctor",
            {
                "kubegpu_kubeconfig": str(path),
                "gpu_doctor_namespace": namespace,
                "gpu_doctor_grace": False,
                "gpu_doctor_prometheus": {"namespace": MONITORING},
                "gpu_doctor_report_dir": str(folder),
            },
        )
    said = " ".join(done.stdout.split())
    report = json.loads((folder / "report.json").read_text()) if folder.exists() else None
    assert (done.returncode, report and report["verdict"]) == (case.exit_code, case.verdict)
    assert case.words in said
    assert "HTTPHeaderDict" not in said
    if report:
        assert set(report["unchecked_hops"]) == case.unchecked
        assert [finding["id"] for finding in report["findings"]] == ["RIGHTS_MISSING"] * bool(case.unchecked)


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ({}, "the client sends no credentials, so the API server treats it as system:anonymous"),
        (
            None,
            "user looker has no permission to get deployments of apiGroup 'apps' in namespace default",
        ),
    ],
    ids=["no login", "no right"],
)
def test_an_autoscaler_of_who_may_not_make_one_ends_in_one_sentence(
    user: dict[str, Any] | None, words: str, plane: tuple[ControlPlane, client.ApiClient], tmp_path: Path
) -> None:
    with kubeconfig(*plane, Case(None, None, 2, words, user=user)) as path:
        row = {"namespace": "default", "target": {"name": "chat"}, "max_replicas": 4}
        options = {"kubegpu_kubeconfig": str(path), "gpu_autoscaling_autoscalers": [row]}
        done = run_playbook(tmp_path, "kubegpu.autoscale.autoscaling", options)
    said = " ".join(done.stdout.split())
    assert done.returncode == 2
    assert words in said
    assert "HTTPHeaderDict" not in said
    assert user is not None or "docs/rights.yml has all required permissions" in said


@pytest.mark.parametrize(
    ("proof", "words"),
    [
        (True, "nothing was proven. GPUs and chain: NOT PROVEN, no node offers a GPU"),
        (False, "nothing was proven. GPUs and chain: skipped by kubegpu_proof: false or by tags"),
    ],
)
def test_a_proof_of_nothing_is_no_success(
    proof: bool, words: str, plane: tuple[ControlPlane, client.ApiClient], tmp_path: Path
) -> None:
    options = {"kubegpu_kubeconfig": str(plane[0].kubeconfig), "kubegpu_proof": proof}
    done = run_playbook(tmp_path, "kubegpu.autoscale.verify", options)
    assert done.returncode == 2
    assert words in " ".join(done.stdout.split())
