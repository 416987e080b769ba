# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""A driver and a kernel of a GPU node."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Driver:
    """version: dotted numbers; None if it cannot be read. flavour: `open`, `proprietary`; None if it is unknown."""

    version: str | None = None
    flavour: str | None = None

    @property
    def branch(self) -> int | None:
        return None if self.version is None else int(self.version.split(".")[0])


@dataclass(frozen=True)
class Kernel:
    """One kernel below /lib/modules.

    bootable: whether /boot has its image.
    module:   file name of its nvidia.ko below /lib/modules; None without one.
    signed:   whether that file ends with a signature; None if it is compressed or missing.
    """

    release: str
    bootable: bool = False
    module: str | None = None
    signed: bool | None = None

    @property
    def order(self) -> tuple[int, ...]:
        """The order of releases: by its numbers, 6.8.0-60-generic being (6, 8, 0, 60)."""
        return tuple(int(number) for number in re.findall(r"[0-9]+", self.release))
