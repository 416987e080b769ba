"""What decides how many pods there are. An HPA's arithmetic is the collection's own, and so are its rules."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import yaml
from scaling_bench.configurations import OUR_INTERVALS, TARGET_PERCENT, Configuration, read_configurations
from scaling_bench.simulation import KnativeDecision

from plugins.module_utils.autoscaling.controller import Behavior, Controller
from plugins.module_utils.autoscaling.demand import SUSTAINED_S
from plugins.module_utils.autoscaling.metrics import smoothed_interval_s
from plugins.module_utils.autoscaling.replicas import (
    desired_replicas,
    desired_replicas_by_total,
    desired_replicas_by_value,
    desired_replicas_together,
)
from plugins.module_utils.autoscaling.scaling_rules import (
    ScalingPolicy,
    ScalingRules,
    dead_time_s,
    default_scale_up,
)
from plugins.module_utils.autoscaling.spec import Autoscaler
from traces.plant import FIRST_RATE, NO_DEMAND, RATE_OR_BOUNDS, Chain, Plant

_HERE = Path(__file__).parent
# A gauge that is collected in each tick of the plant, and the interval of common PodMonitors.
LIVE_S, SERVER_SCRAPE_S = 0.5, 15


class Scaler(Protocol):
    """period_s: between two decisions. phase_s: of the first."""

    period_s: float
    phase_s: float

    def __call__(self, plant: Plant) -> int: ...


@dataclass(frozen=True)
class Way:
    """A way to scale.

    of:          configuration of `make bench`; empty for a way that has no HPA on GPUs.
    kind:        what decides.
    targets:     percent of a GPU, or requests that wait for each pod; each is played. shipped: the one of the table.
    autoscaler:  options of gpu_autoscaler beside those of the configuration.
    sustained:   when the HPA reads the least of 15 s beside a demand.
    estimator:   how a demand estimates the rate of requests: with `rate`, as bounds of 10 and 30 s below ten a second.
    by_dead_time: scale by one step for each dead time, and down with a period and a window that follow from it.
    is_tried:    a variant that is not shipped, to be compared.
    """

    name: str
    title: str
    of: str = ""
    kind: Literal["gpu", "waiting", "knative"] = "gpu"
    targets: tuple[float, ...] = ()
    shipped: float = TARGET_PERCENT
    autoscaler: Mapping[str, Any] = field(default_factory=dict)
    sustained: Literal["always", "after a new pod", "never"] = "always"
    estimator: Literal["rate", "rate or bounds"] = "rate or bounds"
    by_dead_time: bool = False
    is_tried: bool = False

    @property
    def configuration(self) -> Configuration:
        configuration = _configurations()[self.of]
        if not configuration.is_ours:
            return configuration
        return replace(configuration, autoscaler={**(configuration.autoscaler or {}), **self.autoscaler})

    @property
    def has_demand(self) -> bool:
        return bool(self.of) and "demand" in (self.configuration.autoscaler or {})

    def chain(self, *, is_small: bool = False) -> Chain:
        """is_small: the intervals that a site selects for a small fleet."""
        if self.kind != "gpu":
            # A server's own gauge is that of the moment in which it is scraped.
            return Chain(collect_s=LIVE_S, scrape_s=SERVER_SCRAPE_S, window_s=60, of_waiting=True)
        configuration = self.configuration
        form = (configuration.metric or {}).get("type", "Pods")
        exporter = configuration.exporter
        collect_s, scrape_s = (exporter.collect_s, exporter.scrape_s) if exporter else OUR_INTERVALS
        if not configuration.is_ours:
            return Chain(
                collect_s,
                scrape_s,
                configuration.evaluate_s,
                configuration.window_s,
                joins_labels=form == "Object" and "kube_pod_labels" in str(configuration.rule),
            )
        evaluate_s = 1 if is_small else configuration.evaluate_s
        rate = {"rate": FIRST_RATE, "rate or bounds": RATE_OR_BOUNDS}[self.estimator]
        return Chain(
            collect_s,
            1 if is_small else scrape_s,
            smoothed_interval_s(evaluate_s),
            counts_s=evaluate_s,
            rules_s=evaluate_s,
            smooths=True,
            estimator=rate if self.has_demand else NO_DEMAND,
        )


@cache
def _configurations() -> dict[str, Configuration]:
    return read_configurations()


def read_ways(path: Path = _HERE / "ways.yml") -> dict[str, Way]:
    """By name, in the order of the tables."""
    rows = yaml.safe_load(path.read_text())
    common = {kind: tuple(targets) for kind, targets in rows.pop("targets").items()}
    titles = {name: configuration.title for name, configuration in _configurations().items()}
    found = {}
    for name, row in rows.items():
        row = dict(row or {})
        of = row.get("of", name if name in titles else "")
        kind = row.get("kind", "gpu")
        given = {"of": of, "title": titles.get(of, name), "targets": common[kind], **row}
        found[name] = Way(name=name, **given)
    return found


class Hpa:
    """An HPA at the end of a chain. sync_s: the controller's period. service_s: the cost of a request, known here."""

    def __init__(
        self,
        way: Way,
        *,
        target: float,
        maximum: int,
        sync_s: float,
        start_s: float,
        service_s: float,
        chance: random.Random,
        is_small: bool = False,
    ) -> None:
        self.period_s, self.phase_s = sync_s, chance.random() * sync_s
        self._way, self._target, self._maximum, self._service_s = way, target, maximum, service_s
        self._chain, self._has_demand = way.chain(is_small=is_small), way.has_demand
        self._by_value = way.kind == "gpu" and (way.configuration.metric or {}).get("type") == "Object"
        self._controller = Controller(1, maximum, _behavior(way, self._chain, maximum, target, start_s))

    def __call__(self, plant: Plant) -> int:
        replicas = plant.pods
        return self._controller.decide(plant.now_s, replicas, self._wanted(plant)).replicas

    def _wanted(self, plant: Plant) -> int | None:
        replicas = plant.pods
        proposals: list[int | None] = [self._of_pods(plant, replicas)]
        if self._has_demand:
            offered = plant.offered_per_s
            total = plant.activity() if offered is None else 100 * offered * self._service_s
            proposals.append(desired_replicas_by_total(total, self._target, status_replicas=replicas))
        if all(proposal is None for proposal in proposals):
            return None
        return desired_replicas_together(proposals, current=replicas)

    def _of_pods(self, plant: Plant, replicas: int) -> int | None:
        way = self._way
        is_sustained = self._has_demand and (
            way.sustained == "always" or (way.sustained == "after a new pod" and plant.since_ready_s < SUSTAINED_S)
        )
        values = plant.values(SUSTAINED_S, least=True) if is_sustained else plant.values(self._chain.window_s)
        usage = [float(value) for value in values if value >= 0]
        if not usage:
            return None
        if way.kind == "waiting":
            return desired_replicas_by_total(sum(usage), self._target, status_replicas=replicas)
        if self._by_value:
            average = sum(usage) / len(usage)
            return desired_replicas_by_value(average, self._target, current=replicas, ready=plant.ready)
        return desired_replicas(usage, self._target, current=replicas, missing=replicas - len(usage))


def _behavior(way: Way, chain: Chain, maximum: int, target: float, start_s: float) -> Behavior:
    """Of gpu_autoscaler as it computes it, of others none."""
    if way.kind != "gpu" or not way.configuration.is_ours:
        return Behavior(is_given=False)
    options = dict(way.configuration.autoscaler or {})
    if "demand" in options:
        options["demand"] = {"offered": "offered", "served": "served"}
    dead_s = dead_time_s(start_s, chain.collect_s + chain.scrape_s + chain.evaluate_s)
    options = {"target": {"name": "any"}, "max_replicas": maximum, "target_value": target} | options
    autoscaler = Autoscaler.from_params({"dead_time_seconds": dead_s} | options)
    if way.by_dead_time:
        period_s = max(dead_s, 60)
        policies = (ScalingPolicy("Pods", 1, period_s), ScalingPolicy("Percent", 25, period_s))
        down = ScalingRules(max(2 * dead_s, 300), policies, "Min")
        return Behavior(autoscaler.scale_up if way.has_demand else default_scale_up(dead_s), down)
    return Behavior(autoscaler.scale_up, autoscaler.scale_down)


class Knative:
    """Knative's autoscaler on requests a second, each with its share of a pod."""

    period_s = 2.0

    def __init__(self, target: float, maximum: int, service_s: float, chance: random.Random) -> None:
        self.phase_s = chance.random() * self.period_s
        self._percent, self._seen_s, self._seen = 100 * service_s, 0.0, 0
        self._decision = KnativeDecision(target, maximum)

    def __call__(self, plant: Plant) -> int:
        passed_s = max(plant.now_s - self._seen_s, 1e-9)
        percent = (plant.offered - self._seen) / passed_s * self._percent
        self._seen_s, self._seen = plant.now_s, plant.offered
        self._decision.note(plant.now_s, percent)
        return self._decision.wanted(plant.now_s, plant.ready, plant.pods)


class Static:
    """A pool of one size."""

    phase_s = 0.0

    def __init__(self, pods: int) -> None:
        self.period_s, self._pods = math.inf, pods

    def __call__(self, plant: Plant) -> int:
        return self._pods


class Oracle:
    """Knows the load: at each time as many pods as the busiest minute until a pod could start needs, and no more."""

    period_s = 15.0
    phase_s = 0.0

    def __init__(
        self, arrivals: np.ndarray, *, target: float, service_s: float, start_s: float, until_s: float
    ) -> None:
        counts = np.bincount((arrivals // self.period_s).astype(int), minlength=math.ceil(until_s / self.period_s) + 1)
        minute = np.convolve(counts, np.ones(4) / (4 * self.period_s), mode="same") * service_s * 100
        ahead = 1 + math.ceil((start_s + self.period_s) / self.period_s)
        padded = np.concatenate([np.zeros(2), minute, np.zeros(ahead)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, ahead + 3)
        self._pods = np.maximum(np.ceil(np.round(windows.max(axis=1) / target, 6)), 1).astype(int)

    def __call__(self, plant: Plant) -> int:
        return int(self._pods[min(round(plant.now_s / self.period_s), len(self._pods) - 1)])
