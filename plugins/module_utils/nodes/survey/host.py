# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The server of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Host:
    """Facts of Ansible and server_info about the server.

    name:         its name in the inventory.
    system:       distribution and version, `Ubuntu 24.04` or `Debian 12`.
    release:      its codename, `noble` or `bookworm`.
    kernel:       release of the running kernel.
    architecture: as the kernel names it, `x86_64` or `aarch64`.
    is_local:     whether Ansible runs on it, so that no task can reboot it.
    clusters:     files that show that it is a node of a cluster.
    now:          Unix seconds on the controller; 0 where nothing depends on it.
    """

    name: str
    system: str
    kernel: str
    architecture: str
    is_local: bool = False
    clusters: tuple[str, ...] = ()
    release: str = ""
    now: float = 0

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Host:
        """From `_common_host`, or a part of it."""
        return cls(**{**facts, "clusters": tuple(facts.get("clusters", ()))})

    @property
    def distribution(self) -> str:
        return self.system.partition(" ")[0]

    @property
    def is_ubuntu(self) -> bool:
        return self.distribution == "Ubuntu"
