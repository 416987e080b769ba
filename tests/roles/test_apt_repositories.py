"""The apt repositories that are planned are written in the words that the shared role knows."""

from __future__ import annotations

from dataclasses import fields

import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.apt.sources import AptSet
from role_values import ROLES

SPEC = yaml.safe_load((ROLES / "_common/meta/argument_specs.yml").read_text())["argument_specs"]["apt_present"]
KNOWN = SPEC["options"]["_common_apt"]["options"]
PLANNED = {field.name for field in fields(AptSet)}


def test_the_shared_role_takes_what_is_planned() -> None:
    assert KNOWN.keys() >= PLANNED


def test_what_the_shared_role_requires_is_planned() -> None:
    required = {name for name, option in KNOWN.items() if option.get("required")}
    assert required
    assert required <= PLANNED
