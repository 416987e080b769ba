"""Files that a run writes on servers: what keeps another inventory from removing them.

A server is in one cluster, and has its name and UID recorded. Whatever removes a file there asks for that name first
(test_confirmed_removals.py), and fails if it is given another one (test_confirmation_role.py). A second inventory with
the same servers that knows the name is a copy of the first. A server in no cluster belongs to each inventory that
lists it.
"""

from __future__ import annotations

from collections.abc import Iterator

from task_walk import PLAYBOOKS, walk_playbook
from test_confirmed_removals import TABLE

SERVERS = {"kube_control_plane", "kube_node", "all"}
WRITERS = {"copy", "template", "get_url", "unarchive", "lineinfile", "blockinfile", "replace", "apt", "apt_repository"}
# Roles that write on servers and remove nothing from them by an option of their own.
WITHOUT_REMOVAL = {
    "_common": "its tasks are part of the role that includes them, and its files have that role's name",
    "gpu_proof": "its reports are on the controller",
    "helm": "its program is on the controller, and `uninstall` keeps it",
    "maintain": "it upgrades packages of the others",
}


def written() -> Iterator[tuple[str, str]]:
    """Role and destination of each task on servers that writes a file."""
    for playbook in PLAYBOOKS:
        for hosts, step in walk_playbook(playbook):
            if not SERVERS & {*hosts.split(":")} or step.task.get("delegate_to") == "localhost":
                continue
            for module, given in step.task.items():
                name = module.rpartition(".")[2]
                makes = name == "file" and given.get("state") in ("directory", "touch", "link")
                if (name in WRITERS and "absent" not in str(given.get("state", ""))) or makes:
                    yield step.role, str(given.get("dest") or given.get("path") or given.get("name"))


def test_each_file_on_a_server_goes_by_the_name_of_its_cluster_alone() -> None:
    found = {*written()}
    roles = {role for role, _path in found}
    assert {"kubernetes", "containerd", "nvidia_driver", "nvidia_container_toolkit"} <= roles
    assert sorted(row for row in found if row[0] not in {*TABLE, *WITHOUT_REMOVAL}) == []
    assert len(found) > 40
