"""containerd and NVIDIA's container toolkit where a newer release is installed than the version file has.

Their plans are in tests/unit/nodes.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from driver_machines import node_facts

GPU = {"gpu_facts": node_facts(1)}
ROLES = {
    "containerd": "containerd.io",
    "nvidia_container_toolkit": "nvidia-container-toolkit-base",
}


@pytest.mark.parametrize("role", ROLES)
def test_dpkg_is_asked_before_anything_is_changed(tmp_path: Path, role: str) -> None:
    package = ROLES[role]
    (tmp_path / "dpkg-query").write_text(f"#!/bin/sh\necho {package} installed 5:99.0-1\n")
    (tmp_path / "dpkg-query").chmod(0o755)
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": True,
        "gather_subset": ["!all", "min"],
        "vars": {"_common_gpu_facts": {}, f"{role}_state": "present"},
        "environment": {"PATH": f"{tmp_path}:/usr/bin:/bin"},
        "tasks": [
            {"ansible.builtin.set_fact": {**GPU, "cacheable": True}},
            {"ansible.builtin.include_role": {"name": f"kubegpu.autoscale.{role}", "tasks_from": "preflight"}},
        ],
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    done = ansible_playbook(
        "-i", "localhost,", "play.yml", cwd=tmp_path, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH}
    )

    assert f"{package} 5:99.0-1, newer than" in " ".join((done.stdout + done.stderr).split())
