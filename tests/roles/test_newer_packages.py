"""Docker and NVIDIA's container toolkit where a newer release is installed than the version file has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from role_values import RoleValues

GPU = {"gpu_facts": {"gpus": [{"bound_driver": "nvidia"}]}}
ROLES = {
    "docker": ("docker-ce", "5:28.1.1-*"),
    "nvidia_container_toolkit": ("nvidia-container-toolkit-base", "1.18.0-1"),
}
LISTED = {"docker": "__docker_listed", "nvidia_container_toolkit": "__nvidia_container_toolkit_packages"}
NEWER = {"docker": "5:29.0.0-1~debian.12~bookworm", "nvidia_container_toolkit": "1.20.0-1"}
OLDER = {"docker": "5:27.5.1-1~debian.12~bookworm", "nvidia_container_toolkit": "1.17.8-1"}
# A later build, or one of the pattern.
SAME = {"docker": "5:28.1.1-2~debian.12~bookworm", "nvidia_container_toolkit": "1.18.0-2"}


def reasons(role: str, installed: str, state: str = "installed", **variables: Any) -> str:
    package, pin = ROLES[role]
    options = {
        f"{role}_state": "present",
        "inventory_hostname": "gpu1",
        "kubegpu_versions_override": {"packages": {package.removesuffix("-base"): pin}},
        **variables,
    }
    told = {"ansible_facts": {"architecture": "x86_64", "distribution": "Debian", **GPU}}
    values = RoleValues(role, options, told)
    values.tell(**{LISTED[role]: {"stdout_lines": [f"{package} {state} {installed}"]}})
    return "\n".join(values[f"__{role}_reasons"])


@pytest.mark.parametrize("role", ROLES)
def test_a_newer_release_is_not_brought_down(role: str) -> None:
    package, pin = ROLES[role]
    release = NEWER[role].partition("-")[0]

    refusal = reasons(role, NEWER[role])

    assert f"gpu1 has {package} {NEWER[role]}, newer than {pin} of the collection's version file" in refusal
    assert f'Nothing was changed. Set {role}_version: "{release}-*" to keep it, or {role}_version: "{pin}"' in refusal


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("case", ["asked for", "older", "same", "removed", "a whole branch"])
def test_what_is_asked_for_and_what_goes_up_comes(role: str, case: str) -> None:
    branch = {"docker": "5:29.*", "nvidia_container_toolkit": "1.*"}[role]
    package = ROLES[role][0].removesuffix("-base")
    assert not {
        "asked for": lambda: reasons(role, NEWER[role], **{f"{role}_version": ROLES[role][1]}),
        "older": lambda: reasons(role, OLDER[role]),
        "same": lambda: reasons(role, SAME[role]),
        "removed": lambda: reasons(role, NEWER[role], state="config-files"),
        "a whole branch": lambda: reasons(role, NEWER[role], kubegpu_versions_override={"packages": {package: branch}}),
    }[case]()


@pytest.mark.parametrize("role", ROLES)
def test_dpkg_is_asked_before_anything_is_changed(tmp_path: Path, role: str) -> None:
    package = ROLES[role][0]
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
