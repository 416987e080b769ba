"""Pods of the lab see the GPUs that they request, and no others: the attacks of docs/isolation.md."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any

import pytest
from gpu_attacks import Attack, attacks, named, seen
from kubernetes.client import CoreV1Api, V1Namespace, V1ObjectMeta
from kubernetes.client.exceptions import ApiException
from live_lab import PLUGIN, Lab, wait_until

NAMESPACE = "attacks"
CONFIG = "/etc/nvidia-container-runtime/config.toml"
KEY = "accept-nvidia-visible-devices-envvar-when-unprivileged"
# A node takes 110 pods.
AT_ONCE = 30
ENDED_S = 240
WORST = "class nvidia, all, containers, limit none"

pytestmark = pytest.mark.slow


def isolation_open(lab: Lab) -> AbstractContextManager[None]:
    """Pods may name GPUs in a variable, as the toolkit allows by default."""
    return lab.on_gpu_server(
        f"sed -i 's/^{KEY} = false/{KEY} = true/' {CONFIG}", f"sed -i 's/^{KEY} = true/{KEY} = false/' {CONFIG}"
    )


@pytest.fixture(scope="module")
def found(lab: Lab) -> list[Attack]:
    return attacks(next(iter(lab.gpus().values())))


@pytest.fixture(scope="module")
def namespace(lab: Lab) -> Iterator[str]:
    core = CoreV1Api(lab.api)
    with suppress(ApiException):  # of a run that was killed
        core.create_namespace(V1Namespace(metadata=V1ObjectMeta(name=NAMESPACE)))
    yield NAMESPACE
    core.delete_namespace(NAMESPACE)


def is_over(pod: dict[str, Any]) -> bool:
    """Whether its containers have ended, or the runtime has rejected one."""
    status = pod.get("status") or {}
    states = [
        row.get("state") or {}
        for kind in ("containerStatuses", "initContainerStatuses")
        for row in status.get(kind) or ()
    ]
    rejected = [(state.get("waiting") or {}).get("reason", "").endswith("Error") for state in states]
    return status.get("phase") in ("Succeeded", "Failed") or any(rejected)


def results(lab: Lab, namespace: str, tried: list[Attack]) -> dict[str, list[str]]:
    """What the pods of each attack see; nothing if one did not start."""
    core = CoreV1Api(lab.api)
    devices: dict[str, list[str]] = {}
    for begin in range(0, len(tried), AT_ONCE):
        names = {f"attack-{number}": attack for number, attack in enumerate(tried)}
        some = dict(list(names.items())[begin : begin + AT_ONCE])
        for number, attack in enumerate(some.values(), begin):
            body: Any = named(attack, number, namespace)
            core.create_namespaced_pod(namespace, body)
        deadline = time.monotonic() + ENDED_S
        while not all(map(is_over, pods := lab.find("Pod", namespace))) and time.monotonic() < deadline:
            time.sleep(1)
        devices |= {some[pod["metadata"]["name"]].name: seen(pod) for pod in pods if pod["metadata"]["name"] in some}
        core.delete_collection_namespaced_pod(namespace, grace_period_seconds=0)
        wait_until(lambda: not lab.find("Pod", namespace), "the attacks are gone", 60)
    return devices


def test_gpus_are_only_for_who_requests_them(lab: Lab, namespace: str, found: list[Attack]) -> None:
    tried = [attack for attack in found if not attack.needs_admin]
    saw = results(lab, namespace, tried)

    assert {
        name: devices
        for name, devices in saw.items()
        if len(devices) != next(a.wanted for a in tried if a.name == name)
    } == {}
    assert len(saw) == len(tried)


def test_the_lab_shows_what_would_be_open(lab: Lab, namespace: str, found: list[Attack]) -> None:
    """Without the setting, the worst pod sees each GPU: what finds nothing above can find something."""
    worst = [attack for attack in found if attack.name == WORST]
    with isolation_open(lab):
        assert len(results(lab, namespace, worst)[WORST]) == len(lab.gpus())
    assert results(lab, namespace, worst)[WORST] == []


def test_the_components_start_without_unrequested_gpus(lab: Lab) -> None:
    for pod in lab.find("Pod", PLUGIN):
        lab.end_pod(pod["metadata"]["name"], PLUGIN)
    wait_until(lambda: lab.is_rolled_out("DaemonSet", PLUGIN, PLUGIN), "the plugin runs again", 120)
    assert lab.allocatable() == str(len(lab.gpus()))
