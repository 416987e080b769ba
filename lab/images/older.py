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
from lab.versions import fill

THIS = Path(__file__)
SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
# Images that the older kubeadm names: of its own programs in the last layer, by repository, with the tag of each.
OWN = {
    **{f"registry.k8s.io/{server}": ("kube", "v{kubernetes-older}", "v{kubernetes}") for server in SERVERS},
    "registry.k8s.io/etcd": ("etcd", "3.6.8-0", "3.7.0-0"),
}
# And one that the newer one stands in for.
SAME = {"registry.k8s.io/coredns/coredns": ("v1.14.2", "{coredns}")}


def image_mirror(newer: Artifact, programs: Artifact, etcd: Artifact) -> Artifact:
    """The image mirror, with the older kubeadm's images. `etcd` has the tools of etcd's image."""

    def build(out: Path, run: Shell) -> None:
        shutil.copytree(newer.path, out, copy_function=os.link, symlinks=True, dirs_exist_ok=True)
        recipes = yaml.safe_load((images.HERE / "images.yml").read_text())["layers"]
        contents = {programs.name: programs, etcd.name: etcd}
        layers = {}
        for name in {name for name, *_tags in OWN.values()}:
            text = json.dumps(recipes[name]).replace("programs-kubernetes/", f"{programs.name}/")
            layers[name] = images.make_layer(out, f"{name}-older", json.loads(text), contents)
        for repository, (name, tag, same) in OWN.items():
            _with_last_layer(out, out / repository / "manifests", fill(same), fill(tag), layers[name])
        for repository, (tag, same) in SAME.items():
            manifests = out / repository / "manifests"
            (manifests / tag).symlink_to((manifests / fill(same)).readlink())

    return Artifact("images-older", build, sources=(THIS,), needs=(newer, programs, etcd), expected=5)


def _with_last_layer(out: Path, manifests: Path, newer: str, older: str, layer: dict[str, Any]) -> None:
    """Tag an image that differs from the newer one in its last layer."""
    manifest = json.loads((manifests / newer).read_text())
    config = json.loads((out / "blobs" / manifest["config"]["digest"]).read_text())
    manifest["layers"][-1] = layer
    config["rootfs"]["diff_ids"][-1] = layer["digest"]
    manifest["config"] |= images.write_json(out / "blobs", config)
    digest = images.write_json(manifests, manifest)["digest"]
    (manifests / older).symlink_to(digest)
