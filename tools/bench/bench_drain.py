"""Requests that are lost while pods end: scale-downs of the sample service on the running lab, under its own load.

With --no-drain its servers end at once, and the run fails unless requests are lost: what is counted is seen to happen.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

CHECKOUT = Path(__file__).parents[2]
sys.path[:0] = [str(CHECKOUT)]

from kubernetes import client

from lab.load.cluster import LabCluster

NO_DRAIN = ["--drain-quiet", "0", "--drain-longest", "0"]
# A request that is sent last is counted within the timeout of the load generator, which is 5 s.
COUNTED_S = 6.0
# Pods that are ended first are the youngest, which have to have requests by then.
SERVED_S = 3.0
# Of the requests that are sent in the time of a scale-down, so many are answered: else nothing is shown of the others.
LEAST_SERVED = 0.5
# Between two looks; pods start in seconds, and an update of all of them ends one after the other.
LOOK_S, REACHED_S = 0.5, 300.0


class Counted(Protocol):
    """The service and its load generator."""

    def scale(self, replicas: int) -> None: ...

    def pods(self) -> tuple[int, int]:
        """Ready ones, and all, those that end included."""
        ...

    def counters(self) -> dict[str, float]: ...


@dataclass(frozen=True)
class ScaleDown:
    """pods: that ended. ended_s: until the last one was gone. failed: requests without an answer until then.

    asked: requests that the load has in that time.
    """

    pods: int
    ended_s: float
    asked: int
    served: int
    rejected: int
    failed: int


def scale_downs(
    service: Counted,
    times: int,
    high: int,
    low: int,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[ScaleDown]:
    """From high to low replicas and back, so many times."""

    def reach(replicas: int) -> None:
        service.scale(replicas)
        until_s = clock() + REACHED_S
        while service.pods() != (replicas, replicas):
            if clock() > until_s:
                raise TimeoutError(f"not {replicas} pods after {REACHED_S:g} s: ready and all are {service.pods()}")
            sleep(LOOK_S)

    for _time in range(times):
        reach(high)
        sleep(SERVED_S)
        began_s, before = clock(), service.counters()
        reach(low)
        ended_s = clock() - began_s
        sleep(COUNTED_S)
        after = service.counters()
        counted = {name: round(after[name] - before[name]) for name in ("served", "rejected", "failed")}
        asked = round(before["requests_per_s"] * (ended_s + COUNTED_S))
        yield ScaleDown(high - low, round(ended_s, 1), asked, **counted)


def verdict(found: Sequence[ScaleDown], *, drains: bool) -> tuple[str, bool]:
    """The last line, and whether the run has shown what it is for."""
    lost = sum(one.failed for one in found)
    sent = lost + sum(one.served + one.rejected for one in found)
    with_losses = sum(one.failed > 0 for one in found)
    text = f"{lost} of {sent} requests lost, in {with_losses} of {len(found)} scale-downs"
    idle = [one for one in found if one.served < max(LEAST_SERVED * one.asked, 1)]
    if idle:
        text += f"; in {len(idle)} of them less than half of the load was served, so they show nothing"
    return text + ("" if drains else ", without a drain"), bool(found) and not idle and bool(lost) != drains


class SampleService(LabCluster):
    """Its HPA allows only the replicas that are asked for, so it does not scale by itself meanwhile."""

    def __init__(self, kubeconfig: Path, namespace: str, hpa: str) -> None:
        super().__init__(kubeconfig, namespace, hpa)
        self._apps, self._core = client.AppsV1Api(self._api), client.CoreV1Api(self._api)
        self._hpas = client.AutoscalingV2Api(self._api)
        self._at = {"namespace": namespace, "name": self.autoscaler.deployment}

    def scale(self, replicas: int) -> None:
        self._bound(replicas, replicas)
        self._apps.patch_namespaced_deployment_scale(**self._at, body={"spec": {"replicas": replicas}})

    def pods(self) -> tuple[int, int]:
        labels = self._apps.read_namespaced_deployment(**self._at).spec.selector.match_labels
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        found = self._core.list_namespaced_pod(self._namespace, label_selector=selector).items
        ready = [pod for pod in found if not pod.metadata.deletion_timestamp and _is_ready(pod)]
        return len(ready), len(found)

    @contextmanager
    def under(self, gpus: float, more: Sequence[str]) -> Iterator[None]:
        """A load, and more arguments of the service. Bounds, load and arguments are restored at the end."""
        template = self._apps.read_namespaced_deployment(**self._at).spec.template
        [container] = template.spec.containers
        load, arguments = self.counters()["gpus"], list(container.args or [])
        low, high = self.autoscaler.min_replicas, self.autoscaler.max_replicas
        try:
            if more:
                self._run_with(container.name, [*arguments, *more])
            self.demand(gpus)
            yield
        finally:
            self.demand(load)
            self._bound(low, high)
            if more:
                self._run_with(container.name, arguments)

    def _run_with(self, container: str, arguments: Sequence[str]) -> None:
        pod = {"containers": [{"name": container, "args": list(arguments)}]}
        self._apps.patch_namespaced_deployment(**self._at, body={"spec": {"template": {"spec": pod}}})
        until_s = time.monotonic() + REACHED_S
        while not _is_rolled_out(self._apps.read_namespaced_deployment(**self._at)):
            if time.monotonic() > until_s:
                raise TimeoutError(f"{self.autoscaler.deployment} is not rolled out after {REACHED_S:g} s")
            time.sleep(LOOK_S)

    def _bound(self, least: int, most: int) -> None:
        body = {"spec": {"minReplicas": least, "maxReplicas": most}}
        at = {"namespace": self._namespace, "name": self.autoscaler.name}
        self._hpas.patch_namespaced_horizontal_pod_autoscaler(**at, body=body)


def _is_ready(pod: Any) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions or ())


def _is_rolled_out(deployment: Any) -> bool:
    status, wanted = deployment.status, deployment.spec.replicas
    counts = (status.updated_replicas or 0, status.ready_replicas or 0, status.replicas or 0)
    return status.observed_generation >= deployment.metadata.generation and counts == (wanted, wanted, wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path, default=CHECKOUT / "inventories/lab/.kubegpu/kubeconfig")
    parser.add_argument("--namespace", default="gpu-workload", help="of the sample service (default: %(default)s)")
    parser.add_argument("--hpa", default="sample", help="its autoscaler (default: %(default)s)")
    parser.add_argument("--times", type=int, default=100, help="scale-downs (default: %(default)s)")
    parser.add_argument("--high", type=int, default=4, help="replicas before each (default: %(default)s)")
    parser.add_argument("--low", type=int, default=1, help="replicas after each (default: %(default)s)")
    parser.add_argument("--gpus", type=float, default=0.6, help="GPU-seconds asked for a second (default: %(default)s)")
    parser.add_argument("--no-drain", action="store_true", help="end the servers at once")
    arguments = parser.parse_args()
    service = SampleService(arguments.kubeconfig, arguments.namespace, arguments.hpa)
    found = []
    with service.under(arguments.gpus, NO_DRAIN if arguments.no_drain else []):
        for one in scale_downs(service, arguments.times, arguments.high, arguments.low):
            found.append(one)
            print(json.dumps({"scale_down": len(found), **asdict(one)}), flush=True)
    text, has_shown = verdict(found, drains=not arguments.no_drain)
    print(text)
    sys.exit(not has_shown)


if __name__ == "__main__":
    main()
