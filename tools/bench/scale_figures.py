"""What bench_scale.py makes of a log of requests: how late HPAs are, how long metrics take, who asks how much."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import quantiles
from typing import Any
from urllib.parse import parse_qs

HPA_CONTROLLER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
CUSTOM_METRICS = "/apis/custom.metrics.k8s.io/"


@dataclass(frozen=True)
class Asked:
    """A request of the HPA controller for a custom metric. of: the pods that it is about, so one HPA."""

    of: str
    at_s: float
    took_s: float
    ok: bool


def metric_requests(events: Iterable[Mapping[str, Any]]) -> Iterator[Asked]:
    """Those among audit events."""
    for event in events:
        path, _, query = event["requestURI"].partition("?")
        if event["user"]["username"] != HPA_CONTROLLER or not path.startswith(CUSTOM_METRICS) or not query:
            continue
        begin, end = (
            datetime.fromisoformat(event[moment]).timestamp()
            for moment in ("requestReceivedTimestamp", "stageTimestamp")
        )
        selector = parse_qs(query).get("labelSelector", [""])[0]
        yield Asked(f"{path} {selector}", begin, end - begin, event["responseStatus"]["code"] == 200)


def periods(asked: Iterable[Asked]) -> list[float]:
    """Seconds from one decision on an HPA to the next one on the same, of all HPAs."""
    moments: defaultdict[str, list[float]] = defaultdict(list)
    for request in asked:
        moments[request.of].append(request.at_s)
    return [later - earlier for times in moments.values() for earlier, later in pairwise(sorted(times))]


def quantile(values: Sequence[float], percent: int) -> float | None:
    """None where there are too few values to speak of it."""
    return quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else None


def by_user(events: Iterable[Mapping[str, Any]], minutes: float) -> dict[str, float]:
    """Requests a minute, most first; watches count when they end."""
    counted = Counter(event["user"]["username"].rpartition(":")[2] for event in events)
    return {user: count / minutes for user, count in counted.most_common()}


def between(events: Iterable[Mapping[str, Any]], begin: datetime, end: datetime) -> Iterator[Mapping[str, Any]]:
    return (event for event in events if begin <= datetime.fromisoformat(event["requestReceivedTimestamp"]) <= end)
