"""A control plane that is down does not end a limited run."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from role_values import ROLES

# Nothing listens there.
DOWN = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
LOCAL = {"ansible_connection": "local"}


def test_a_limited_run_goes_on_past_it(tmp_path: Path) -> None:
    """By the tasks of the role, in a play that any error ends: upgrades are one, and others allow no server to fail."""
    survey = yaml.safe_load((ROLES / "kubernetes/tasks/survey.yml").read_text())
    looks = [task for task in survey if "outside of this run" in task["name"] or "are complete" in task["name"]]
    assert len(looks) == 2
    looks[1]["ansible.builtin.stat"]["path"] = "/etc/hostname"
    told = {"ansible.builtin.debug": {"msg": "silent {{ silent }}, seen {{ seen }}"}}
    seen = "{{ __kubernetes_elsewhere.results | map(attribute='item') | sort }}"
    silent = "{{ __kubernetes_reached.results | selectattr('msg', 'defined') | map(attribute='item') }}"
    play = {
        "hosts": "kube_node",
        "gather_facts": False,
        "any_errors_fatal": True,
        "max_fail_percentage": 0,
        "vars": {
            "__kubernetes_control_planes": ["cp1", "cp2", "cp3"],
            "silent": silent,
            "seen": seen,
        },
        "tasks": [*looks, told],
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    planes = {"cp1": LOCAL, "cp2": DOWN, "cp3": LOCAL}
    inventory = {"kube_control_plane": {"hosts": planes}, "kube_node": {"hosts": {"gpu1": LOCAL, "gpu2": LOCAL}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
    words = ("-i", "hosts.yml", "play.yml")
    done = ansible_playbook(*words, cwd=tmp_path, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH})

    assert done.returncode == 0, done.stdout
    assert done.stdout.count("silent ['cp2'], seen ['cp1', 'cp3']") == 2
