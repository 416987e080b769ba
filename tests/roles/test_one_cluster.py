"""No task reaches the user's kubeconfig: all use the run's copy of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH, ROOT
from role_tasks import reached
from task_walk import PLAYBOOKS
from two_clusters import MACHINE, NODE, TwoClusters, two_clusters

PUBLIC = re.compile(r"\bkubegpu_(kubeconfig|context)\b")
# Arguments that are only shown.
SHOWN = ("fail_msg", "msg", "name", "success_msg")
# These tasks write the user's file, and decide whether they may.
OF_THE_FILE = {f"roles/kubernetes/tasks/{name}.yml" for name in ("absent", "kubeconfig", "plan")}
FILES = sorted([*(ROOT / "roles").glob("*/tasks/**/*.yml"), *(ROOT / "roles").glob("*/handlers/*.yml")])
GROUPS = yaml.safe_load((ROOT / "meta/runtime.yml").read_text())["action_groups"]
TALK = {f"kubegpu.autoscale.{name}" for name in GROUPS["all"]} | {
    name for name in GROUPS["cluster"] if isinstance(name, str)
}


def tasks_of(entries: Any) -> Iterator[dict[str, Any]]:
    """Plays, blocks and tasks with what is in them, each without the others."""
    for entry in entries or []:
        parts = [part for part in ("block", "rescue", "always", "pre_tasks", "tasks", "post_tasks") if part in entry]
        yield {key: value for key, value in entry.items() if key not in parts}
        for part in parts:
            yield from tasks_of(entry[part])


def without_shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_shown(part) for key, part in value.items() if key not in SHOWN}
    return [without_shown(part) for part in value] if isinstance(value, list) else value


def all_tasks() -> list[tuple[Path, dict[str, Any]]]:
    return [(path, task) for path in (*FILES, *PLAYBOOKS) for task in tasks_of(yaml.safe_load(path.read_text()))]


def test_no_task_names_the_users_file_or_context() -> None:
    found = all_tasks()
    assert len(found) > 600
    assert {
        (str(path.relative_to(ROOT)), task.get("name"))
        for path, task in found
        if PUBLIC.search(json.dumps(without_shown(task)))
        and str(path.relative_to(ROOT)) not in OF_THE_FILE
        and "ansible.builtin.debug" not in task
    } == set()


def test_no_task_selects_a_context_of_its_own() -> None:
    """The run's copy has one."""
    modules = set(yaml.safe_load((ROOT / "meta/runtime.yml").read_text())["action_groups"]["all"])
    names = {*(f"kubegpu.autoscale.{name}" for name in modules)}
    for path, task in all_tasks():
        defaults = task.get("module_defaults", {})
        assert defaults in ({}, {"group/kubegpu.autoscale.cluster": "{{ _common_access }}"}), (path, task["name"])
        for key, value in task.items():
            if isinstance(value, dict) and (key in names or key.startswith("kubernetes.core.")):
                assert "context" not in value, (path, task["name"])
                assert value.get("kubeconfig", "{{ _common_kubeconfig }}") == "{{ _common_kubeconfig }}", path


def test_variables_of_roles_use_the_run_s_copy() -> None:
    """Defaults may name the folder of the user's file, and commands that are shown its path; nothing else reads it."""
    files = sorted([*(ROOT / "roles").glob("*/vars/**/*.yml"), *(ROOT / "roles").glob("*/defaults/**/*.yml")])
    naming = [
        (str(path.relative_to(ROOT)), name)
        for path in files
        for name, value in (yaml.safe_load(path.read_text()) or {}).items()
        if PUBLIC.search(json.dumps(value)) or PUBLIC.search(name)
    ]
    assert sorted(naming) == [
        ("roles/_common/defaults/main/cluster.yml", "kubegpu_context"),
        ("roles/_common/defaults/main/main.yml", "kubegpu_kubeconfig"),
        ("roles/_common/vars/main.yml", "_common_command"),
        ("roles/_common/vars/main.yml", "_common_run"),
        ("roles/gpu_doctor/vars/main.yml", "__gpu_doctor_report"),
        ("roles/kubernetes/defaults/main.yml", "kubernetes_backup_fetch"),
        ("roles/kubernetes/vars/main.yml", "__kubernetes_backup_root"),
        ("roles/kubernetes/vars/main.yml", "__kubernetes_kubeconfig_path"),
        ("roles/kubernetes/vars/main.yml", "__kubernetes_private_kubeconfig"),
    ]


DOWN = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}  # nothing listens there
LOCAL = {"ansible_connection": "local"}
AUTOSCALER = {"name": "chat", "namespace": "ml", "metric": "gpu", "target_value": 60, "max_replicas": 3}
# Keywords of a task that depend on the tasks around it.
ALONE = (
    "when",
    "until",
    "retries",
    "delay",
    "delegate_to",
    "become",
    "connection",
    "run_once",
    "failed_when",
    "throttle",
)
IDENTITY = {"host": "gpu1", "node": NODE, "machine_id": MACHINE, "authorities": [], "is_member": False, "record": {}}
OF_A_NODE: dict[str, Any] = {
    "_common_identity_self": IDENTITY,
    "_common_server": {"result": {"clusters": ["/etc/kubernetes/kubelet.conf"]}},
    "_common_self": {"result": {"identity": IDENTITY}},
    "__kubernetes_node": NODE,
    "__kubernetes_plan": {"control_plane": "cp1"},
    "_common_chart": {
        "name": "chart",
        "version": "1.0.0",
        "repository": "http://127.0.0.1:9",
        "release": "chart",
        "namespace": "charts",
        "values": {},
        "kinds": [],
        "crd_group": "",
        "adopt": "",
    },
    "_common_chart_folder": {"path": "/nonexistent"},
    "_common_adopt": False,
    "_common_helm": "/bin/false",
    "__gpu_proof_scripts": dict.fromkeys(("cuda.py", "cuda_proof.py", "sample_service.py"), ""),
    "__kubernetes_manifest": {"path": "/dev/null"},
    "_common_node_name": NODE,
    "kubernetes_drain_timeout": 20,
    "nvidia_driver_drain_timeout": 20,
}
UNCORDON = {"node": NODE, "metadata": {"annotations": {}}, "timeout": 1}
DRAIN = {"node": NODE, "role": "kubernetes", "timeout": 20, "options": {}, "kept": "", "mark": "example/mark"}
UNMARK = {"node": NODE, "annotations": ["example/mark"]}
FACTS = {"ansible.builtin.set_fact": {"hostname": NODE, "cacheable": True}}
LOAD = {
    "gpu_loadtest_namespace": "ml",
    "gpu_loadtest_name": "chat",
    "gpu_loadtest_url": "http://chat/",
    "gpu_loadtest_high": 40,
}


def play_with(
    clusters: TwoClusters, folder: Path, playbook: Path, *flags: str, server: Any = DOWN, **variables: Any
) -> str:
    known = {
        "kubegpu_kubeconfig": str(clusters.folder / "kubeconfig"),
        "kubegpu_cluster_timeout": 5,
        "kubegpu_helm_binary": "/bin/false",
        "kubegpu_confirm": "prod",
        "kubegpu_cluster_name": "prod",
        "gitops_folder": str(folder / "gitops"),
        "gpu_autoscaling_autoscalers": [AUTOSCALER],
        "gpu_autoscaling_wait_timeout": 1,
        "gpu_proof_wait_timeout": 1,
        **LOAD,
        **variables,
    }
    hosts = {"kube_control_plane": {"hosts": {"cp1": DOWN}}, "kube_node": {"hosts": {"gpu1": server}}}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"localhost": LOCAL}, "children": hosts}}))
    environment = {"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH, **clusters.environment}
    words = ("-i", "hosts.yml", playbook, "-e", json.dumps(known), *flags)
    done = ansible_playbook(*words, cwd=folder, env=environment)
    print(done.stdout[-6000:], done.stderr[-2000:], "mine:", clusters.mine.requests, "other:", clusters.other.requests)
    return " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: path.stem)
def test_no_playbook_follows_a_changed_kubeconfig(folder: Path, playbook: Path) -> None:
    """After each task, its context leads to another cluster. What plays on servers do is in the next tests."""
    with two_clusters(folder, "prod", "staging") as clusters:
        play_with(clusters, folder, playbook, "--limit", "localhost", kubegpu_context="prod")
        assert set(clusters.other.requests) <= {"GET /version"}
        asks = any(TALK & found.task.keys() and "localhost" in found.keywords["hosts"] for found in reached(playbook))
        assert bool(clusters.mine.requests) == asks


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: path.stem)
def test_no_playbook_guesses_between_contexts(folder: Path, playbook: Path) -> None:
    with two_clusters(folder, "prod", "staging") as clusters:
        play_with(clusters, folder, playbook)
        assert clusters.mine.requests == clusters.other.requests == []


def test_no_task_of_a_server_follows_a_changed_kubeconfig(folder: Path) -> None:
    """Each task for the cluster in plays on servers, alone: the others of these plays need a server."""
    tasks = on_servers()
    roles = sorted({where.split("/")[1] for where in tasks})
    assert {"kubernetes", "maintain"} <= set(roles)
    files = [
        path
        for role in roles
        for kind in ("defaults", "vars")
        for path in (ROOT / "roles" / role / kind).rglob("*.yml")
    ]
    lines = [
        {**{key: value for key, value in task.items() if key not in ALONE}, "name": where, "ignore_errors": True}
        for where, task in tasks.items()
    ]
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "module_defaults": {"group/kubegpu.autoscale.cluster": "{{ _common_access }}"},
        "vars_files": [str(file) for file in files],
    }
    (folder / "play.yml").write_text(json.dumps([{**play, "tasks": lines}]))
    with two_clusters(folder, "prod", "staging") as clusters:
        told = {"kubegpu_context": "prod", "_common_drain": DRAIN, "_common_uncordon": UNCORDON, **OF_A_NODE}
        told["_common_unmark"] = UNMARK
        said = play_with(clusters, folder, folder / "play.yml", **told)
        assert set(clusters.other.requests) <= {"GET /version"}
        assert "POST /api/v1/namespaces/ml/pods/chat-0/eviction" in clusters.mine.requests
        assert [where for where in tasks if f"TASK [{where.partition(chr(123))[0]}" not in said] == []
        assert "is undefined" not in said
        assert len(clusters.mine.requests) > len(tasks)


@pytest.mark.parametrize(("role", "told"), [("kubernetes", {}), ("maintain", {"_common_drain": DRAIN})])
def test_a_drain_that_is_tried_again_stays_in_its_cluster(folder: Path, role: str, told: dict[str, Any]) -> None:
    """A disruption budget forbids the eviction twice, and the file leads to the other cluster meanwhile."""
    include = {"ansible.builtin.include_role": {"name": f"kubegpu.autoscale.{role}", "tasks_from": "drain"}}
    play = {"hosts": "gpu1", "gather_facts": False, "tasks": [FACTS, include]}
    (folder / "play.yml").write_text(json.dumps([play]))
    with two_clusters(folder, "prod") as clusters:
        said = play_with(clusters, folder, folder / "play.yml", server=LOCAL, **OF_A_NODE, **told)
        assert clusters.mine.evictions == 3, said
        assert (folder / "kubeconfig").read_text() == (folder / "other").read_text()
        assert set(clusters.other.requests) <= {"GET /version"}


def test_the_environment_of_a_play_leads_to_no_other_cluster(folder: Path) -> None:
    """The run's lookup does not see it. The identity check does, before the drain, and is not tried again."""
    include = {"ansible.builtin.include_role": {"name": "kubegpu.autoscale.kubernetes", "tasks_from": "drain"}}
    with two_clusters(folder, "prod", "staging") as clusters:
        login = {"K8S_AUTH_HOST": clusters.other.address, "K8S_AUTH_API_KEY": "other"}
        play = {"hosts": "gpu1", "gather_facts": False, "environment": login, "tasks": [FACTS, include]}
        (folder / "play.yml").write_text(json.dumps([play]))
        said = play_with(clusters, folder, folder / "play.yml", server=LOCAL, kubegpu_context="prod", **OF_A_NODE)
        assert "the environment has K8S_AUTH_API_KEY, K8S_AUTH_HOST, which would replace the cluster" in said
        assert "RETRYING" not in said
        assert clusters.other.requests == []


def on_servers() -> dict[str, dict[str, Any]]:
    """Each task for the cluster in plays on servers, once. Others of these plays need a server."""
    return {
        found.where: dict(found.task)
        for playbook in PLAYBOOKS
        for found in reached(playbook)
        if TALK & found.task.keys() and found.keywords["hosts"] != "localhost" and "objects" not in str(found.task)
    }
