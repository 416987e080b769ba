"""Systems of the lab's servers: Debian 12 by default, and the others that the roles support."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

DEFAULT = "debian-12"


@cache
def systems() -> dict[str, dict[str, str]]:
    """Systems by name: `suite` of the underlying Debian; `codename` of the imitated Ubuntu."""
    return yaml.safe_load(Path(__file__).with_suffix(".yml").read_text())
