# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .findings import SPEC, HopError
from .promql import Source, first_of, percent_per_pod

_NAME = re.compile(r"[a-z]([a-z0-9_]{0,50}[a-z0-9])?")


@dataclass(frozen=True)
class Metric:
    """What an autoscaler scales on: a name in custom.metrics.k8s.io and the PromQL that is recorded for it.

    query:   PromQL that gives one series per namespace and pod.
    sources: the exporter's metrics that the query reads, the preferred one first; empty for a user's own query.
    """

    name: str
    query: str
    sources: tuple[Source, ...] = ()

    @property
    def series(self) -> str:
        """The recorded series, by the convention level:metric:operation."""
        return f"namespace_pod:{self.name}:avg"

    @property
    def rule_name(self) -> str:
        """Name of the PrometheusRule that all autoscalers on this metric share."""
        return f"kubegpu-{self.name.replace('_', '-')}"

    @property
    def is_percent(self) -> bool:
        return bool(self.sources)

    @classmethod
    def from_params(cls, given: str | Mapping[str, Any]) -> Metric:
        """A profile by its name, or a metric of the user's own as ``{name, query}``.

        Raises: HopError if there is no such profile or the metric is incomplete.
        """
        if isinstance(given, str):
            if given not in PROFILES:
                raise HopError(
                    SPEC,
                    seen=f"metric {given!r} is no profile",
                    fix=f"use one of {', '.join(sorted(PROFILES))}, or give name and query of a metric of your own",
                )
            return PROFILES[given]
        name, query = str(given.get("name") or ""), str(given.get("query") or "").strip()
        if set(given) != {"name", "query"} or not query or not _NAME.fullmatch(name):
            raise HopError(
                SPEC,
                seen=f"metric {dict(given)!r} is not complete",
                fix="give name (lower case, digits, underscores; at most 52) and query (PromQL), nothing else",
            )
        if name in PROFILES:
            raise HopError(
                SPEC,
                seen=f"metric {name!r} has a query, but that is the name of a profile",
                fix="give the metric another name, or leave the query out",
            )
        return cls(name, query)


def _profile(name: str, *sources: Source) -> Metric:
    """A pod gets its value from the first source that reports it: one cluster can have GPUs with and without it."""
    return Metric(name, first_of([percent_per_pod(source) for source in sources]), sources)


_GPU_UTIL = Source("DCGM_FI_DEV_GPU_UTIL")
_GR_ENGINE_ACTIVE = Source("DCGM_FI_PROF_GR_ENGINE_ACTIVE", scale=100)

PROFILES: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        _profile("gpu", _GR_ENGINE_ACTIVE, _GPU_UTIL),
        _profile("gpu_util", _GPU_UTIL),
    )
}
