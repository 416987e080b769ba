# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads the options of a dcgm-exporter."""

from __future__ import annotations

from ..kube.objects import Manifest, arguments, environment, flag

_STOCK_COLLECT_S = 30.0


def given_collect_interval_s(container: Manifest) -> float | None:
    """Seconds between two readings of the GPUs, by dcgm-exporter's arguments or environment in milliseconds."""
    given = flag(container, "-c", "--collect-interval"), environment(container).get("DCGM_EXPORTER_INTERVAL", "")
    # A shell also has -c, followed by a script.
    return next((float(value) / 1000 for value in given if value.isdecimal()), None)


def collect_interval_s(container: Manifest) -> float:
    return given_collect_interval_s(container) or _STOCK_COLLECT_S


def repeats_values(collect_s: float, scrape_s: float) -> bool:
    """Whether Prometheus scrapes the same reading several times; the defaults (30 s and 15 s) repeat one only once."""
    return collect_s > 2 * scrape_s + 1  # samples are off by milliseconds


def names_pods(container: Manifest) -> bool:
    """Whether dcgm-exporter is configured to name pods."""
    told = environment(container).get("DCGM_EXPORTER_KUBERNETES", "").lower()
    return told in ("true", "1") or any(
        argument in ("-k", "--kubernetes", "--kubernetes=true") for argument in arguments(container)
    )
