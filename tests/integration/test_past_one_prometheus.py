"""Adapter and modules ask a store that scrapes nothing and has no rule: it reads from the Prometheus that has both.

As Mimir or a federation would answer: by an address of its own, prometheus.url. Thanos itself is in test_thanos.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from control_plane import ControlPlane, eventually, running
from kubernetes import client
from programs import program
from prometheus_rules import serve_kind
from stored_chain import StoredChain
from workloads import Workloads

SETTLE_S = 120


class ReadingStore(StoredChain):
    def run_store(self) -> None:
        reads = {"remote_read": [{"url": f"http://127.0.0.1:{self.port}/api/v1/read", "read_recent": True}]}
        (self.plane.work / "store.yml").write_text(yaml.safe_dump(reads))
        self.plane.run(
            "store", program("prometheus"), "--config.file=store.yml", "--storage.tsdb.path=store",
            f"--web.listen-address=127.0.0.1:{self.store}",
        )  # fmt: skip


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, client.ApiClient, ReadingStore]]:
    with running(tmp_path_factory.mktemp("stored")) as (plane, kube):
        chain = ReadingStore(plane, kube)
        chain.start()
        serve_kind(kube)
        yield plane, kube, chain
        chain.stop()


@pytest.fixture
def run(stored: tuple[ControlPlane, client.ApiClient, ReadingStore]) -> Callable[..., dict[str, Any]]:
    return stored[2].runner()


def test_a_store_that_only_reads_proves_and_scales(
    run: Callable[..., dict[str, Any]], stored: tuple[ControlPlane, client.ApiClient, ReadingStore]
) -> None:
    _plane, kube, chain = stored
    workloads = Workloads(kube, "ml")
    workloads.deployment("chat")
    workloads.node("gpu1", gpus=4)
    workloads.ready_pod("chat-0", app="chat")
    chain.exporter.gpus("ml", {"chat-0": 90})

    spec = {"namespace": "ml", "target": {"name": "chat"}, "max_replicas": 4}
    result = run("gpu_autoscaler", verify=True, wait_timeout=SETTLE_S, autoscalers=[spec])

    assert result["result"]["autoscalers"][0]["values"] == {"chat-0": 90}
    assert (chain.stored("targets")["activeTargets"], chain.stored("rules")["groups"]) == ([], [])
    hpas = client.AutoscalingV2Api(kube)
    eventually(
        lambda: hpas.read_namespaced_horizontal_pod_autoscaler("chat", "ml").status.desired_replicas == 2,
        "the HPA scales on what the store says",
        SETTLE_S,
    )


def test_the_other_modules_read_the_same(run: Callable[..., dict[str, Any]]) -> None:
    def proven() -> list[bool]:
        return [autoscaler["verified"] for autoscaler in run("gpu_autoscaler_info")["result"]["autoscalers"]]

    def report() -> tuple[list[Any], list[bool]]:
        found = run("gpu_doctor")["result"]
        return found["findings"], [autoscaler["verified"] for autoscaler in found["autoscalers"]]

    eventually(lambda: proven() == [True], "the values are proven", SETTLE_S)
    eventually(lambda: report() == ([], [True]), "the doctor finds nothing", SETTLE_S)
