"""The playbook upgrade_driver.yml on a cluster in service: pods are asked to leave, and one node is away at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from kubectl import kubectl
from server import L4, PLAYBOOKS, SYSTEM, Run, Server, driver_packages, pinned, run

testinfra_hosts = ["ansible://kube_node"]

# Of another branch, where Ubuntu's packages have other names; each system's repository has another one.
PINNED = pinned("nvidia-driver", SYSTEM)
NEWER = "590.48.01" if PINNED.startswith("580.") else "610.43.02"
MISSPELT = NEWER.rpartition(".")[0] + ".99"
MARK = "kubegpu.autoscale/cordoned-for-driver"
BROKEN = "/usr/local/bin/nvidia-smi"
WEB = """
kubectl --kubeconfig /etc/kubernetes/admin.conf --cache-dir /dev/null create deployment web \
    --image docker.io/library/python:3.11-slim -- python -m http.server &&
kubectl --kubeconfig /etc/kubernetes/admin.conf --cache-dir /dev/null create poddisruptionbudget web \
    --selector app=web --min-available 1
"""


@pytest.fixture
def two_gpu_nodes(cp1: Server, gpu1: Server) -> Iterator[dict[str, list[str]]]:
    """Both servers have a GPU and come back when they shut down. Gives their shutdowns by name."""
    with ExitStack() as stack:
        stack.enter_context(cp1.plugged(L4))
        stack.callback(lambda: kubectl(cp1.host, "delete deployment web"))
        stack.callback(lambda: kubectl(cp1.host, "uncordon cp1"))
        yield {server.name: stack.enter_context(server.bootable()) for server in (cp1, gpu1)}


def upgrade(release: str) -> Run:
    # This scenario has no device plugin, so no pod can prove a GPU.
    wanted = {"nvidia_driver_version": f"{release}-*", "nvidia_driver_drain_timeout": 10, "kubegpu_proof": False}
    return run(PLAYBOOKS / "upgrade_driver.yml", **wanted)


def installed(server: Server) -> set[str]:
    """Releases of the driver that parts are installed of."""
    return {version.rpartition("-")[0] for version in driver_packages(server.host).values()}


def loaded(server: Server) -> str:
    return re.search(r"  ([\d.]+)  ", server.sh("cat /proc/driver/nvidia/version"))[1]


def cordoned(cp1: Server, node: str) -> tuple[bool, bool]:
    """Whether a node takes no pods, and whether that is said to be for its driver."""
    found = json.loads(kubectl(cp1.host, f"get node {node} --output=json"))
    return found["spec"].get("unschedulable", False), MARK in found["metadata"]["annotations"]


@pytest.mark.slow
def test_it_takes_one_node_after_the_other_and_goes_on_from_where_it_stopped(
    cp1: Server, gpu1: Server, two_gpu_nodes: dict[str, list[str]]
) -> None:
    """No way to upgrade in place: NVIDIA/deepops#1017. No look afterwards: NVIDIA/ansible-role-nvidia-driver#20."""
    assert upgrade(PINNED).succeeded

    misspelt = upgrade(MISSPELT)

    assert (misspelt.succeeded, misspelt.changed) == (False, 0)
    assert f"={MISSPELT}-* from" in misspelt.text

    kubectl(cp1.host, "cordon cp1")
    cp1.sh(WEB)
    kubectl(cp1.host, "wait --for=condition=Available --timeout=120s deployment/web")

    protected = upgrade(NEWER)

    assert not protected.succeeded
    assert "disruption budget" in protected.text
    assert (installed(gpu1), installed(cp1)) == ({PINNED}, {PINNED})
    assert cordoned(cp1, "gpu1") == (True, True)

    kubectl(cp1.host, "delete poddisruptionbudget web")
    gpu1.sh(f"printf '#!/bin/sh\\nexit 9\\n' >{BROKEN}; chmod +x {BROKEN}")

    blind = upgrade(NEWER)

    assert not blind.succeeded
    assert "nvidia-smi fails" in blind.text
    assert cordoned(cp1, "gpu1") == (True, True)
    assert (installed(gpu1), installed(cp1)) == ({NEWER}, {PINNED})

    gpu1.sh(f"rm {BROKEN}")

    assert upgrade(NEWER).succeeded

    assert (installed(gpu1), installed(cp1)) == ({NEWER}, {NEWER})
    assert (loaded(gpu1), loaded(cp1)) == (NEWER, NEWER)
    assert cordoned(cp1, "gpu1") == (False, False)
    assert cordoned(cp1, "cp1") == (True, False)  # of another owner
    assert {name: len(times) for name, times in two_gpu_nodes.items()} == {"cp1": 1, "gpu1": 1}
    assert upgrade(NEWER).changed == 0
