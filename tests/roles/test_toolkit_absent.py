"""An existing toolkit, and one that Docker uses, keep the devices of their containers. Check mode changes nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from driver_machines import BARE, DEBIAN, node_facts
from own_apt import apt_paths, installed_alone

# As `nvidia-ctk runtime configure --runtime=docker` writes it.
DOCKER = {"runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}}


@pytest.mark.parametrize(
    ("is_ours", "settings", "specification_is"),
    [
        (True, None, "changed"),
        (True, {"log-driver": "journald"}, "changed"),
        (True, DOCKER, "skipping"),
        (False, None, "skipping"),
    ],
)
def test_the_toolkit_goes_if_it_is_ours_and_docker_does_not_use_it(
    tmp_path: Path, is_ours: bool, settings: dict[str, Any] | None, specification_is: str
) -> None:
    specification, pin = tmp_path / "nvidia.yaml", tmp_path / "kubegpu.pin"
    specification.touch()
    if is_ours:
        pin.touch()
    if settings:
        (tmp_path / "daemon.json").write_text(json.dumps(settings, indent=4))
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

    assert done.returncode == 0, done.stdout + done.stderr
    assert found
    assert found[1] == specification_is
    assert ("Remove the repository nvidia-container-toolkit]" in done.stdout) is (settings != DOCKER)
    assert ("The container toolkit stays on localhost" in done.stdout) is (settings == DOCKER)
