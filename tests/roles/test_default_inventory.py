"""The file that Ansible reads if a command names no inventory is one if it has hosts."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.template import trust_as_template
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.identity import NO_INVENTORY
from role_values import ROLES, RoleValues

DEFAULT = "ansible/hosts"


@pytest.mark.parametrize(
    ("sources", "hosts", "expected"),
    [
        ([DEFAULT], [], "default"),
        ([DEFAULT], ["gpu1"], "ansible"),
        (["prod/hosts"], [], "prod"),  # of an existing cluster
        (["prod/hosts", DEFAULT], [], "prod"),
        (["gpu1,"], ["gpu1"], "default"),
    ],
    ids=str,
)
def test_the_id_by_the_sources_of_a_run(sources: list[str], hosts: list[str], expected: str, tmp_path: Path) -> None:
    """With another path in place of /etc, where a test creates no file."""
    (line,) = [line for line in (ROLES / "_common/vars/main.yml").read_text().splitlines() if NO_INVENTORY in line][-1:]
    told = {
        "ansible_inventory_sources": tuple(name if "," in name else str(tmp_path / name) for name in sources),
        "groups": {"all": hosts},
        "_common_has_inventory": trust_as_template(line.strip().replace(NO_INVENTORY, str(tmp_path / DEFAULT))),
    }
    for name in (DEFAULT, "prod/hosts"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()

    assert RoleValues("_common", {}, told)["kubegpu_inventory_id"] == expected
