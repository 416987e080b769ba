"""The policy of docs/isolation rejects each pod that would get GPUs without a request, and no other."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from itertools import product
from typing import Any

import pytest
import yaml
from collection import ROOT
from gpu_attacks import VARIABLE, Attack, attacks, container, named, pod
from kubernetes import client
from kubernetes.client.rest import ApiException
from kubernetes.dynamic import DynamicClient

CLASSES = ("nvidia", "nvidia-cdi")
NAMESPACE, EXEMPT = "policy-attacks", "nvidia-device-plugin"
# The API server of these tests rejects privileged pods itself.
FOUND = [attack for attack in attacks("GPU-of-another-pod", CLASSES) if "'privileged': True" not in str(attack.pod)]
WORST = next(found for found in FOUND if found.name == "class nvidia, all, containers, limit none")
SILENT = {VARIABLE: "void"}
GOOD = [
    Attack("a limit and the class", pod(container(gpus="1"), runtime_class="nvidia")),
    Attack("a silent sidecar", pod(container(gpus="1"), container("sidecar", SILENT), runtime_class="nvidia")),
    Attack(
        "a claim",
        pod(
            {**container(env=SILENT), "resources": {"claims": [{"name": "gpu"}]}},
            runtime_class="nvidia",
            resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        ),
    ),
]


def create(kube: client.ApiClient, body: dict[str, Any], **more: Any) -> None:
    resource = DynamicClient(kube).resources.get(api_version=body["apiVersion"], kind=body["kind"])
    resource.create(body, namespace=body["metadata"].get("namespace"), **more)


def remove(kube: client.ApiClient, body: dict[str, Any]) -> None:
    DynamicClient(kube).resources.get(api_version=body["apiVersion"], kind=body["kind"]).delete(
        body["metadata"]["name"]
    )


def made(kind: str, name: str, version: str = "v1", **more: Any) -> dict[str, Any]:
    namespace = {"namespace": more.pop("namespace")} if "namespace" in more else {}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **namespace}, **more}


@pytest.fixture(scope="module")
def policy(kube: client.ApiClient) -> Iterator[None]:
    for name in (NAMESPACE, EXEMPT):
        create(kube, made("Namespace", name))
        with suppress(ApiException):  # the controller was faster
            create(kube, made("ServiceAccount", "default", namespace=name))
    classes = [made("RuntimeClass", name, "node.k8s.io/v1", handler="nvidia") for name in CLASSES]
    policies = yaml.safe_load((ROOT / "docs" / "isolation" / "policy.yml").read_text())["items"]
    for document in (*classes, *policies):
        create(kube, document)
    deadline = time.monotonic() + 60
    while not rejection(kube, WORST) and time.monotonic() < deadline:
        time.sleep(0.2)
    yield
    for document in (*policies, *classes):
        remove(kube, document)


def rejection(kube: client.ApiClient, attack: Attack, namespace: str = NAMESPACE) -> str:
    """Why the API server rejects the pod; empty if it does not."""
    try:
        create(kube, named(attack, 1, namespace), query_params=[("dryRun", "All")])
    except ApiException as err:
        return str(json.loads(err.body)["message"])
    return ""


def may_get_others(attack: Attack) -> bool:
    """Whether NVIDIA's runtime would give one of its containers GPUs by the variable, set in the pod or in an image."""
    spec = attack.pod["spec"]

    def gets(found: dict[str, Any]) -> bool:
        limits = found["resources"].get("limits") or {}
        names = [row["name"] for row in found["env"]]
        return limits.get("nvidia.com/gpu", "0") == "0" or VARIABLE in names

    return bool(spec.get("runtimeClassName")) and any(map(gets, [*spec["containers"], *spec.get("initContainers", ())]))


@pytest.mark.parametrize("attack", FOUND, ids=lambda attack: attack.name)
def test_a_pod_that_would_get_gpus_of_others_is_rejected(kube: client.ApiClient, policy: None, attack: Attack) -> None:
    why = rejection(kube, attack)
    assert bool(why) is may_get_others(attack), why
    assert not why or "gpus-on-request" in why


def with_void(attack: Attack, place: str) -> Attack:
    """Each container that sets the variable also sets it to `void`, before or after. The API server accepts both."""
    changed = deepcopy(dict(attack.pod))
    for found in (*changed["spec"]["containers"], *changed["spec"].get("initContainers", ())):
        for row in [row for row in found["env"] if row["name"] == VARIABLE]:
            found["env"].insert(0 if place == "before" else len(found["env"]), {**row, "value": "void"})
    return Attack(f"{attack.name}, void {place}", changed)


@pytest.mark.parametrize(
    "attack",
    [with_void(attack, place) for attack in FOUND if VARIABLE in str(attack.pod) for place in ("before", "after")],
    ids=lambda attack: attack.name,
)
def test_a_void_beside_the_attack_changes_nothing(kube: client.ApiClient, policy: None, attack: Attack) -> None:
    assert bool(rejection(kube, attack)) is may_get_others(attack)


@pytest.mark.parametrize("attack", GOOD, ids=lambda attack: attack.name)
def test_a_pod_that_requests_its_gpus_is_accepted(kube: client.ApiClient, policy: None, attack: Attack) -> None:
    assert rejection(kube, attack) == ""


# Names of limits, and whether the device plugin names the GPUs of a container that has one.
LIMITS = {
    "nvidia.com/gpu": True,
    "nvidia.com/gpu.shared": True,
    "nvidia.com/mig-1g.10gb": True,
    "nvidia.com/hostdev": False,
    "nvidia.com/GRID_A100": False,
    "cpu": False,
}
# Prefixes of `envFrom`, and whether the variable may come from it.
PREFIXES = {"": True, "NVIDIA_": True, VARIABLE: True, "APP_": False, f"{VARIABLE}_": False}
OF_ITS_NODE = [*product(LIMITS, (False, True), (None, *PREFIXES), ([], ["void"], ["all"]))]


@pytest.mark.parametrize("place", ["containers", "initContainers"])
def test_what_a_request_does_not_cover_has_to_be_void(kube: client.ApiClient, policy: None, place: str) -> None:
    """An image may set `all`, which the API server does not see. Of a claim, it does not see the driver."""
    for limit, has_claim, prefix, values in OF_ITS_NODE:
        found = container("asking")
        found["env"] = [{"name": VARIABLE, "value": value} for value in values]
        found["resources"] = {"limits": {limit: "1"}, "claims": [{"name": "nic"}] if has_claim else []}
        if prefix is not None:
            found["envFrom"] = [{"prefix": prefix, "configMapRef": {"name": "any"}}]
        others = [] if place == "containers" else [container("main", SILENT)]
        made = pod(*others, runtime_class="nvidia", **({place: [found]} if others else {}))
        made["spec"]["containers"] = made["spec"]["containers"] or [found]
        if has_claim:
            made["spec"]["resourceClaims"] = [{"name": "nic", "resourceClaimTemplateName": "nic"}]
        is_silent = values == ["void"]
        is_plain = not values and not PREFIXES["APP_" if prefix is None else prefix]
        why = rejection(kube, Attack("asking", made))

        assert bool(why) is not (is_silent or (LIMITS[limit] and is_plain)), (limit, has_claim, prefix, values, why)
        assert not why or "gpus-on-request" in why


def test_components_of_exempt_namespaces_are_accepted(kube: client.ApiClient, policy: None) -> None:
    assert rejection(kube, WORST)
    assert rejection(kube, WORST, EXEMPT) == ""


@pytest.mark.parametrize(("env", "is_rejected"), [({VARIABLE: "all"}, True), ({}, True), (SILENT, False)])
def test_ephemeral_containers(kube: client.ApiClient, policy: None, env: dict[str, str], is_rejected: bool) -> None:
    name = f"debugged-{len(env)}-{env.get(VARIABLE, 'none')}"
    running = named(GOOD[0], 1, NAMESPACE)
    running["metadata"]["name"] = name
    create(kube, running)
    extra = {key: value for key, value in container("debug", env).items() if key != "resources"}
    core = client.CoreV1Api(kube)
    try:
        core.patch_namespaced_pod_ephemeralcontainers(name, NAMESPACE, {"spec": {"ephemeralContainers": [extra]}})
        why = ""
    except ApiException as err:
        why = str(json.loads(err.body)["message"])

    assert bool(why) is is_rejected, why
