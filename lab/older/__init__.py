"""The minor version of Kubernetes before the pinned one, for those who upgrade: compiled and packed only on demand.

The mirrors with it are those without it, by hard links, and what is new beside.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import yaml

from lab import images, packages
from lab.artifacts import Artifact, Shell
from lab.programs import older_kubernetes
from lab.versions import fill, names

THIS = Path(__file__)
VERSIONED = ("kubelet", "kubeadm", "kubectl")
SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
# Images that the older kubeadm names, and those of the newer one that stand in for them.
SAME = {
    "registry.k8s.io/etcd": ("3.6.6-0", "3.6.8-0"),
    "registry.k8s.io/coredns/coredns": ("v1.13.1", "{coredns}"),
    "registry.k8s.io/pause": ("3.10.1", "{image/pause}"),
}


def apt_mirror(newer: Artifact, key: Artifact) -> Artifact:
    """The apt mirror, with a repository more."""
    programs = older_kubernetes()

    def build(out: Path, run: Shell) -> None:
        _link(newer.path, out)
        recipes = yaml.safe_load((packages.HERE / "packages.yml").read_text())
        repository = fill(_older(recipes["repositories"]["kubernetes"]))
        pool = packages._pool(out, repository)
        for name in VERSIONED:
            packages._package(name, fill(_older(recipes["packages"][name])), pool, {programs.name: programs}, run)
        for package in (out / recipes["repositories"]["kubernetes"]["path"]).glob("*.deb"):
            if package.name.partition("_")[0] not in VERSIONED:
                os.link(package, pool / package.name)
        packages._index(out, repository, key, run)

    return Artifact("apt-older", build, sources=(THIS,), needs=(newer, key, programs), expected=5)


def image_mirror(newer: Artifact) -> Artifact:
    """The image mirror, with the older kubeadm's images."""
    programs = older_kubernetes()

    def build(out: Path, run: Shell) -> None:
        _link(newer.path, out)
        recipes = yaml.safe_load((images.HERE / "images.yml").read_text())
        layer = images._layer(out, "kube-older", _older(recipes["layers"]["kube"]), {programs.name: programs})
        for server in SERVERS:
            _with_last_layer(out, out / "registry.k8s.io" / server / "manifests", layer)
        for repository, (tag, same) in SAME.items():
            pinned = fill(same).rpartition(":")[2]
            manifests = out / repository / "manifests"
            (manifests / tag).symlink_to((manifests / pinned).readlink())

    return Artifact("images-older", build, sources=(THIS,), needs=(newer, programs), expected=5)


def _older(recipe: Any) -> Any:
    """The recipe of the pinned Kubernetes, as that of the older one."""
    newer, older = (names()[name].rpartition(".")[0] for name in ("kubernetes", "kubernetes-older"))
    text = json.dumps(recipe).replace("{kubernetes}", "{kubernetes-older}")
    return json.loads(
        text.replace("programs-kubernetes/", "programs-kubernetes-older/").replace(f"/v{newer}/", f"/v{older}/")
    )


def _with_last_layer(out: Path, manifests: Path, layer: dict[str, Any]) -> None:
    """Tag an image that differs from the newer one in its last layer."""
    manifest = json.loads((manifests / f"v{names()['kubernetes']}").read_text())
    config = json.loads((out / "blobs" / manifest["config"]["digest"]).read_text())
    manifest["layers"][-1] = layer
    config["rootfs"]["diff_ids"][-1] = layer["digest"]
    manifest["config"] |= images._json(out / "blobs", config)
    digest = images._json(manifests, manifest)["digest"]
    (manifests / f"v{names()['kubernetes-older']}").symlink_to(digest)


def _link(source: Path, out: Path) -> None:
    shutil.copytree(source, out, copy_function=os.link, symlinks=True, dirs_exist_ok=True)
