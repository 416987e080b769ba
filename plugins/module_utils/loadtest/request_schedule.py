# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""What the load generator of the role gpu_loadtest reads: how many requests when, and how they are counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .shapes import LOAD, Stage

# A level of users is given up at the latest after so many times its seconds (locustfile.py), and so many levels there
# are at most: doublings up to 1024 users, and three between.
_LONGEST, _MOST_LEVELS = 3, 14
# Of the requests of a level, where no goal says otherwise. Users of a full server wait less than those of a busy one.
REJECTED_PERCENT = 1.0


def load_plan(plan: Mapping[str, Any], stages: Sequence[Stage]) -> dict[str, Any]:
    """The plan of a load that follows `stages`.

    plan: `url`, `method`, `body`, `headers`, `timeout_s` of a request and `most_users` at a time. Numbers may be text.
    Returns: the same with `stages` and `parts`: one for each stage, and the last for the second half of the time for
             which the load is held. Their ends are in seconds from the first request.
    """
    return {**_numbers(plan), "stages": [asdict(stage) for stage in stages], "parts": list(_parts(stages))}


def sweep_plan(
    plan: Mapping[str, Any], goals: Mapping[str, Any], *, settle_s: float, level_s: float, users: Sequence[int] = ()
) -> dict[str, Any]:
    """The plan of a search for a target: `level_s` seconds for each number of users, after `settle_s` uncounted ones.

    users: these numbers; without them as many as show the goal and the knee.
    """
    met = {"rejected_percent": REJECTED_PERCENT} | {
        name: float(goal) for name, goal in goals.items() if goal is not None
    }
    sweep = {"settle_s": settle_s, "level_s": level_s, "users": list(users), "goals": met}
    return {**_numbers(plan), "sweep": sweep}


def longest_s(sweep: Mapping[str, Any]) -> float:
    """Seconds that such a search takes at most. Numbers may be text."""
    levels = len(sweep["users"]) or _MOST_LEVELS
    return levels * (float(sweep["settle_s"]) + _LONGEST * float(sweep["level_s"]))


def _numbers(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {**plan, "timeout_s": float(plan["timeout_s"]), "most_users": int(plan["most_users"])}


def _parts(stages: Sequence[Stage]) -> Iterator[dict[str, float]]:
    begins_s, held = 0.0, None
    for stage in stages:
        ends_s = begins_s + stage.seconds
        yield {"begins_s": begins_s, "ends_s": ends_s}
        if stage.name == LOAD:
            held = {"begins_s": begins_s + stage.seconds / 2, "ends_s": ends_s}
        begins_s = ends_s
    if held:
        yield held
