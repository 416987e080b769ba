# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Computes how many pods fit on the nodes by their GPUs, with the scheduler's filters on empty nodes.

A quota of the namespace may allow fewer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from .quantity import exact_quantity, parse_quantity

NVIDIA = "nvidia.com/"
# Network cards: resource names of NVIDIA's network operator and of SR-IOV plugins in the same domain.
_NETWORK = re.compile(r"hostdev|mlnx|rdma|sriov")

PodSpec = Mapping[str, Any]
Node = Mapping[str, Any]


def is_gpu(resource: str) -> bool:
    """Whether the resource is a whole GPU, a share of one, or a MIG instance, with any name."""
    return resource.startswith(NVIDIA) and not _NETWORK.search(resource)


def gpus_per_pod(pod: PodSpec) -> dict[str, int]:
    """The most that a pod holds at a time, by resource: whole GPUs, shared ones and MIG instances.

    As the scheduler computes it: sidecars run from their start on, and other init containers before the containers.
    """
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for container in pod.get("initContainers") or ():
        started = running + _limits(container)
        most |= started
        if container.get("restartPolicy") == "Always":
            running = started
    return dict(most | sum(map(_limits, pod.get("containers") or ()), running))


def _limits(container: Mapping[str, Any]) -> Counter[str]:
    limits = (container.get("resources") or {}).get("limits") or {}
    return Counter({name: int(parse_quantity(str(amount))) for name, amount in limits.items() if is_gpu(name)})


def gpus_of(nodes: Iterable[Node]) -> dict[str, int]:
    """Allocatable GPUs of all nodes, by resource."""
    total: Counter[str] = Counter()
    for node in nodes:
        for resource, amount in ((node.get("status") or {}).get("allocatable") or {}).items():
            if is_gpu(resource):
                total[resource] += int(parse_quantity(str(amount)))
    return dict(total)


def replicas_that_fit(
    pod: PodSpec,
    nodes: Iterable[Node],
    by_claims: Mapping[str, int] | None = None,
) -> int:
    """Pods that fit on the nodes' GPUs if nothing else runs there; 0 if the pod requests no GPU.

    A node counts if the pod may run there: not cordoned, taints tolerated, nodeSelector and node affinity satisfied.
    by_claims: pods that the devices of a node suffice for, where it offers none of the pod's limits.
    """
    limits, by_claims = gpus_per_pod(pod), by_claims or {}
    return sum(
        _fit_on(node, limits, by_claims.get(node["metadata"]["name"], 0)) for node in nodes if may_run_on(pod, node)
    )


def pods_within(pod: PodSpec, hard: Mapping[str, Any]) -> tuple[int, str] | None:
    """Pods that a ResourceQuota allows if nothing else counts in it, and the resource that limits them.

    None if it limits nothing that the pod requests. Init containers do not count.
    """
    rooms = [
        (int(exact_quantity(str(limit)) // wanted), resource)
        for resource, limit in hard.items()
        if (wanted := _counted(pod, resource)) > 0
    ]
    return min(rooms, default=None)


def _counted(pod: PodSpec, resource: str) -> Decimal:
    """What one pod uses of a resource, by names of quotas. A missing request equals the limit."""
    if resource in ("pods", "count/pods"):
        return Decimal(1)
    kind, _dot, name = resource.partition(".")
    if kind not in ("requests", "limits"):
        if resource not in ("cpu", "memory"):
            return Decimal(0)
        kind, name = "requests", resource
    total = Decimal(0)
    for container in pod.get("containers") or ():
        resources = container.get("resources") or {}
        amounts = [(resources.get(part) or {}).get(name) for part in dict.fromkeys((kind, "limits"))]
        total += next((exact_quantity(str(amount)) for amount in amounts if amount is not None), Decimal(0))
    return total


def may_run_on(pod: PodSpec, node: Node) -> bool:
    spec, labels = node.get("spec") or {}, node["metadata"].get("labels") or {}
    if spec.get("unschedulable"):
        return False
    tolerations = pod.get("tolerations") or ()
    if any(not tolerates(taint, tolerations) for taint in spec.get("taints") or ()):
        return False
    if any(labels.get(key) != value for key, value in (pod.get("nodeSelector") or {}).items()):
        return False
    affinity = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = (affinity or {}).get("nodeSelectorTerms")
    return terms is None or any(_term_holds(term, node) for term in terms)


def _fit_on(node: Node, limits: Mapping[str, int], by_claims: int) -> int:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    offered = {resource: int(parse_quantity(str(allocatable.get(resource, "0")))) for resource in limits}
    if not any(offered.values()):
        return by_claims
    return min(offered[resource] // number for resource, number in limits.items())


def tolerates(taint: Mapping[str, Any], tolerations: Sequence[Mapping[str, Any]]) -> bool:
    if taint["effect"] == "PreferNoSchedule":
        return True
    return any(
        toleration.get("effect") in (None, "", taint["effect"])
        and (
            (toleration.get("operator") == "Exists" and toleration.get("key") in (None, "", taint["key"]))
            or (toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""))
        )
        for toleration in tolerations
    )


def _term_holds(term: Mapping[str, Any], node: Node) -> bool:
    """All expressions of a term; a term without any matches no node."""
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    expressions = [
        *((expression, labels) for expression in term.get("matchExpressions") or ()),
        *((expression, fields) for expression in term.get("matchFields") or ()),
    ]
    return bool(expressions) and all(
        _OPERATORS[expression["operator"]](values.get(expression["key"]), expression.get("values") or [])
        for expression, values in expressions
    )


_OPERATORS: dict[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _values: value is not None,
    "DoesNotExist": lambda value, _values: value is None,
    "Gt": lambda value, values: _difference(value, values) > 0,
    "Lt": lambda value, values: _difference(value, values) < 0,
}


def _difference(value: str | None, values: Sequence[str]) -> int:
    """0, which is neither greater nor less, if one of them is not a number: Kubernetes then matches nothing."""
    try:
        return int(value or "") - int(values[0])
    except (ValueError, IndexError):
        return 0
