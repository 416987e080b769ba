"""What is read of demands, and what a module says of it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.demand import DemandState
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import (
    PrometheusClient,
    Series,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.demands import read_demands

NOW = 1_000_000.0


class Recorded(PrometheusClient):
    """A Prometheus that has these values by series and workload, and had requests before or not."""

    def __init__(self, values: dict[tuple[str, str], float], before: tuple[str, ...] = ()) -> None:
        self._values, self._before, self.queries = values, before, 0

    def query(self, query: str, **_options: Any) -> list[Series]:
        self.queries += 1
        values = self._values if "offset" not in query else {("offered", name): 1.0 for name in self._before}
        return [
            Series(
                {"__name__": f"namespace_workload:gpu_demand:{part}", "namespace": "ml", "deployment": name},
                (value,),
                (NOW,),
            )
            for (part, name), value in values.items()
        ]


class Silent(PrometheusClient):
    def __init__(self) -> None:
        pass

    def query(self, query: str, **_options: Any) -> list[Series]:
        raise ApiError(503, "no endpoints", query)


def autoscaler(name: str, *, demand: bool = True) -> Autoscaler:
    given = {"demand": {"source": "istio"}} if demand else {}
    return Autoscaler.from_params({"namespace": "ml", "target": {"name": name}, "max_replicas": 4, **given})


def test_each_workload_has_its_own_values() -> None:
    prometheus = Recorded({("offered", "chat"): 12.0, ("cost", "chat"): 0.02, ("busy", "embed"): 5.0}, ("chat",))
    found = read_demands(prometheus, [autoscaler("chat"), autoscaler("embed"), autoscaler("plain", demand=False)], NOW)
    assert found == {
        ("ml", "chat"): DemandState({"offered": 12.0, "cost": 0.02}, True, NOW),
        ("ml", "embed"): DemandState({"busy": 5.0}, False, NOW),
    }
    assert prometheus.queries == 2


def test_nothing_is_asked_where_nobody_follows_a_demand() -> None:
    prometheus = Recorded({})
    assert read_demands(prometheus, [autoscaler("plain", demand=False)], NOW) == {}
    assert prometheus.queries == 0


def test_a_prometheus_that_is_away_says_nothing() -> None:
    assert read_demands(Silent(), [autoscaler("chat")], NOW) == {}


@pytest.mark.parametrize(
    ("parts", "source", "in_force"),
    [
        ({"offered": 9, "cost": 0.02, "learned": 0.02, "learned_time": NOW}, "learned", True),
        ({"offered": 9, "cost": 0.02, "learned_time": NOW - 7200}, "held", True),
        ({"offered": 9, "cost": 0.5, "learned_time": NOW - 90_000}, "prior", True),
        ({"offered": 9, "cost": 0.5}, "prior", True),
        ({"offered": 9, "busy": 80}, "none", False),
        ({"cost": 0.02, "learned_time": NOW - 60, "busy": 0}, "held", False),
    ],
)
def test_a_demand_says_what_it_rests_on(parts: dict[str, float], source: str, *, in_force: bool) -> None:
    described = DemandState(parts, True, NOW).describe()
    assert (described["cost_source"], described["in_force"]) == (source, in_force)
