"""What the program of gpu_proof leaves in the status of its container."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof import cuda
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.pci import GENERATIONS

ROOT = Path(__file__).parents[2]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name in ("cuda", "cuda_proof"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    load(next(ROOT.glob("roles/*/files/cuda.py")))
    return load(ROOT / "roles/gpu_proof/files/cuda_proof.py")


def result(gpus: int, error: dict[str, Any] | None = None) -> dict[str, Any]:
    uuids = [f"GPU-{number:08x}-cb86-4d90-a5d2-b86b0bcd1b1b" for number in range(gpus)]
    rows = [{"uuid": uuid, "error": error, "seconds": 0.019} for uuid in uuids]
    devices = ["nvidia-uvm", "nvidia-uvm-tools", "nvidiactl", *(f"nvidia{number}" for number in range(gpus))]
    return {"devices": devices, "gpus": rows, "error": None, "seconds": 2.708}


@pytest.mark.parametrize("gpus", [0, 1, 8, 16, 56, 120])
def test_each_gpu_of_a_server_has_a_row_within_the_limit_of_the_kubelet(program: ModuleType, gpus: int) -> None:
    text = program.message(result(gpus))
    assert len(text) <= program.LIMIT
    run = cuda.read(text)
    assert len(set(run.computed)) == len(run.gpus) == gpus
    assert run.failures == []
    assert cuda.UVM in run.devices


def test_a_server_of_usual_size_has_whole_uuids(program: ModuleType) -> None:
    assert json.loads(program.message(result(8))) == result(8)


@pytest.mark.parametrize("gpus", [1, 16, 120])
def test_failures_fit_however_many_they_are(program: ModuleType, gpus: int) -> None:
    failure = {"text": "cuMemAlloc: CUDA_ERROR_ECC_UNCORRECTABLE " + "x" * 100, "function": "cuMemAlloc", "code": 214}
    text = program.message(result(gpus, failure))
    assert len(text) <= program.LIMIT
    [(subject, first), *_] = cuda.read(text).failures
    assert subject.startswith("GPU GPU-00000000")
    assert first == failure


# NVIDIA's table of compute capabilities, and the first PTX version that knows the oldest of them.
CAPABILITIES = {"maxwell": 50, "pascal": 60, "volta": 70, "turing": 75, "ampere": 80, "ada": 89, "hopper": 90}
LATER = {"blackwell": 100, "rubin": 103}


def test_the_kernels_run_on_every_generation_that_a_driver_supports(program: ModuleType) -> None:
    """The driver compiles PTX for its own and for later GPUs, so the oldest one decides."""
    assert {*GENERATIONS} - {"pre-maxwell"} == {*CAPABILITIES, *LATER}
    [target] = re.findall(rb"^\.target sm_([0-9]+)$", sys.modules["cuda"].PTX, re.MULTILINE)
    [version] = re.findall(rb"^\.version ([0-9.]+)$", sys.modules["cuda"].PTX, re.MULTILINE)
    assert int(target) <= min(CAPABILITIES.values())
    assert version == b"4.0"


@pytest.mark.parametrize("code", [cuda.NO_BINARY, cuda.INVALID_PTX])
def test_a_gpu_that_is_too_old_for_the_kernels_is_named(code: int) -> None:
    failure = {"text": "cuModuleLoadData: CUDA_ERROR_INVALID_PTX", "function": "cuModuleLoadData", "code": code}
    cause, fix = next(cuda._meanings("gpu1", code, failure["text"], [cuda.UVM]))
    assert "older than Maxwell" in cause
    assert "kubegpu_ignored_gpus" in fix
