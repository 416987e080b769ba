"""Requests of each second from ServeGen's description of clients: how data/servegen_m-large_per_second.csv.gz was made.

    python -m traces.servegen CLIENTS.csv.gz > servegen_m-large_per_second.csv

CLIENTS has one row for a client and ten minutes: client, start_s, requests_per_s, cv, law, shape. As in ServeGen, each
client is a renewal process with its coefficient of variation and law. A client that sends less keeps both.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from traces.loads import rows

WINDOW_S, DAY_S = 600, 86_400
FIRST_S, SHARE, SEED = DAY_S, 0.08, 7


def arrivals(row: dict[str, str], chance: np.random.Generator) -> np.ndarray:
    """Of a client in its ten minutes, seconds from their beginning on."""
    due, cv = float(row["requests_per_s"]) * SHARE * WINDOW_S, float(row["cv"] or 0)
    count = int(chance.poisson(due)) if due < 5 else int(np.ceil(due))
    if count < 2 or cv <= 0:
        return chance.random(count) * WINDOW_S
    if row["law"] == "Weibull":
        between = chance.weibull(max(float(row["shape"]), 0.15), count)
    else:
        between = chance.gamma(max(1 / cv**2, 0.02), 1, count)
    times = between.cumsum()
    times = times / times[-1] * WINDOW_S if times[-1] else chance.random(count) * WINDOW_S
    return (times + chance.random() * WINDOW_S) % WINDOW_S


def main() -> None:
    chance, counts = np.random.default_rng(SEED), np.zeros(DAY_S, int)
    for row in rows(Path(sys.argv[1])):
        start_s = float(row["start_s"]) - FIRST_S
        if 0 <= start_s < DAY_S and float(row["requests_per_s"]) > 0 and row["law"]:
            np.add.at(counts, (start_s + arrivals(row, chance)).astype(int) % DAY_S, 1)
    print("requests", *counts, sep="\n")


if __name__ == "__main__":
    main()
