"""An existing toolkit keeps the devices of its containers. In check mode, so nothing changes here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from driver_machines import BARE, DEBIAN, node_facts
from own_apt import apt_paths, installed_alone


@pytest.mark.parametrize("is_ours", [True, False])
def test_the_devices_go_with_a_toolkit_of_ours_alone(tmp_path: Path, is_ours: bool) -> None:
    specification, pin = tmp_path / "nvidia.yaml", tmp_path / "kubegpu.pin"
    specification.touch()
    if is_ours:
        pin.touch()
    role = {"name": "kubegpu.autoscale.nvidia_container_toolkit"}
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.set_fact": {**DEBIAN, "gpu_facts": node_facts(0), "cacheable": True}},
            *({"ansible.builtin.include_role": {**role, "tasks_from": name}} for name in ("plan", "absent")),
        ],
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    known = {
        "nvidia_container_toolkit_state": "absent",
        "__nvidia_container_toolkit_cdi_spec": str(specification),
        "__nvidia_container_toolkit_docker_file": str(tmp_path / "daemon.json"),
        "_common_apt_paths": apt_paths(tmp_path),
        "_common_server": BARE,
    }
    done = ansible_playbook(
        "-i", "localhost,", "--check", "play.yml", "-e", json.dumps(known),
        cwd=tmp_path, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH, **installed_alone(tmp_path)},
    )  # fmt: skip
    found = re.search(r"Remove the CDI specification\] \**\n(\w+)", done.stdout)

    assert found, done.stdout + done.stderr
    assert found[1] == ("changed" if is_ours else "skipping")
