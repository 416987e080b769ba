"""The role kubernetes has looked for the files that it decides by: an interrupted run is gone on with by them."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml
from role_values import ROLES, RoleValues

ROLE = ROLES / "kubernetes"
DECIDES = re.compile(r"(__kubernetes_\w+) (?:not )?in __kubernetes_paths")
NAMES = sorted({name for path in ROLE.rglob("*.yml") for name in DECIDES.findall(path.read_text())})


def looked_for() -> dict[str, Any]:
    tasks = yaml.safe_load((ROLE / "tasks/survey.yml").read_text())
    return next(task["ansible.builtin.find"] for task in tasks if "ansible.builtin.find" in task)


def is_found(name: str) -> bool:
    patterns = RoleValues("kubernetes", {}, {})[looked_for()["patterns"].strip("{} ")]
    return any(fnmatch(name, pattern) for pattern in patterns)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_decides_is_looked_for(name: str) -> None:
    """`upgrading` is one: a node whose upgrade ended before it took pods again would stay cordoned."""
    role, look = RoleValues("kubernetes", {}, {}), looked_for()
    path = PurePosixPath(role[name])

    assert is_found(path.name)
    assert path.is_relative_to(look["paths"])
    assert len(path.relative_to(look["paths"]).parts) <= look["depth"]


def test_pod_networks_of_others_are_looked_for() -> None:
    assert is_found("10-flannel.conflist")
