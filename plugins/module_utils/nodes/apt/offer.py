# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks that apt would find the packages of the roles, because a wrong pin would stop a run half-way."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..survey.host import Host
from .mirrors import mirrored


@dataclass(frozen=True)
class Missing:
    """Packages of one role that apt does not find. offered: versions that it finds instead."""

    role: str
    uri: str
    packages: tuple[str, ...]
    offered: tuple[str, ...]
    failures: tuple[str, ...]


@dataclass(frozen=True)
class AptOffer:
    """The query to apt, and its result.

    brings: packages by role and repository, in the format of AptSet.
    failed: roles that fail for other reasons.
    answer: result of server_info with apt_offer; empty before the query.
    """

    host: Host
    brings: Mapping[str, Sequence[Mapping[str, Any]]]
    mirror: str = ""
    failed: frozenset[str] = frozenset()
    answer: Mapping[str, Any] = field(default_factory=dict)
    unavailable: Mapping[str, str] = field(default_factory=dict)

    @property
    def repositories(self) -> list[dict[str, Any]]:
        return [self._repository(role, apt) for role, sets in self.brings.items() for apt in sets]

    def _repository(self, role: str, apt: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "name": role,
            "uri": mirrored(apt["url"], self.mirror),
            "suite": apt["suite"],
            "components": apt.get("components") or "",
            "packages": [*(f"{name}={apt['version']}" for name in apt["packages"]), *(apt.get("extra") or ())],
            "hosts": [*(apt.get("hosts") or ())],
        }

    @cached_property
    def _rows(self) -> list[Mapping[str, Any]]:
        return self.answer.get("missing") or []

    @property
    def headers(self) -> tuple[str, ...]:
        """Packages of kernels. They come from the distribution, also with a driver from another repository."""
        return tuple(row["package"] for row in self._rows if _is_headers(row))

    @property
    def missing(self) -> tuple[Missing, ...]:
        rows: dict[str, list[Mapping[str, Any]]] = {}
        for row in self._rows:
            if not _is_headers(row) and row["repository"] not in self.failed:
                rows.setdefault(row["repository"], []).append(row)
        return tuple(self._missing(role, found) for role, found in sorted(rows.items()))

    def _missing(self, role: str, rows: Sequence[Mapping[str, Any]]) -> Missing:
        uri = rows[0]["uri"]
        offered = next((row["offered"] for row in rows if row["offered"]), ())
        failures = tuple(text for text in self.answer.get("failures") or () if uri in text)
        return Missing(role, uri, tuple(row["package"] for row in rows), tuple(offered), failures)


def _is_headers(row: Mapping[str, Any]) -> bool:
    return re.match("linux-headers-", row["package"]) is not None
