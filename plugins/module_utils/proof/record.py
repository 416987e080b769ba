# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The record of proofs in a ConfigMap: an entry per machine, and one for the chain."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..kube.labels import marked
from ..kube.objects import Manifest

NAMESPACE = "kube-system"
NAME = "kubegpu-proof"
CHAIN = "chain"
DENIED, VISIBLE = "denied", "visible"


@dataclass(frozen=True)
class Entry:
    """One proof, successful or not.

    at:       time. versions: known values of what it rests on, as basis.py lists it.
    gpus:     number of proven devices. uuids: which, if others remain to be proven.
    unrequested: whether pods without a request saw GPUs, DENIED or VISIBLE; empty if that is unknown.
    error:    why it failed: `text`, and for CUDA also `code` and `function`; empty if it is proven.
    """

    at: str
    versions: Mapping[str, str] = field(default_factory=dict)
    node: str = ""
    gpus: int = 0
    uuids: tuple[str, ...] = ()
    error: Mapping[str, Any] = field(default_factory=dict)
    unrequested: str = ""

    def changes(self, versions: Mapping[str, str]) -> list[str]:
        """What has changed. A value that was known and is unknown now has changed, too."""
        return [
            f"{name} {self.versions.get(name, 'unknown')} -> {versions.get(name, 'unknown')}"
            for name in sorted({*self.versions, *versions})
            if self.versions.get(name) != versions.get(name)
        ]


@dataclass(frozen=True)
class Record:
    """machines: by machine ID. chain: None if it was never proven."""

    machines: Mapping[str, Entry] = field(default_factory=dict)
    chain: Entry | None = None

    def config_map(self, inventory: str) -> Manifest:
        entries = {**self.machines, **({CHAIN: self.chain} if self.chain else {})}
        data = {key: json.dumps(_short(entry), sort_keys=True) for key, entry in entries.items()}
        metadata = {"name": NAME, "namespace": NAMESPACE}
        return marked({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}, inventory)


def record_of(config_map: Manifest | None) -> Record:
    """Invalid entries count as not proven."""
    data = (config_map or {}).get("data") or {}
    entries = {key: entry for key, text in data.items() if (entry := _entry(text))}
    chain = entries.pop(CHAIN, None)
    return Record(entries, chain)


def _short(entry: Entry) -> dict[str, Any]:
    """Without empty fields, because a fleet of 1,000 nodes must fit into one ConfigMap."""
    return {name: value for name, value in asdict(entry).items() if value}


def _entry(text: str) -> Entry | None:
    try:
        found = json.loads(text)
        return Entry(**{**found, "uuids": tuple(found.get("uuids", ()))})
    except (ValueError, TypeError):
        return None
