"""Devices that pods claim, in the shapes that NVIDIA's DRA driver and Kubernetes 1.36 give them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.resource_claims import (
    GPU_DRIVER,
    class_of,
    devices_of,
    limits_of,
    needs_of,
    pods_on,
    whole_gpus,
)

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"
GPU_CLASS = f"device.driver == '{GPU_DRIVER}' && device.attributes['{GPU_DRIVER}'].type == 'gpu'"
MIG_CLASS = GPU_CLASS.replace("'gpu'", "'mig'")


def device(name: str, kind: str = "gpu", taints: list[Any] | None = None, slices: int = 0, **texts: str) -> Any:
    """slices: of memory that it takes from its GPU; a whole GPU of eight takes all."""
    attributes = {key: {"string": value} for key, value in {"type": kind, **texts}.items()}
    attributes["index"] = {"int": 0}  # type: ignore[dict-item]
    counters = [{"counterSet": name.split("-mig")[0], "counters": {"memory": {"value": str(slices)}}}]
    return {
        "name": name,
        "attributes": attributes,
        "taints": taints or [],
        **({"consumesCounters": counters} if slices else {}),
    }


def published(*devices: Any, generation: int = 1, of: int = 1, node: str = "gpu1", **more: Any) -> dict[str, Any]:
    pool = {"name": node, "generation": generation, "resourceSliceCount": of}
    return {"spec": {"driver": GPU_DRIVER, "nodeName": node, "pool": pool, "devices": list(devices), **more}}


def device_class(name: str, expression: str = GPU_CLASS, made: str = "2026-01-01T00:00:00Z", **spec: Any) -> Any:
    metadata = {"name": name, "creationTimestamp": made}
    return {"metadata": metadata, "spec": {"selectors": [{"cel": {"expression": expression}}], **spec}}


CLASSES = [device_class(GPU_DRIVER), device_class("mig.nvidia.com", MIG_CLASS)]
FOUR = published(*(device(f"gpu-{number}", productName=H100) for number in range(4)))
# Two GPUs that can be split, as the driver publishes them with its gate DynamicMIG, and their counters beside.
_PARTS = [
    part
    for gpu in ("gpu-0", "gpu-1")
    for part in (
        device(gpu, slices=8),
        *(device(f"{gpu}-mig-1g-{place}", "mig", slices=1, profile="1g.10gb") for place in range(7)),
        *(device(f"{gpu}-mig-3g-{place}", "mig", slices=4, profile="3g.40gb") for place in (0, 4)),
    )
]
SPLIT = [
    published(*_PARTS, of=2),
    published(
        of=2, sharedCounters=[{"name": gpu, "counters": {"memory": {"value": "8"}}} for gpu in ("gpu-0", "gpu-1")]
    ),
]


def request(device_class: str = GPU_DRIVER, **more: Any) -> dict[str, Any]:
    return {"deviceClassName": device_class, **more}


def fit(*requests: Any, slices: Any = (FOUR,), classes: Any = CLASSES) -> int | None:
    """Pods on gpu1 whose one claim has these requests."""
    shapes = [{"name": "r", **(one if "firstAvailable" in one else {"exactly": one})} for one in requests]
    template = {"spec": {"spec": {"devices": {"requests": shapes}}}}
    pod = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
    needs = needs_of(pod, {"t": template}, classes)
    found = devices_of(slices).get("gpu1")
    return None if needs is None else pods_on(found, needs) if found else 0


def cel(*expressions: str) -> dict[str, Any]:
    return {"selectors": [{"cel": {"expression": expression}} for expression in expressions]}


TAINT = {"key": "gpu.nvidia.com/xid", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("requests", "pods"),
    [
        pytest.param([request()], 4, id="one"),
        pytest.param([request(count=2)], 2, id="two"),
        pytest.param([request(count=3)], 1, id="three of four"),
        pytest.param([request(), request(count=2)], 1, id="two requests"),
        pytest.param([request(allocationMode="All")], 1, id="all of a node"),
        pytest.param([request(allocationMode="All", adminAccess=True), request()], 4, id="an agent's access"),
        pytest.param([{"firstAvailable": [request("mig.nvidia.com"), request(count=2)]}], 2, id="the second choice"),
        pytest.param([{"firstAvailable": [request(count=4), request()]}], 1, id="the first choice"),
        pytest.param([request(**cel(f'device.attributes["{GPU_DRIVER}"].productName == "{H100}"'))], 4, id="a product"),
        pytest.param(
            [request(**cel(f'device.attributes["{GPU_DRIVER}"].productName == "{A100}"'))], 0, id="none of it"
        ),
        pytest.param([request("mig.nvidia.com")], 0, id="no GPU is split"),
    ],
)
def test_shapes_of_claims(requests: list[Any], pods: int) -> None:
    assert fit(*requests) == pods


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param([request("a100.example.com")], id="a class that does not exist"),
        pytest.param(
            [request(**cel('device.capacity["gpu.nvidia.com"].memory > quantity("40Gi")'))], id="a comparison"
        ),
        pytest.param([request(**cel(f'{GPU_CLASS} || device.driver == "x"'))], id="an alternative"),
        pytest.param([request(capacity={"requests": {"memory": "10Gi"}})], id="a part of a device"),
    ],
)
def test_what_cannot_be_told_is_not_guessed(requests: list[Any]) -> None:
    assert fit(*requests) is None


def test_a_selector_that_cannot_be_told_does_not_matter_where_another_rules_out() -> None:
    assert fit(request("mig.nvidia.com", **cel('device.attributes["x"].y > 3'))) == 0


def test_a_claim_that_all_replicas_share_is_not_counted() -> None:
    pod = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "one-for-all"}]}
    assert needs_of(pod, {}, CLASSES) is None


def test_classes_of_other_names_are_read() -> None:
    assert fit(request("fast"), classes=[*CLASSES, device_class("fast")]) == 4
    only_a100 = f"{GPU_CLASS} && device.attributes['{GPU_DRIVER}'].productName == '{A100}'"
    assert fit(request("fast"), classes=[device_class("fast", only_a100)]) == 0


def test_nvidias_classes_are_known_to_whoever_may_not_list_them() -> None:
    assert fit(request(), classes=None) == 4
    assert fit(request("mig.nvidia.com"), classes=None) == 0
    assert fit(request("fast"), classes=None) is None


@pytest.mark.parametrize(
    ("slices", "gpus", "pods"),
    [
        pytest.param([FOUR, published(device("gpu-0"), generation=2)], 1, 1, id="an old generation"),
        pytest.param([published(device("gpu-0"), of=2)], 0, 0, id="half of a pool"),
        pytest.param([published(device("gpu-0"), device("gpu-1", taints=[TAINT]))], 2, 1, id="a taint"),
        pytest.param([published(device("a"), of=2), published(device("b"), of=2)], 2, 2, id="two slices of a pool"),
        pytest.param([FOUR, published(device("gpu-0"), node="gpu2")], 4, 4, id="another node"),
        pytest.param([published(device("m", "mig"), device("n", "mig"))], 2, 0, id="split alone"),
    ],
)
def test_what_counts_of_what_is_published(slices: list[Any], gpus: int, pods: int) -> None:
    found = devices_of(slices)
    assert (whole_gpus(found["gpu1"]) if "gpu1" in found else 0, fit(request(), slices=slices)) == (gpus, pods)


def test_a_tolerated_taint_bars_nobody() -> None:
    tainted = [published(device("gpu-0", taints=[TAINT]))]
    assert fit(request(tolerations=[{"operator": "Exists"}]), slices=tainted) == 1
    assert fit(request(tolerations=[{"key": "other", "operator": "Exists"}]), slices=tainted) == 0


@pytest.mark.parametrize(
    ("requests", "pods"),
    [
        pytest.param([request()], 2, id="whole GPUs"),
        pytest.param(
            [request("mig.nvidia.com", **cel(f'device.attributes["{GPU_DRIVER}"].profile == "3g.40gb"'))], 4, id="3g"
        ),
        pytest.param(
            [request("mig.nvidia.com", **cel(f'device.attributes["{GPU_DRIVER}"].profile == "1g.10gb"'))], 14, id="1g"
        ),
        pytest.param([request(), request("mig.nvidia.com")], 1, id="a GPU and an instance of another"),
    ],
)
def test_a_gpu_and_its_instances_are_not_counted_twice(requests: list[Any], pods: int) -> None:
    assert whole_gpus(devices_of(SPLIT)["gpu1"]) == 2
    assert fit(*requests, slices=SPLIT) == pods


def test_limits_are_claims_of_a_class() -> None:
    named = device_class("by-limit", extendedResourceName="nvidia.com/gpu")
    older = device_class("older", made="2025-01-01T00:00:00Z", extendedResourceName="nvidia.com/gpu")
    assert class_of("nvidia.com/gpu", CLASSES) is None
    assert class_of("nvidia.com/gpu", [*CLASSES, named, older]) == "by-limit"
    assert class_of("deviceclass.resource.kubernetes.io/fast", CLASSES) == "fast"

    def fitting(resource: str, classes: Any) -> int | None:
        pod = {"containers": [{"resources": {"limits": {resource: 2, "cpu": 1}}}]}
        assert limits_of(pod) == {resource: 2}
        needs = needs_of(pod, {}, classes)
        return None if needs is None else pods_on(devices_of([FOUR])["gpu1"], needs)

    assert fitting("nvidia.com/gpu", [*CLASSES, named]) == 2
    assert fitting("nvidia.com/gpu", CLASSES) == 0
    assert fitting("nvidia.com/gpu", None) == 2
    assert fitting(f"deviceclass.resource.kubernetes.io/{GPU_DRIVER}", CLASSES) == 2
    assert fitting("deviceclass.resource.kubernetes.io/missing", CLASSES) is None
