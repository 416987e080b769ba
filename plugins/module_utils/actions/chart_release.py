# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Compares, installs, upgrades, restores or removes a Helm release: module chart_release.

A release is read and compared without a Lease. Before a change the run acquires the release's Lease and reads it again,
because another run may have changed it. What helm cannot do is done here: restoring objects, and removing those of a
release that helm cannot remove.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from socket import gethostname
from uuid import uuid4

from ..cluster.helm import (
    Helm,
    Release,
    WantedRelease,
    install,
    read_records,
    read_release,
    release_objects,
    uninstall,
)
from ..cluster.kube import APISERVICES, SECRETS, SERVICES, KubeClient, Resource, title_of
from ..cluster.lease import Lease
from ..errors import HopError
from ..hops import Hop
from ..kube.labels import labels
from ..kube.objects import Manifest
from .outcome import Outcome, differs

HELM_NAME = "meta.helm.sh/release-name"
HELM_NAMESPACE = "meta.helm.sh/release-namespace"
HELM_POLICY = "helm.sh/resource-policy"
_RBAC = "rbac.authorization.k8s.io/v1"
# Kinds of a release's objects outside of its namespace, which are not deleted with it.
OUTSIDE = (
    APISERVICES,
    Resource(_RBAC, "ClusterRole", "clusterroles", namespaced=False),
    Resource(_RBAC, "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    Resource(_RBAC, "Role", "roles"),
    Resource(_RBAC, "RoleBinding", "rolebindings"),
    SERVICES,
)


def ensure_release(helm: Helm, kube: KubeClient, wanted: WantedRelease, outcome: Outcome) -> None:
    """Install or upgrade a release that differs if its chart is at hand, and restore the objects of one that does not.

    Raises: HopError before making changes, if it has another manager or another run changes it.
    """
    release = read_release(helm, kube, wanted)
    _report(outcome, release)
    if release.begun or release.owned or wanted.adopt:
        release.fail_if_helm_works(wanted, kube.now)
    missing = missing_kinds(kube, wanted.kinds)
    differs = bool(missing) or not release.is_as(wanted)
    outcome.result |= {"missing_kinds": missing, "differs": differs}
    outcome.public["changes"] = release.changes(wanted)
    if differs and not wanted.folder:
        return
    if differs:
        release = _install(helm, kube, wanted, release, outcome)
    if release.is_as(wanted):
        _restore(helm, kube, wanted, release, outcome)


def remove_release(helm: Helm, kube: KubeClient, wanted: WantedRelease, outcome: Outcome) -> None:
    """Remove a managed release, or what it left outside of its namespace.

    Raises: HopError before making changes, if another run changes it.
    """
    release = read_release(helm, kube, wanted)
    _report(outcome, release)
    if release.made_by:
        return
    if not release.status:
        _note(outcome, _delete_leftovers(kube, wanted))
        return
    release.fail_if_helm_works(wanted, kube.now)
    with _locked(helm, kube, wanted, release) as release:
        if not release.status or release.made_by:  # another run has changed it
            return
        objects = release_objects(helm, release, wanted)
        kinds = [f"{manifest['apiVersion']}/{manifest['kind']}" for manifest in objects]
        others = [title_of(live) for _resource, live in _live_objects(kube, objects) if not _is_of(live, wanted)]
        outcome.warnings += [f"{title} is kept: it no longer belongs to release {wanted.name}" for title in others]
        if release.status == "deployed" and not others and not missing_kinds(kube, kinds):
            outcome.changed = True
            if not kube.dry_run:
                uninstall(helm, wanted)
            return
        _note(outcome, _delete_objects(helm, kube, wanted, release))
        _note(outcome, _delete_leftovers(kube, wanted))


def _live_objects(kube: KubeClient, objects: Iterable[Manifest]) -> Iterator[tuple[Resource, Manifest]]:
    """The existing objects that have the kind, namespace and name of one of `objects`. Kinds may be missing."""
    served = cache(kube.discover)
    for manifest in objects:
        resource, metadata = served(manifest["apiVersion"]).get(manifest["kind"]), manifest["metadata"]
        live = kube.get(resource, metadata["name"], metadata["namespace"]) if resource else None
        if resource and live is not None:
            yield resource, live


def missing_kinds(kube: KubeClient, kinds: Iterable[str]) -> list[str]:
    """Those of `kinds`, each as `group/version/Kind`, that the API server does not serve."""
    served = cache(kube.discover)
    named = [(kind, *kind.rpartition("/")[::2]) for kind in kinds]
    return [kind for kind, version, name in named if name not in served(version)]


def _report(outcome: Outcome, release: Release) -> None:
    found = {name: getattr(release, name) for name in ("owned", "made_by", "begun", "status", "chart")}
    outcome.result = {**found, "changes": [], "missing_kinds": [], "objects": []}


def _note(outcome: Outcome, deleted: Iterable[str]) -> None:
    for title in deleted:
        outcome.changed = True
        outcome.result["objects"].append(title)


@contextmanager
def _locked(helm: Helm, kube: KubeClient, wanted: WantedRelease, release: Release) -> Iterator[Release]:
    """The release, read again while no other run can change it. In check mode nothing is locked.

    Raises: HopError if another run changes it.
    """
    if kube.dry_run:
        yield release
        return
    with _lease(kube, wanted).held():
        release = read_release(helm, kube, wanted)
        release.fail_if_helm_works(wanted, kube.now)
        yield release


def _lease(kube: KubeClient, wanted: WantedRelease) -> Lease:
    return Lease(
        kube,
        {"name": f"kubegpu-{wanted.name}", "namespace": wanted.namespace, "labels": labels(wanted.inventory)},
        f"inventory {wanted.inventory} on {gethostname()} ({uuid4().hex[:8]})",
        kube.now,
        f"release {wanted.namespace}/{wanted.name}",
    )


def _install(helm: Helm, kube: KubeClient, wanted: WantedRelease, release: Release, outcome: Outcome) -> Release:
    _fail_if_foreign(release, wanted)
    with _locked(helm, kube, wanted, release) as release:
        _fail_if_foreign(release, wanted)  # it may have another manager now
        outcome.changed = True
        if kube.dry_run:
            return release
        if release.owned and release.must_be_reinstalled:
            _note(outcome, _delete_objects(helm, kube, wanted, release))
        else:
            list(_delete_records(kube, release.pending))
        install(helm, wanted)
        return read_release(helm, kube, wanted)


def _fail_if_foreign(release: Release, wanted: WantedRelease) -> None:
    if release.made_by and not wanted.adopt:
        raise HopError(
            "helm",
            seen=f"release {wanted.name} {release.made_by}. Nothing was changed",
            fix="set adopt to true to adopt it",
        )


def _restore(helm: Helm, kube: KubeClient, wanted: WantedRelease, release: Release, outcome: Outcome) -> None:
    """Restore deleted and edited objects.

    Only a difference needs the Lease, so a run without changes writes nothing.
    """
    _lease(kube, wanted).refuse_if_held()
    if not any(restored(kube.dry, release_objects(helm, release, wanted), wanted)):
        return
    with _locked(helm, kube, wanted, release) as release:
        if not release.is_as(wanted):
            raise HopError(
                "helm",
                seen=f"release {wanted.name} was changed by another run meanwhile: "
                f"{'; '.join(release.changes(wanted)) or release.status}. Nothing was changed by this one",
                fix="run again, one run at a time",
            )
        for before, after in restored(kube, release_objects(helm, release, wanted), wanted):
            outcome.record(before, after)
            outcome.result["objects"].append(title_of(after))


def restored(
    kube: KubeClient, objects: Iterable[Manifest], wanted: WantedRelease
) -> Iterator[tuple[Manifest | None, Manifest]]:
    """Restore objects of the release one by one, and yield those that differed: before, and after.

    Fields that others added stay. Secrets are not restored, because their diff would be shown.
    Raises: HopError if an object with the same name does not belong to the release.
    """
    served = cache(kube.discover)
    for manifest in objects:
        if manifest["kind"] == "Secret":
            continue
        resource = served(manifest["apiVersion"]).get(manifest["kind"])
        if resource is None:
            kind = f"{manifest['apiVersion']}/{manifest['kind']}"
            fix = "install the CRD of that kind again, or remove the release"
            raise HopError(Hop.API_SERVER, f"{kind} of release {wanted.name} is not served", fix)
        noted = {HELM_NAME: wanted.name, HELM_NAMESPACE: wanted.namespace}
        metadata = {
            **manifest["metadata"],
            "labels": {**manifest["metadata"].get("labels", {}), **wanted.labels},
            "annotations": {**manifest["metadata"].get("annotations", {}), **noted},
        }
        if not resource.namespaced:
            del metadata["namespace"]
        labelled = {**manifest, "metadata": metadata}
        before = kube.get(resource, metadata["name"], metadata.get("namespace"))
        if before is not None and not _is_of(before, wanted):
            raise HopError(
                "helm",
                seen=f"{title_of(before)} exists, but does not belong to release {wanted.name}, whose chart has an "
                "object with this name. It was not changed",
                fix="if it is not needed, delete it and run again; otherwise remove the release",
            )
        after = kube.create(resource, labelled) if before is None else kube.merge(resource, labelled)
        if differs(before, after):
            yield before, after


def _delete_objects(helm: Helm, kube: KubeClient, wanted: WantedRelease, release: Release) -> Iterator[str]:
    """Delete the objects of a release that helm cannot remove, and then its records; yields the title of each.

    Helm fails if one of its kinds is no longer served, and after an interrupted installation. PersistentVolumeClaims
    and objects that the chart keeps are not deleted.
    """
    objects = [manifest for manifest in release_objects(helm, release, wanted) if not _is_kept(manifest)]
    for resource, live in _live_objects(kube, objects):
        if _is_of(live, wanted) and kube.delete(resource, live, partial(_is_of, wanted=wanted)):
            yield title_of(live)
    yield from _delete_records(kube, read_records(kube, wanted))


def _delete_leftovers(kube: KubeClient, wanted: WantedRelease) -> Iterator[str]:
    """Delete objects outside of the release's namespace; helm's record of them was deleted with the namespace."""
    for resource in OUTSIDE:
        for live in kube.list(resource, label_selector=wanted.selector) or ():
            if _is_of(live, wanted) and kube.delete(resource, live, partial(_is_of, wanted=wanted)):
                yield title_of(live, resource.kind)


def _delete_records(kube: KubeClient, records: Iterable[Manifest]) -> Iterator[str]:
    """A record that helm has written meanwhile is not deleted."""
    for record in records:
        if kube.delete(SECRETS, record, lambda _live: False):
            yield title_of(record, SECRETS.kind)


def _is_kept(manifest: Manifest) -> bool:
    annotations = manifest["metadata"].get("annotations") or {}
    return manifest["kind"] == "PersistentVolumeClaim" or annotations.get(HELM_POLICY) == "keep"


def _is_of(live: Manifest, wanted: WantedRelease) -> bool:
    annotations = live["metadata"].get("annotations") or {}
    return (annotations.get(HELM_NAME), annotations.get(HELM_NAMESPACE)) == (wanted.name, wanted.namespace)
