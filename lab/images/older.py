"""The images of the minor version of Kubernetes before the pinned one, for those who upgrade: only on demand.

The mirror with them is that without them, by hard links, and what is new beside.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import yaml

from lab import images
from lab.artifacts import Artifact, Shell
from lab.versions import fill, names

THIS = Path(__file__)
SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
# Images that the older kubeadm names, and those of the newer one that stand in for them.
SAME = {
    "registry.k8s.io/etcd": ("3.6.6-0", "3.6.8-0"),
    "registry.k8s.io/coredns/coredns": ("v1.13.1", "{coredns}"),
    "registry.k8s.io/pause": ("3.10.1", "{image/pause}"),
}


def image_mirror(newer: Artifact, programs: Artifact) -> Artifact:
    """The image mirror, with the older kubeadm's images."""

    def build(out: Path, run: Shell) -> None:
        shutil.copytree(newer.path, out, copy_function=os.link, symlinks=True, dirs_exist_ok=True)
        recipe = yaml.safe_load((images.HERE / "images.yml").read_text())["layers"]["kube"]
        text = json.dumps(recipe).replace("programs-kubernetes/", f"{programs.name}/")
        layer = images.make_layer(out, "kube-older", json.loads(text), {programs.name: programs})
        for server in SERVERS:
            _with_last_layer(out, out / "registry.k8s.io" / server / "manifests", layer)
        for repository, (tag, same) in SAME.items():
            pinned = fill(same).rpartition(":")[2]
            manifests = out / repository / "manifests"
            (manifests / tag).symlink_to((manifests / pinned).readlink())

    return Artifact("images-older", build, sources=(THIS,), needs=(newer, programs), expected=5)


def _with_last_layer(out: Path, manifests: Path, layer: dict[str, Any]) -> None:
    """Tag an image that differs from the newer one in its last layer."""
    manifest = json.loads((manifests / f"v{names()['kubernetes']}").read_text())
    config = json.loads((out / "blobs" / manifest["config"]["digest"]).read_text())
    manifest["layers"][-1] = layer
    config["rootfs"]["diff_ids"][-1] = layer["digest"]
    manifest["config"] |= images.write_json(out / "blobs", config)
    digest = images.write_json(manifests, manifest)["digest"]
    (manifests / f"v{names()['kubernetes-older']}").symlink_to(digest)
