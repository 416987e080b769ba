# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Addresses of upstream repositories and of mirrors."""

from __future__ import annotations

import re

_HOST = re.compile(r"[a-z][a-z0-9+.-]*://(?:[^/@]*@)?(\[[^\]]*\]|[^/:?#]*)", re.IGNORECASE)


def hostname(address: str) -> str:
    """Empty if it has none."""
    found = _HOST.match(address)
    return found[1].strip("[]").lower() if found else ""


def mirrored(address: str, mirror: str) -> str:
    """The address on a mirror, with upstream's host as the first path element; unchanged without a mirror."""
    return re.sub("^https?:/", lambda _scheme: mirror.rstrip("/"), address) if mirror else address
