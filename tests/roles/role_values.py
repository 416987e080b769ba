"""A role's own variables, rendered as Ansible renders them, without a play: hundreds of machines in seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from collection import ROOT

ROLES = ROOT / "roles"
# What each role depends on.
COMMON = "_common"
# What a play has by itself.
PLAY = {"ansible_inventory_sources": [str(ROOT)]}


class RoleValues:
    """What expressions give where a role runs for one host.

    variables: those of the inventory, over the role's defaults. told: facts and results of tasks, over all others.
    """

    def __init__(self, role: str, variables: Mapping[str, Any], told: Mapping[str, Any]) -> None:
        defaults, own = ({} | _read(COMMON, folder) | _read(role, folder) for folder in ("defaults", "vars"))
        self._templar = Templar(DataLoader(), PLAY | defaults | dict(variables) | own | dict(told))

    def __getitem__(self, expression: str) -> Any:
        return self._templar.template(trust_as_template(f"{{{{ {expression} }}}}"))

    def text(self, template: str) -> str:
        """What a task's text becomes."""
        return str(self._templar.template(trust_as_template(template)))

    def tell(self, **results: Any) -> None:
        """Go on as if a task had registered these."""
        self._templar.available_variables = self._templar.available_variables | results


@cache
def _read(role: str, folder: str) -> Mapping[str, Any]:
    loader, variables = DataLoader(), {}
    for path in _files(ROLES / role / folder):
        variables |= loader.load_from_file(str(path), trusted_as_template=True) or {}
    return variables


def _files(folder: Path) -> Iterator[Path]:
    """main.yml, or all of the folder main."""
    yield from sorted([*folder.glob("main.yml"), *folder.glob("main/*.yml")])
