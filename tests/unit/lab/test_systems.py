"""The lab's servers can run the systems that the roles support. The mirror has the paths that roles ask for there."""

from __future__ import annotations

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.server.decisions import SUPPORTED

from lab import upstream
from lab.systems import systems

REPOSITORIES = {(row.path, row.suite) for row in upstream.repositories().values()}


def test_every_supported_system_can_be_tested() -> None:
    assert sorted(systems()) == sorted(name.lower().replace(" ", "-") for name in SUPPORTED)


@pytest.mark.parametrize("system", systems())
def test_the_mirror_has_the_paths_of_each_system(system: str) -> None:
    name, _, number = system.partition("-")
    suite = systems()[system].get("codename", systems()[system]["suite"]).split()[0].lower()

    assert (
        f"developer.download.nvidia.com/compute/cuda/repos/{name}{number.replace('.', '')}/x86_64",
        "",
    ) in REPOSITORIES
    assert (f"download.docker.com/linux/{name}", suite) in REPOSITORIES
