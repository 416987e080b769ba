# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A server as it is before anything is changed on it: what makes a run end half-way, or harms what others own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .apt import apt_sources
from .files import Files

# Container runtimes that no package of ours brings, and what others have made the server a node of.
RUNTIMES = ("usr/local/bin/containerd", "usr/bin/crio", "usr/local/bin/crio")
CLUSTERS = (
    "etc/kubernetes/kubelet.conf",  # kubeadm, kubespray
    "etc/rancher/k3s",
    "var/lib/rancher/k3s",  # an agent's; it has no settings of its own
    "etc/rancher/rke2",
    "var/lib/k0s",
    "var/snap/microk8s",
)
ROOM = ("/boot", "/usr", "/var/lib")


def read_host(root: Path, folders: Iterable[str] = ROOM) -> tuple[dict[str, Any], list[str]]:
    """What is true of the machine below `root`, as the module server_info documents it, and warnings."""
    files = Files(root)
    # The first line is the table's head.
    swaps = [line.split()[0] for line in (files.text("proc/swaps") or "").splitlines()[1:]]
    return {
        "swaps": swaps,
        "apt_sources": [asdict(source) for source in apt_sources(files)],
        "runtimes": [f"/{name}" for name in RUNTIMES if files.is_there(name)],
        "clusters": [f"/{name}" for name in CLUSTERS if files.is_there(name)],
        "free_gib": {folder: _free_gib(root / folder.lstrip("/")) for folder in folders},
    }, files.warnings


def _free_gib(folder: Path) -> float:
    """Of the file system that it is in, or will be in."""
    while not folder.exists():
        folder = folder.parent
    room = os.statvfs(folder)
    return round(room.f_bavail * room.f_frsize / 2**30, 1)
