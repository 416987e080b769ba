"""Adapter and modules ask a store that scrapes nothing and has no rule: it reads from the Prometheus that has both.

As Mimir or a federation would answer: by an address of its own, prometheus.url. Thanos itself is in test_thanos.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from control_plane import ControlPlane, running
from kubernetes import client
from programs import program
from prometheus_rules import serve_kind
from stored_chain import Run, StoredChain, expect_other_modules_agree, expect_replicas, prove_chat


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
def run(stored: tuple[ControlPlane, client.ApiClient, ReadingStore]) -> Run:
    return stored[2].runner()


def test_a_store_that_only_reads_proves_and_scales(
    run: Run, stored: tuple[ControlPlane, client.ApiClient, ReadingStore]
) -> None:
    _plane, kube, chain = stored
    prove_chat(run, kube, chain)

    assert (chain.stored("targets")["activeTargets"], chain.stored("rules")["groups"]) == ([], [])
    expect_replicas(kube, 2)


def test_the_other_modules_read_the_same(run: Run) -> None:
    expect_other_modules_agree(run)
