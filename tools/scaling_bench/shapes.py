"""How the load goes: GPU-seconds a second over time, as points between which it goes in a line."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from scaling_bench.balancer import load_at

LOW, HIGH = 0.15, 2.75
# A jump takes this long: two points of one time would be a division by nothing.
JUMP_S = 0.001

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Shape:
    """A load that begins to change at second 0, from `LOW` on.

    points: seconds and GPUs. lasts_s: until it has been seen enough of.
    is_constant: after its first change it stays, so that any turn of the replicas is one too many.
    """

    name: str
    points: Points
    lasts_s: float
    is_constant: bool = False

    def at(self, second: float) -> float:
        return load_at(self.points, second)

    def from_time(self, begin: float) -> list[list[float]]:
        """The points as Unix times, of a load that begins to change at `begin`."""
        return [[begin + second, gpus] for second, gpus in self.points]

    def ideal(self, second: float, target_percent: float, bounds: tuple[int, int]) -> int:
        """The fewest replicas that keep each at or below the target."""
        # Rounded first: 2.4 / 0.6 is 4 and not 4.000000000000001.
        wanted = math.ceil(round(self.at(second) * 100 / target_percent, 6))
        return min(max(wanted, bounds[0]), bounds[1])


def _jumps(*steps: tuple[float, float]) -> Points:
    """From LOW, a jump at each second to so many GPUs."""
    points, gpus = [], LOW
    for second, after in steps:
        points += [(second, gpus), (second + JUMP_S, after)]
        gpus = after
    return tuple(points)


def _noisy_day(minutes: int, seed: int) -> Points:
    """A day in minutes: a slow wave with noise, and now and then a burst."""
    chance = random.Random(seed)
    points = [(0.0, LOW)]
    for second in range(10, minutes * 60, 10):
        wave = LOW + (2.0 - LOW) * (1 - math.cos(2 * math.pi * second / (minutes * 60))) / 2
        noise = chance.gauss(0, 0.12 * wave) + (0.8 if chance.random() < 0.03 else 0)
        points.append((float(second), round(max(wave + noise, 0.02), 3)))
    return (*points, (minutes * 60.0, LOW))


SHAPES: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape("step", _jumps((0, HIGH)), lasts_s=100, is_constant=True),
        Shape("spike", _jumps((0, HIGH), (20, LOW)), lasts_s=100),
        Shape("ramp", ((0, LOW), (180, HIGH)), lasts_s=220),
        Shape("step down", _jumps((0, HIGH), (300, LOW)), lasts_s=1500),
        Shape("noisy day", _noisy_day(60, seed=1), lasts_s=3600),
    )
}


def long_enough(shape: Shape, pod_start_s: float) -> float:
    """Seconds to look at it when pods start so slowly: two rounds of pods more."""
    return shape.lasts_s + 2 * pod_start_s


def times(begin: float, end: float, step_s: float) -> Sequence[float]:
    """Evenly from `begin` on, `end` left out."""
    return [begin + index * step_s for index in range(math.ceil(round((end - begin) / step_s, 6)))]
