# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Renders files for Argo CD: an Application per chart, and one for the objects, below one Application.

Source: the CRD and the manual of Argo CD 3.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..kube.objects import Manifest
from .parts import Files, Part, Place, Release, depth

APPLICATIONS, OBJECTS = "applications", "objects"
_WAVE = "argocd.argoproj.io/sync-wave"
# Its finalizer: objects of an Application are deleted with it.
_CASCADE = "resources-finalizer.argocd.argoproj.io"
_HERE = "https://kubernetes.default.svc"


def argocd_files(parts: Sequence[Part], place: Place) -> Files:
    """`kubegpu.yaml` is the only Application that you apply. It applies all others."""
    by_name = {part.name: part for part in parts}
    files: Files = {"kubegpu.yaml": [_application("kubegpu", _folder(APPLICATIONS, place), place.namespace, 0, place)]}
    last = 0
    for part in parts:
        if part.release:
            wave = depth(part, by_name)
            last = max(last, wave + 1)
            release = _application(part.release.name, _chart(part.release), part.release.namespace, wave, place)
            files[f"{APPLICATIONS}/{part.name}.yaml"] = [release, *part.objects]
        elif part.objects:
            files[f"{OBJECTS}/{part.name}.yaml"] = list(part.objects)
    if any(path.startswith(f"{OBJECTS}/") for path in files):
        objects = _application("kubegpu-objects", _folder(OBJECTS, place), place.namespace, last, place)
        files[f"{APPLICATIONS}/objects.yaml"] = [objects]
    return files


def _chart(release: Release) -> Manifest:
    return {
        "repoURL": release.repository.removeprefix("oci://"),
        "chart": release.chart,
        "targetRevision": release.version,
        "helm": {"releaseName": release.name, "valuesObject": dict(release.values)},
    }


def _folder(folder: str, place: Place) -> Manifest:
    return {"repoURL": place.repository, "targetRevision": place.revision, "path": place.below(folder)}


def _application(name: str, source: Manifest, namespace: str, wave: int, place: Place) -> Manifest:
    """Server-side, because the operator's CRDs exceed the size of an annotation, which Argo CD uses otherwise.

    A part that is applied too early is retried, because sync waves wait only if Argo CD assesses Applications.
    """
    metadata: dict[str, Any] = {"name": name, "namespace": place.namespace, "finalizers": [_CASCADE]}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {**metadata, "annotations": {_WAVE: str(wave)}},
        "spec": {
            "project": place.project,
            "source": source,
            "destination": {"server": _HERE, "namespace": namespace},
            "syncPolicy": {
                "automated": {"prune": True, "selfHeal": True},
                "syncOptions": ["CreateNamespace=true", "ServerSideApply=true"],
                "retry": {"limit": 10, "backoff": {"duration": "10s", "factor": 2, "maxDuration": "3m"}},
            },
        },
    }
