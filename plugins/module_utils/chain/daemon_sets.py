# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Finds why a DaemonSet has no pod on a node, or one that does not run: the same for device plugin and exporter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..diagnosis.check import CheckResult, Evidence, FindingType
from ..kube.capacity import may_run_on
from ..kube.objects import Manifest, has_crashed, is_ready, mentions_nvml, name_of, pod_spec, statuses, trouble
from .state.cluster import State
from .state.nodes import offers_gpus

# Why there is no pod, by the messages of the DaemonSet's controller.
NOT_CREATED = (
    Evidence(
        r"cannot create the pod: .*PodSecurity",
        "the namespace's Pod Security level forbids the DaemonSet's pods",
        "label the namespace pod-security.kubernetes.io/enforce=privileged",
    ),
    Evidence(
        r"cannot create the pod: .*(quota|LimitRange)",
        "a ResourceQuota or a LimitRange of the namespace leaves no room for the DaemonSet's pods",
        "raise it: kubectl describe resourcequota,limitrange in that namespace",
    ),
    Evidence(
        r"cannot create the pod",
        "the DaemonSet's controller cannot create its pods",
        "follow the message: a webhook, a RuntimeClass, PriorityClass or ServiceAccount that is missing, for instance",
    ),
)
RESTARTS = 3
# The DaemonSet controller adds tolerations for these taints itself.
_OWN_TAINTS = ("node.kubernetes.io/",)


def obstacle(state: State, daemon_sets: Sequence[Manifest], node: Manifest) -> tuple[str, str]:
    """Labels that a node lacks for the first DaemonSet, empty if it has them; and what prevents its pods."""
    pod = pod_spec(daemon_sets[0])
    if not may_run_on(pod, {**node, "spec": {}}):
        if labels := _wanted_labels(pod):
            return labels, f"the node lacks a label that the DaemonSet selects nodes by ({labels})"
        return "", "the DaemonSet's node affinity excludes the node"
    taints = [
        taint for taint in (node.get("spec") or {}).get("taints") or () if not taint["key"].startswith(_OWN_TAINTS)
    ]
    if taints and not may_run_on(pod, {**node, "spec": {"taints": taints}}):
        texts = [
            f"{taint['key']}{'=' + taint['value'] if taint.get('value') else ''}:{taint['effect']}" for taint in taints
        ]
        return "", f"the DaemonSet does not tolerate the taint {', '.join(texts)}"
    events = [
        str(event.get("message"))
        for event in state.warnings.about(daemon_sets[0])
        if (event["involvedObject"].get("kind"), event.get("reason")) == ("DaemonSet", "FailedCreate")
    ]
    if events:
        return "", f"its controller cannot create the pod: {events[-1]}"
    return "", "the DaemonSet's controller has created no pod there"


def _wanted_labels(pod: Manifest) -> str:
    """Labels to add to a node; a label that it must not have is not one."""
    selected = [f"{key}={value}" for key, value in (pod.get("nodeSelector") or {}).items()]
    affinity = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = [
        ", ".join(
            f"{expression['key']}={(expression.get('values') or ['...'])[0]}"
            for expression in term.get("matchExpressions") or ()
            if expression["operator"] in ("In", "Exists")
        )
        for term in (affinity or {}).get("nodeSelectorTerms") or ()
    ]
    return ", ".join(selected) or " or ".join(filter(None, terms))


def nodes_without_exporter(state: State) -> Iterator[tuple[str, Manifest, str, str]]:
    """Nodes that offer GPUs and have no exporter: name, node, missing labels, reason.

    A node without the labels loses the pod, if that is not yet deleted.
    """
    pods = state.agents.by_node(state.agents.exporters)
    for name, node in state.gpu_nodes.items():
        if state.agents.exporters and name not in state.bare_nodes:
            obstacles = [obstacle(state, [daemon_set], node) for daemon_set in state.agents.exporters]
            labels, why = min(obstacles, key=lambda found: bool(found[0]))
            if labels or name not in pods:
                yield name, node, labels, why


def missing_on(daemon_sets: Sequence[Manifest], why: str) -> str:
    return f"no pod of {' or '.join(map(name_of, daemon_sets))} runs there: {why}"


def failing_pods(
    state: State, pods: Sequence[Manifest], no_nvml: FindingType, not_ready: FindingType
) -> Iterator[CheckResult]:
    """Pods on GPU nodes that are not ready: without NVML, or failing for another reason."""
    # A device plugin that offers GPUs has the driver, with any runtime.
    offering = {name for name, node in state.gpu_nodes.items() if offers_gpus(node)}
    plugins = [pod for pod in state.agents.pods_of(state.agents.plugins) if pod["spec"].get("nodeName") in offering]
    for pod in pods:
        node = pod["spec"].get("nodeName", "")
        if node not in state.gpu_nodes or is_ready(pod) or pod["metadata"].get("deletionTimestamp"):
            continue
        text = trouble(pod)
        is_blind = mentions_nvml(text)
        if not is_blind and _lacks_runtime(pod, [*pods, *plugins]):
            is_blind, text = True, f"{text}; its pod names no RuntimeClass"
        # A pod in a crash loop is ready at times, so its own age counts.
        is_looping = max((status.get("restartCount", 0) for status in statuses(pod)), default=0) >= RESTARTS
        yield CheckResult(
            no_nvml if is_blind else not_ready,
            f"pod {name_of(pod)} on node {node}",
            text or f"phase {(pod.get('status') or {}).get('phase')}, not ready",
            state.affected_by_nodes([node]),
            state.clock.age_s(pod) if is_looping else state.clock.condition_age_s(pod, "Ready"),
            template_vars=place_of(pod),
        )


def _lacks_runtime(pod: Manifest, others: Sequence[Manifest]) -> bool:
    """Whether it crashes without a RuntimeClass, and no other pod runs without one."""
    return (
        not pod["spec"].get("runtimeClassName")
        and has_crashed(pod)
        and not any(is_ready(other) and not other["spec"].get("runtimeClassName") for other in others)
    )


def place_of(manifest: Manifest) -> dict[str, str]:
    """Namespace and name, for the texts of a finding."""
    return {"namespace": manifest["metadata"]["namespace"], "name": manifest["metadata"]["name"]}
