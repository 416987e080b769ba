# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Explains why pods are not ready: containers, the scheduler, rejected pods, and taints of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ..kube.objects import Manifest, condition
from ..kube.pods import phase


@dataclass(frozen=True)
class Awaited:
    """The pods that a role waited for.

    hop, seen, fix: hop of the error, what was seen instead, and the next step.
    nodes:          nodes that should run one pod each. tolerations: of these pods. option: variable that adds one.
    """

    namespace: str
    selector: str
    hop: str
    seen: str
    fix: str
    nodes: Sequence[Manifest] = ()
    tolerations: Sequence[Mapping[str, Any]] = ()
    option: str = ""


def report(awaited: Awaited, pods: Sequence[Manifest], rejected: Sequence[Manifest]) -> str:
    """Returns one error text.

    rejected: events with reason FailedCreate; empty if they may not be listed. They count only if no pod has a
    reason itself, because events of the last hour may be outdated.
    """
    rejected = [] if any(phase(pod) == "Pending" or _not_ready(pod) for pod in pods) else rejected
    sentences = [
        f"{awaited.hop}: {awaited.seen}.",
        *(_of_pod(pod) for pod in pods),
        *([] if pods else [f"No pod with label {awaited.selector} exists in namespace {awaited.namespace}."]),
        *_rejections(rejected),
        *_pod_security(awaited.namespace, rejected),
        *_taints(awaited),
        f"Next: {awaited.fix}",
    ]
    return " ".join(sentences)


def _not_ready(pod: Manifest) -> list[Mapping[str, Any]]:
    """Statuses of its containers. Until the init containers have finished, the others report only PodInitializing."""
    status = pod.get("status") or {}
    rows = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    return [row for row in rows if not row["ready"]]


def _of_pod(pod: Manifest) -> str:
    node = (pod.get("spec") or {}).get("nodeName") or "no node"
    parts = [f"Pod {pod['metadata']['name']} on {node} is {phase(pod)}", *map(_of_container, _not_ready(pod))]
    scheduled = condition(pod, "PodScheduled")
    if scheduled and scheduled.get("status") != "True" and scheduled.get("message"):
        parts.append(scheduled["message"].rstrip("."))
    return ", ".join(parts) + "."


def _of_container(status: Mapping[str, Any]) -> str:
    state: Mapping[str, Any] = next(iter((status.get("state") or {}).values()), {})
    message = state.get("message")
    return f"{status['name']}: {state.get('reason') or 'not ready'}" + (f" ({message})" if message else "")


def _rejections(events: Sequence[Manifest]) -> Iterator[str]:
    """The latest for each controller. A controller whose pods are rejected has no pod with a reason."""

    def controller(event: Manifest) -> str:
        return str(event["involvedObject"]["name"])

    for name, of_one in groupby(sorted(events, key=controller), key=controller):
        newest = max(of_one, key=lambda event: event["metadata"].get("creationTimestamp") or "")
        yield f"Pods of {newest['involvedObject']['kind']} {name} were rejected: {newest['message'].rstrip('.')}."


def _pod_security(namespace: str, events: Sequence[Manifest]) -> Iterator[str]:
    if any("violates PodSecurity" in event["message"] for event in events):
        yield (
            "The Pod Security level of the namespace is too strict for them:"
            f" `kubectl label --overwrite namespace {namespace} pod-security.kubernetes.io/enforce=privileged`"
            " (docs/kubernetes.md)."
        )


def _taints(awaited: Awaited) -> Iterator[str]:
    """User-defined taints that these pods do not tolerate. The kubelet's are temporary, or the node reports them."""
    tolerated = {toleration.get("key", "") for toleration in awaited.tolerations}
    if "" in tolerated:  # tolerates everything
        return
    for node in awaited.nodes:
        for taint in node["spec"].get("taints") or ():
            of_kubelet = taint["key"].startswith("node.kubernetes.io/")
            if taint["effect"] != "PreferNoSchedule" and taint["key"] not in tolerated and not of_kubelet:
                yield (
                    f"Node {node['metadata']['name']} has the taint {taint['key']}:{taint['effect']},"
                    f" which they do not tolerate: add it to the tolerations in {awaited.option}."
                )
