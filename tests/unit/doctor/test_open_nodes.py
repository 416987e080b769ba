"""Whether pods can get GPUs that they do not request, by what an API server and the last proof show."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.visible_devices import (
    VARIABLE,
    depends_on_variable,
    got_by_variable,
    is_admin,
    is_rolled_out,
    takes_gpus,
)
from clusters import Cluster, exporter_daemon_set, plugin_daemon_set, pod

ADMIN = {"capabilities": {"add": ["SYS_ADMIN"]}}
CONTEXTS: dict[str, tuple[dict[str, Any] | None, bool]] = {
    "the chart's": ({"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}, False),
    "none": (None, False),
    "other capabilities": ({"capabilities": {"add": ["SYS_PTRACE"]}}, False),
    "SYS_ADMIN": (ADMIN, True),
    "CAP_SYS_ADMIN": ({"capabilities": {"add": ["CAP_SYS_ADMIN"]}}, True),
    "all capabilities": ({"capabilities": {"add": ["ALL"]}}, True),
    "privileged": ({"privileged": True}, True),
}
STRATEGIES = {"": False, "envvar": False, "volume-mounts": False, "cdi-cri": True, "envvar,cdi-cri": True}


def plugin(context: dict[str, Any] | None, strategy: str = "cdi-cri", *, updated: int = 2) -> dict[str, Any]:
    made = plugin_daemon_set()
    container = made["spec"]["template"]["spec"]["containers"][0]
    container.pop("securityContext")
    container |= {"env": [{"name": "DEVICE_LIST_STRATEGY", "value": strategy}]} if strategy else {}
    container |= {"securityContext": context} if context is not None else {}
    made["metadata"]["generation"] = 2
    made["status"] = {"observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": updated}
    return made


@pytest.mark.parametrize(("name", "strategy", "updated"), [*product(CONTEXTS, STRATEGIES, (1, 2))])
def test_a_plugin_depends_on_the_variable_unless_nothing_of_it_does(name: str, strategy: str, updated: int) -> None:
    context, is_privileged = CONTEXTS[name]
    is_free = is_privileged and STRATEGIES[strategy]

    assert depends_on_variable(plugin(context, strategy, updated=updated)) is not is_free
    assert is_rolled_out(plugin(context, strategy, updated=updated)) is (updated == 2)


@pytest.mark.parametrize(("name", "strategy", "updated"), [*product(CONTEXTS, STRATEGIES, (1, 2))])
def test_the_sidecar_that_switches_its_configuration_changes_nothing(name: str, strategy: str, updated: int) -> None:
    """With pools or shared GPUs the chart puts it first. It has the plugin's image and not its variables."""
    alone, beside = (plugin(CONTEXTS[name][0], strategy, updated=updated) for _number in range(2))
    containers = beside["spec"]["template"]["spec"]["containers"]
    given = {"image": containers[0]["image"], "securityContext": CONTEXTS[name][0]}
    containers.insert(0, {"name": "nvidia-device-plugin-sidecar", "command": ["config-manager"], **given})

    assert depends_on_variable(beside) is depends_on_variable(alone)
    assert got_by_variable(beside) is got_by_variable(alone)


@pytest.mark.parametrize("name", CONTEXTS)
def test_an_exporter_depends_on_it_unless_it_is_privileged(name: str) -> None:
    context, is_privileged = CONTEXTS[name]
    made = exporter_daemon_set()
    made["spec"]["template"]["spec"]["containers"][0]["securityContext"] = context
    made["metadata"]["generation"] = 1
    made["status"] = {"observedGeneration": 1}

    assert is_admin({"securityContext": context}) is is_privileged
    assert depends_on_variable(made) is not is_privileged


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_plugin_that_works_unprivileged_shows_that_the_variable_is_accepted(name: str) -> None:
    context, is_privileged = CONTEXTS[name]
    assert got_by_variable(plugin(context)) is not is_privileged


def test_a_plugin_with_other_ways_to_its_gpus_shows_nothing() -> None:
    by_mount, by_host, by_note = (plugin(None) for _ in range(3))
    container = by_mount["spec"]["template"]["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "list", "mountPath": "/var/run/nvidia-container-devices/all"}]
    by_host["spec"]["template"]["spec"]["volumes"] = [{"name": "dev", "hostPath": {"path": "/dev"}}]
    note = {"nvidia.cdi.k8s.io/container.nvidia-device-plugin": "management.nvidia.com/gpu=all"}
    by_note["spec"]["template"].setdefault("metadata", {})["annotations"] = note

    assert not any(map(got_by_variable, (by_mount, by_host, by_note)))


def using(env: str | None = None, gpus: str = "", runtime_class: str | None = "nvidia", **spec: Any) -> dict[str, Any]:
    made = pod("miner-0", "somewhere", "gpu1", {})
    container: dict[str, Any] = {"name": "main"}
    container |= {"env": [{"name": VARIABLE, "value": env}]} if env is not None else {}
    container |= {"resources": {"limits": {"nvidia.com/gpu": gpus}}} if gpus else {}
    made["spec"] |= {"containers": [container], **spec}
    made["spec"] = {key: value for key, value in made["spec"].items() if key != "runtimeClassName"}
    made["spec"] |= {"runtimeClassName": runtime_class} if runtime_class else {}
    return made


PODS: dict[str, tuple[dict[str, Any], bool, bool]] = {
    "the class alone, as an image may set the variable": (using(), True, True),
    "all": (using("all"), True, True),
    "a GPU by its UUID": (using("GPU-1"), True, True),
    "void": (using("void"), False, False),
    "a limit": (using(gpus="1"), False, False),
    "a limit of 0": (using(gpus="0"), True, True),
    "a limit, and all": (using("all", gpus="1"), False, False),
    "a claim": (using(resourceClaims=[{"name": "gpu"}]), False, False),
    "another class": (using("all", runtime_class="nvidia-cdi"), True, True),
    "a class of something else": (using("all", runtime_class="gvisor"), False, True),
    "no class": (using(runtime_class=None), False, False),
    "no class, and all": (using("all", runtime_class=None), False, True),
    "a sidecar": (
        using(
            containers=[
                {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
                {"name": "sidecar", "env": [{"name": VARIABLE, "value": "all"}]},
            ]
        ),
        True,
        True,
    ),
    "an ephemeral container": (
        using("void", ephemeralContainers=[{"name": "debug", "env": [{"name": VARIABLE, "value": "all"}]}]),
        True,
        True,
    ),
    "ended": ({**using("all"), "status": {"phase": "Succeeded"}}, False, False),
}


@pytest.mark.parametrize("name", PODS)
def test_pods_that_may_have_gpus_without_a_request(name: str) -> None:
    made, takes, takes_by_default = PODS[name]

    assert bool(takes_gpus(made, has_default=False)) is takes
    assert bool(takes_gpus(made, has_default=True)) is takes_by_default


def test_the_finding_names_pods_of_open_nodes_and_no_component() -> None:
    cluster = Cluster(unrequested={"gpu1": "visible", "gpu2": "denied"})
    on_gpu2 = using("all")
    on_gpu2["spec"]["nodeName"] = "gpu2"
    cluster.other_pods = [using("all"), on_gpu2]
    del cluster.pods["chat-0"]
    cluster.target["spec"]["replicas"] = 1
    [finding] = [found for found in cluster.report()["findings"] if found["id"] == "GPUS_WITHOUT_REQUEST"]

    assert finding["object"] == "node gpu1"
    assert "1 pods may have GPUs without a request: somewhere/miner-0" in finding["seen"][0]


def test_a_proof_counts_more_than_what_the_plugin_shows() -> None:
    """An admission policy may reject what the toolkit would accept."""
    cluster = Cluster(unrequested={"gpu1": "denied", "gpu2": "denied"})
    cluster.daemon_sets[1] = plugin(None)

    assert cluster.state().open_nodes == []
    assert Cluster(daemon_sets=[plugin(None)]).state().open_nodes == ["gpu1", "gpu2"]
