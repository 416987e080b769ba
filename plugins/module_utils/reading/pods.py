# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads the pods of targets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ..autoscaling.spec import PODS as PODS_METRIC
from ..autoscaling.spec import Autoscaler
from ..chain.state.autoscaler import AutoscalerState
from ..chain.state.metric import MetricState
from ..cluster.errors import ApiError
from ..cluster.kube import PODS, KubeClient
from ..cluster.listing import list_in
from ..cluster.parallel import all_in_parallel
from ..kube.label_selectors import format_selector, labels_match
from ..kube.objects import Key, Manifest, key_of, labels_of
from .targets import TargetState

# In a namespace with more autoscalers than this, all pods are read in one request.
AUTOSCALERS_ASKED_ALONE = 3


def read_pods(
    kube: KubeClient, autoscalers: Sequence[Autoscaler], targets: Mapping[Key, TargetState]
) -> dict[Key, list[Manifest]]:
    """Pods of each target, without those being deleted. Raises: ApiError."""
    members: dict[str, list[Autoscaler]] = {}
    for autoscaler in autoscalers:
        if targets[autoscaler.key].selector:
            members.setdefault(autoscaler.namespace, []).append(autoscaler)
    requests = [
        (namespace, text)
        for namespace, few in members.items()
        if len(few) <= AUTOSCALERS_ASKED_ALONE
        for text in dict.fromkeys(format_selector(targets[autoscaler.key].selector or {}) for autoscaler in few)
    ]
    answers = all_in_parallel(
        lambda request: kube.list(PODS, namespace=request[0], label_selector=request[1]) or (), requests
    )
    found = {key_of(pod): pod for answer in answers for pod in answer}
    crowded = {namespace for namespace, many in members.items() if len(many) > AUTOSCALERS_ASKED_ALONE}
    found |= list_in(kube, PODS, crowded) if crowded else {}
    by_namespace: dict[str, list[Manifest]] = {}
    for (namespace, _name), pod in found.items():
        if not pod["metadata"].get("deletionTimestamp"):
            by_namespace.setdefault(namespace, []).append(pod)
    return {
        autoscaler.key: [
            pod
            for pod in by_namespace.get(autoscaler.namespace, ())
            if labels_match(targets[autoscaler.key].selector, labels_of(pod))
        ]
        for autoscaler in autoscalers
    }


def without_ended(kube: KubeClient, states: Mapping[Key, AutoscalerState]) -> Mapping[Key, AutoscalerState]:
    """Pods are read before values, so a pod that ended in between has no value, and needs none.

    Pods are therefore read again if one has no value.
    """
    lacking = {key[0] for key, seen in states.items() if any(map(_lacks_pods, seen.metrics))}
    try:
        # A client that reads once already has the whole list, so another one is used.
        running = [
            pod
            for namespace in sorted(lacking)
            for pod in kube.list(PODS, namespace=namespace, field_selector="status.phase=Running") or ()
        ]
    except ApiError:
        return states
    there = {key_of(pod) for pod in running if not pod["metadata"].get("deletionTimestamp")}
    return {key: _expecting(seen, there) if key[0] in lacking else seen for key, seen in states.items()}


def _lacks_pods(metric: MetricState) -> bool:
    return metric.type == PODS_METRIC and bool(metric.missing_in_api)


def _expecting(seen: AutoscalerState, there: Collection[Key]) -> AutoscalerState:
    """Values of the existing pods."""
    gone = {pod["metadata"]["name"] for pod in seen.pods if key_of(pod) not in there}
    metrics = [replace(metric, expected_objects=metric.expected_objects - gone) for metric in seen.metrics]
    return replace(seen, metrics=metrics)
