"""The same loads on paper: each hop as its intervals say, and the controller's own arithmetic.

For what takes too long to be measured, and for Knative's autoscaler, which is not in the lab. Requests are a stream
without chance here. Pods start in a fixed time, and no hop takes any time of its own.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from plugins.module_utils.autoscaling.controller import Behavior, Controller
from plugins.module_utils.autoscaling.demand import STEADY, SUSTAINED_S
from plugins.module_utils.autoscaling.metrics import smoothed_interval_s
from plugins.module_utils.autoscaling.replicas import (
    desired_replicas,
    desired_replicas_by_total,
    desired_replicas_by_value,
    desired_replicas_together,
)
from plugins.module_utils.autoscaling.spec import Autoscaler
from scaling_bench.balancer import load_at
from scaling_bench.configurations import (
    LEAST_START_S,
    MAXIMUM,
    MINIMUM,
    OUR_INTERVALS,
    TARGET_PERCENT,
    Configuration,
    our_dead_time_s,
)
from scaling_bench.evaluation import Seen, evaluate
from scaling_bench.rounds import Hops, Result, Round
from scaling_bench.shapes import LOW, SHAPES

TICK_S = 0.5
LABELS_S = 30  # how often the labels of pods are scraped
COST_S = 0.02
KNATIVE = Configuration("Knative", "its autoscaler", "as its documents say, with its defaults")


@dataclass
class Pod:
    made: float
    ready: float
    busy: float = 0.0
    # When and what Prometheus scraped of it.
    scraped: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=200))


class Service:
    """The pods of a workload and the load on them."""

    def __init__(self, start_s: float) -> None:
        self.start_s = start_s
        self.pods = [Pod(-1000.0, -900.0)]
        self.load = LOW
        self.offered = self.rejected = 0.0

    def tick(self, now: float, load: float) -> None:
        self.load = load
        ready = self.ready(now)
        for pod in self.pods:
            pod.busy = 100 * min(load / len(ready), 1.0) if pod in ready else 0.0
        self.offered += load * TICK_S / COST_S
        self.rejected += max(load - len(ready), 0) * TICK_S / COST_S

    def ready(self, now: float) -> list[Pod]:
        return [pod for pod in self.pods if pod.ready <= now]

    def scale(self, now: float, replicas: int) -> None:
        while len(self.pods) < replicas:
            self.pods.append(Pod(now, now + LEAST_START_S + self.start_s))
        del self.pods[replicas:]  # the youngest, as a ReplicaSet does


# How many replicas at this time; asked at each tick.
Scaler = Callable[[float, Service], int]


class Hpa:
    """The chain of a configuration, and its HPA. Each period has a phase of its own."""

    def __init__(self, configuration: Configuration, sync_s: float, start_s: float, chance: random.Random) -> None:
        exporter = configuration.exporter
        collect_s, scrape_s = (exporter.collect_s, exporter.scrape_s) if exporter else OUR_INTERVALS
        self._smooths = configuration.autoscaler is not None
        evaluate_s = smoothed_interval_s(configuration.evaluate_s) if self._smooths else configuration.evaluate_s
        periods = {"collect": collect_s, "scrape": scrape_s, "evaluate": evaluate_s, "sync": sync_s}
        periods |= {"labels": LABELS_S, "count": configuration.evaluate_s}
        self._periods = {name: (period, chance.random() * period) for name, period in periods.items()}
        self._form = (configuration.metric or {}).get("type", "Pods")
        self._window_s = configuration.window_s
        self._joins = "kube_pod_labels" in str(configuration.rule)
        self._demand = "demand" in (configuration.autoscaler or {})
        self._controller = Controller(MINIMUM, MAXIMUM, _behavior(configuration, start_s))
        self._collected: dict[int, tuple[Pod, float]] = {}
        self._labelled: set[int] = set()
        self._recorded: dict[int, tuple[Pod, float]] = {}
        self._counted: deque[float] = deque(maxlen=2)
        self._rates: deque[float] = deque(maxlen=3)

    def __call__(self, now: float, service: Service) -> int:
        replicas = len(service.pods)
        if self._is_due("collect", now):
            self._collected = {id(pod): (pod, pod.busy) for pod in service.pods if pod.made < now - 1}
        if self._is_due("labels", now):
            self._labelled = {id(pod) for pod in service.pods}
        if self._is_due("scrape", now):
            for pod, value in self._collected.values():
                pod.scraped.append((now, value))
            if not self._periods["evaluate"][0]:
                self._recorded = dict(self._collected)
        if self._is_due("count", now):
            self._counted.append(service.offered)
        if self._is_due("evaluate", now):
            self._evaluate()
        if not self._is_due("sync", now):
            return replicas
        wanted = self._wanted(now, service)
        return self._controller.decide(now, replicas, wanted).replicas

    def _is_due(self, name: str, now: float) -> bool:
        period, phase = self._periods[name]
        return bool(period) and (now - phase) // period != (now - TICK_S - phase) // period

    def _evaluate(self) -> None:
        before, self._recorded = (
            self._recorded,
            {key: of for key, of in self._collected.items() if not self._joins or key in self._labelled},
        )
        if self._smooths:
            self._recorded |= {
                key: (pod, (value + before[key][1]) / 2)
                for key, (pod, value) in self._recorded.items()
                if key in before
            }
        if len(self._counted) == self._counted.maxlen:
            self._rates.append((self._counted[1] - self._counted[0]) / self._periods["count"][0])

    def _values(self, now: float) -> dict[int, float]:
        """By pod. Over a window the average of what was scraped in it, with a demand the least."""
        window_s = SUSTAINED_S if self._demand else self._window_s
        if not window_s:
            return {key: value for key, (_pod, value) in self._recorded.items()}
        found = {}
        for key, (pod, _value) in self._recorded.items():
            if kept := [value for at, value in pod.scraped if at > now - window_s]:
                found[key] = min(kept) if self._demand else sum(kept) / len(kept)
        return found

    def _wanted(self, now: float, service: Service) -> int | None:
        values, replicas = self._values(now), len(service.pods)
        proposals: list[int | None] = []
        if self._form == "Object":
            average = sum(values.values()) / len(values) if values else None
            ready = len(service.ready(now))
            proposals.append(
                None
                if average is None
                else desired_replicas_by_value(average, TARGET_PERCENT, current=replicas, ready=ready)
            )
        else:
            usage = [values[id(pod)] for pod in service.pods if id(pod) in values]
            missing = replicas - len(usage)
            proposals.append(
                desired_replicas(usage, TARGET_PERCENT, current=replicas, missing=missing) if usage else None
            )
        if self._demand and self._rates:
            total = _offered(self._rates) * COST_S * 100
            proposals.append(desired_replicas_by_total(total, TARGET_PERCENT, status_replicas=replicas))
        if all(proposal is None for proposal in proposals):
            return None
        return desired_replicas_together(proposals, current=replicas)


def _offered(rates: Sequence[float]) -> float:
    """What the recorded rule of the same name makes of the last three."""
    twice = list(rates)[-2:]
    return min(twice) if min(twice) >= STEADY * max(twice) else min(rates)


def _behavior(configuration: Configuration, start_s: float) -> Behavior:
    if configuration.autoscaler is None:
        return Behavior(is_given=False)
    told = dict(configuration.autoscaler)
    if "demand" in told:
        told["demand"] = {"offered": "offered", "served": "served"}
    told |= {"target": {"name": "any"}, "max_replicas": MAXIMUM, "target_value": TARGET_PERCENT}
    told["dead_time_seconds"] = our_dead_time_s(configuration, start_s)
    autoscaler = Autoscaler.from_params(told)
    return Behavior(autoscaler.scale_up, autoscaler.scale_down)


class KnativeDecision:
    """Knative's autoscaler (KPA) on requests a second, with its defaults, as percent of a pod.

    A stable window of 60 s and a panic window of a tenth of it. It panics from twice of what the ready pods take on. It
    goes up to a thousand times them, and down to a half of them, at once.
    Source: knative/serving, pkg/autoscaler/scaling/autoscaler.go and config-autoscaler
    """

    def __init__(self, target_percent: float, maximum: int) -> None:
        self._target_percent, self._maximum = target_percent, maximum
        self._offered: deque[tuple[float, float]] = deque()
        self._panics_until, self._most = -math.inf, 0

    def note(self, now: float, percent: float) -> None:
        self._offered.append((now, percent))
        while self._offered[0][0] <= now - 60:
            self._offered.popleft()

    def wanted(self, now: float, ready: int, replicas: int) -> int:
        """ready, replicas: pods that are ready, and all."""
        ready = max(ready, 1)
        stable, panic = (self._needs(now, seconds) for seconds in (60, 6))
        if panic / ready >= 2:
            self._panics_until = now + 60
        if now < self._panics_until:
            self._most = max(self._most, panic, replicas)
            wanted = self._most
        else:
            self._most, wanted = 0, max(stable, ready // 2)
        return min(max(wanted, MINIMUM), self._maximum, 1000 * ready)

    def _needs(self, now: float, seconds: float) -> int:
        kept = [percent for at, percent in self._offered if at > now - seconds]
        return math.ceil(round(sum(kept) / len(kept) / self._target_percent, 6))


class Knative:
    """Its decision every 2 s."""

    def __init__(self, chance: random.Random) -> None:
        self._phase = chance.random() * 2
        self._decision = KnativeDecision(TARGET_PERCENT, MAXIMUM)

    def __call__(self, now: float, service: Service) -> int:
        self._decision.note(now, service.load * 100)
        if (now - self._phase) // 2 == (now - TICK_S - self._phase) // 2:
            return len(service.pods)
        return self._decision.wanted(now, len(service.ready(now)), len(service.pods))


def simulate(round_: Round, name: str, lane: int, scaler: Scaler) -> Result:
    """Play one workload's load from low on. The first minutes are before the load changes."""
    service = Service(round_.pod_start_s)
    trace = round_.shape.points
    desired: list[tuple[float, float]] = []
    ready: list[tuple[float, float]] = []
    requests = []
    for tick in range(math.ceil((round_.settle_s + round_.looks_s) / TICK_S)):
        now = tick * TICK_S - round_.settle_s
        service.tick(now, load_at(trace, now))
        service.scale(now, scaler(now, service))
        for counts, count in ((desired, len(service.pods)), (ready, len(service.ready(now)))):
            if not counts or counts[-1][1] != count:
                counts.append((now, count))
        offered, rejected = round(service.offered), round(service.rejected)
        requests.append((now, offered, offered - rejected, rejected))
    seen = Seen(round_.shape, round_.looks_s, desired, ready, requests)
    outcome = evaluate(seen, TARGET_PERCENT, (MINIMUM, MAXIMUM))
    hops = Hops(None, None, outcome.reaction_s, None)
    return Result(name, lane, *round_.kind, round_.looks_s, seen=seen, outcome=outcome, hops=hops)


def simulated_rounds() -> list[Round]:
    """The loads that are measured, at both periods, and those that take too long."""
    short = [("step", 0), ("step", 30), ("step", 90), ("spike", 0), ("ramp", 0)]
    return [
        Round(SHAPES[shape], sync_s, start_s)
        for shape, start_s in (*short, ("step down", 0), ("noisy day", 0))
        for sync_s in (5, 15)
    ]


def simulate_all(
    rounds: list[Round], configurations: Mapping[str, Configuration], phases: int, seed: int
) -> list[Result]:
    """Each configuration, and Knative, so many times in each round, at other moments of its periods."""
    found = []
    for round_ in rounds:
        chance = random.Random(seed)
        for phase in range(1, phases + 1):
            for name, configuration in configurations.items():
                hpa = Hpa(configuration, round_.sync_s, round_.pod_start_s, chance)
                found.append(simulate(round_, name, phase, hpa))
            found.append(simulate(round_, KNATIVE.name, phase, Knative(chance)))
    return found
