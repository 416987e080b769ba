"""Nothing is broken: the doctor is silent, at rest and while things change as they should."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from live_lab import MONITORING, SAMPLE, STACK, WORKLOADS, Lab, ids, wait_until, wait_until_healed, words

LOOKS, EVERY_S = 15, 2
# What a change may take until the last of its pods is ready.
CHANGED_S = 240
# For how long the doctor is asked after that: two of the HPA's periods and the longest window of the lab.
AFTERWARDS_S = 30


def test_it_is_silent_at_rest(lab: Lab) -> None:
    """Without grace one lost scrape of a busy machine is a finding until the next scrape."""
    for _look in range(LOOKS):
        if ids(lab.examine(grace=False)):
            time.sleep(EVERY_S)
            report = lab.examine(grace=False)
            assert not ids(report), words(report)
        time.sleep(EVERY_S)


@contextmanager
def a_scale_up(lab: Lab) -> Iterator[None]:
    def replicas() -> int:
        return lab.get("Deployment", SAMPLE, WORKLOADS)["status"].get("replicas", 0)

    before = replicas()
    with lab.under_load(2.5):
        wait_until(lambda: replicas() > before, "the HPA scales up", CHANGED_S)
        yield
    wait_until(lambda: replicas() == before, "the HPA scales down again", CHANGED_S)


def restart_of(kind: str, name: str, namespace: str = MONITORING) -> Callable[[Lab], AbstractContextManager[None]]:
    @contextmanager
    def restart(lab: Lab) -> Iterator[None]:
        lab.restart(kind, name, namespace)
        yield

    return restart


@contextmanager
def prometheus_pod_deleted(lab: Lab) -> Iterator[None]:
    lab.end_pod(f"prometheus-{STACK}-prometheus-0")
    yield


CHANGES = {
    "a scale-up": (a_scale_up, ("Deployment", SAMPLE, WORKLOADS)),
    "a rolling update of the target": (
        restart_of("Deployment", SAMPLE, WORKLOADS),
        ("Deployment", SAMPLE, WORKLOADS),
    ),
    "a restart of Prometheus": (
        prometheus_pod_deleted,
        ("StatefulSet", f"prometheus-{STACK}-prometheus", MONITORING),
    ),
    "a restart of the adapter": (
        restart_of("Deployment", "prometheus-adapter"),
        ("Deployment", "prometheus-adapter", MONITORING),
    ),
    "a restart of kube-state-metrics": (
        restart_of("Deployment", f"{STACK}-kube-state-metrics"),
        ("Deployment", f"{STACK}-kube-state-metrics", MONITORING),
    ),
    "a restart of the exporter": (restart_of("DaemonSet", "dcgm-exporter"), ("DaemonSet", "dcgm-exporter", MONITORING)),
}


@pytest.mark.slow  # molecule's load step has the doctor's looks at a scale-up
@pytest.mark.parametrize("change", CHANGES)
def test_it_is_silent_during(lab: Lab, change: str) -> None:
    """What is within the grace that its finding states is no alarm, and afterwards there is nothing at all."""
    begin, workload = CHANGES[change]
    settled_since = None
    with begin(lab):
        deadline = time.monotonic() + CHANGED_S
        while settled_since is None or time.monotonic() - settled_since < AFTERWARDS_S:
            report = lab.examine(grace=True)
            assert not ids(report), words(report)
            settled_since = (settled_since or time.monotonic()) if lab.is_rolled_out(*workload) else None
            assert time.monotonic() < deadline, f"{workload} is not rolled out"
            time.sleep(1)
    wait_until_healed(lab, "nothing is left of it", CHANGED_S)
