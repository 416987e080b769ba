# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Finds the exporter's pods among Prometheus' targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from ...kube.known_components import EXPORTER
from ...kube.objects import Key, Manifest, name_of
from .prometheus import Row

_STOCK_PORT = 9400


def exporter_targets(pods: Iterable[Manifest], rows: Iterable[Row]) -> dict[str, Row]:
    """Rows of the exporter's pods by pod, found by the labels of the target or by its address."""
    by_name: dict[str, list[Row]] = {}
    by_host: dict[str, list[Row]] = {}
    for target in rows:
        labels = target.labels
        by_name.setdefault(f"{labels.get('namespace')}/{labels.get('pod')}", []).append(target)
        by_host.setdefault(labels.get("instance", "").rpartition(":")[0].strip("[]"), []).append(target)
    return {
        name_of(pod): row
        for pod in pods
        if (row := _at_its_port(pod, by_name.get(name_of(pod)) or _at_its_address(pod, by_host)))
    }


def own_targets(pods: AbstractSet[Key], rows: Iterable[Row]) -> dict[Key, Row]:
    """Rows of these pods by namespace and name."""
    named = {(row.labels.get("namespace", ""), row.labels.get("pod", "")): row for row in rows}
    return {key: row for key, row in named.items() if key in pods}


def _at_its_address(pod: Manifest, by_host: Mapping[str, Sequence[Row]]) -> Sequence[Row]:
    """Rows of an exporter's pod. With host networking it shares its address with the kubelet and others."""
    rows = by_host.get((pod.get("status") or {}).get("podIP") or "-", ())
    return [row for row in rows if _is_at_its_port(pod, row)] if pod["spec"].get("hostNetwork") else rows


def _at_its_port(pod: Manifest, rows: Sequence[Row]) -> Row | None:
    """The exporter's row among those of its pod, which a mesh's proxy may share; of two jobs one that is up."""
    return max(rows, key=lambda row: (_is_at_its_port(pod, row), row.value), default=None)


def _is_at_its_port(pod: Manifest, row: Row) -> bool:
    ports = [port["containerPort"] for port in (EXPORTER.container(pod) or {}).get("ports") or ()] or [_STOCK_PORT]
    return row.labels.get("instance", "").rpartition(":")[2] in map(str, ports)
