# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Renders files for Flux: a HelmRelease per chart, then the objects, by two Kustomizations.

Source: API references of helm-controller 1.6, source-controller 1.9 and kustomize-controller 1.9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..kube.objects import Manifest
from .parts import Files, Part, Place, Release

RELEASES, OBJECTS = "releases", "objects"
_ATTEMPTS = {"remediation": {"retries": 3}}


def flux_files(parts: Sequence[Part], place: Place) -> Files:
    """`kustomization.yaml` lists the two Kustomizations, and keeps Flux from reading the folders below twice."""
    releases = {part.name: part.release for part in parts if part.release}
    files: Files = {
        "kustomization.yaml": [
            {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": ["kubegpu.yaml"]}
        ],
    }
    for part in parts:
        if part.release:
            needs = [releases[name].name for name in part.needs if name in releases]
            made = [_source(part.release, place), _helm_release(part.release, needs, place), *part.objects]
            files[f"{RELEASES}/{part.name}.yaml"] = made
        elif part.objects:
            files[f"{OBJECTS}/{part.name}.yaml"] = list(part.objects)
    folders = [folder for folder in (RELEASES, OBJECTS) if any(path.startswith(f"{folder}/") for path in files)]
    files["kubegpu.yaml"] = [_kustomization(folder, folders, place) for folder in folders]
    return files


def _kustomization(folder: str, folders: Sequence[str], place: Place) -> Manifest:
    """Objects wait for the releases: the kind PrometheusRule is not served before the operator's chart is installed."""
    spec: dict[str, Any] = {
        "interval": place.interval,
        "retryInterval": "1m",
        "timeout": place.timeout,
        "path": f"./{place.below(folder)}",
        "prune": True,
        "wait": True,
        "sourceRef": dict(place.source),
    }
    if folder == OBJECTS and RELEASES in folders:
        spec["dependsOn"] = [{"name": f"kubegpu-{RELEASES}"}]
    return {
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
        "kind": "Kustomization",
        "metadata": {"name": f"kubegpu-{folder}", "namespace": place.namespace},
        "spec": spec,
    }


def _source(release: Release, place: Place) -> Manifest:
    """Files of one release, so that a release can be removed with its file."""
    metadata = {"name": release.name, "namespace": place.namespace}
    if release.is_oci:
        spec = {
            "interval": place.interval,
            "url": f"{release.repository}/{release.chart}",
            "ref": {"tag": release.version},
            "layerSelector": {
                "mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
                "operation": "copy",
            },
        }
        return _of_source("OCIRepository", metadata, spec)
    return _of_source("HelmRepository", metadata, {"interval": place.interval, "url": release.repository})


def _of_source(kind: str, metadata: Mapping[str, str], spec: Manifest) -> Manifest:
    return {"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind, "metadata": dict(metadata), "spec": spec}


def _helm_release(release: Release, needs: Sequence[str], place: Place) -> Manifest:
    """Helm's record has the same location as with the roles, so that either finds the other's release."""
    named = {"name": release.name, "namespace": place.namespace}
    chart: dict[str, Any] = (
        {"chartRef": {"kind": "OCIRepository", **named}}
        if release.is_oci
        else {
            "chart": {
                "spec": {
                    "chart": release.chart,
                    "version": release.version,
                    "interval": place.interval,
                    "sourceRef": {"kind": "HelmRepository", **named},
                }
            }
        }
    )
    return {
        "apiVersion": "helm.toolkit.fluxcd.io/v2",
        "kind": "HelmRelease",
        "metadata": named,
        "spec": {
            "interval": place.interval,
            "timeout": place.timeout,
            "releaseName": release.name,
            "targetNamespace": release.namespace,
            "storageNamespace": release.namespace,
            **({"dependsOn": [{"name": name} for name in needs]} if needs else {}),
            **chart,
            "install": {"createNamespace": True, "crds": "Create", **_ATTEMPTS},
            "upgrade": {"crds": "CreateReplace", **_ATTEMPTS},
            "driftDetection": {"mode": "enabled"},
            "values": dict(release.values),
        },
    }
