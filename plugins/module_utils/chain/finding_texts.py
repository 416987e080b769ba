# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Formats names and values for findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..errors import enumeration
from ..kube.objects import Manifest, name_of


def quote(text: str, limit: int = 120) -> str:
    text = " ".join(text.split())
    return f"`{text[:limit]}{'...' if len(text) > limit else ''}`"


def first_and_rest(kind: str, names: Iterable[str]) -> str:
    first, *rest = names
    return f"{kind} {first}" + (f" and {len(rest)} more" if rest else "")


def names_of(objects: Iterable[Manifest]) -> str:
    return enumeration([name_of(manifest) for manifest in objects])


def pods_text(pods: Sequence[Manifest]) -> str:
    return enumeration([pod["metadata"]["name"] for pod in pods])


def labels_text(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "none"


def selector_text(selector: Manifest | None) -> str:
    if selector is None:
        return "not set"
    return str(dict(selector)) if selector.get("matchExpressions") else labels_text(selector.get("matchLabels") or {})


def condition_text(condition: Mapping[str, str]) -> str:
    """A condition as the controller wrote it."""
    return f"{condition['type']} is {condition['status']}, {condition.get('reason')}: {condition.get('message')}"
