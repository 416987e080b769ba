# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Parts that roles install, as data: chart releases and objects."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..kube.labels import DEFAULT_INVENTORY, marked
from ..kube.objects import Manifest

# Content of each file, by its path in the folder.
Files = dict[str, list[Manifest]]


@dataclass(frozen=True)
class Release:
    """A release of a chart, as the roles pass it to helm.

    values: values of the roles; `crds`, merged over them, install the CRDs with the chart.
    """

    name: str
    namespace: str
    chart: str
    version: str
    repository: str
    values: Mapping[str, Any]

    @property
    def is_oci(self) -> bool:
        return self.repository.startswith("oci://")


@dataclass(frozen=True)
class Part:
    """The part of one role.

    needs:   parts that must be applied before, if the folder has them.
    objects: with the labels that the role's module would add.
    """

    name: str
    needs: tuple[str, ...] = ()
    release: Release | None = None
    objects: tuple[Manifest, ...] = ()


@dataclass(frozen=True)
class Place:
    """Location of the folder in Git, and settings of the tool.

    path:       of the folder in its repository; empty for its root.
    namespace:  of the tool's own objects.
    source:     Flux: kind and name of the source that has the repository.
    repository: Argo CD: the URL of the repository; `revision` is the branch or tag, `project` the AppProject.
    mirror:     of charts, with upstream's host as the first element of the path; empty for upstream itself.
    inventory:  ID of the folder's inventory.
    """

    path: str
    namespace: str
    source: Mapping[str, str]
    repository: str
    revision: str
    project: str
    interval: str
    timeout: str
    mirror: str = ""
    inventory: str = DEFAULT_INVENTORY

    def below(self, folder: str) -> str:
        """Path of a folder in this one. Argo CD rejects a leading slash."""
        return "/".join(filter(None, (self.path, folder)))


def read_parts(rows: Sequence[Mapping[str, Any]], mirror: str = "", inventory: str = DEFAULT_INVENTORY) -> list[Part]:
    """Parts from the roles' data, without needs that are not among them.

    mirror, inventory: as of Place.
    """
    names = {row["name"] for row in rows}
    return [
        Part(
            name=row["name"],
            needs=tuple(name for name in row.get("needs", ()) if name in names),
            release=_release(row["release"], row.get("crds", {}), mirror) if row.get("release") else None,
            objects=tuple(marked(manifest, inventory, row.get("part_of")) for manifest in row.get("objects", ())),
        )
        for row in rows
    ]


def _release(row: Mapping[str, Any], crds: Mapping[str, Any], mirror: str) -> Release:
    repository = row["repository"].rstrip("/")
    return Release(
        name=row["release"],
        namespace=row["namespace"],
        chart=row["name"],
        version=row["version"],
        repository=re.sub("^https?:/", mirror.rstrip("/"), repository) if mirror else repository,
        values={**row["values"], **crds},
    )


def depth(part: Part, parts: Mapping[str, Part]) -> int:
    """Number of parts that must be applied before, one after the other."""
    return max((1 + depth(parts[name], parts) for name in part.needs), default=0)
