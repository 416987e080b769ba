"""What the playbooks do where a server fails or does not answer, and how many they take at a time.

The playbooks are the collection's. Its roles of servers are stand-ins, which write down for whom they ran.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_forks import ansible_playbook
from collection import ROOT

CLUSTER_ROLES = ("gpu_node_labels", "nvidia_device_plugin", "gpu_operator", "gpu_mig")
NODES = ("nvidia_driver", "containerd", "nvidia_container_toolkit", "kubernetes", "helm", "maintain")
LOOK = [
    {"ansible.builtin.fail": {"msg": "refused as the test wants it"}, "when": "inventory_hostname in refused"},
]
# Of the driver's role, by the playbook that drains each node first.
LOOK_OF_DRIVER = [{"ansible.builtin.assert": {"that": "nvidia_driver_reboot_ok | default(false)"}}, *LOOK]
WORK = [
    {
        "ansible.builtin.fail": {"msg": "broken as the test wants it"},
        "when": "inventory_hostname in broken",
    },
    {
        "ansible.builtin.ping": {},
        "vars": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9},
        "when": "inventory_hostname in lost",
    },
    {
        "ansible.legacy.note": {
            "text": "{{ ansible_play_batch | join(' ') }}",
            "path": "{{ done_folder }}/{{ role_name | regex_replace('.*[.]', '') }}-{{ inventory_hostname }}",
        },
        "notify": "Handle",
        "tags": ["work"],
    },
]
HANDLERS = [
    {
        "name": "Handle",
        "ansible.legacy.note": {"text": "", "path": "{{ done_folder }}/handlers-{{ inventory_hostname }}"},
    },
]
# Of roles that work on the cluster: which servers they are told to do without.
LEFT_OUT = [
    {
        "ansible.legacy.note": {
            "text": "{{ _common_left_out | join(' ') }}",
            "path": "{{ done_folder }}/{{ role_name | regex_replace('.*[.]', '') }}-{{ inventory_hostname }}",
        }
    },
]
# Writes here, without a process for each server.
NOTE = """
from pathlib import Path
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        Path(self._task.args["path"]).write_text(self._task.args["text"])
        return {"changed": True}
"""
SMART = {"ANSIBLE_GATHERING": "smart", "ANSIBLE_CACHE_PLUGIN": "ansible.builtin.jsonfile"}
# The driver's role says who has to reboot.
REBOOT = {
    "ansible.builtin.set_fact": {
        "nvidia_driver_reboot_required": "{{ inventory_hostname in must_reboot }}",
        "nvidia_driver_reboot_reason": "nouveau is loaded",
        "_common_server": {
            "result": {
                "clusters": "{{ ['/etc/kubernetes'] if inventory_hostname in members else [] }}",
                "apt_sources": [],
            }
        },
    }
}
UPGRADE = {
    "ansible.builtin.set_fact": {
        "__kubernetes_plan": {"upgrade": {"refused": []}},
        "_common_server": {"result": {"apt_sources": []}},
    }
}
LOOK_OF_UPGRADE = [*LOOK, UPGRADE]
# Of role _common, what looks at servers; that some are missing is judged by its own tasks.
SERVERS = [*LOOK, {"ansible.builtin.import_tasks": "missing.yml"}]


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection with stand-ins."""
    path = tmp_path_factory.mktemp("collections")
    collection = path / "ansible_collections/kubegpu/autoscale"
    (collection / "roles").mkdir(parents=True)
    for name in ("playbooks", "plugins", "meta", "galaxy.yml"):
        (collection / name).symlink_to(ROOT / name)
    for role in NODES:
        tasks = collection / "roles" / role / "tasks"
        tasks.mkdir(parents=True)
        look = LOOK_OF_DRIVER if role == "nvidia_driver" else LOOK
        for name, content in {
            "preflight": look,
            "upgrade_preflight": LOOK_OF_UPGRADE,
            "main": WORK,
            "upgrade": WORK,
            "unrequested": [],
        }.items():
            (tasks / f"{name}.yml").write_text(json.dumps([*content, REBOOT] if role == "nvidia_driver" else content))
        (tasks.parent / "meta").symlink_to(ROOT / "roles" / role / "meta")
        (tasks.parent / "handlers").mkdir()
        (tasks.parent / "handlers/main.yml").write_text(json.dumps(HANDLERS))
    for role in CLUSTER_ROLES:
        tasks = collection / "roles" / role / "tasks"
        tasks.mkdir(parents=True)
        (tasks / "main.yml").write_text(json.dumps(LEFT_OUT))
        (tasks.parent / "meta").symlink_to(ROOT / "roles" / role / "meta")
    common = collection / "roles/_common"
    (common / "tasks").mkdir(parents=True)
    for name in ("defaults", "vars", "templates"):
        (common / name).symlink_to(ROOT / "roles/_common" / name)
    for tasks in (ROOT / "roles/_common/tasks").iterdir():
        (common / "tasks" / tasks.name).symlink_to(tasks)
    (common / "tasks/servers.yml").unlink()
    (common / "tasks/servers.yml").write_text(json.dumps(SERVERS))
    (path / "actions").mkdir()
    (path / "actions" / "note.py").write_text(NOTE)
    return path


class Fleet:
    """Control planes and workers; those that do not answer have a port where nobody listens."""

    def __init__(self, folder: Path, collections: Path) -> None:
        self.folder, self.collections = folder, collections

    def run(
        self,
        playbook: str,
        *flags: str,
        workers: int = 3,
        silent: str = "",
        refused: str = "",
        broken: str = "",
        lost: str = "",
        waiting: tuple[str, ...] = (),
        cached: bool = False,
        **variables: Any,
    ) -> dict[str, set[str]]:
        """Which servers each role was done on. waiting: those that have to reboot; gpu1 is a node already.

        lost: the one that stops to respond. cached: whether Ansible keeps facts, and believes those that it has kept.
        """
        gone = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
        names = {"kube_control_plane": ["cp1", "cp2"], "kube_node": [f"gpu{number + 1}" for number in range(workers)]}
        hosts = {group: {"hosts": {name: gone if name == silent else {} for name in names[group]}} for group in names}
        # Nobody reads facts here: whoever answers at all has told enough.
        asked = {"ansible_facts_modules": "ansible.builtin.ping"}
        here = {"ansible_connection": "local", "ansible_become": False, **asked}
        (self.folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"vars": here, "children": hosts}}))
        (self.folder / "done").mkdir(exist_ok=True)
        # Which play takes whom is decided before there is a host with variables: so these are said on the command line.
        words = json.dumps(
            {
                "refused": [refused],
                "broken": [broken],
                "lost": [lost],
                "must_reboot": waiting,
                "members": ["gpu1"],
                "done_folder": str(self.folder / "done"),
                **variables,
            }
        )
        done = ansible_playbook(
            "-i", "hosts.yml", ROOT / "playbooks" / f"{playbook}.yml", "-e", words, *flags, cwd=self.folder,
            env={
                "ANSIBLE_COLLECTIONS_PATH": str(self.collections),
                "ANSIBLE_ACTION_PLUGINS": str(self.collections / "actions"),
                "ANSIBLE_SSH_ARGS": "-o BatchMode=yes",
                **(SMART | {"ANSIBLE_CACHE_PLUGIN_CONNECTION": str(self.folder / "facts")} if cached else {}),
            },
        )  # fmt: skip
        print(done.stdout, done.stderr)
        self.code, self.said = done.returncode, " ".join((done.stdout + done.stderr).split())
        found: dict[str, set[str]] = {}
        for path in (self.folder / "done").iterdir():
            role, _, host = path.name.rpartition("-")
            found.setdefault(role, set()).add(host)
        return found

    def batch(self, role: str, host: str) -> list[str]:
        """Who was in the play with it."""
        return (self.folder / "done" / f"{role}-{host}").read_text().split()


@pytest.fixture
def fleet(tmp_path: Path, collections: Path) -> Fleet:
    return Fleet(tmp_path, collections)


ALL = {"cp1", "cp2", "gpu1", "gpu2", "gpu3"}
UPGRADES = {"upgrade_driver": "nvidia_driver", "upgrade_kubernetes": "kubernetes", "maintain": "maintain"}
LOOKS = re.compile(r"TASK \[kubegpu.autoscale._common : Gather facts\] \*+((?: ok: \[\w+\])*)")
LEFT = [*UPGRADES.items(), ("nodes", "containerd")]


@pytest.mark.parametrize("ill", ["silent", "refused"])
@pytest.mark.parametrize("playbook", ["nodes", *UPGRADES])
def test_by_default_one_server_that_cannot_be_worked_on_ends_the_run_before_a_change(
    fleet: Fleet, playbook: str, ill: str
) -> None:
    assert fleet.run(playbook, **{ill: "gpu2"}) == {}
    assert fleet.code != 0
    assert ("server: gpu2 did not answer." if ill == "silent" else "refused as") in fleet.said


@pytest.mark.parametrize("ill", ["silent", "refused"])
@pytest.mark.parametrize(("playbook", "role"), LEFT)
def test_one_sick_server_does_not_stop_a_hundred(fleet: Fleet, playbook: str, role: str, ill: str) -> None:
    done = fleet.run(playbook, **{ill: "gpu2"}, kubegpu_fail_fast=False)

    assert done[role] == ALL - {"gpu2"}
    assert fleet.code != 0


def test_a_server_that_breaks_meanwhile_is_left_behind(fleet: Fleet) -> None:
    done = fleet.run("nodes", broken="gpu2", kubegpu_fail_fast=False)
    assert done["nvidia_container_toolkit"] == ALL - {"gpu2"}


def test_the_cluster_is_made_of_the_servers_that_are_left(fleet: Fleet) -> None:
    done = fleet.run("cluster", silent="gpu2", kubegpu_fail_fast=False)
    assert done["kubernetes"] == ALL - {"gpu2"}


@pytest.mark.parametrize(("playbook", "role"), [("nodes", "containerd"), ("cluster", "helm")])
def test_by_default_the_first_server_that_breaks_ends_the_run(fleet: Fleet, playbook: str, role: str) -> None:
    assert role not in fleet.run(playbook, broken="gpu2")


@pytest.mark.parametrize("ill", ["silent", "refused"])
@pytest.mark.parametrize("playbook", UPGRADES)
def test_an_upgrade_never_leaves_a_control_plane_out(fleet: Fleet, playbook: str, ill: str) -> None:
    """With one less, etcd loses its majority when the next one restarts."""
    assert fleet.run(playbook, **{ill: "cp2"}, kubegpu_fail_fast=False) == {}
    assert "server: cp2 did not answer, or failed above." in fleet.said


@pytest.mark.parametrize("playbook", ["nodes", "cluster", *UPGRADES])
def test_facts_of_a_run_before_are_not_believed(fleet: Fleet, playbook: str) -> None:
    """Kernel, address and user of then, by `gathering = smart` and a cache of facts."""
    for _ in range(2):
        fleet.run(playbook, cached=True)

    (looked,) = LOOKS.findall(fleet.said)
    assert sorted(looked.split()[1::2]) == sorted(f"[{host}]" for host in ALL)


@pytest.mark.parametrize(("playbook", "role"), UPGRADES.items())
def test_an_upgrade_takes_workers_one_by_one(fleet: Fleet, playbook: str, role: str) -> None:
    assert fleet.run(playbook)[role] == ALL
    assert fleet.code == 0
    assert all(fleet.batch(role, host) == [host] for host in ALL)


@pytest.mark.parametrize(("playbook", "role"), UPGRADES.items())
def test_an_upgrade_takes_as_many_workers_at_a_time_as_it_is_told(fleet: Fleet, playbook: str, role: str) -> None:
    fleet.run(playbook, workers=5, kubegpu_upgrade_serial="40%")

    batches = {tuple(fleet.batch(role, f"gpu{number}")) for number in range(1, 6)}
    assert sorted(map(len, batches)) == [1, 2, 2]
    assert [fleet.batch(role, host) for host in ("cp1", "cp2")] == [["cp1"], ["cp2"]]


@pytest.mark.parametrize("fail_fast", [True, False])
@pytest.mark.parametrize("ill", ["broken", "lost"])
@pytest.mark.parametrize(("playbook", "role"), UPGRADES.items())
def test_the_other_nodes_of_a_batch_end_their_turn_and_no_further_batch_starts(
    fleet: Fleet, playbook: str, role: str, ill: str, fail_fast: bool
) -> None:
    """What breaks one may break all: those after it are not touched. Those beside it do not stay cordoned."""
    done = fleet.run(playbook, workers=5, kubegpu_upgrade_serial=2, kubegpu_fail_fast=fail_fast, **{ill: "gpu3"})

    before = {"cp1", "cp2"} if playbook == "upgrade_kubernetes" else set()
    assert done[role] == before | {"gpu1", "gpu2", "gpu4"}
    assert done["handlers"] == done[role]
    assert fleet.code != 0
    if ill == "broken":
        assert "node -> cluster: gpu3 failed in its turn. Other nodes of its batch are back in service" in fleet.said
        assert "Next: fix gpu3 and run this playbook again" in fleet.said
        assert "The failed task above names the reason." in fleet.said
    else:
        assert "node -> cluster: gpu3 stopped responding. Other nodes of the batch are back in service" in fleet.said


def test_one_phase_of_the_driver_runs_by_its_tag(fleet: Fleet) -> None:
    """And no other: the task that fails for gpu2 has no tag."""
    assert fleet.run("upgrade_driver", "--tags", "work", broken="gpu2")["nvidia_driver"] == ALL
    assert fleet.code == 0


@pytest.mark.parametrize(("playbook", "role"), UPGRADES.items())
def test_an_upgrade_stops_at_a_control_plane_that_breaks(fleet: Fleet, playbook: str, role: str) -> None:
    done = fleet.run(playbook, broken="cp1", kubegpu_fail_fast=False)
    assert "cp2" not in done.get(role, set())


def test_servers_that_wait_for_a_reboot_are_told_once_before_there_is_a_cluster(fleet: Fleet) -> None:
    """A node that waits goes on: it was drained and will be rebooted by its upgrade."""
    done = fleet.run("nodes", waiting=("gpu1", "gpu2", "cp2"))

    assert done["nvidia_container_toolkit"] == ALL, "all of them are prepared before"
    assert fleet.code != 0
    assert fleet.said.count("driver -> cluster: 2 of 5 servers have to reboot") == 2, (
        "once as an error, once as a result"
    )
    assert "cp2: nouveau is loaded. gpu2: nouveau is loaded. Next: reboot them and run this again" in fleet.said


def test_a_node_that_waits_for_a_reboot_does_not_stop_the_others(fleet: Fleet) -> None:
    fleet.run("nodes", waiting=("gpu1",))
    assert fleet.code == 0


def test_a_server_that_breaks_late_is_left_out_to_the_end_and_named(fleet: Fleet) -> None:
    """What is done on the cluster for the others does not wait for it, in the same run."""
    (fleet.folder / "site.yml").write_text(
        yaml.safe_dump([{"import_playbook": str(ROOT / "playbooks" / f"{name}.yml")} for name in ("nodes", "gpu")])
    )
    done = fleet.run(str(fleet.folder / "site"), broken="gpu2", kubegpu_fail_fast=False)

    assert done["nvidia_container_toolkit"] == ALL - {"gpu2"}
    assert {name: done.get(name) for name in CLUSTER_ROLES[:3]} == {name: {"localhost"} for name in CLUSTER_ROLES[:3]}
    assert (fleet.folder / "done" / "gpu_node_labels-localhost").read_text() == "gpu2"
    assert "WARNING: gpu2 failed above, and the run continues without them. Next: fix them" in fleet.said
    assert fleet.code != 0, "the command says that something failed"


def test_nothing_is_left_out_of_a_run_in_which_nothing_fails(fleet: Fleet) -> None:
    fleet.run("gpu")
    assert (fleet.folder / "done" / "gpu_node_labels-localhost").read_text() == ""
    assert "failed above" not in fleet.said
