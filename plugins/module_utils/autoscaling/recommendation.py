# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Recommends one of several settings: the one with the fewest GPU-minutes whose pods are rarely overloaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .replay import Replay


@dataclass(frozen=True)
class Recommendation:
    """name: of the setting; None if all of them exceed the limit. sentence: the reason, with its numbers."""

    name: str | None
    sentence: str


def recommend(
    replays: Mapping[str, Replay], *, today: str, gpus_per_replica: int, bound_minutes: float
) -> Recommendation:
    """replays: by name of the setting, `today` among them.

    bound_minutes: allowed minutes of overload, inclusive.
    """
    minutes = {name: replay.replica_minutes * gpus_per_replica for name, replay in replays.items()}
    good = [name for name, replay in replays.items() if replay.overload_minutes <= bound_minutes]

    def cost(name: str) -> str:
        return f"{replays[name].overload_minutes:,.4g} minutes of overload and {minutes[name]:,.0f} GPU-minutes"

    if not good:
        least = min(replays, key=lambda name: (replays[name].overload_minutes, minutes[name]))
        return Recommendation(
            None,
            f"none of {len(replays)} settings keeps overload within {bound_minutes:g} minutes; {least} has the least: "
            f"{cost(least)}",
        )
    # The current setting wins a tie, because a change that saves nothing is not worthwhile.
    best = min(good, key=lambda name: (round(minutes[name], 3), name != today))
    if best == today:
        return Recommendation(best, f"stay with {today}: {cost(best)}, {_beaten(replays, good, bound_minutes)}")
    return Recommendation(
        best, f"take {best}: {cost(best)}, within {bound_minutes:g} minutes; {today} has {cost(today)}"
    )


def _beaten(replays: Mapping[str, Replay], good: Sequence[str], bound_minutes: float) -> str:
    if len(good) == len(replays):
        return f"the fewest of {len(replays)} settings"
    more = len(replays) - len(good)
    return f"the fewest of {len(good)} settings within {bound_minutes:g} minutes, which {more} exceed"
