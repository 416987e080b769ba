"""What the lookup plugin `components` reads of an inventory, and what it rejects."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.kubegpu.autoscale.plugins.lookup.components import LookupModule
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.decisions import PARTS, operator_roles


def decided(part: str, **variables: Any) -> Any:
    """A part, as a play with these variables has it."""
    [found] = LookupModule(loader=DataLoader(), templar=Templar(DataLoader(), variables)).run([part], variables)
    return found


def test_variables_may_be_templates() -> None:
    variables = {"dcgm_exporter_namespace": trust_as_template("{{ pool }}-gpus"), "pool": "a"}
    assert decided("wanted", **variables)["dcgm_exporter"]["namespace"] == "a-gpus"


@pytest.mark.parametrize(("adopt", "state"), [("false", "existing"), ("true", "present"), ("", "existing")])
def test_text_of_the_command_line_is_a_truth(adopt: str, state: str) -> None:
    """`-e dcgm_exporter_adopt=false` is text, and does not adopt."""
    theirs = {"kind": "DaemonSet", "name": "x/dcgm", "owned": False, "release": "monitoring/dcgm-exporter"}
    cluster = {"context": "test", "components": {"exporter": [theirs]}}
    assert decided("places", kubegpu_cluster=cluster, dcgm_exporter_adopt=adopt)["dcgm_exporter"]["state"] == state


def test_only_variables_of_the_part_are_read() -> None:
    """A play on servers, before any cluster exists, needs no value that only the cluster's roles can have."""
    unready = trust_as_template("{{ undefined_in_this_play }}")
    assert decided("fleet", kubegpu_cluster=unready, prometheus_stack_release=unready)["interval"] == 2


def test_an_unknown_part_is_named_with_those_that_exist() -> None:
    with pytest.raises(AnsibleError, match=r"unknown part places2\. Next: name one or more of fleet, hpa_sync"):
        decided("places2")


def test_an_error_of_the_inventory_is_that_of_ansible() -> None:
    with pytest.raises(AnsibleError, match=r"is not a fleet size\. Next: set kubegpu_fleet"):
        decided("fleet", kubegpu_fleet={"nodes": "many"})


def test_every_part_has_a_default() -> None:
    assert [part for part in PARTS if decided(part) is None] == []


@pytest.mark.parametrize(
    ("values", "roles"),
    [
        ({}, []),
        ({"gpu_operator_state": "present"}, []),
        (
            {"gpu_operator_state": "present", "gpu_operator_driver": "operator"},
            ["nvidia_driver", "nvidia_container_toolkit"],
        ),
        ({"gpu_operator_state": "existing", "gpu_operator_driver": "operator"}, []),
        ({"gpu_operator_driver": "operator"}, []),
    ],
)
def test_the_operator_replaces_roles_of_servers(values: dict[str, Any], roles: list[str]) -> None:
    assert operator_roles(values) == roles


OF_NODE = {"kind": "device plugin on Node", "name": "a", "owned": False, "release": "", "origin": "node"}
EKSCTL = {"kind": "DaemonSet", "name": "kube-system/plugin", "owned": False, "release": "", "origin": "manifest"}
OURS = {"kind": "DaemonSet", "name": "x/y", "owned": True, "release": "nvidia-device-plugin/nvidia-device-plugin"}


def seen(classes: list[str] | None, *plugins: dict[str, Any]) -> dict[str, Any]:
    return {"context": "test", "components": {"device_plugin": [*plugins]}, "runtime_classes": classes}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "nvidia"),
        ({"kubegpu_cluster": seen(None, EKSCTL)}, "nvidia"),
        ({"kubegpu_cluster": seen([])}, "nvidia"),
        ({"kubegpu_cluster": seen([], OURS)}, "nvidia"),
        ({"kubegpu_cluster": seen([], EKSCTL)}, ""),
        ({"kubegpu_cluster": seen(["gvisor"], OF_NODE)}, ""),
        ({"kubegpu_cluster": seen(["nvidia"], EKSCTL)}, "nvidia"),
        ({"kubegpu_cluster": seen([]), "gpu_operator_state": "present"}, "nvidia"),
        ({"kubegpu_cluster": seen([]), "nvidia_device_plugin_state": "existing"}, ""),
    ],
    ids=[
        *("no cluster yet", "no right to list classes", "ours comes", "ours is there", "eksctl's plugin"),
        *("Bottlerocket", "a class of others", "the operator comes", "said to exist"),
    ],
)
def test_pods_get_the_class_only_where_it_is_or_comes(variables: dict[str, Any], expected: str) -> None:
    """An API server rejects pods with a class that it does not have, and EKS' nodes need none."""
    assert decided("runtime_class", **variables) == expected


def test_a_plugin_of_the_nodes_image_is_used_and_none_is_installed_beside_it() -> None:
    cluster = seen([], OF_NODE)
    assert decided("places", kubegpu_cluster=cluster)["nvidia_device_plugin"]["state"] == "existing"
    refused = decided("places", kubegpu_cluster=cluster, nvidia_device_plugin_state="present")["nvidia_device_plugin"]
    assert "device plugin on Node a was not created by this collection, and two of them allocate" in refused["refused"]
