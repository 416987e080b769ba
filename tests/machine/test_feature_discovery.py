"""GPU feature discovery itself, on the lab's driver and without NFD: the labels that roles and the proof read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from driver_machine import build, in_container
from programs import FOLDER, program

# `make test` does not compile it: its own target does.
COMPILED = (FOLDER / "gpu-feature-discovery").exists() or bool(os.environ.get("FEATURE_DISCOVERY"))
pytestmark = pytest.mark.skipif(not COMPILED, reason="`make test-feature-discovery` compiles it")
DISCOVER = "/gpus/gpu-feature-discovery --use-node-feature-api=false --oneshot --no-timestamp --output-file=/run/labels"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = build(tmp_path_factory.mktemp("gpu") / "built", "MODEL=H100")
    shutil.copy(program("gpu-feature-discovery"), folder)
    return folder


def labels(built: Path, folder: Path, *lines: str, options: str = "") -> dict[str, str]:
    """Of a node whose driver was told these lines first."""
    told = f"control {' '.join(map(repr, lines))}; " if lines else ""
    printed = in_container(built, folder, f"{told}{DISCOVER} {options} 2>/dev/null; cat /run/labels")
    return dict(line.split("=", 1) for line in printed.splitlines())


def test_a_node_has_the_labels_that_roles_read(built: Path, tmp_path: Path) -> None:
    found = labels(built, tmp_path)

    assert found["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert (found["nvidia.com/gpu.count"], found["nvidia.com/gpu.replicas"]) == ("2", "1")
    assert found["nvidia.com/mig.capable"] == "true"
    assert found["nvidia.com/cuda.driver-version.full"] == "580.178.04"


def test_it_does_not_label_a_node_as_one_with_gpus(built: Path, tmp_path: Path) -> None:
    """The role gpu_node_labels or node-feature-discovery does."""
    assert "nvidia.com/gpu.present" not in labels(built, tmp_path)


def test_a_split_gpu_is_counted_by_its_instances(built: Path, tmp_path: Path) -> None:
    lines = ("mig 0 1", "mig 1 1", "partition 0 9", "compute 0/2 1", "partition 1 9", "compute 1/2 1")
    found = labels(built, tmp_path, *lines, options="--mig-strategy=mixed")

    assert found["nvidia.com/mig-3g.40gb.count"] == "2"
