"""Each role's apt repository is written in the words that the shared role knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.apt_sources import AptSet
from role_values import ROLES

SPEC = yaml.safe_load((ROLES / "_common/meta/argument_specs.yml").read_text())["argument_specs"]["apt_present"]
KNOWN = SPEC["options"]["_common_apt"]["options"]


def repositories(value: Any) -> Iterator[dict[str, Any]]:
    """Those at any depth: each has a key to trust."""
    if isinstance(value, dict):
        if "key_url" in value:
            yield value
        for below in value.values():
            yield from repositories(below)
    elif isinstance(value, list):
        for below in value:
            yield from repositories(below)


FOUND = [
    pytest.param(repository, id=f"{path.relative_to(ROLES)} {repository['name']}")
    for path in sorted(ROLES.glob("*/vars/**/*.yml"))
    if "key_url" in path.read_text()
    for repository in repositories(yaml.safe_load(path.read_text()))
]


def test_they_are_found() -> None:
    assert len(FOUND) >= 1  # of Kubernetes


def test_the_shared_role_takes_what_is_planned() -> None:
    assert {field.name for field in fields(AptSet)} <= KNOWN.keys()


@pytest.mark.parametrize("repository", FOUND)
def test_the_shared_role_takes_it(repository: dict[str, Any]) -> None:
    assert repository.keys() <= KNOWN.keys()
    assert {name for name, option in KNOWN.items() if option.get("required")} <= repository.keys()
