# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from datetime import UTC, datetime


def timestamp(time_s: float) -> str:
    """Unix seconds as RFC 3339."""
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="seconds")
