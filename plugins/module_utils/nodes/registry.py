# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""All checks of a server, by subject."""

from __future__ import annotations

from typing import Any

from ..diagnosis.check import Check, FindingType
from ..hops import Hop
from .apt import checks as apt
from .containerd import checks as containerd
from .containerd import drop_in_checks as drop_in
from .driver import checks as driver
from .kubernetes import checks as kubernetes
from .pod_reach import checks as reach
from .server import checks as server
from .toolkit import checks as runtime

SUBJECTS: dict[Hop, tuple[Check[Any], ...]] = {
    Hop.SERVER: server.SERVER + server.SERVERS,
    Hop.APT: apt.OFFER + apt.REPOSITORY,
    Hop.DRIVER: driver.BEFORE + driver.AFTER + driver.NOW,
    Hop.RUNTIME: (
        *(containerd.BEFORE + drop_in.BEFORE + containerd.AFTER),
        *(runtime.BEFORE + runtime.AFTER + runtime.NOW),
    ),
    Hop.KUBERNETES: kubernetes.ALL + reach.AFTER,
}
FINDING_TYPES: dict[str, FindingType] = {
    finding_type.id: finding_type for checks in SUBJECTS.values() for check in checks for finding_type in check.types
}
