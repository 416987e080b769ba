# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The archive of helm for the controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_HOST = "get.helm.sh"
# Architectures that helm names differently than the kernel.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

Pin = Mapping[str, Any]


@dataclass(frozen=True)
class Archive:
    """name: of the file. checksum: in the format of get_url."""

    name: str
    url: str
    checksum: str


def platform(uname: str) -> str:
    """helm's name of the platform. uname: output of `uname -sm`."""
    system, architecture = uname.lower().split()
    return f"{system}-{_ARCHITECTURES.get(architecture, architecture)}"


def archive(pin: Pin, pinned: Pin, platform_name: str, mirror: str) -> Archive:
    """pin: `version` and `sha256` by platform. pinned: the same in the collection, before any override.

    Digests of a pin belong to its version. If only the version is overridden, the file beside the archive has the
    digest.
    """
    version = str(pin["version"])
    name = f"helm-{version if version.startswith('v') else f'v{version}'}-{platform_name}.tar.gz"
    url = f"{mirror.rstrip('/')}/{_HOST}/{name}" if mirror else f"https://{_HOST}/{name}"
    fits = version == pinned["version"] or pin["sha256"] != pinned["sha256"]
    digits = pin["sha256"].get(platform_name) if fits else None
    return Archive(name, url, f"sha256:{digits or f'{url}.sha256sum'}")
