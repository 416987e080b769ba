# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""How long NVIDIA supports the branches of its driver."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime


def _end(year: int, month: int) -> int:
    """Unix seconds of the month's end."""
    following = (year + month // 12, month % 12 + 1)
    return int(datetime(*following, 1, tzinfo=UTC).timestamp())


# From "Supported Drivers and CUDA Toolkit Versions" at docs.nvidia.com/datacenter/tesla/drivers, of the pages of 615
# (535, 610) and 620 (the others), read in November 2026. They name months. A branch without a row has no known date.
BRANCH_ENDS: Mapping[int, int] = {
    535: _end(2026, 6),
    580: _end(2028, 6),
    595: _end(2027, 3),
    610: _end(2026, 8),
    620: _end(2029, 9),
}


def branch_end(release: str) -> int:
    """Unix seconds of the end of support of a release's branch; 0 if it is unknown."""
    branch = release.partition(".")[0]
    return BRANCH_ENDS.get(int(branch), 0) if branch.isdigit() else 0
