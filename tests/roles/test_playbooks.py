"""Each playbook in a separate process, as a user calls it: nothing becomes root on the controller."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import trust_as_template
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH, ROOT
from role_values import RoleValues
from task_walk import TURN, files, role_file

PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))
ON_CONTROLLER = [
    path for path in PLAYBOOKS if any(play.get("hosts") == "localhost" for play in yaml.safe_load(path.read_text()))
]
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "none",
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
    "clusters": [{"name": "none", "cluster": {"server": "https://127.0.0.1:9"}}],
    "users": [{"name": "none", "user": {}}],
}

# Plays are for servers, for the controller, or both. Ansible skips a play whose groups are empty, and ends with 0.
GROUPS = {"kube_control_plane", "kube_node"}
FOR_SERVERS = {
    path: needed
    for path in PLAYBOOKS
    for plays in [[play["hosts"] for play in yaml.safe_load(path.read_text()) if "hosts" in play]]
    if plays and not any("localhost" in hosts for hosts in plays)
    for needed in [{group for hosts in plays for group in hosts.split(":")} & GROUPS]
}


def run(playbook: Path, folder: Path, *flags: str, kubeconfig: Mapping[str, Any] = KUBECONFIG, **variables: Any) -> str:
    """What a run says on an inventory that has no servers, and wants another user everywhere."""
    (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
    everywhere = {"ansible_become": True, "ansible_become_user": "nobody", "ansible_become_exe": "/bin/false"}
    inventory = {"all": {"vars": {**everywhere, "kubegpu_kubeconfig": str(folder / "kubeconfig"), **variables}}}
    (folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
    settings = {"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH}
    done = ansible_playbook("-i", "hosts.yml", playbook, *flags, cwd=folder, env=settings)
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("playbook", ON_CONTROLLER, ids=lambda path: path.stem)
def test_every_play_on_the_controller_runs_as_the_user_with_the_controllers_python(playbook: Path) -> None:
    for play in yaml.safe_load(playbook.read_text()):
        if play.get("hosts") == "localhost":
            assert play["become"] is False
            assert play["vars"]["ansible_become"] is False
            assert play["vars"]["ansible_python_interpreter"] == "{{ ansible_playbook_python }}"


def test_nothing_becomes_root_on_the_controller(tmp_path: Path) -> None:
    """A task that did would end with the words of /bin/false, which are none."""
    said = run(ROOT / "playbooks" / "gpu.yml", tmp_path, "-b", kubegpu_cluster_timeout=1)

    assert "API server: nothing listens at https://127.0.0.1:9: Connection refused" in said
    assert "Connection refused" in said


def test_nothing_becomes_root_on_the_controller_where_a_task_is_delegated_to_it() -> None:
    """`become: false` is not enough: an inventory's ansible_become reaches localhost, too."""
    tasks = [path for path in (ROOT / "roles").glob("*/tasks/*.yml") if "delegate_to: localhost" in path.read_text()]
    lines = [
        (path.parts[-3], number, rows[number + 2 : number + 3] if "apply" not in line else [line])
        for path in tasks
        for rows in [path.read_text().splitlines()]
        for number, line in enumerate(rows)
        if "delegate_to: localhost" in line
    ]

    assert len(lines) > 10
    assert [where for *where, [following] in lines if "vars: {ansible_become: false" not in following] == []


@pytest.mark.parametrize("playbook", FOR_SERVERS, ids=lambda path: path.stem)
def test_a_playbook_for_servers_fails_if_the_inventory_has_none_in_its_groups(tmp_path: Path, playbook: Path) -> None:
    needed = FOR_SERVERS[playbook]
    groups = {group: {"hosts": {"gpu1": {}}} for group in GROUPS - needed}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": {"other": {"hosts": {}}, **groups}}}))
    words = ("-i", "hosts.yml", playbook, "--tags", "containerd")
    done = ansible_playbook(*words, cwd=tmp_path, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH})

    assert done.returncode == 2, done.stdout
    said = " ".join(done.stdout.split())
    assert f"inventory -> server: no host is in {' or '.join(sorted(needed))}. Nothing was changed. Next: " in said


def test_a_playbook_for_servers_needs_none_as_a_part_of_site(tmp_path: Path) -> None:
    """site runs on an existing cluster, which has no servers in the inventory."""
    said = run(ROOT / "playbooks" / "site.yml", tmp_path, kubegpu_helm_binary="none")  # so none is downloaded

    assert "no host is in" not in said
    assert "controller -> helm: no folder of the PATH has none" in said


@pytest.mark.parametrize(
    ("limit", "warned"), [("gpu1", True), ("gpu1,localhost", False), ("all", False), ("kube_node", True)]
)
def test_a_limit_that_leaves_the_cluster_out_is_said(tmp_path: Path, limit: str, warned: bool) -> None:
    """On a server that does not answer: the warning comes before anybody is asked."""
    server = {"ansible_host": "192.0.2.1", "ansible_ssh_common_args": "-o ConnectTimeout=1"}
    inventory = {
        "all": {
            "hosts": {} if "," in limit else {"localhost": {}},
            "children": {"kube_node": {"hosts": {"gpu1": server}}},
        }
    }
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
    known = json.dumps({"kubegpu_kubeconfig": str(tmp_path / "none"), "kubegpu_cluster_timeout": 1})
    words = ("-i", "hosts.yml", ROOT / "playbooks" / "gpu.yml", "--limit", limit, "-e", known)
    done = ansible_playbook(*words, cwd=tmp_path, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH})
    said = " ".join(done.stdout.split())
    assert (f"WARNING: --limit {limit} does not include localhost" in said) is warned


def test_uninstall_names_the_cluster_that_is_meant_before_it_goes_on(tmp_path: Path) -> None:
    spare = {"name": "spare", "context": {"cluster": "spare", "user": "none"}}
    cluster = {"name": "spare", "cluster": {"server": "https://127.0.0.1:10"}}
    several = {
        **KUBECONFIG,
        "contexts": [*KUBECONFIG["contexts"], spare],
        "clusters": [*KUBECONFIG["clusters"], cluster],
    }
    uninstall = ROOT / "playbooks" / "uninstall.yml"

    assert "installed: cluster none at https://127.0.0.1:9, servers" in run(uninstall, tmp_path)
    said = run(uninstall, tmp_path, kubeconfig=several, kubegpu_context="spare")
    assert "installed: cluster spare at https://127.0.0.1:10, servers" in said
    assert "Nothing was changed." in said
    assert "-e kubegpu_confirm=spare`" in said
    said = run(uninstall, tmp_path, kubeconfig=several, kubegpu_context="gone")
    assert f"installed: cluster {tmp_path.name}, servers" in said


@pytest.mark.parametrize("place", [ROOT / "playbooks" / "gpu.yml", "elsewhere/play.yml"], ids=str)
def test_a_relative_kubeconfig_is_relative_to_the_current_directory(tmp_path: Path, place: Path | str) -> None:
    """Modules look beside the playbook, which may be in the collection."""
    reach = {"name": "kubegpu.autoscale._common", "tasks_from": "cluster"}
    play = {"hosts": "localhost", "gather_facts": False, "vars": {"ansible_become": False}}
    tasks = [{"ansible.builtin.include_role": reach, "vars": {"_common_cluster_state": "present"}}]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/play.yml").write_text(json.dumps([{**play, "tasks": tasks}]))
    said = run(tmp_path / place, tmp_path, "-e", "kubegpu_kubeconfig=kubeconfig", kubegpu_cluster_timeout=1)

    assert "nothing listens at https://127.0.0.1:9: Connection refused" in said


def test_the_inventory_of_a_cluster_that_is_there_takes_a_relative_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "some/kubeconfig")
    monkeypatch.chdir(tmp_path)
    path = ROOT / "inventories/existing-cluster/group_vars/all.yml"
    inventory = DataLoader().load_from_file(str(path), trusted_as_template=True)

    assert RoleValues("_common", inventory, {})["kubegpu_kubeconfig"] == f"{tmp_path}/some/kubeconfig"


def test_a_role_that_changes_servers_goes_by_facts_of_this_run():
    """`gather_facts: true` believes a cache, where there is one; a task does not."""
    plays = [play for path in PLAYBOOKS for play in yaml.safe_load(path.read_text())]
    assert [play["name"] for play in plays if "hosts" in play and play.get("gather_facts", True)] == []


SERIAL = [
    pytest.param(play, id=f"{path.stem}: {play['name']}")
    for path in PLAYBOOKS
    for play in yaml.safe_load(path.read_text())
    if "serial" in play
]
READS = role_file("_common", "facts")


@pytest.mark.parametrize("play", SERIAL)
def test_a_play_of_batches_runs_its_role_as_turns(play: Mapping[str, Any]) -> None:
    """`any_errors_fatal` or a percentage would end the turns of the others of a batch, which then stay cordoned."""
    assert not play.keys() & {"any_errors_fatal", "max_fail_percentage", "roles", "pre_tasks", "post_tasks", "strategy"}
    assert [task["name"] for task in play["tasks"] if not {TURN, READS} & files(task, "")] == []
    assert any(TURN in files(task, "") for task in play["tasks"])


def test_the_playbooks_of_batches_are_those_that_drain_nodes() -> None:
    assert {param.id.partition(":")[0] for param in SERIAL} >= {"maintain", "upgrade_driver", "upgrade_kubernetes"}


def test_an_uninstall_leaves_helm_on_the_controller():
    """Other inventories of the same user run the same file."""
    plays = yaml.safe_load((ROOT / "playbooks" / "uninstall.yml").read_text())
    roles = [role["role"] for play in plays for role in play.get("roles", [])]
    assert "kubegpu.autoscale.prometheus_stack" in roles
    assert "kubegpu.autoscale.helm" not in roles


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "cluster none at https://127.0.0.1:9, servers gpu1, gpu2, localhost, for the cluster itself. Nothing"),
        (("--limit", "gpu2"), "cluster none, servers gpu2. Nothing was changed."),
    ],
    ids=["all", "one server"],
)
def test_uninstall_names_what_it_would_clear(tmp_path: Path, flags: tuple[str, ...], said: str) -> None:
    """A limit to servers leaves out the plays of the cluster."""
    (tmp_path / "kubeconfig").write_text(json.dumps(KUBECONFIG))
    servers = {"children": {"kube_node": {"hosts": {"gpu1": {}, "gpu2": {}}}}}
    inventory = {"all": {**servers, "vars": {"kubegpu_kubeconfig": str(tmp_path / "kubeconfig")}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
    words = ("-i", "hosts.yml", ROOT / "playbooks" / "uninstall.yml", *flags)
    done = ansible_playbook(*words, cwd=tmp_path, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH})

    told = " ".join((done.stdout + done.stderr).split())
    assert f"This would remove everything that this collection installed: {said}" in told


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([], True),  # an existing cluster
        ([{"uid": "1"}, {"uid": "1"}], False),
        ([{"uid": "1"}, None], True),  # the second one is not part of the run
        ([{"uid": "1"}, {}], True),  # or not of a cluster that this collection knows
    ],
)
def test_an_uninstall_checks_hpas_unless_all_control_planes_are_removed(
    records: list[dict[str, str] | None], expected: bool
) -> None:
    tasks = yaml.safe_load((ROOT / "roles/_common/tasks/clear.yml").read_text())
    (task,) = (task for task in tasks if task["name"] == "List the HPAs")
    names = [f"cp{number}" for number, _ in enumerate(records)]
    told = {
        "groups": {"kube_control_plane": names},
        "hostvars": {
            name: {"inventory_hostname": name}
            | ({"_common_identity_self": {"record": record}} if record is not None else {})
            for name, record in zip(names, records, strict=True)
        },
        "kubegpu_cluster_ready": True,
        "_common_clears_charts": True,
        **{name: trust_as_template(text) for name, text in task["vars"].items()},
    }
    assert RoleValues("_common", {}, told)[task["when"]] is expected


def test_an_uninstall_removes_what_has_monitors_before_their_kind() -> None:
    """The GPU operator's monitors belong to its ClusterPolicy, and count as somebody else's for the CRD."""
    plays = yaml.safe_load((ROOT / "playbooks" / "uninstall.yml").read_text())
    order = [role["role"].rpartition(".")[2] for play in plays for role in play.get("roles", [])]
    for role in ("gpu_alerts", "dcgm_exporter", "gpu_operator", "gpu_workload"):
        assert order.index(role) < order.index("prometheus_stack"), role
    assert order.index("gpu_mig") < order.index("gpu_operator"), "whose manager takes the partitions back"


@pytest.mark.parametrize(("waits", "expected"), [(True, True), ("true", True), (False, False), ("false", False)])
def test_the_playbook_of_several_charts_waits_for_those_that_are_to_be_waited_for(waits: Any, expected: bool) -> None:
    """The roles start side by side, whatever the option says. A chart that it leaves out failed the run at its end."""
    (play,) = yaml.safe_load((ROOT / "playbooks" / "monitoring.yml").read_text())
    (wait,) = (task for task in play["post_tasks"] if "loop" in task)
    for role in wait["loop"]:
        told = {"kubegpu_cluster_ready": True, "ansible_check_mode": False, "item": role}
        assert RoleValues(role, {f"{role}_wait": waits}, told)[wait["when"]] is expected


@pytest.mark.parametrize(
    ("playbook", "tag", "task"),
    [
        ("gpu", "gpu_node_labels", "Gather facts"),
        ("gpu", "gpu_node_labels", "Detect the GPUs"),
        ("gpu", "gpu_node_labels_configure", "Detect the GPUs"),
        ("doctor", "gpu_doctor", "Examine each server with the node roles"),
        ("doctor", "gpu_doctor_verify", "Examine each server with the node roles"),
    ],
)
def test_a_role_alone_knows_the_gpus_of_the_servers(tmp_path: Path, playbook: str, tag: str, task: str) -> None:
    """Without them the labels said that no server has a GPU."""
    words = ("-i", "localhost,", ROOT / "playbooks" / f"{playbook}.yml", "--list-tasks", "--tags", tag)
    done = ansible_playbook(*words, cwd=tmp_path, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH})

    assert task in done.stdout


def test_the_facts_of_the_doctor_are_read_where_its_role_runs_alone(tmp_path: Path) -> None:
    """An include is tagged, and what it includes by `apply`."""
    (include,) = yaml.safe_load((ROOT / "playbooks" / "doctor.yml").read_text())[0]["tasks"]
    assert include["tags"] == include["ansible.builtin.include_role"]["apply"]["tags"]
