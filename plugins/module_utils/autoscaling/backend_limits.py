# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reports autoscalers that a backend cannot scale, in one error."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import HopError, first_of_all
from ..hops import Hop
from .spec import Autoscaler


def refuse(found: Iterable[tuple[Autoscaler, Iterable[tuple[str, str]]]], *more: HopError) -> None:
    """Raises: HopError that lists each autoscaler with its first problem, and `more`, if there are any.

    found: problem and fix for each autoscaler.
    """
    errors = [
        HopError(Hop.SPEC, seen=f"autoscaler {autoscaler.name}: {seen}", fix=fix)
        for autoscaler, faults in found
        for seen, fix in list(faults)[:1]
    ]
    if errors := [*errors, *more]:
        raise first_of_all(errors)
