"""Docker and NVIDIA's container toolkit where a newer release is installed than the version file has.

The toolkit's plans are in tests/unit/nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from driver_machines import node_facts
from role_values import RoleValues

GPU = {"gpu_facts": node_facts(1)}
ROLES = {"docker": "docker-ce", "nvidia_container_toolkit": "nvidia-container-toolkit-base"}
NEWER, OLDER = "5:29.0.0-1~debian.12~bookworm", "5:27.5.1-1~debian.12~bookworm"
# A later build, or one of the pattern.
SAME = "5:28.1.1-2~debian.12~bookworm"


def reasons(installed: str, state: str = "installed", **variables: Any) -> str:
    options = {
        "docker_state": "present",
        "inventory_hostname": "gpu1",
        "kubegpu_versions_override": {"packages": {"docker-ce": "5:28.1.1-*"}},
        **variables,
    }
    told = {"ansible_facts": {"architecture": "x86_64", "distribution": "Debian", **GPU}}
    values = RoleValues("docker", options, told)
    values.tell(__docker_listed={"stdout_lines": [f"docker-ce {state} {installed}"]})
    return "\n".join(values["__docker_reasons"])


def test_a_newer_release_is_not_brought_down() -> None:
    refusal = reasons(NEWER)

    assert f"gpu1 has docker-ce {NEWER}, newer than 5:28.1.1-* of the collection's version file" in refusal
    assert (
        'Nothing was changed. Set docker_version: "5:29.0.0-*" to keep it, or docker_version: "5:28.1.1-*"' in refusal
    )


@pytest.mark.parametrize("case", ["asked for", "older", "same", "removed", "a whole branch"])
def test_what_is_asked_for_and_what_goes_up_comes(case: str) -> None:
    assert not {
        "asked for": lambda: reasons(NEWER, docker_version="5:28.1.1-*"),
        "older": lambda: reasons(OLDER),
        "same": lambda: reasons(SAME),
        "removed": lambda: reasons(NEWER, state="config-files"),
        "a whole branch": lambda: reasons(NEWER, kubegpu_versions_override={"packages": {"docker-ce": "5:29.*"}}),
    }[case]()


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
