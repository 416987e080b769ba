# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Sorts objects of a namespace by owner: objects of a role, objects to remove, and conflicting ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..kube.label_selectors import labels_match
from ..kube.objects import Manifest, labels_of


@dataclass(frozen=True)
class Owned:
    """found: objects with all labels. left: those that are no longer wanted.

    foreign: kinds and names of wanted objects that exist without the labels.
    """

    found: tuple[Manifest, ...]
    left: tuple[Manifest, ...]
    foreign: tuple[str, ...]


def owned(objects: Sequence[Manifest], labels: Mapping[str, str], wanted: Collection[str]) -> Owned:
    """wanted: `<kind> <name>` of each object of the role."""
    ours = [obj for obj in objects if labels_match({"matchLabels": labels}, labels_of(obj))]
    others = [obj for obj in objects if obj not in ours]
    return Owned(
        found=tuple(ours),
        left=tuple(obj for obj in ours if kind_and_name(obj) not in wanted),
        foreign=tuple(name for name in map(kind_and_name, others) if name in wanted),
    )


def kind_and_name(obj: Manifest) -> str:
    return f"{obj['kind']} {obj['metadata']['name']}"
