# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads objects of the API server: times, conditions, readiness, containers, pod templates, durations.

Called from each package that reads a cluster. In: objects as the API server returns them. Out: plain values, None for
those that an object lacks. Nothing here depends on GPUs or on this collection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

# An object, or a part of one. It is read; a builder annotates its own dict.
Manifest = Mapping[str, Any]
# Namespace and name.
Key = tuple[str, str]

# Exit codes of a process that was stopped: SIGKILL and SIGTERM.
KILLED = (137, 143)

# Reasons of containers whose message is the runtime's, because no program has run.
_NOT_STARTED = ("StartError", "ContainerCannotRun")
# What runc writes into the log of a program that it cannot execute.
_OF_RUNC = re.compile(r"exec \S+: exec format error$")
_EVENT_TIMES = ("lastTimestamp", "eventTime", "firstTimestamp")
_NVML = re.compile(r"nvml|libnvidia-ml|no NVIDIA GPU|could not load|driver/library version mismatch", re.IGNORECASE)


def name_of(manifest: Manifest) -> str:
    """Namespace and name, or the name alone."""
    metadata = manifest["metadata"]
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))


def key_of(manifest: Manifest) -> Key:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def labels_of(manifest: Manifest) -> Mapping[str, str]:
    return manifest["metadata"].get("labels") or {}


def unix(timestamp: str | None) -> float | None:
    """Unix seconds of an RFC 3339 time; None without one."""
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else None


def made_s(manifest: Manifest) -> float:
    """Unix seconds; 0 if unknown."""
    return unix(manifest["metadata"].get("creationTimestamp")) or 0.0


def clock(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def condition(manifest: Manifest, kind: str) -> Mapping[str, Any]:
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    return next((entry for entry in conditions if entry.get("type") == kind), {})


def is_ready(manifest: Manifest) -> bool:
    return condition(manifest, "Ready").get("status") == "True"


def is_unseen(workload: Manifest) -> bool:
    """Whether its controller has not observed the last change yet. Not every controller reports that."""
    generation, status = workload.get("metadata", {}).get("generation"), workload.get("status") or {}
    return generation is not None and (not status or status.get("observedGeneration", generation) != generation)


def start_s(pod: Manifest) -> float | None:
    """Seconds from scheduling to readiness; None if the pod is not ready, or was restarted.

    The time does not include waiting for a GPU or a new node.
    """
    scheduled, ready = condition(pod, "PodScheduled"), condition(pod, "Ready")
    restarted = any(status.get("restartCount") for status in statuses(pod))
    begin, end = unix(scheduled.get("lastTransitionTime")) or made_s(pod), unix(ready.get("lastTransitionTime"))
    if ready.get("status") != "True" or restarted or not end:
        return None
    return max(end - begin, 0.0)


def containers_of(workload: Manifest) -> list[Mapping[str, Any]]:
    """Spec of a pod, or of the pod template."""
    spec = workload.get("spec") or {}
    pod = (spec.get("template") or {}).get("spec") or spec
    return list(pod.get("containers") or ())


def pod_spec(workload: Manifest) -> Mapping[str, Any]:
    """The pod template's spec; empty if its location is unknown."""
    spec = workload.get("spec") or {}
    template = spec.get("template") or (spec.get("leaderWorkerTemplate") or {}).get("workerTemplate") or {}
    return template.get("spec") or {}


def pods_per_replica(workload: Manifest) -> int:
    """A replica of a LeaderWorkerSet is a group of pods."""
    return ((workload.get("spec") or {}).get("leaderWorkerTemplate") or {}).get("size") or 1


def scaled_pod_spec(workload: Manifest) -> Mapping[str, Any]:
    """Template of the pods that an HPA counts: the selector of a LeaderWorkerSet has only the leaders."""
    groups = (workload.get("spec") or {}).get("leaderWorkerTemplate") or {}
    return (groups.get("leaderTemplate") or {}).get("spec") or pod_spec(workload)


def environment(container: Manifest) -> dict[str, str]:
    return {variable["name"]: str(variable.get("value", "")) for variable in container.get("env") or ()}


def arguments(container: Manifest) -> list[str]:
    return [str(argument) for argument in (*(container.get("command") or ()), *(container.get("args") or ()))]


def flag(container: Manifest, *names: str) -> str:
    """The value of a command line option by one of its names; empty if not set, `true` if it has no value."""
    given = arguments(container)
    for text, after in pairwise([*given, ""]):
        option, is_assigned, value = text.partition("=")
        if option in names:
            return value if is_assigned else (after if after and not after.startswith("-") else "true")
    return ""


def statuses(pod: Manifest) -> list[Mapping[str, Any]]:
    return list((pod.get("status") or {}).get("containerStatuses") or ())


def trouble(pod: Manifest, *, with_logs: bool = True) -> str:
    """Why a container waits or has ended, by the kubelet; empty if all run.

    with_logs: with the termination messages, which the programs of the containers write.
    """
    first = (pod.get("status") or {}).get("initContainerStatuses") or ()
    texts = [_trouble(status, with_logs) for status in (*first, *statuses(pod)) if not status.get("ready")]
    return "; ".join(filter(None, texts))


def _trouble(status: Mapping[str, Any], with_logs: bool) -> str:
    texts: list[str] = []
    for state in (status.get("state") or {}, status.get("lastState") or {}):
        for kind in ("waiting", "terminated"):
            found = state.get(kind) or {}
            reason, message = found.get("reason"), found.get("message") or ""
            is_log = kind == "terminated" and reason not in _NOT_STARTED and not _OF_RUNC.match(message)
            texts += filter(None, (reason, message if with_logs or not is_log else ""))
    return ": ".join(dict.fromkeys(text.strip() for text in texts))


def got_on_s(pod: Manifest) -> float:
    """When a pod last recovered: all its containers run, or it was scheduled. Unix seconds; 0 before that.

    A restarted container counts from its previous run, because the reason for its end may still exist.
    """
    began = [unix(_run_before(status).get("startedAt")) for status in statuses(pod)]
    times = [time_s for time_s in began if time_s]
    if times and len(times) == len(began):
        return max(times)
    scheduled = condition(pod, "PodScheduled")
    return (scheduled.get("status") == "True" and unix(scheduled.get("lastTransitionTime"))) or 0.0


def _run_before(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """The previous run of a container; the current one if it is the first, none if it does not run."""
    running = (status.get("state") or {}).get("running")
    ended = (status.get("lastState") or {}).get("terminated")
    return (ended or running) if running else {}


def last_seen(event: Manifest) -> str:
    """Time of the last occurrence; the scheduler uses a series. Empty if unknown."""
    times = (event.get("series") or {}).get("lastObservedTime"), *map(event.get, _EVENT_TIMES)
    return next(filter(None, times), "")


def has_crashed(pod: Manifest) -> bool:
    """Whether a container has exited with an error, and waits for its next start or has just failed."""
    ended = [
        found
        for status in statuses(pod)
        for state in (status.get("state") or {}, status.get("lastState") or {})
        if not status.get("ready") and (found := state.get("terminated"))
    ]
    return any(end.get("exitCode") not in (0, *KILLED) and end.get("reason") != "OOMKilled" for end in ended)


def mentions_nvml(text: str) -> bool:
    return bool(_NVML.search(text))


def owners(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Kind and name of each owner."""
    for reference in manifest["metadata"].get("ownerReferences") or ():
        yield reference["kind"], reference["name"]


def youngest(ages: Iterable[float | None]) -> float | None:
    """The smallest known age; None without any."""
    return min((age for age in ages if age is not None), default=None)


def seconds(duration: str | float | None) -> float | None:
    """A duration in the format of Prometheus, Go and YAML: `1m30s`, `500ms`, 15; None if it is invalid."""
    if isinstance(duration, int | float):
        return float(duration)
    parts = _PART.findall(duration or "")
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdwy])")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}
