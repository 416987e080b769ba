"""What a run knows of one cluster, and what confirms its removal, does not count for another."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH, ROOT
from role_tasks import reached
from task_walk import PLAYBOOKS, files, read, role_file
from two_clusters import ApiServer, TwoClusters, two_clusters

KEY = "{{ _common_run.key }}"
VARIABLES = yaml.safe_load((ROOT / "roles/_common/vars/main.yml").read_text())
RUNS = [found for playbook in PLAYBOOKS for found in reached(playbook)]
FACTS = {name: value for found in RUNS for name, value in found.task.get("ansible.builtin.set_fact", {}).items()}


@cache
def guards() -> dict[str, str]:
    """Conditions under which a task reads a cluster or asks, by the task that includes these files or is in them."""
    found = {}
    for path in sorted((ROOT / "roles").glob("*/tasks/*.yml")):
        role = path.parent.parent.name
        for task in read(path):
            leads = {name.name for name in files(task, role) if name.parent == role_file("_common", "x").parent}
            if "cluster.yml" in leads or path == role_file("_common", "confirm"):
                found[f"{role}/{path.stem}: {task['name']}"] = str(task.get("when", ""))
    return found


def facts_of(condition: str) -> set[str]:
    """Facts of the run that a condition depends on, also by variables."""
    names = set(re.findall(r"\w+", condition))
    while more := {word for name in names for word in re.findall(r"\w+", str(VARIABLES.get(name, "")))} - names:
        names |= more
    return names & FACTS.keys()


@pytest.mark.parametrize("guard", sorted(guards()))
def test_what_is_not_done_again_was_done_for_the_same_kubeconfig(guard: str) -> None:
    """A condition that skips it compares the key of the run's kubeconfig with a fact that has it."""
    condition = guards()[guard]
    remembered = facts_of(condition)
    if "not" in condition.split() and remembered & {"kubegpu_cluster", "kubegpu_cluster_ready", "_common_confirmed"}:
        assert any(FACTS[name] == KEY for name in remembered), remembered


def test_the_facts_of_the_cluster_are_found() -> None:
    assert len(guards()) >= 14
    assert {name for name, value in FACTS.items() if value == KEY} == {"_common_cluster_run", "_common_confirmed"}
    skipping = [name for name, condition in guards().items() if "_common_is_connected" in condition]
    assert len(skipping) >= 12


def kubeconfig(clusters: TwoClusters, name: str, server: ApiServer) -> str:
    path = clusters.folder / f"{name}.kubeconfig"
    config = {**TwoClusters._config((name,), server)}
    path.write_text(json.dumps(config))
    server.objects["/api/v1/namespaces/kube-system/configmaps/kubegpu-cluster"] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kubegpu-cluster"},
        "data": {"name": name, "uid": "uid-of-kube-system"},
    }
    return str(path)


def play(kubeconfig: str) -> dict[str, Any]:
    ours = "kubegpu.autoscale._common"
    removal = {"what": "the release", "cluster": True, "hosts": ["localhost"], "settings": {}}
    return {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {"kubegpu_kubeconfig": kubeconfig},
        "tasks": [
            {"ansible.builtin.include_role": {"name": ours, "public": True}},
            {"ansible.builtin.include_role": {"name": ours, "tasks_from": "clear"}},
            {"ansible.builtin.debug": {"msg": "detected in {{ kubegpu_cluster.context }}"}},
            {
                "ansible.builtin.include_role": {"name": ours, "tasks_from": "confirm"},
                "vars": {"_common_removal": removal},
            },
            {
                "kubernetes.core.k8s": {
                    "kubeconfig": "{{ _common_kubeconfig }}",
                    "state": "patched",
                    "kind": "Node",
                    "name": "gpu1",
                    "definition": {"spec": {"unschedulable": True}},
                }
            },
        ],
    }


def test_a_second_kubeconfig_is_detected_and_confirmed_again(tmp_path: Path) -> None:
    with two_clusters(tmp_path, "a", "b") as clusters:
        plays = [
            play(kubeconfig(clusters, name, server))
            for name, server in (("staging", clusters.mine), ("prod", clusters.other))
        ]
        (tmp_path / "play.yml").write_text(json.dumps(plays))
        told = {"kubegpu_cluster_timeout": 5, "kubegpu_helm_binary": "/bin/false", "kubegpu_confirm": "staging"}
        words = ("-i", "localhost,", "-c", "local", "play.yml", "-e", json.dumps(told))
        done = ansible_playbook(*words, cwd=tmp_path, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH})
        said = " ".join((done.stdout + done.stderr).split())

        assert "detected in staging" in said, said
        assert "detected in prod" in said, said
        assert "This would remove the release: cluster prod at" in said
        assert "PATCH /api/v1/nodes/gpu1" in clusters.mine.requests
        assert "PATCH /api/v1/nodes/gpu1" not in clusters.other.requests
