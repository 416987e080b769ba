"""The role kubernetes has looked for the files that it decides by: an interrupted run is gone on with by them."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.kubernetes import paths as files
from role_values import ROLES

DECIDES = (
    *(files.FOLDER, files.INITIALISED, files.UPGRADING, files.APPLIED, files.KUBELET_CONF, files.KUBELET_LINK),
    *(files.SYSCTL, files.NO_SWAP, files.CNI_CONFIG, files.NETWORK_UNIT, files.NETWORK_SCRIPT, files.NETWORKD),
    *(files.METRICS_UNIT, files.METRICS_SCRIPT),
    *(f"/etc/systemd/system/multi-user.target.wants/{name}" for name in files.SWAP_SERVICES),
)
TASKS = yaml.safe_load((ROLES / "kubernetes/tasks/survey.yml").read_text())


def looked_for() -> dict[str, Any]:
    return next(task["ansible.builtin.find"] for task in TASKS if "ansible.builtin.find" in task)


def is_found(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in looked_for()["patterns"])


@pytest.mark.parametrize("path", DECIDES)
def test_a_file_that_decides_is_looked_for(path: str) -> None:
    """`upgrading` is one: a node whose upgrade ended before it took pods again would stay cordoned."""
    look = looked_for()
    file = PurePosixPath(path)

    assert is_found(file.name)
    assert file.is_relative_to(look["paths"])
    assert len(file.relative_to(look["paths"]).parts) <= look["depth"]


def test_pod_networks_of_others_are_looked_for() -> None:
    assert is_found("10-flannel.conflist")


def test_other_servers_are_asked_for_the_file_by_which_a_control_plane_is_complete() -> None:
    [elsewhere] = [task["ansible.builtin.stat"] for task in TASKS if "ansible.builtin.stat" in task]
    [described] = [task["ansible.builtin.set_fact"] for task in TASKS if "ansible.builtin.set_fact" in task]

    assert elsewhere["path"] == files.INITIALISED
    assert files.INITIALISED in described["__kubernetes_self"]["is_complete"]
