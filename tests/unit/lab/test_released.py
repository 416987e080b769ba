"""A released tag builds for ever: what a lab is made from has a name that keeps its content."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.artifacts import Artifact
from lab.graph import Graph
from lab.programs import program_groups
from lab.systems import systems

# Which Debian they name changes with time, or their packages do until they are released.
MOVING = {"forky", "testing", "unstable", "sid", "stable", "oldstable", "experimental"}


def made_from(artifact: Artifact) -> Iterator[Artifact]:
    yield artifact
    for need in artifact.needs:
        yield from made_from(need)


@pytest.mark.parametrize("system", sorted(systems()))
def test_nothing_comes_from_a_suite_that_moves(system: str) -> None:
    graph = Graph(large=True, system=system, driver=system.startswith("debian"))
    wanted = (graph.node, graph.apt, graph.images, graph.charts, graph.balancer)

    found = {part.name: part.facts for artifact in wanted if artifact for part in made_from(artifact)}
    assert {name for name, facts in found.items() if MOVING & set(facts)} == set()
    assert {"node-root-" + systems()[system]["suite"], "bookworm", "programs-kubernetes"} <= set(found)


def test_what_shares_packages_is_compiled_after_the_group_that_has_most() -> None:
    groups = program_groups()

    assert {name: group.after for name, group in groups.items()} == {
        "kubernetes": (),
        "etcd": ("programs-kubernetes",),
        "prometheus-adapter": (),
        "nvidia": ("programs-kubernetes",),
        "containerd": ("programs-kubernetes",),
    }
