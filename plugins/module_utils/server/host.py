# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads a server before it is changed: what would stop a run half-way, or would be harmed."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..formats.x509 import digests
from .apt import apt_sources
from .files import Files

# Container runtimes that the collection did not install.
RUNTIMES = ("usr/local/bin/containerd", "usr/bin/crio", "usr/local/bin/crio")
# Kubeconfigs of kubelets.
KUBELETS = (
    "etc/kubernetes/kubelet.conf",  # kubeadm, kubespray
    "var/lib/kubelet/kubeconfig",  # EKS, kops, GKE, AKS, OpenShift
    "var/lib/rancher/rke2/agent/kubelet.kubeconfig",
)
# Signs of a node. Without any of them, the CA of a cluster is one.
CLUSTERS = (
    *KUBELETS,
    "etc/rancher/k3s",
    "var/lib/rancher/k3s",  # an agent's; it has no separate settings
    "etc/rancher/rke2",
    "var/lib/k0s",
    "var/snap/microk8s",
)
ROOM = ("/boot", "/usr", "/var/lib")
# Location of the CA of the node's cluster unless the kubelet's kubeconfig contains it.
AUTHORITIES = (
    "etc/kubernetes/pki/ca.crt",  # kubeadm, EKS
    "etc/kubernetes/ssl/ca.crt",  # kubespray
    "srv/kubernetes/ca.crt",  # kops
    "var/lib/rancher/k3s/agent/server-ca.crt",
    "var/lib/rancher/rke2/agent/server-ca.crt",
    "var/lib/k0s/pki/ca.crt",
    "var/snap/microk8s/current/certs/ca.crt",
)
MACHINE_ID = "etc/machine-id"
HOSTNAME = "proc/sys/kernel/hostname"
# Record of the role kubernetes: the cluster and machine of the node.
RECORD = "etc/kubernetes/kubegpu/cluster.json"
_EMBEDDED = re.compile(r"certificate-authority-data:\s*[\"']?([A-Za-z0-9+/=]+)")


def read_host(root: Path, folders: Iterable[str] = ROOM) -> tuple[dict[str, Any], list[str]]:
    """Facts of the machine below `root`, as documented in the module server_info, and warnings."""
    files = Files(root)
    # The first line is the table's head.
    swaps = [line.split()[0] for line in (files.text("proc/swaps") or "").splitlines()[1:]]
    clusters = _present(files, CLUSTERS) or _present(files, AUTHORITIES)
    return {
        "swaps": swaps,
        "apt_sources": [asdict(source) for source in apt_sources(files)],
        "runtimes": _present(files, RUNTIMES),
        "clusters": clusters,
        "identity": _identity(files, clusters),
        "vendor": files.text("sys/class/dmi/id/sys_vendor") or "",
        "free_gib": {folder: _free_gib(root / folder.lstrip("/")) for folder in folders},
    }, files.warnings


def _present(files: Files, names: Iterable[str]) -> list[str]:
    return [f"/{name}" for name in names if files.is_there(name)]


def reboots_alone(run: Callable[..., tuple[int, str, str]]) -> bool:
    """Whether unattended-upgrades reboots the server: apt reads its own settings, as unattended-upgrades has it do."""
    if shutil.which("apt-config") is None:
        return False
    return "true" in run("apt-config", "shell", "reboots", "Unattended-Upgrade::Automatic-Reboot/b")[1]


def _free_gib(folder: Path) -> float:
    """Free space of the file system of the folder, also before it exists."""
    while not folder.exists():
        folder = folder.parent
    room = os.statvfs(folder)
    return round(room.f_bavail * room.f_frsize / 2**30, 1)


def _identity(files: Files, clusters: Sequence[str]) -> dict[str, Any]:
    """Identity of the machine, and of the cluster of which it is a node."""
    return {
        "node": (files.text(HOSTNAME) or "").split(".")[0].lower(),
        "machine_id": files.text(MACHINE_ID) or "",
        "authorities": sorted(_authorities(files)),
        "is_member": bool(clusters),
        "record": _record(files),
    }


def _authorities(files: Files) -> frozenset[str]:
    """The kubelet's kubeconfig is read first, because the files may be from a cluster that the server has left."""
    embedded = {name: found for name in KUBELETS if (found := _EMBEDDED.search(files.text(name) or ""))}
    texts = {name: _decoded(found[1]) for name, found in embedded.items()}
    known: set[str] = set()
    for name, text in (texts or {name: files.text(name) or "" for name in AUTHORITIES}).items():
        try:
            known |= digests(text)
        except binascii.Error:
            files.warn(name, "has a certificate that is not Base64")
    return frozenset(known)


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text).decode(errors="replace")
    except binascii.Error:
        return ""


def _record(files: Files) -> dict[str, Any]:
    text = files.text(RECORD)
    if text is None:
        return {}
    try:
        record = json.loads(text)
    except ValueError:
        record = None
    if isinstance(record, dict):
        return record
    files.warn(RECORD, "is not a record of this collection")
    return {}
