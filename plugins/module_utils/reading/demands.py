# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads the demand of workloads from the series that their rules record."""

from __future__ import annotations

from collections.abc import Sequence

from ..autoscaling.metrics import ACTIVITIES, demand_name
from ..autoscaling.spec import WORKLOAD_LABELS, Autoscaler
from ..chain.state.demand import DemandState
from ..cluster.errors import ApiError, QueryError
from ..cluster.prometheus_client import PrometheusClient
from ..kube.objects import Key

_NAMES = f'__name__=~"namespace_workload:({"|".join(map(demand_name, ACTIVITIES))}):{{part}}"'
# Longer than it takes to learn the cost of a request.
_STEADY = "3m"

# Namespace, workload and metric.
_Place = tuple[str, str, str]


def read_demands(
    prometheus: PrometheusClient, autoscalers: Sequence[Autoscaler], now_s: float
) -> dict[Key, DemandState]:
    """Demands of autoscalers that have one, in two queries; none if Prometheus does not answer."""
    wanted = {autoscaler.key: _place(autoscaler) for autoscaler in autoscalers if autoscaler.follows_demand}
    if not wanted:
        return {}
    try:
        parts = _recorded(prometheus, f"{{{_NAMES.format(part='.+')}}}")
        before = _recorded(prometheus, f"{{{_NAMES.format(part='offered')}}} offset {_STEADY}")
    except (ApiError, QueryError):
        return {}
    return {key: DemandState(parts.get(place, {}), place in before, now_s) for key, place in wanted.items()}


def _place(autoscaler: Autoscaler) -> _Place:
    return autoscaler.namespace, autoscaler.target.name, autoscaler.demand_name


def _recorded(prometheus: PrometheusClient, query: str) -> dict[_Place, dict[str, float]]:
    """The latest values by workload, then by part."""
    found: dict[_Place, dict[str, float]] = {}
    for series in prometheus.query(query):
        _level, metric, part = series.labels["__name__"].split(":")
        workload = next((series.labels[label] for label in WORKLOAD_LABELS.values() if label in series.labels), "")
        found.setdefault((series.labels.get("namespace", ""), workload, metric), {})[part] = series.values[-1]
    return found
