"""A driver is not taken from under pods: where the controller cannot drain the node, nothing is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH


@pytest.mark.parametrize("clusters", [[], ["/etc/kubernetes/kubelet.conf"]])
def test_a_node_whose_cluster_is_not_seen_is_refused(tmp_path: Path, clusters: list[str]) -> None:
    role = {"name": "kubegpu.autoscale.nvidia_driver", "tasks_from": "drain"}
    tasks = [
        {"ansible.builtin.set_fact": {"hostname": "gpu1", "cacheable": True}},
        {"ansible.builtin.include_role": role},
    ]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    known = {"kubegpu_kubeconfig": str(tmp_path / "none"), "_common_server": {"result": {"clusters": clusters}}}
    done = ansible_playbook(
        "-i", "localhost,", "play.yml", "-e", json.dumps(known),
        cwd=tmp_path, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH},
    )  # fmt: skip
    said = " ".join((done.stdout + done.stderr).split())

    assert (done.returncode == 0) == (not clusters), said
    assert ("does not find gpu1 in the cluster of" in said) == bool(clusters)
    assert ("nor was it rebooted" in said) == bool(clusters)
