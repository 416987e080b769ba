# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Watches an autoscaler, and lists in order what it, its pods and the scheduler did."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..cluster.errors import ApiError
from ..cluster.kube import EVENTS, HPAS, PODS, KubeClient, Resource
from ..cluster.metrics_api import MetricsApi
from ..errors import HopError
from ..formats.times import timestamp
from ..hops import Hop
from ..kube.label_selectors import format_selector
from ..kube.objects import condition, containers_of, key_of, made_s, unix
from ..loadtest.job import exits
from ..loadtest.watched import Ends, Samples, pod_targets, sample_of
from .outcome import Outcome

# The API server's default for an HPA.
_SCALE_DOWN_WINDOW_S = 300


@dataclass(frozen=True)
class Watch:
    """Options of a watch.

    seconds:  duration, from the start of the job.
    end_s:    end in Unix seconds, instead of `seconds`.
    job:      name of the Job that sends the load. The time starts when its log has `line`. Can be empty.
    job_timeout_s: seconds within which that must happen.
    until_job_ends: it is over once the Job's generator has ended, at the latest after `seconds`.
    pod:      one whose own values of the HPA's metrics are read as well.
    """

    namespace: str
    name: str
    seconds: float = 60
    end_s: float | None = None
    job: str = ""
    line: str = ""
    job_timeout_s: float = 120
    until_job_ends: bool = False
    pod: str = ""
    look_s: float = 0.5


def watch_autoscaler(
    kube: KubeClient,
    watch: Watch,
    *,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Returns: `began_s` and `ended_s` in Unix seconds, `samples`, `events`, `pods`, `ends`, and the HPA's own figures.

    Raises: HopError if there is no such autoscaler or target, or if the load does not begin.
    """
    hpa = _hpa(kube, watch)
    resource = _target_resource(kube, watch, hpa)
    passed_s = _wait_for_load(kube, watch, clock, sleep) if watch.job else 0.0
    # Existing events are skipped later by name, because this clock may differ from the cluster's.
    events_before = {_event_key(event) for event in _events(kube, watch, hpa)}
    pods = _pods(kube, watch, _target(kube, watch, hpa, resource))
    pods_before = {pod["metadata"]["name"] for pod in pods}
    began_s = clock() - passed_s
    end_s = began_s + watch.seconds if watch.end_s is None else watch.end_s
    samples, ends = Samples(), Ends()
    pod_samples: list[dict[str, Any]] = []
    metrics_api = MetricsApi(kube.get_raw)
    while True:
        hpa = _hpa(kube, watch)
        target = _target(kube, watch, hpa, resource)
        ready = int((target.get("status") or {}).get("readyReplicas") or 0)
        samples.add(sample_of(hpa, ready, round(clock(), 2)))
        pods = _pods(kube, watch, target)
        ends.add(pods, round(clock(), 2))
        if watch.pod and (seen := _values_of(metrics_api, watch, pod_targets(hpa))):
            pod_samples.append({"time_s": round(clock(), 2), "pod_values": seen})
        left_s = end_s - clock()
        if left_s <= 0 or (watch.until_job_ends and exits(_job_pods(kube, watch))):
            break
        sleep(min(watch.look_s, left_s))
    spec = hpa["spec"]
    behavior = spec.get("behavior") or {}
    down = behavior.get("scaleDown") or {}
    return Outcome(
        result={
            "began_s": round(began_s, 2),
            "ended_s": round(clock(), 2),
            "target": {"kind": spec["scaleTargetRef"]["kind"], "name": spec["scaleTargetRef"]["name"]},
            "min_replicas": spec.get("minReplicas", 1),
            "max_replicas": spec["maxReplicas"],
            "behavior": behavior,
            "scale_down_window_s": down.get("stabilizationWindowSeconds", _SCALE_DOWN_WINDOW_S),
            "samples": samples.as_dicts(),
            "events": _in_order(event for event in _events(kube, watch, hpa) if _event_key(event) not in events_before),
            "pods": [_start(pod) for pod in pods if pod["metadata"]["name"] not in pods_before],
            "ends": ends.as_dicts(),
            "ready_pods": [_place(pod) for pod in pods if _serves(pod)],
            "targets": pod_targets(hpa),
            "pod_samples": pod_samples,
        }
    )


def _hpa(kube: KubeClient, watch: Watch) -> Mapping[str, Any]:
    found = kube.get(HPAS, watch.name, watch.namespace)
    if found is None:
        raise HopError(
            Hop.HPA,
            seen=f"{watch.namespace}/{watch.name}: this HorizontalPodAutoscaler does not exist",
            fix="give the name of one that `kubectl get hpa --all-namespaces` lists",
        )
    return found


def _target_resource(kube: KubeClient, watch: Watch, hpa: Mapping[str, Any]) -> Resource:
    reference = hpa["spec"]["scaleTargetRef"]
    resource = kube.discover(reference["apiVersion"]).get(reference["kind"])
    if resource is None:
        raise HopError(
            Hop.WORKLOAD,
            seen=f"{watch.namespace}/{watch.name}: the cluster has no kind {reference['kind']} in "
            f"{reference['apiVersion']}",
            fix="correct the HPA's scaleTargetRef, or install what serves that kind",
        )
    return resource


def _target(kube: KubeClient, watch: Watch, hpa: Mapping[str, Any], resource: Resource) -> Mapping[str, Any]:
    name = hpa["spec"]["scaleTargetRef"]["name"]
    found = kube.get(resource, name, watch.namespace)
    if found is None:
        raise HopError(
            Hop.WORKLOAD,
            seen=f"{watch.namespace}/{watch.name}: its target, {resource.kind} {name}, does not exist",
            fix="create the target, or correct the HPA's scaleTargetRef",
        )
    return found


def _wait_for_load(kube: KubeClient, watch: Watch, clock: Callable[[], float], sleep: Callable[[float], None]) -> float:
    """Wait until the log of the job's pod has the line. Returns: seconds for which the load has run, by its own log.

    A generator may begin before this module does, on a busy controller by many seconds.
    """
    end_s = clock() + watch.job_timeout_s
    seen = "it has no pod"
    while True:
        for pod in _job_pods(kube, watch):
            name, phase = pod["metadata"]["name"], (pod.get("status") or {}).get("phase", "Unknown")
            seen = f"its pod {name} is {phase}"
            text = _log(kube, pod) if phase != "Pending" else ""
            if watch.line in text and phase != "Pending":
                return max(map(float, _PASSED.findall(text)), default=0.0)
            if phase == "Failed":
                raise _no_load(watch, f"{seen}: {text.strip()[-500:]}")
        if clock() >= end_s:
            raise _no_load(watch, f"{seen} after {watch.job_timeout_s:g} s")
        sleep(watch.look_s)


def _job_pods(kube: KubeClient, watch: Watch) -> Sequence[Mapping[str, Any]]:
    return kube.list(PODS, namespace=watch.namespace, label_selector=f"job-name={watch.job}") or ()


def _values_of(metrics_api: MetricsApi, watch: Watch, metrics: Iterable[str]) -> dict[str, float]:
    """Of the pod, as the HPA reads them; a metric without a value is left out."""
    found = {}
    for metric in metrics:
        with suppress(ApiError):
            for item in metrics_api.custom(metric, namespace=watch.namespace, name=watch.pod):
                found[metric] = item.value
    return found


# At the begin of a line of the generator's log, each second.
_PASSED = re.compile(r"^ *(\d+\.\d) s  ", re.MULTILINE)
# Selects a container as kubectl does, because a mesh may add its own.
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


def _log(kube: KubeClient, pod: Mapping[str, Any]) -> str:
    namespace, name = key_of(pod)
    names = [container["name"] for container in containers_of(pod)]
    told = (pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER)
    which = {"container": container} if (container := told or next(iter(names), "")) else {}
    try:
        return str(kube.get_raw(f"{PODS.path(namespace, name)}/log", {"tailLines": "200", **which}))
    except ApiError:  # its container is being created
        return ""


def _no_load(watch: Watch, seen: str) -> HopError:
    return HopError(
        Hop.WORKLOAD,
        seen=f"{watch.namespace}/{watch.job}: the load did not start: {seen}",
        fix=f"`kubectl -n {watch.namespace} describe pods -l job-name={watch.job}` shows why",
    )


def _events(kube: KubeClient, watch: Watch, hpa: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Events of the autoscaler, its target, and the objects that the target creates."""
    target = hpa["spec"]["scaleTargetRef"]["name"]
    try:
        events = kube.list(EVENTS, namespace=watch.namespace) or ()
    except ApiError:  # not every user who can read autoscalers can read events
        return []
    names = ((event, (event.get("involvedObject") or {}).get("name", "")) for event in events)
    return [event for event, name in names if name in (watch.name, target) or name.startswith(f"{target}-")]


def _event_key(event: Mapping[str, Any]) -> tuple[str, str]:
    """Identifies one occurrence, because a repeated event keeps its name."""
    return event["metadata"]["name"], _event_time(event)


def _event_time(event: Mapping[str, Any]) -> str:
    return event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp") or ""


def _in_order(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    told = []
    for event in events:
        about, time_s = event.get("involvedObject") or {}, unix(_event_time(event))
        told.append(
            {
                "time": timestamp(time_s) if time_s is not None else "",
                "object": f"{about.get('kind', '')} {about.get('name', '')}",
                "reason": event.get("reason", ""),
                "message": " ".join(str(event.get("message") or "").split()),
            }
        )
    return sorted(told, key=lambda event: event["time"])


def _pods(kube: KubeClient, watch: Watch, target: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Pods of the target, by creation time."""
    selector = (target.get("spec") or {}).get("selector")
    if not isinstance(selector, Mapping) or not (query := format_selector(selector)):
        return []
    return sorted(kube.list(PODS, namespace=watch.namespace, label_selector=query) or (), key=made_s)


def _serves(pod: Mapping[str, Any]) -> bool:
    return _holds_since(pod, "Ready") is not None and not pod["metadata"].get("deletionTimestamp")


def _place(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Where a pod is reached: its address and the ports that its containers declare."""
    ports = [int(port["containerPort"]) for container in containers_of(pod) for port in container.get("ports") or ()]
    return {
        "name": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"],
        "address": (pod.get("status") or {}).get("podIP", ""),
        "ports": ports,
    }


def _start(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds from creation until the pod was scheduled and ready; None if it was not."""
    made = made_s(pod)
    seconds = {
        name: at - made if (at := _holds_since(pod, kind)) is not None else None
        for name, kind in (("scheduled_s", "PodScheduled"), ("ready_s", "Ready"))
    }
    return {"name": pod["metadata"]["name"], "made": timestamp(made), **seconds}


def _holds_since(pod: Mapping[str, Any], kind: str) -> float | None:
    found = condition(pod, kind)
    return unix(found.get("lastTransitionTime")) if found.get("status") == "True" else None
