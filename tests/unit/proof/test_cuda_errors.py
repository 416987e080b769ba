"""What a CUDA program's errors mean, by code and by what its container had."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof.cuda import (
    cuda_errors,
    missing_gpus,
    unfinished_fabric,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof.cuda import (
    read as result,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof.record import Entry
from gpu_fleet import node, read, server

ALL = ["nvidia0", "nvidiactl", "nvidia-uvm"]


def left(error: dict[str, Any] | None = None, gpus: Any = (), devices: Any = ALL) -> str:
    return json.dumps({"devices": list(devices), "gpus": list(gpus), "error": error, "seconds": 1.5})


def row(uuid: str, error: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"uuid": uuid, "error": error, "seconds": 0.4}


def failure(code: int, name: str, function: str = "cuInit") -> dict[str, Any]:
    return {"text": f"{function}: {name}", "function": function, "code": code}


def test_gpus_that_compute() -> None:
    run = result(left(gpus=[row("GPU-a"), row("GPU-b")]))
    assert run.computed == ("GPU-a", "GPU-b")
    assert cuda_errors(read(node(gpus=2))[0], run) == []


@pytest.mark.parametrize("shown", [1, 7])
def test_fewer_gpus_than_the_pod_requested(shown: int) -> None:
    run = result(left(gpus=[row(f"GPU-{number}") for number in range(shown)]))
    (found,) = cuda_errors(read(node())[0], run)
    assert found.seen == f"node gpu1: CUDA shows {shown} of the 8 GPUs that the pod requested"


def test_a_container_without_a_gpu() -> None:
    (found,) = cuda_errors(read(node())[0], result(left(devices=[])))
    assert found.seen == "node gpu1: CUDA does not compute: the container has no GPU (100)"


def test_one_device_of_shared_gpus_is_enough() -> None:
    shared = read(node(gpus=32, labels={"nvidia.com/gpu.replicas": "4"}))[0]
    assert cuda_errors(shared, result(left(gpus=[row("GPU-a")]))) == []


def test_one_gpu_of_two_does_not_compute() -> None:
    error = failure(719, "CUDA_ERROR_LAUNCH_FAILED", "cuCtxSynchronize")
    run = result(left(gpus=[row("GPU-a"), row("GPU-b", error)]))
    assert run.computed == ("GPU-a",)
    (found,) = cuda_errors(read(node())[0], run)
    assert found.seen == ("node gpu1: GPU GPU-b does not compute: cuCtxSynchronize: CUDA_ERROR_LAUNCH_FAILED (719)")
    assert "Xid" in found.fix


@pytest.mark.parametrize(
    ("code", "name", "devices", "cause"),
    [
        (999, "CUDA_ERROR_UNKNOWN", ["nvidia0", "nvidiactl"], "no /dev/nvidia-uvm"),
        (3, "CUDA_ERROR_NOT_INITIALIZED", ["nvidia0", "nvidiactl"], "no /dev/nvidia-uvm"),
        (100, "CUDA_ERROR_NO_DEVICE", [], "neither driver nor device"),
        (802, "CUDA_ERROR_SYSTEM_NOT_READY", ALL, "fabric is not completed"),
        (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", ALL, "another release than the loaded kernel module"),
        (999, "CUDA_ERROR_UNKNOWN", ALL, "the GPU or its driver reports an error"),
        (46, "CUDA_ERROR_DEVICE_UNAVAILABLE", ALL, "compute mode"),
    ],
)
def test_the_cause_of_a_code(code: int, name: str, devices: list[str], cause: str) -> None:
    (found,) = cuda_errors(read(node())[0], result(left(failure(code, name), devices=devices)))
    assert f"cuInit: {name} ({code})" in found.seen
    assert cause in found.cause
    assert found.result == {"code": code, "function": "cuInit"}


def test_a_container_without_the_driver() -> None:
    error = {"text": "no CUDA driver here (libcuda.so.1: cannot open)", "function": "", "code": 0}
    (found,) = cuda_errors(read(node())[0], result(left(error)))
    assert "RuntimeClass" in found.fix


def test_a_program_that_leaves_no_result() -> None:
    (found,) = cuda_errors(read(node())[0], result("Traceback\nMemoryError"))
    assert "left no result: Traceback\nMemoryError" in found.seen


def test_fewer_gpus_than_on_the_bus() -> None:
    (found,) = read(node(gpus=7), servers=[server(gpus=8)])
    error = missing_gpus(found, None)
    assert error is not None
    assert error.seen == "node gpu1 offers 7 of 8 GPUs (the PCI bus, 8 on the PCI bus)"
    assert "device plugin" in error.cause


@pytest.mark.parametrize(
    ("expected", "before", "source"),
    [(8, None, "nvidia_driver_expected_gpus"), (None, Entry("", gpus=8), "the last proof")],
)
def test_a_gpu_that_has_fallen_off_the_bus(expected: int | None, before: Entry | None, source: str) -> None:
    (found,) = read(node(gpus=7), servers=[server(gpus=7, expected=expected)])
    error = missing_gpus(found, before)
    assert error is not None
    assert f"offers 7 of 8 GPUs ({source}, 7 on the PCI bus)" in error.seen
    assert error.cause == "a GPU has fallen off the bus"
    assert "nvidia_driver_expected_gpus: 7" in error.fix


def test_a_number_that_is_expected_is_enough() -> None:
    (found,) = read(node(gpus=7), servers=[server(gpus=7, expected=7)])
    assert missing_gpus(found, Entry("", gpus=8)) is None


def test_gpus_that_are_split_now_are_not_missing() -> None:
    (found,) = read(node(gpus=7, resource="nvidia.com/mig-1g.10gb"))
    assert missing_gpus(found, Entry("", {"resource": "nvidia.com/gpu"}, gpus=8)) is None


def test_a_fabric_that_has_not_completed() -> None:
    states = {"0000:1b:00.0": "Completed", "0000:2b:00.0": "In Progress"}
    (found,) = read(node(), servers=[server(fabric=states)])
    error = unfinished_fabric(found)
    assert error is not None
    assert error.seen == "node gpu1: Fabric State of 1 GPUs is In Progress, not Completed"
    assert "802" in error.cause


def test_a_fabric_that_has_completed() -> None:
    (found,) = read(node(), servers=[server(fabric={"0000:1b:00.0": "Completed"})])
    assert unfinished_fabric(found) is None


KINDS: dict[str, dict[str, Any]] = {
    "whole": {"gpus": 8},
    "shared": {"gpus": 32, "labels": {"nvidia.com/gpu.replicas": "4"}},
    "shared on GKE": {"gpus": 32, "labels": {"cloud.google.com/gke-max-shared-clients-per-gpu": "4"}},
    "MIG": {"gpus": 7, "resource": "nvidia.com/mig-1g.10gb"},
}


@pytest.mark.parametrize("on_bus", range(10))
@pytest.mark.parametrize("expected", [0, 1, 7, 8, 9])
@pytest.mark.parametrize("kind", KINDS)
def test_gpus_on_the_bus_are_compared_with_the_expected_number(kind: str, expected: int, on_bus: int) -> None:
    (found,) = read(node(**KINDS[kind]), servers=[server(gpus=on_bus, expected=expected)])
    error = missing_gpus(found, None)
    assert (error is None) == (on_bus >= expected and (kind != "whole" or expected <= 8 or on_bus < 8))
    if error and on_bus < expected:
        assert f"of {expected} GPUs (nvidia_driver_expected_gpus, {on_bus} on the PCI bus)" in error.seen
        assert error.cause == "a GPU has fallen off the bus"
