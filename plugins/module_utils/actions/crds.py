# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from ..cluster.kube import CRDS, KubeClient, Resource, title_of
from ..errors import HopError
from ..formats.yaml import manifests
from ..hops import Hop
from ..kube.labels import INVENTORY, MANAGED_BY, MANAGER, RELEASE, is_of, marked
from ..kube.objects import Manifest
from .outcome import Outcome
from .wait import Deadline, wait_until


def apply_crds(kube: KubeClient, crds: Iterable[Manifest], inventory: str, deadline: Deadline) -> Outcome:
    """Apply the CRDs of a chart, and wait until they are served. CRDs of third parties and other inventories are kept.

    Raises: HopError if a CRD is not served in time.
    """
    actions = {crd["metadata"]["name"]: _apply(kube, crd, inventory) for crd in crds}
    if not kube.dry_run:
        _wait_until_served(kube, actions, deadline)
    return _outcome(actions)


def remove_crds(kube: KubeClient, group: str, inventory: str, deadline: Deadline) -> Outcome:
    """Delete the CRDs of an API group that this inventory installed, and wait until they are deleted.

    A CRD is kept while third-party objects of its kind exist, or those of another inventory, because they would be
    deleted with it.
    Raises: HopError if a CRD is not deleted in time.
    """
    found = kube.list(CRDS, label_selector=f"{MANAGED_BY}={MANAGER},{INVENTORY}={inventory}") or []
    of_group = {crd["metadata"]["name"]: crd for crd in found if crd["spec"]["group"] == group}
    used = {name: _titles(kube, crd, inventory) for name, crd in of_group.items()}

    may_go = partial(is_of, inventory=inventory)
    names = [name for name, titles in used.items() if not titles and kube.delete(CRDS, of_group[name], may_go)]
    actions = {name: "kept" for name, titles in used.items() if titles} | dict.fromkeys(names, "deleted")
    if names and not kube.dry_run:
        _wait_until_gone(lambda: [name for name in names if kube.get(CRDS, name) is not None], deadline)
    outcome = _outcome(actions)
    outcome.warnings = [
        f"CRD {name} is kept for {', '.join(titles)}" for name, titles in sorted(used.items()) if titles
    ]
    return outcome


def _titles(kube: KubeClient, crd: Manifest, inventory: str) -> list[str]:
    """Objects of the CRD's kind that are third-party or of another inventory.

    Objects that a pod or its DaemonSet owns are deleted with their owner.
    """
    spec = crd["spec"]
    version = next(entry["name"] for entry in spec["versions"] if entry["served"])
    kind = Resource(f"{spec['group']}/{version}", spec["names"]["kind"], spec["names"]["plural"])
    return [title_of(manifest, kind.kind) for manifest in kube.list(kind) or () if not _is_ours(manifest, inventory)]


# The workers of node-feature-discovery own the objects of their node.
_CONTROLLERS = ("DaemonSet", "Pod")


def _is_ours(seen: Manifest, inventory: str) -> bool:
    metadata = seen["metadata"]
    labels = metadata.get("labels") or {}
    return (
        is_of(seen, inventory)
        or (RELEASE in labels and labels.get(INVENTORY, inventory) == inventory)
        or any(owner["kind"] in _CONTROLLERS for owner in metadata.get("ownerReferences") or ())
    )


def _wait_until_gone(left: Callable[[], list[str]], deadline: Deadline) -> None:
    if names := wait_until(left, lambda names: not names, deadline, poll_s=0.5):
        raise HopError(
            Hop.API_SERVER,
            seen=f"still being deleted after the timeout: {', '.join(names)}",
            fix=f"kubectl describe crd {names[0]}, which shows the finalizer that blocks the deletion",
        )


def _outcome(actions: Mapping[str, str]) -> Outcome:
    return Outcome(
        changed=bool({"created", "changed", "deleted"} & set(actions.values())),
        result={"crds": [{"name": name, "action": action} for name, action in sorted(actions.items())]},
    )


def _apply(kube: KubeClient, crd: Manifest, inventory: str) -> str:
    """Returns created, changed, unchanged, or kept if the CRD belongs to another owner."""
    metadata = crd["metadata"]
    live = kube.get(CRDS, metadata["name"])
    if live is not None and not is_of(live, inventory):
        return "kept"
    after = kube.apply(CRDS, marked(crd, inventory), live)
    if live is None:
        return "created"
    said = ("generation", "labels", "annotations")
    return "unchanged" if all(after["metadata"].get(key) == live["metadata"].get(key) for key in said) else "changed"


def _wait_until_served(kube: KubeClient, names: Iterable[str], deadline: Deadline) -> None:
    def not_served() -> list[str]:
        return [name for name in names if not _is_established(kube.get(CRDS, name))]

    if missing := wait_until(not_served, lambda left: not left, deadline, poll_s=0.2):
        raise HopError(
            Hop.API_SERVER,
            seen=f"not Established in time: {', '.join(missing)}",
            fix=f"kubectl describe crd {missing[0]}",
        )


def _is_established(crd: Manifest | None) -> bool:
    conditions = (crd or {}).get("status", {}).get("conditions") or []  # null for a moment after creation
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)


def read_crds(chart: Path) -> Iterator[dict[str, Any]]:
    """The CRDs in the folders `crds` of the chart and its sub-charts."""
    for text in _crd_files(chart):
        yield from (crd for crd in manifests(text) if crd.get("kind") == "CustomResourceDefinition")


def _crd_files(chart: Path) -> Iterator[str | bytes]:
    for path in sorted(chart.rglob("crds/*.y*ml")):
        yield path.read_text(encoding="utf-8")
    for path in sorted(chart.rglob("charts/*.tgz")):
        with tarfile.open(path) as archive:
            for member in archive:
                if PurePath(member.name).match("crds/*.y*ml") and (file := archive.extractfile(member)):
                    yield file.read()
