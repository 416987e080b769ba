"""Thanos itself at `prometheus.url`: two replicas of Prometheus with a sidecar each, and a querier that merges them.

Adapter and modules ask the querier alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import quote

import pytest
import yaml
from control_plane import eventually, free_port, running
from kubernetes import client
from programs import FOLDER, program
from prometheus_rules import serve_kind
from stored_chain import SETTLE_S, Run, StoredChain, expect_other_modules_agree, expect_replicas, prove_chat
from workloads import Workloads

# `make test` does not compile it: its own target does.
COMPILED = (FOLDER / "thanos").exists() or bool(os.environ.get("THANOS"))
pytestmark = pytest.mark.skipif(not COMPILED, reason="`make test-thanos` compiles it")

REPLICA = "prometheus_replica"
SERIES = "namespace_pod:gpu:now"


class Thanos(StoredChain):
    """The second replica has the files of the first one, and follows their changes by itself."""

    def external_labels(self) -> dict[str, str]:
        return {"prometheus": "monitoring/k8s", REPLICA: "a"}

    def start(self) -> None:
        super().start()
        config = yaml.safe_load((self.plane.work / "prometheus.yml").read_text())
        config["global"]["external_labels"][REPLICA] = "b"
        (self.plane.work / "prometheus-b.yml").write_text(yaml.safe_dump(config))
        self.plane.run(
            "prometheus-b", program("prometheus"), "--config.file=prometheus-b.yml", "--storage.tsdb.path=tsdb-b",
            f"--web.listen-address=127.0.0.1:{self._second}", "--enable-feature=auto-reload-config",
            "--config.auto-reload-interval=1s",
        )  # fmt: skip

    def run_store(self) -> None:
        self._second = free_port()
        sidecars = {"sidecar-a": self.port, "sidecar-b": self._second}
        stores = {name: free_port() for name in sidecars}
        for name, prometheus in sidecars.items():
            self.plane.run(
                name, program("thanos"), "sidecar", f"--prometheus.url=http://127.0.0.1:{prometheus}",
                f"--grpc-address=127.0.0.1:{stores[name]}", f"--http-address=127.0.0.1:{free_port()}",
            )  # fmt: skip
        self.plane.run(
            "thanos", program("thanos"), "query", f"--http-address=127.0.0.1:{self.store}",
            f"--grpc-address=127.0.0.1:{free_port()}", f"--query.replica-label={REPLICA}",
            *(f"--endpoint=127.0.0.1:{port}" for port in stores.values()),
        )  # fmt: skip

    def replicas(self, **query: str) -> set[str | None]:
        """The replicas whose series the querier has now; None if it has merged them."""
        options = "".join(f"&{name}={value}" for name, value in query.items())
        found = self.stored(f"query?query={quote(SERIES)}{options}")["result"]
        return {series["metric"].get(REPLICA) for series in found}


@pytest.fixture(scope="module")
def thanos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[client.ApiClient, Thanos]]:
    with running(tmp_path_factory.mktemp("thanos")) as (plane, kube):
        chain = Thanos(plane, kube)
        chain.start()
        serve_kind(kube)
        yield kube, chain
        chain.stop()


@pytest.fixture
def run(thanos: tuple[client.ApiClient, Thanos]) -> Run:
    return thanos[1].runner()


def test_a_value_of_two_replicas_is_one(run: Run, thanos: tuple[client.ApiClient, Thanos]) -> None:
    kube, chain = thanos
    prove_chat(run, kube, chain)

    eventually(lambda: chain.replicas(dedup="false") == {"a", "b"}, "both replicas record", SETTLE_S)
    assert chain.replicas() == {None}
    expect_replicas(kube, 2)


def test_the_other_modules_read_the_same(run: Run) -> None:
    expect_other_modules_agree(run)


def test_the_value_outlives_a_replica(run: Run, thanos: tuple[client.ApiClient, Thanos]) -> None:
    kube, chain = thanos
    for name in ("prometheus-b", "sidecar-b"):
        chain.plane.end(name)
    Workloads(kube, "ml").ready_pod("chat-1", app="chat")
    chain.exporter.gpus("ml", {"chat-0": 95, "chat-1": 95})

    eventually(lambda: chain.replicas(dedup="false") == {"a"}, "one replica records", SETTLE_S)
    expect_replicas(kube, 4)
    assert run("gpu_autoscaler_info")["result"]["autoscalers"][0]["verified"]
