"""Loads: when requests arrive, drawn from recorded traffic, and the service that they go to."""

from __future__ import annotations

import csv
import datetime
import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scaling_bench.shapes import SHAPES

from traces.plant import Service

_HERE = Path(__file__).parent
DATA = _HERE / "data"
# The planned static pool: the busiest minute at this activity of its GPUs. All GPU-hours are shares of this pool's.
PLANNED_PERCENT = 60


class BadTrace(Exception):
    """A file of requests that cannot be played; the message says why and what to change."""


@dataclass(frozen=True)
class Load:
    """A load and its service.

    form:     of the data: `minutes`, requests a minute; `seconds`, requests of each second; `requests`, each time;
              `shape`, one of `make bench`; `rates`, requests a second from a time on.
    first_s:  second of the data at which it begins. scale: of the rate.
    fano:     variance of a minute's requests by their mean, where the data has less.
    copies:   of each request, moved by a normal distribution of `moved_s`, so that the load is larger.
    """

    name: str
    title: str
    form: str
    data: str
    hours: float
    service: Service
    scale: float = 1.0
    first_s: float = 0.0
    fano: float = 1.0
    copies: int = 1
    moved_s: float = 0.0

    @property
    def seconds(self) -> float:
        return self.hours * 3600

    def arrivals(self, seed: int) -> np.ndarray:
        """Seconds from the beginning on, ascending. Another seed draws what the data does not say."""
        chance = np.random.default_rng(seed)
        return np.sort(_FORMS[self.form](self, chance))

    def gpus(self, arrivals: np.ndarray, span_s: float = 60) -> np.ndarray:
        """GPU-seconds a second in each span."""
        counts = np.bincount((arrivals // span_s).astype(int), minlength=int(self.seconds // span_s))
        return counts[: int(self.seconds // span_s)] * self.service.service_s / span_s

    def planned_pods(self, arrivals: np.ndarray) -> int:
        return int(np.ceil(np.round(self.gpus(arrivals).max() * 100 / PLANNED_PERCENT, 6)))


def read_loads(path: Path = _HERE / "loads.yml") -> dict[str, Load]:
    return {name: _load(name, row) for name, row in yaml.safe_load(path.read_text()).items()}


def own_load(path: Path, service_s: float, goal_s: float | None = None) -> Load:
    """A load from a user's file. Raises: BadTrace."""
    times, rates = _own_rates(path)
    service = Service(service_s, goal_s or 5 * service_s)
    load = Load(path.stem, str(path), "rates", str(path), float(times[-1] - times[0]) / 3600, service)
    if rates.max() * service_s > 60:
        raise BadTrace(
            f"{path} has up to {rates.max():g} requests a second, so {rates.max() * service_s:.0f} GPUs are busy "
            f"at {service_s:g} s each; at most 60 are simulated. Give a smaller --service-seconds or load."
        )
    return load


def _load(name: str, row: Mapping[str, Any]) -> Load:
    given = dict(row)
    given.pop("source", None)
    service_s = given.pop("service_s")
    return Load(name=name, service=Service(service_s, given.pop("goal_s", 5 * service_s)), **given)


def rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
        yield from csv.DictReader(file)


def _poisson(rates: np.ndarray, span_s: float, chance: np.random.Generator) -> np.ndarray:
    """Random arrivals at these rates, each for a span."""
    counts = chance.poisson(np.maximum(rates, 0) * span_s)
    return (np.repeat(np.arange(len(rates)), counts) + chance.random(counts.sum())) * span_s


def _of_minutes(load: Load, chance: np.random.Generator) -> np.ndarray:
    found = [(float(row["minute_of_week"]), float(row["mean"])) for row in rows(DATA / load.data)]
    minutes, means = np.array(found).T
    wanted = load.first_s / 60 + np.arange(round(load.hours * 60))
    mean = np.interp(wanted, minutes, means)
    # What the data says of a minute is smoother than a minute was.
    noise = np.sqrt((load.fano - 1) / np.maximum(mean, 1)) * chance.normal(size=len(mean))
    return _poisson(mean * np.maximum(1 + noise, 0.05) / 60 * load.scale, 60, chance)


def _of_seconds(load: Load, chance: np.random.Generator) -> np.ndarray:
    counts = np.array([int(row["requests"]) for row in rows(DATA / load.data)])
    counts = counts[int(load.first_s) :][: int(load.seconds)]
    return np.repeat(np.arange(len(counts)), counts) + chance.random(counts.sum())


def _of_requests(load: Load, chance: np.random.Generator) -> np.ndarray:
    at = np.array(
        [datetime.datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in rows(DATA / load.data)]
    )
    at -= at.min()
    moved = [at, *(at + chance.normal(0, load.moved_s, len(at)) for _copy in range(load.copies - 1))]
    every = np.concatenate(moved)
    return every[(every >= 0) & (every < load.seconds)]


def _of_shape(load: Load, chance: np.random.Generator) -> np.ndarray:
    seconds, gpus = np.array(SHAPES[load.data].points).T
    rates = np.interp(np.arange(round(load.seconds)), seconds, gpus) * load.scale / load.service.service_s
    return _poisson(rates, 1, chance)


def _of_rates(load: Load, chance: np.random.Generator) -> np.ndarray:
    times, rates = _own_rates(Path(load.data))
    rows = np.searchsorted(times - times[0], np.arange(round(load.seconds)), side="right") - 1
    return _poisson(rates[rows] * load.scale, 1, chance)


def _own_rates(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Seconds and requests a second from then on. The last row ends the load."""
    fix = "Its first line is seconds,requests_per_second, and each row has a time and the rate from then on."
    try:
        found = [(float(row["seconds"]), float(row["requests_per_second"])) for row in rows(path)]
    except (KeyError, TypeError, ValueError) as error:
        raise BadTrace(f"{path} cannot be read: {error!r}. {fix}") from None
    except OSError as error:
        raise BadTrace(f"{path} cannot be read: {error.strerror or error}.") from None
    times, rates = np.array(found).T if len(found) > 1 else (np.zeros(0), np.zeros(0))
    if len(found) < 2 or not np.isfinite(found).all() or (np.diff(times) <= 0).any() or (rates < 0).any():
        raise BadTrace(f"{path} needs at least two rows, times that ascend, and rates of 0 or more. {fix}")
    if not rates[:-1].any():
        raise BadTrace(f"{path} has no requests. {fix}")
    return times, rates


_FORMS = {
    "minutes": _of_minutes,
    "seconds": _of_seconds,
    "requests": _of_requests,
    "shape": _of_shape,
    "rates": _of_rates,
}
