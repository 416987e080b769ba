# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

# The chain, left to right. A finding names the hop at which it was made.
SPEC = "autoscaler spec"
API_SERVER = "API server"
WORKLOAD = "workload"
EXPORTER = "exporter -> Prometheus"
RULE = "Prometheus -> recording rule"
SERIES = "recording rule -> series"
ADAPTER = "series -> adapter"
CUSTOM_METRIC = "adapter -> custom.metrics.k8s.io"
HPA = "custom.metrics.k8s.io -> HPA"


class HopError(Exception):
    """A hop of the chain is broken: which one, what was seen there, and what mends it.

    result: what the caller may show besides, for instance the object as last seen.
    """

    def __init__(self, hop: str, seen: str, fix: str, result: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{hop}: {seen}\n  fix: {fix}")
        self.hop = hop
        self.seen = seen
        self.fix = fix
        self.result = dict(result or {})


@dataclass(frozen=True)
class Finding:
    """One judgement about one hop.

    awaited: what is missing may be made by an earlier task of the same play, so check mode only warns of it.
    """

    hop: str
    seen: str
    fix: str
    severity: Literal["error", "warning"] = "error"
    awaited: bool = False

    def __str__(self) -> str:
        return f"{self.hop}: {self.seen} (fix: {self.fix})"

    def error(self) -> HopError:
        return HopError(self.hop, self.seen, self.fix)
