# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The archive from which helm is installed on the controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_HOST = "get.helm.sh"
# Names of the kernel's architectures that helm names differently.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

Pin = Mapping[str, Any]


@dataclass(frozen=True)
class Archive:
    """name: of the file. checksum: as Ansible's get_url takes it."""

    name: str
    url: str
    checksum: str


def platform(uname: str) -> str:
    """The platform as helm names it. uname: what `uname -sm` prints."""
    system, architecture = uname.lower().split()
    return f"{system}-{_ARCHITECTURES.get(architecture, architecture)}"


def archive(pin: Pin, pinned: Pin, platform_name: str, mirror: str) -> Archive:
    """pin: `version` and `sha256` by platform. pinned: the same as the collection has it, before any override.

    The digits of a pin belong to its version. If only the version is overridden, the file beside the archive has the
    digits.
    """
    version = str(pin["version"])
    name = f"helm-{version if version.startswith('v') else f'v{version}'}-{platform_name}.tar.gz"
    url = f"{mirror.rstrip('/')}/{_HOST}/{name}" if mirror else f"https://{_HOST}/{name}"
    fits = version == pinned["version"] or pin["sha256"] != pinned["sha256"]
    digits = pin["sha256"].get(platform_name) if fits else None
    return Archive(name, url, f"sha256:{digits or f'{url}.sha256sum'}")
