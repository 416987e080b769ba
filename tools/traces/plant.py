"""A GPU service on paper: each request, each pod, and each hop up to what an HPA reads.

A pod serves one request at a time, in a fixed time, and lets some wait. A request goes to a random ready pod, as
kube-proxy sends it. What the controller decides is not here. The loops are compiled by numba.

`_estimate` is a copy by hand of the PromQL in the collection's demand.py: no test compares the two. It shares that
module's constants, knows the cost of a request, and has no extrapolation of PromQL's `rate`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit  # type: ignore[import-untyped]

from plugins.module_utils.autoscaling import demand as product

# A GPU's activity is that of the last second, as DCGM and the lab's driver report it, whatever the tick is.
ACTIVITY_S = 1.0
MOST_PODS = 256
_SAMPLES = 128  # of a pod's values and of the counters: at one a second more than the longest window of either
_COUNTS = 256
_BINS = 400  # of latencies, 50 a decade from 0.1 ms on

# Columns of a pod.
MADE, READY, FREE, CARRIED, TAKEN, COLLECTED, SCRAPED, LABELLED, RECORDED, SAMPLED = range(10)
_PARTS = 4  # ticks of a second, at most
BUSY = 10
_WIDTH = BUSY + _PARTS

# Periods, in the order of `Chain`.
COLLECT, LABELS, SCRAPE, EVALUATE, COUNT, RULES = range(6)

# Numbers that change, and what they count.
(
    NOW,
    NEXT,
    PODS,
    TOTAL,
    GOOD,
    REJECTED,
    TAKEN_ON,
    GPU_S,
    LOST,
    NEWEST_READY,
    SEEN_READY,
    COUNTED,
    RATES,
    LATEST_OFFERED,
) = range(14)

(NO_DEMAND, FIRST_RATE, RATE_OR_BOUNDS) = range(3)


@dataclass(frozen=True)
class Service:
    """service_s: GPU time of a request. goal_s: within which it is answered. waiting: requests that a pod lets wait.

    choices: ready pods drawn for a request, of which the one with the least to do gets it. 1: a random pod, as
    kube-proxy has it. 2: as Envoy and Traefik balance by least requests (M. Mitzenmacher, 2001).
    """

    service_s: float
    goal_s: float
    waiting: int = 8
    choices: int = 1


@dataclass(frozen=True)
class Chain:
    """What an HPA reads, and the seconds between two times of each hop; 0 for a hop that is missing.

    window_s:   over which the adapter averages what was scraped.
    counts_s:   between two scrapes of the requests' counters. rules_s: between two evaluations of a demand.
    estimator:  NO_DEMAND, FIRST_RATE or RATE_OR_BOUNDS.
    of_waiting: requests that wait in place of activity.
    """

    collect_s: float = 1
    scrape_s: float = 2
    evaluate_s: float = 0
    window_s: float = 0
    counts_s: float = 0
    rules_s: float = 0
    smooths: bool = False
    joins_labels: bool = False
    of_waiting: bool = False
    estimator: int = NO_DEMAND

    @property
    def periods(self) -> tuple[float, ...]:
        labels_s = 30.0 if self.joins_labels else 0.0
        return self.collect_s, labels_s, self.scrape_s, self.evaluate_s, self.counts_s, self.rules_s


class _State(NamedTuple):
    numbers: np.ndarray
    pods: np.ndarray
    sampled_at: np.ndarray
    samples: np.ndarray
    counted_at: np.ndarray
    counts: np.ndarray
    rates: np.ndarray
    bounds: np.ndarray
    latencies: np.ndarray


class Plant:
    """One service under one load, from second 0 on."""

    def __init__(
        self,
        arrivals: np.ndarray,
        service: Service,
        chain: Chain,
        *,
        pods: int,
        start_s: float,
        seed: int,
        tick_s: float = 0.5,
        observed_from_s: float = 0.0,
    ) -> None:
        """arrivals: seconds, ascending. start_s: from a decision until a pod is ready. tick_s: at most a second."""
        self._arrivals, self._service, self._chain = arrivals, service, chain
        self._start_s, self._tick_s, self._from_s = start_s, tick_s, observed_from_s
        chance = random.Random(seed)
        self._periods = np.array([[period, chance.random() * period] for period in chain.periods])
        self._flags = np.array([chain.smooths, chain.joins_labels, chain.of_waiting, chain.estimator])
        self._state = _State(
            np.zeros(14),
            np.zeros((MOST_PODS, _WIDTH)),
            np.zeros((MOST_PODS, _SAMPLES)),
            np.zeros((MOST_PODS, _SAMPLES)),
            np.zeros(_COUNTS),
            np.zeros(_COUNTS),
            np.full(3, -1.0),
            np.full(3, -1.0),
            np.zeros(_BINS),
        )
        self._state.numbers[LATEST_OFFERED] = -1.0
        for pod in range(pods):
            _make_pod(self._state.pods, self._state.samples, pod, -1000.0, -900.0)
        self._state.numbers[PODS] = self._state.numbers[SEEN_READY] = pods
        self._state.numbers[NEWEST_READY] = -1000.0
        _seed(seed)

    @property
    def now_s(self) -> float:
        return float(self._state.numbers[NOW])

    @property
    def pods(self) -> int:
        return int(self._state.numbers[PODS])

    @property
    def ready(self) -> int:
        return int(np.count_nonzero(self._state.pods[: self.pods, READY] <= self.now_s))

    @property
    def offered(self) -> int:
        """Requests that have come."""
        return int(self._state.numbers[NEXT])

    @property
    def offered_per_s(self) -> float | None:
        """What the demand's rules record of that name; None without a value."""
        offered = float(self._state.numbers[LATEST_OFFERED])
        return None if offered < 0 else offered

    @property
    def since_ready_s(self) -> float:
        """Since a pod last became ready."""
        return self.now_s - float(self._state.numbers[NEWEST_READY])

    def advance(self, until_s: float) -> None:
        _advance(
            self._state,
            self._arrivals,
            self._periods,
            self._flags,
            self._service.service_s,
            self._service.goal_s,
            self._service.waiting,
            self._service.choices,
            self._tick_s,
            self._from_s,
            until_s,
        )

    def scale(self, replicas: int) -> None:
        if replicas > MOST_PODS:
            raise ValueError(f"{replicas} pods, where at most {MOST_PODS} are simulated")
        if replicas != self.pods:
            _scale(self._state, replicas, self._start_s, self._service.service_s, self._from_s)

    def values(self, window_s: float = 0.0, *, least: bool = False) -> Sequence[float]:
        """What the metrics API has of each pod, nan for none: the last value, or the mean or least of a window."""
        return _values(self._state, window_s, least, self._chain.joins_labels)

    def activity(self) -> float:
        """Percent of the last second, of all pods together."""
        parts = round(ACTIVITY_S / self._tick_s)
        return float(100 * self._state.pods[: self.pods, BUSY : BUSY + parts].sum() / ACTIVITY_S)

    def outcome(self) -> dict[str, float]:
        """Of the observed time: requests, the share within the goal, rejected, GPU-hours, latencies, lost requests.

        lost: in flight when their pod was removed, which a pod without a drain would have ended.
        """
        numbers, latencies = self._state.numbers, self._state.latencies
        total = max(numbers[TOTAL], 1.0)
        ranks = np.searchsorted(latencies.cumsum(), latencies.sum() * np.array([0.5, 0.95, 0.99]))
        return {
            "requests": int(numbers[TOTAL]),
            "within_goal": float(numbers[GOOD] / total),
            "rejected": float(numbers[REJECTED] / total),
            "gpu_hours": float(numbers[GPU_S] / 3600),
            "lost": int(numbers[LOST]),
            **{
                name: 1e-4 * 10 ** ((int(rank) + 1) / 50)
                for name, rank in zip(("p50", "p95", "p99"), ranks, strict=True)
            },
        }


@njit(cache=True)
def _seed(seed):
    np.random.seed(seed)


@njit(cache=True)
def _make_pod(pods, samples, pod, made, ready):
    pods[pod, :] = 0.0
    pods[pod, MADE], pods[pod, READY], pods[pod, FREE] = made, ready, ready
    pods[pod, COLLECTED] = pods[pod, SCRAPED] = pods[pod, RECORDED] = -1.0


@njit(cache=True)
def _scale(state, replicas, start_s, service_s, from_s):
    numbers, pods = state.numbers, state.pods
    now, count = numbers[NOW], int(numbers[PODS])
    for pod in range(count, replicas):
        _make_pod(pods, state.samples, pod, now, now + start_s)
    # The youngest end first, as in a ReplicaSet. They finish what they have taken on, and cost GPU time meanwhile.
    for pod in range(replicas, count):
        left = max(pods[pod, FREE] - now, 0.0) if pods[pod, READY] <= now else 0.0
        if now > from_s:
            numbers[GPU_S] += left
            numbers[LOST] += math.ceil(left / service_s - 1e-9)
    numbers[PODS] = replicas
    numbers[SEEN_READY] = min(numbers[SEEN_READY], replicas)


@njit(cache=True)
def _is_due(period, phase, now, tick):
    return period > 0 and math.floor((now - phase) / period) != math.floor((now - tick - phase) / period)


@njit(cache=True)
def _values(state, window_s, least, joins):
    count, now = int(state.numbers[PODS]), state.numbers[NOW]
    found = np.full(count, np.nan)
    for pod in range(count):
        value = state.pods[pod, RECORDED]
        if value < 0:
            continue
        found[pod] = value
        if window_s <= 0:
            continue
        number, total, lowest, sampled = 0, 0.0, math.inf, int(state.pods[pod, SAMPLED])
        for back in range(1, min(sampled, _SAMPLES) + 1):
            place = (sampled - back) % _SAMPLES
            if state.sampled_at[pod, place] <= now - window_s:
                break
            number += 1
            total += state.samples[pod, place]
            lowest = min(lowest, state.samples[pod, place])
        if number:
            found[pod] = lowest if least else total / number
        elif not least:
            found[pod] = np.nan
    return found


@njit(cache=True)
def _sample(state, pod, now, value):
    place = int(state.pods[pod, SAMPLED]) % _SAMPLES
    state.sampled_at[pod, place], state.samples[pod, place] = now, value
    state.pods[pod, SAMPLED] += 1


@njit(cache=True)
def _advance(state, arrivals, periods, flags, service_s, goal_s, waiting, choices, tick, from_s, until):
    numbers, pods = state.numbers, state.pods
    smooths, joins, of_waiting, estimator = flags[0] > 0, flags[1] > 0, flags[2] > 0, flags[3]
    parts = round(ACTIVITY_S / tick)
    coming = int(numbers[NEXT])
    while numbers[NOW] + tick <= until + 1e-9:
        before = numbers[NOW]
        now = before + tick
        numbers[NOW] = now
        count = int(numbers[PODS])
        ready = 0
        while ready < count and pods[ready, READY] <= now:
            ready += 1
        if ready > numbers[SEEN_READY]:
            numbers[NEWEST_READY] = now
        numbers[SEEN_READY] = ready
        while coming < len(arrivals) and arrivals[coming] <= now:
            at = arrivals[coming]
            coming += 1
            is_observed = at >= from_s
            if is_observed:
                numbers[TOTAL] += 1
            pod = int(np.random.random() * ready) if ready else -1
            for _choice in range(1, choices if ready else 1):
                other = int(np.random.random() * ready)
                if pods[other, FREE] < pods[pod, FREE]:
                    pod = other
            if pod < 0 or pods[pod, FREE] - at > waiting * service_s:
                if is_observed:
                    numbers[REJECTED] += 1
                continue
            free = max(pods[pod, FREE], at) + service_s
            pods[pod, FREE] = free
            pods[pod, TAKEN] += service_s
            numbers[TAKEN_ON] += 1
            if is_observed:
                latency = free - at
                if latency <= goal_s + 1e-9:
                    numbers[GOOD] += 1
                place = int(math.log10(max(latency, 1e-4) / 1e-4) * 50)
                state.latencies[min(place, _BINS - 1)] += 1
        numbers[NEXT] = coming
        if now > from_s:
            numbers[GPU_S] += count * tick
        part = BUSY + round(now / tick) % parts
        in_flight = 0.0
        for pod in range(count):
            left = max(pods[pod, FREE] - now, 0.0) if pod < ready else 0.0
            pods[pod, part] = pods[pod, CARRIED] + pods[pod, TAKEN] - left
            pods[pod, CARRIED], pods[pod, TAKEN] = left, 0.0
            in_flight += math.ceil(left / service_s - 1e-9)
        _hops(state, periods, now, tick, count, ready, parts, service_s, smooths, joins, of_waiting)
        if estimator:
            answered = coming - in_flight
            if _is_due(periods[COUNT, 0], periods[COUNT, 1], now, tick):
                place = int(numbers[COUNTED]) % _COUNTS
                state.counted_at[place], state.counts[place] = now, answered
                numbers[COUNTED] += 1
            if _is_due(periods[RULES, 0], periods[RULES, 1], now, tick):
                _estimate(state, now, periods[RULES, 0], estimator == RATE_OR_BOUNDS)


@njit(cache=True)
def _hops(state, periods, now, tick, count, ready, parts, service_s, smooths, joins, of_waiting):
    pods = state.pods
    if _is_due(periods[COLLECT, 0], periods[COLLECT, 1], now, tick):
        for pod in range(count):
            if of_waiting:
                pods[pod, COLLECTED] = max(math.ceil(pods[pod, CARRIED] / service_s - 1e-9) - 1, 0)
            elif pods[pod, MADE] < now - 1:
                busy = 0.0
                for part in range(parts):
                    busy += pods[pod, BUSY + part]
                pods[pod, COLLECTED] = min(max(100 * busy / (parts * tick), 0.0), 100.0)
    if _is_due(periods[LABELS, 0], periods[LABELS, 1], now, tick):
        for pod in range(count):
            pods[pod, LABELLED] = 1.0
    evaluates = periods[EVALUATE, 0] > 0
    if _is_due(periods[SCRAPE, 0], periods[SCRAPE, 1], now, tick):
        for pod in range(count):
            if pods[pod, COLLECTED] < 0:
                continue
            pods[pod, SCRAPED] = pods[pod, COLLECTED]
            if not evaluates:
                pods[pod, RECORDED] = pods[pod, COLLECTED]
                _sample(state, pod, now, pods[pod, COLLECTED])
    if evaluates and _is_due(periods[EVALUATE, 0], periods[EVALUATE, 1], now, tick):
        for pod in range(count):
            value = pods[pod, SCRAPED]
            if value < 0 or (joins and pods[pod, LABELLED] == 0):
                continue
            _sample(state, pod, now, value)
            if smooths and pods[pod, RECORDED] >= 0:
                value = (value + pods[pod, RECORDED]) / 2
            pods[pod, RECORDED] = value


@njit(cache=True)
def _rate(state, now, window_s):
    """As PromQL's rate without its extrapolation: of the samples in a window, -1 with fewer than two."""
    counted = int(state.numbers[COUNTED])
    last = (counted - 1) % _COUNTS
    first, number = last, 0
    for back in range(1, min(counted, _COUNTS) + 1):
        place = (counted - back) % _COUNTS
        if state.counted_at[place] <= now - window_s:
            break
        first = place
        number += 1
    if number < 2:
        return -1.0
    return (state.counts[last] - state.counts[first]) / (state.counted_at[last] - state.counted_at[first])


@njit(cache=True)
def _latest(state):
    counted = int(state.numbers[COUNTED])
    if counted < 2:
        return -1.0
    one, two = (counted - 1) % _COUNTS, (counted - 2) % _COUNTS
    return (state.counts[one] - state.counts[two]) / (state.counted_at[one] - state.counted_at[two])


@njit(cache=True)
def _push(ring, value):
    ring[0], ring[1], ring[2] = ring[1], ring[2], value


_IRATE, _SHORT, _LONG, _LONGEST = product._RATES
_ENOUGH, _SHORT_S, _LONG_S, _LONGEST_S = _IRATE[2], float(_SHORT[1]), float(_LONG[1]), float(_LONGEST[1])
_SHORT_RATE, _LONG_RATE, _LONGEST_RATE = (requests / span_s for _name, span_s, requests in product._RATES[1:])
_SURELY, _STEADY = product._SURELY, product.STEADY
_QUICK_S = float(product._QUICK_S)


@njit(cache=True)
def _below(rate, window_s, deviations):
    return rate - deviations * math.sqrt(rate / window_s) if rate >= 0 else -1.0


@njit(cache=True)
def _estimate(state, now, interval_s, has_bounds):
    """The rules `rate`, `least` and `offered` of a demand, or with bounds in each window in place of `least`."""
    latest, short = _latest(state), _rate(state, now, _SHORT_S)
    long, longest = _rate(state, now, _LONG_S), _rate(state, now, _LONGEST_S)
    rate, bound = -1.0, -1.0
    if latest >= _ENOUGH / interval_s:
        rate = latest
    elif short >= _SHORT_RATE:
        rate = short
    elif long >= _LONG_RATE:
        rate = long
    elif longest >= _LONGEST_RATE:
        rate = longest
    if short < _SHORT_RATE:
        bound = max(_below(short, _SHORT_S, _SURELY), _below(long, _LONG_S, _SURELY))
    if has_bounds:
        bound = max(bound, _below(latest, interval_s, _SURELY))
        if latest < _ENOUGH / interval_s:
            bound = max(bound, _below(_rate(state, now, _QUICK_S), _QUICK_S - interval_s, _SURELY))
    _push(state.rates, rate)
    _push(state.bounds, bound)
    offered = -1.0
    if rate >= 0:
        low, high = min(state.rates[1], state.rates[2]), max(state.rates[1], state.rates[2])
        offered = low if low >= _STEADY * high else min(low, state.rates[0])
        lasting = min(state.bounds[1], state.bounds[2])
        if not has_bounds:
            lasting = min(lasting, state.bounds[0])
        offered = max(offered, lasting)
    state.numbers[LATEST_OFFERED] = offered
