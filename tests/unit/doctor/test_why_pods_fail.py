"""Why the pods of a workload do not run, as the kubelet and the container runtime write it. None of these exits alone.

Sentences of Kubernetes 1.36: pkg/kubelet/images, kuberuntime, container, prober and eviction; of containerd 2: the
errors of pull, create and start.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.checks.registry import CHECKS, FINDING_TYPES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.checks.workload_pods import _FAILURES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.diagnosis.check import CheckResult
from ansible_collections.kubegpu.autoscale.plugins.module_utils.diagnosis.findings import results_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.doctor_texts import failure, headline
from clusters import Cluster, at, crash, ids, turned
from test_doctor_checks import FAULTS

BY_ITSELF = "a container exits by itself"
# By part of the cause: what is written while it applies, often with a crash loop around it.
SENTENCES = {
    "its livenessProbe fails": (
        "CrashLoopBackOff: back-off 5m0s restarting failed container=main: Error; Unhealthy: Liveness probe failed: "
        'Get "http://10.0.0.7:8001/health": dial tcp 10.0.0.7:8001: connect: connection refused',
        "CrashLoopBackOff: Completed; Unhealthy: Liveness probe failed: HTTP probe failed with statuscode: 404",
    ),
    "its startupProbe fails": (
        "CrashLoopBackOff: Error; Unhealthy: Startup probe failed: HTTP probe failed with statuscode: 503",
    ),
    "cannot be started": (
        'RunContainerError: failed to create containerd task: OCI runtime create failed: exec: "servr": executable '
        "file not found in $PATH",
        'CrashLoopBackOff: StartError: failed to start: exec: "/run.sh": permission denied',
        'CreateContainerError: exec: "/app/run": stat /app/run: no such file or directory',
    ),
    "another processor architecture": (
        "CrashLoopBackOff: Error: exec /usr/bin/python3: exec format error",
        "ErrImagePull: no match for platform in manifest: not found",
    ),
    "must not run as root": (
        "CreateContainerConfigError: container has runAsNonRoot and image will run as root",
        "CreateContainerConfigError: container has runAsNonRoot and image has non-numeric user (app), cannot verify "
        "user is non-root",
    ),
    "a ConfigMap or Secret": (
        'CreateContainerConfigError: configmap "settings" not found',
        "CreateContainerConfigError: couldn't find key token in Secret ml/login",
    ),
    "rejects the login": (
        "ImagePullBackOff: failed to authorize: failed to fetch anonymous token: 401 Unauthorized",
        "ErrImagePull: pull access denied, repository does not exist or may require authorization",
    ),
    "limits the pulls": (
        "ErrImagePull: 429 Too Many Requests: toomanyrequests: You have reached your pull rate limit",
    ),
    "does not have the image": (
        'ErrImageNeverPull: Container image "service:1" is not present with pull policy of Never',
    ),
    "disk of the node is full": (
        "ErrImagePull: failed to extract layer: write /var/lib/containerd/x: no space left on device",
        "Evicted: Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ephemeral-storage",
    ),
    "postStart hook": ("CrashLoopBackOff; FailedPostStartHook: PostStartHook failed",),
    "has ended the pods": (
        "Evicted: The node was low on resource: memory.",
        "DeadlineExceeded: Pod was active too long",
    ),
    "more memory": ("CrashLoopBackOff: OOMKilled; Unhealthy: Liveness probe failed: timeout",),
    "cannot give the container its GPU": (
        "RunContainerError: nvidia-container-cli: initialization error: nvml error: driver not loaded",
    ),
    "does not answer the kubelet": (
        "CreateContainerError: context deadline exceeded",
        'CreateContainerError: failed to reserve container name "main_chat-0_ml": name "main_chat-0_ml" is reserved for'
        ' "5d4f"',
    ),
    "a volume of the pods": (
        'RunContainerError: error mounting "/var/lib/kubelet/pods/1/volume-subpaths/conf" to rootfs: not a directory: '
        "Are you trying to mount a directory onto a file",
        'CreateContainerConfigError: failed to prepare subPath for volumeMount "conf" of container "main"',
    ),
    "cannot create or start the container": ("CreateContainerError: failed to create containerd task: cgroup",),
    BY_ITSELF: ("CrashLoopBackOff: back-off 5m0s restarting failed container=main: Error",),
}
ROWS = [(cause, seen) for cause, texts in SENTENCES.items() for seen in texts]
VARIABLES = dict.fromkeys(("namespace", "pod", "target"), "x")


def judged(finding: str, seen: str) -> CheckResult:
    return CheckResult(FINDING_TYPES[finding], "thing", seen, template_vars=VARIABLES)


@pytest.mark.parametrize("finding", ["WORKLOAD_NOT_READY", "WORKLOAD_PODS_FAIL"])
@pytest.mark.parametrize(("cause", "seen"), ROWS)
def test_the_cause_is_what_the_kubelet_says(finding: str, cause: str, seen: str) -> None:
    assert cause in judged(finding, f"0 of 2 pods are ready: ml/chat-0: {seen}").cause


@pytest.mark.parametrize("finding", ["WORKLOAD_NOT_READY", "WORKLOAD_PODS_FAIL"])
@pytest.mark.parametrize("reason", _FAILURES)
def test_each_reason_for_which_a_container_does_not_start_has_a_cause(finding: str, reason: str) -> None:
    assert judged(finding, reason).cause != FINDING_TYPES[finding].cause


def crashing(cluster: Cluster, message: str, probe_s: float | None, age_s: float = 400) -> None:
    """All pods are restarted by the kubelet; the last warning is of the back-off."""
    cluster.events = []
    for name in ("chat-0", "chat-1"):
        its = cluster.pods[name]
        crash(its, message)
        its["metadata"]["creationTimestamp"] = at(age_s)
        its["status"]["conditions"][0]["lastTransitionTime"] = at(age_s)
        its["status"]["containerStatuses"][0]["lastState"]["terminated"]["startedAt"] = at(80)
        about = {"involvedObject": {"kind": "Pod", "namespace": "ml", "name": name}, "type": "Warning"}
        told: list[dict[str, Any]] = [
            {"reason": "BackOff", "message": "Back-off restarting failed container main", "lastTimestamp": at(5)}
        ]
        if probe_s is not None:
            refused = "Liveness probe failed: dial tcp 10.0.0.7:8001: connect: connection refused"
            told.insert(0, {"reason": "Unhealthy", "message": refused, "lastTimestamp": at(probe_s)})
        cluster.events += [{**about, **event} for event in told]


@pytest.mark.parametrize(
    ("probe_s", "cause"),
    [(40, "its livenessProbe fails"), (300, BY_ITSELF), (None, BY_ITSELF)],
    ids=["in the last run", "in an earlier run", "never"],
)
def test_a_crash_loop_is_no_start_and_names_the_probe_that_ends_it(probe_s: float | None, cause: str) -> None:
    """Within the ten minutes that a model may take to load."""
    cluster = Cluster()
    crashing(cluster, "", probe_s)
    report = cluster.report()
    [finding] = [finding for finding in report["findings"] if finding["id"] == "WORKLOAD_NOT_READY"]
    assert cause in finding["cause"]
    assert report["verdict"] == "broken"


def test_the_first_line_counts_the_proven_and_names_one_that_is_not() -> None:
    """A young HPA has its grace, so it is no finding yet; the chain is not said to work either."""
    cluster = Cluster()
    assert headline(cluster.report()) == "The chain works"
    message = "unable to fetch metrics from resource metrics API: the server could not find the requested resource"
    cluster.hpa["status"]["conditions"][1] = turned(
        "ScalingActive", "False", 20, reason="FailedGetResourceMetric", message=message
    )
    report = cluster.report()
    assert ids(report) == []
    assert report["autoscalers"][0]["verified"] is False
    assert headline(report).startswith("0 of 1 autoscaler proven: ml/chat: metrics.k8s.io has no CPU or memory")


def test_a_cluster_with_nothing_of_the_chain_gets_three_sentences_and_one_command() -> None:
    cluster = Cluster(nodes=[], daemon_sets=[], service_monitors=[], prometheuses=[], rule_objects=[])
    cluster.pods = {}
    cluster.prometheus = {"error": 'services "kube-prometheus-stack-prometheus" not found', "rules": None, "rows": []}
    said = failure(cluster.report())
    assert said.startswith(
        "This cluster has no node with GPUs. It runs no dcgm-exporter. It has no Prometheus: Prometheus "
    )
    assert said.count("(fix: run the prometheus_stack role") == 1


WORKLOAD = [name for name in FAULTS if (found := FINDING_TYPES[name.split()[0]]).hop == "workload" and found.evidence]
WORDS = sorted(
    {
        word.lower()
        for finding_type in FINDING_TYPES.values()
        if finding_type.hop == "workload"
        for evidence in finding_type.evidence
        for word in re.findall(r"[A-Za-z]{4,}", evidence.pattern)
    }
)


def renamed(part: Any, word: str) -> Any:
    """The same objects of a workload and container that are named by the word, also where Kubernetes names them."""
    if isinstance(part, dict):
        return {key: renamed(value, word) for key, value in part.items()}
    if isinstance(part, list):
        return [renamed(value, word) for value in part]
    return re.sub(r"\bchat\b", f"{word}-sim", part) if isinstance(part, str) else part


def causes(name: str, word: str = "", log: str = "") -> set[str]:
    """Causes of a fault in its workload. log: what its program writes last."""
    cluster = Cluster()
    FAULTS[name](cluster)
    for pod in cluster.pods.values():
        for status in pod["status"].get("containerStatuses", ()):
            ended = (status.get("lastState") or {}).get("terminated") or {}
            if log and ended.get("reason") in ("Error", "Completed"):
                ended["message"] = log
    state = cluster.state()
    if word:
        [autoscaler] = state.autoscalers
        changed = {
            field: renamed(getattr(autoscaler, field), word) for field in ("hpa", "target", "pods", "rejected_pods")
        }
        told = {field: renamed(getattr(state, field), word) for field in ("events", "controller_events")}
        state = replace(state, autoscalers=[replace(autoscaler, **changed)], **told)
    checks = [check for check in CHECKS if check.hop == "workload"]
    return {re.sub(r"\S*-sim\S*|chat\S*", "", result.cause) for result in results_of(checks, state)}


@pytest.mark.parametrize("name", WORKLOAD)
def test_no_name_and_no_log_of_a_user_changes_the_cause(name: str) -> None:
    expected = causes(name)
    assert {word: found for word in WORDS if (found := causes(name, word)) != expected} == {}
    assert {word: found for word in WORDS if (found := causes(name, log=f"NCCL {word} error")) != expected} == {}
