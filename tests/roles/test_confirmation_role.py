"""What takes a node, a driver or a runtime from a cluster is confirmed by the name of the cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.host import CLUSTERS, read_host
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from role_values import ROLES
from task_walk import including, read, role_file

MEMBER = {
    "node": "gpu1",
    "machine_id": "1",
    "authorities": ["sha256:aa"],
    "is_member": True,
    "record": {"name": "prod", "uid": "1"},
}
BARE = {"node": "gpu1", "machine_id": "1", "authorities": [], "is_member": False, "record": {}}
REMOVALS = yaml.safe_load((ROLES / "_common/vars/main.yml").read_text())["_common_removals"]


def confirm(
    folder: Path, role: str, hosts: Mapping[str, Any], *flags: str, staying: bool = False, **variables: Any
) -> tuple[int, str]:
    """The removal as far as it is confirmed, on servers that say this of themselves, by a role of that name."""
    shared = {"name": "kubegpu.autoscale._common", "tasks_from": "confirm"}
    task = next(including(role_file("_common", "confirm"), read(role_file(role, "absent")), role))
    confirms = {"name": task["name"], "ansible.builtin.include_role": shared, "vars": task.get("vars", {})}
    (folder / "roles" / role / "tasks").mkdir(parents=True)
    (folder / "roles" / role / "tasks" / "main.yml").write_text(json.dumps([confirms]))
    known = [
        {"ansible.builtin.set_fact": {"_common_identity_self": "{{ says | combine({'host': inventory_hostname}) }}"}}
    ]
    play = {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "vars": {"__kubernetes_plan": {"steps": {"leave_others": staying}}},
        "pre_tasks": known,
        "roles": [role],
        "tasks": [{"ansible.builtin.debug": {"msg": "the removal begins"}}],
    }
    (folder / "play.yml").write_text(json.dumps([play]))
    inventory = {"all": {"hosts": {name: {"says": says} for name, says in hosts.items()}}}
    (folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
    variables = {"kubegpu_kubeconfig": str(folder / "none"), **variables}
    words = ("-i", "hosts.yml", "play.yml", "-e", json.dumps(variables), *flags)
    ran = ansible_playbook(*words, cwd=folder, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH})
    return ran.returncode, " ".join((ran.stdout + ran.stderr).split())


@pytest.mark.parametrize("role", ["keda", "kubernetes"])
def test_a_member_is_not_cleared_without_the_name_of_its_cluster(tmp_path: Path, role: str) -> None:
    """A release, and servers. test_confirmed_removals.py shows that each role of the table confirms."""
    code, said = confirm(tmp_path, role, {"gpu1": MEMBER, "gpu2": MEMBER})
    servers = "localhost, for the cluster itself" if "release" in REMOVALS[role] else "gpu1, gpu2"

    assert code == 2
    assert "the removal begins" not in said
    assert f"This would remove {REMOVALS[role]}" in said
    assert f"cluster prod, servers {servers}. Nothing was changed." in said
    assert f"-e {role}_state=absent -e kubegpu_confirm=prod`" in said


@pytest.mark.parametrize(
    ("given", "flags", "begins"),
    [("prod", (), True), ("staging", (), False), ("", ("--check",), True)],
    ids=["the name", "another name", "check mode"],
)
def test_the_name_confirms_it(tmp_path: Path, given: str, flags: tuple[str, ...], begins: bool) -> None:
    code, said = confirm(tmp_path, "kubernetes", {"gpu1": BARE, "gpu2": MEMBER}, *flags, kubegpu_confirm=given)

    assert (code == 0, "the removal begins" in said) == (begins, begins), said


def test_servers_in_no_cluster_need_no_name(tmp_path: Path) -> None:
    """The second run of a removal changes nothing, and asks nothing."""
    assert confirm(tmp_path, "nvidia_driver", {"gpu1": BARE})[0] == 0


@pytest.mark.parametrize("sign", CLUSTERS)
def test_a_cluster_of_an_unknown_ca_is_confirmed(tmp_path: Path, sign: str) -> None:
    """Each sign of a cluster, by what server_info reads of such a server."""
    (tmp_path / "root" / sign).mkdir(parents=True)
    says = read_host(tmp_path / "root", [])[0]["identity"]
    assert says["authorities"] == []
    code, said = confirm(tmp_path, "nvidia_driver", {"gpu1": says})

    assert code == 2, said
    assert "This would remove the GPU driver" in said
    assert "servers gpu1. Nothing was changed." in said


@pytest.mark.parametrize(("given", "begins"), [("prod", False), ("staging", True)])
def test_the_context_confirms_a_cluster_without_a_record(tmp_path: Path, given: str, begins: bool) -> None:
    """The inventory calls it prod, which is in no cluster: its kubeconfig leads to staging."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "staging",
        "users": [],
        "contexts": [{"name": "staging", "context": {"cluster": "staging"}}],
        "clusters": [{"name": "staging", "cluster": {"server": "https://127.0.0.1:9"}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    told = {"kubegpu_kubeconfig": str(tmp_path / "config"), "kubegpu_cluster_name": "prod", "kubegpu_confirm": given}
    code, said = confirm(tmp_path, "keda", {"gpu1": {**MEMBER, "record": {}}}, **told)

    assert (code == 0, "the removal begins" in said) == (begins, begins), said


def test_servers_of_two_clusters_of_one_name_are_two(tmp_path: Path) -> None:
    other = {**MEMBER, "record": {"name": "prod", "uid": "2"}}
    code, said = confirm(tmp_path, "kubernetes", {"gpu1": MEMBER, "gpu2": other}, kubegpu_confirm="prod")

    assert code == 2
    assert "of several clusters: 1, 2 (servers gpu1, gpu2)" in said


@pytest.mark.parametrize("staying", [True, False])
def test_a_run_without_a_limit_is_called_the_end_of_the_cluster(tmp_path: Path, staying: bool) -> None:
    """`--limit` was forgotten: the name of one node would not tell."""
    _code, said = confirm(tmp_path, "kubernetes", {"cp1": MEMBER, "gpu1": MEMBER}, staying=staying)

    assert ("all of the cluster and its data" in said) is not staying


def test_a_limit_names_what_leaves(tmp_path: Path) -> None:
    _code, said = confirm(tmp_path, "kubernetes", {"gpu1": MEMBER, "gpu2": MEMBER}, "--limit", "gpu2", staying=True)

    assert "the Kubernetes nodes: cluster prod, servers gpu2. Nothing was changed." in said
    assert "play.yml --limit gpu2 -e kubernetes_state=absent -e kubegpu_confirm=prod`" in said
