"""What the lab's servers can run: Debian 12, and on demand what else the roles support."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

DEFAULT = "debian-12"


@cache
def systems() -> dict[str, dict[str, str]]:
    """By name: `suite` of the Debian below; `codename` of the Ubuntu that it is made to look like."""
    return yaml.safe_load(Path(__file__).with_suffix(".yml").read_text())
