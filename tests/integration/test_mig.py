"""The role gpu_mig against a real API server. A stand-in for the MIG manager follows the labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from chart_site import Site
from control_plane import running
from mig_manager import CAPABLE, CONFIG, TOLD, Manager
from playbook import changed

BEFORE = "kubegpu.autoscale/mig-before"
MARK, OURS = "kubegpu.autoscale/cordoned-for-mig", {"kubegpu.autoscale/mig-inventory": "default"}


@pytest.fixture(scope="module")
def running_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running(tmp_path_factory.mktemp("control-plane")) as plane:
        site = Site(tmp_path_factory.mktemp("site"), *plane)
        yield site
        site.stop()


@pytest.fixture
def site(running_site: Site) -> Iterator[Site]:
    """Two nodes that can, one that cannot, one that is cordoned already; a pod on the first."""
    core = running_site.core
    nodes: dict[str, dict[str, Any]] = {
        "h1": CAPABLE,
        "h2": CAPABLE | {CONFIG: "all-3g.40gb", TOLD: "success"},
        "t4": {},
    }
    for name, labels in nodes.items():
        core.create_node({"metadata": {"name": name, "labels": labels}})
        core.patch_node(name, {"spec": {"taints": None, "unschedulable": name == "h2" or None}})
    pod = {
        "metadata": {"name": "chat"},
        "spec": {"nodeName": "h1", "containers": [{"name": "main", "image": "service"}]},
    }
    core.create_namespaced_pod("default", pod)
    yield running_site
    core.delete_collection_node()
    core.delete_collection_namespaced_pod("default", grace_period_seconds=0)


@pytest.fixture
def manager(site: Site) -> Iterator[Manager]:
    manager = Manager(site)
    yield manager
    manager.stop()


def nodes(site: Site) -> dict[str, tuple[str | None, bool, bool]]:
    """Profile, whether it is cordoned, whether the role's mark is there."""
    return {
        node.metadata.name: (
            (node.metadata.labels or {}).get(CONFIG),
            bool(node.spec.unschedulable),
            BEFORE in (node.metadata.annotations or {}),
        )
        for node in site.core.list_node().items
    }


def mig(site: Site, **variables: Any) -> Any:
    return site.bring(
        "gpu_mig", gpu_mig_drain_options={"force": True}, gpu_mig_drain_timeout=60, gpu_mig_wait_timeout=60, **variables
    )


def test_profiles_are_applied_with_the_pods_moved_away_and_taken_back(site: Site, manager: Manager) -> None:
    wanted = {"gpu_mig_state": "present", "gpu_mig_profile": "all-1g.10gb"}

    done = mig(site, **wanted)

    assert done.returncode == 0
    assert manager.seen == [("h1", "all-1g.10gb", [], True), ("h2", "all-1g.10gb", [], True)]
    applied = {"h1": ("all-1g.10gb", False, True), "h2": ("all-1g.10gb", True, True), "t4": (None, False, False)}
    assert nodes(site) == applied
    again = mig(site, **wanted)
    assert (again.returncode, changed(again.stdout), nodes(site)) == (0, 0, applied)

    gone = mig(site, gpu_mig_state="absent")
    assert gone.returncode == 0
    assert [(name, profile) for name, profile, *_ in manager.seen[2:]] == [
        ("h1", "all-disabled"),
        ("h2", "all-3g.40gb"),
    ]
    assert nodes(site) == {"h1": (None, False, False), "h2": ("all-3g.40gb", True, False), "t4": (None, False, False)}
    assert changed(mig(site, gpu_mig_state="absent").stdout) == 0


def test_a_node_that_fails_stays_cordoned_and_the_next_is_not_touched(site: Site, manager: Manager) -> None:
    done = mig(site, gpu_mig_state="present", gpu_mig_profile="all-9g.1gb")

    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0
    assert "MIG -> h1: profile all-9g.1gb was not applied" in said
    assert nodes(site)["h1"][1] is True
    assert [name for name, *_ in manager.seen] == ["h1"]
    # The next run continues, and uncordons the nodes that the role cordoned.
    assert mig(site, gpu_mig_state="present", gpu_mig_profile="all-1g.10gb").returncode == 0
    assert nodes(site)["h1"] == ("all-1g.10gb", False, True)


@pytest.mark.parametrize("state", ["present", "absent"])
def test_a_run_that_ended_before_pods_could_come_is_gone_on_with(site: Site, manager: Manager, state: str) -> None:
    """The manager has finished in the meantime. An existing cordon stays."""
    labels = {CONFIG: "all-1g.10gb", TOLD: "success"}
    for name, marks in (("h1", {BEFORE: "", MARK: "default", **OURS}), ("h2", {BEFORE: "all-1g.10gb", **OURS})):
        metadata = {"labels": labels, "annotations": marks}
        site.core.patch_node(name, {"metadata": metadata, "spec": {"unschedulable": True}})
        site.core.patch_node_status(name, {"status": {"allocatable": {"nvidia.com/gpu": "7"}}})

    assert mig(site, gpu_mig_state=state, gpu_mig_profile="all-1g.10gb").returncode == 0
    is_there = state == "present"
    assert nodes(site)["h1"] == ("all-1g.10gb" if is_there else None, False, is_there)
    assert nodes(site)["h2"] == ("all-1g.10gb", True, is_there)
    assert not any(MARK in (node.metadata.annotations or {}) for node in site.core.list_node().items)


def test_a_cluster_without_a_manager_is_refused_before_a_pod_is_moved(site: Site) -> None:
    site.core.patch_node("h1", {"metadata": {"labels": {"nvidia.com/gpu.deploy.mig-manager": None}}})

    done = mig(site, gpu_mig_state="present", gpu_mig_profile="all-1g.10gb")

    assert done.returncode != 0
    assert "h1 has no MIG manager. Nothing was changed." in " ".join((done.stdout + done.stderr).split())
    assert nodes(site)["h1"] == (None, False, False)
    assert site.core.read_namespaced_pod("chat", "default").metadata.deletion_timestamp is None
