"""What the role that labels nodes says where it finds no GPU."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from role_values import ROLES, RoleValues

TASKS = yaml.safe_load((ROLES / "gpu_node_labels/tasks/configure.yml").read_text())
LOOKED = {"ansible_facts": {"gpu_facts": {"gpus": []}, "hostname": "gpu1"}}
NOT_LOOKED: dict[str, Any] = {"ansible_facts": {}}


@pytest.mark.parametrize(
    ("servers", "seen", "step"),
    [
        (
            {"gpu1": LOOKED, "gpu2": LOOKED},
            "2 of 2 servers in kube_control_plane and kube_node, none of these",
            "run the playbook",
        ),
        (
            {"gpu1": LOOKED, "gpu2": NOT_LOOKED},
            "1 of 2 servers",
            "run this without --limit, so that gpu2 is looked at;",
        ),
    ],
)
def test_servers_that_nobody_has_looked_at_are_not_said_to_have_no_gpu(
    servers: dict[str, Any], seen: str, step: str
) -> None:
    """With --limit localhost nobody looks at any."""
    told = {"__gpu_node_labels_nodes": {"resources": []}, "hostvars": servers, "groups": {"kube_node": [*servers]}}
    [refusal] = [task for task in TASKS if task["name"] == "Refuse servers without GPUs"]
    said = RoleValues("gpu_node_labels", {}, told | {"nodes": []}).text(refusal["ansible.builtin.assert"]["fail_msg"])

    assert f"Seen: {seen}" in said
    assert f"Next: {step}" in said
