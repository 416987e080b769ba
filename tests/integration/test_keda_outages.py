"""What an autoscaler of KEDA does while something is gone that it lives on: nothing. Afterwards it scales again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import keda
import pytest
from control_plane import eventually
from keda import Rig, beside_the_adapter, needs_keda, takes_minutes
from shared_load import BY_KEDA, CONTROLLERS, Counts, Nodes, deploy, followed, replicas_of, scale_by

pytestmark = [needs_keda, takes_minutes]

# Seconds of each. `KEDA_OUTAGE=600 make test-keda ARGS=tests/integration/test_keda_outages.py` has ten minutes.
OUTAGE_S = float(os.environ.get("KEDA_OUTAGE") or 60)
SCALED_S = 180
# Of one GPU, in percent: two replicas, and five.
LOW, HIGH = 110, 290


class Cluster:
    def __init__(self, rig: Rig, nodes: Nodes) -> None:
        self.rig, self.nodes = rig, nodes

    @property
    def replicas(self) -> int:
        return replicas_of(self.rig.kube, BY_KEDA)

    def settle(self, load: float, replicas: int) -> None:
        self.nodes.load = load
        eventually(lambda: self.replicas == replicas, f"{replicas} replicas for {load} %", SCALED_S)

    def wait(self, seconds: float) -> None:
        """As a kubelet: what ends is started again, unless it is meant to be gone."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for name in (keda.OPERATOR, keda.METRICS_SERVER):
                if name not in self.gone and not self.rig.plane.runs(name):
                    print(f"{name} ended and is started again", flush=True)
                    self.rig.plane.again(name)
            time.sleep(0.5)

    gone: tuple[str, ...] = ()

    @contextmanager
    def without(self, *names: str) -> Iterator[None]:
        for name in names:
            self.rig.plane.end(name)
        self.gone = names
        yield
        self.gone = ()
        for name in names:
            self.rig.plane.again(name)

    @contextmanager
    def silent(self) -> Iterator[None]:
        self.nodes.silent = True
        yield
        self.nodes.silent = False


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with beside_the_adapter(tmp_path_factory.mktemp("outages"), *CONTROLLERS, sync_s=5) as rig:
        deploy(rig.kube, BY_KEDA)
        nodes = Nodes(rig.kube, rig.chain.exporter, [BY_KEDA], starts_s=2)
        nodes.load = LOW
        try:
            scale_by(rig, followed(BY_KEDA, "keda"))
            yield Cluster(rig, nodes)
        finally:
            nodes.stop()


OUTAGES: dict[str, Callable[[Cluster], Iterator[None]]] = {
    "Prometheus": lambda cluster: cluster.without("prometheus"),
    "exporter": lambda cluster: cluster.silent(),
    "kube-state-metrics": lambda cluster: cluster.without("kube-state-metrics"),
    "KEDA's operator": lambda cluster: cluster.without(keda.OPERATOR),
    "KEDA's metrics server": lambda cluster: cluster.without(keda.METRICS_SERVER),
    "all of KEDA": lambda cluster: cluster.without(keda.OPERATOR, keda.METRICS_SERVER),
    "API server": lambda cluster: cluster.without("kube-apiserver"),
}


@pytest.mark.timeout(3 * SCALED_S + 2 * OUTAGE_S)
@pytest.mark.parametrize("load", [LOW, HIGH], ids=["with-less-load", "with-more-load"])
@pytest.mark.parametrize("what", OUTAGES)
def test_no_replica_moves_while_it_is_gone(cluster: Cluster, what: str, load: float) -> None:
    """The load changes meanwhile, to what would need other replicas. Once it is back the HPA answers."""
    before, other = (HIGH, LOW) if load == LOW else (LOW, HIGH)
    cluster.settle(before, 5 if before == HIGH else 2)
    with Counts(cluster.rig.kube, BY_KEDA) as counts:
        with OUTAGES[what](cluster):
            cluster.wait(3)  # what was asked for before has been decided
            began = len(counts.seen)
            cluster.nodes.load = other
            cluster.wait(OUTAGE_S)
            moved = counts.seen[began:]
        back = time.monotonic()
        expected = 5 if other == HIGH else 2
        while not counts.seen or counts.seen[-1][1] != expected:
            assert time.monotonic() - back < SCALED_S, f"not {expected} replicas after {what} is back: {counts.seen}"
            cluster.wait(0.5)
        print(f"{what}: back to {expected} replicas after {time.monotonic() - back:.1f} s, {counts.seen}", flush=True)
    assert moved == []
    assert {count for _at_s, count in counts.seen} <= set(range(2, 6))
    direction = [count for _at_s, count in counts.seen]
    assert direction == sorted(direction, reverse=load == LOW)
