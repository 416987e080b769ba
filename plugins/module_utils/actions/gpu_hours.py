# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""GPU hours by week, namespace and workload, from the series that role gpu_alerts records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from ..autoscaling.promql import one_of
from ..cluster.errors import ApiError, QueryError
from ..cluster.prometheus import PrometheusClient, Series
from ..errors import HopError
from ..hops import Hop
from .outcome import Outcome

Answer = TypeVar("Answer")

# The hop of errors about invalid options.
HOURS = "GPU hours"
MOST_WEEKS = 260
# roles/gpu_alerts/files/hours.yml records once a minute.
SAMPLES_PER_HOUR = 60
_WEEK = timedelta(weeks=1)
# Precision of the start of the data.
_STEP = timedelta(minutes=10)
# By the names of the queries' results.
_OF_WORKLOADS = {
    "gpu_hours": "namespace_workload:gpus_held:sum",
    "busy_hours": "namespace_workload:gpus_busy:sum",
    "idle_hours": "namespace_workload:gpus_idle:sum",
}
_OFFERED = "cluster:gpus_offered:sum"
_OF_CLUSTER = {
    "offered_hours": ("sum_over_time", _OFFERED),
    "free_hours": ("sum_over_time", "cluster:gpus_free:sum"),
    "recorded_hours": ("count_over_time", _OFFERED),
}
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class Week:
    """Seven days from a Monday, 0:00 UTC; the current week ends now."""

    start: datetime
    end: datetime

    @property
    def promql(self) -> str:
        return f"[{int((self.end - self.start).total_seconds())}s] @ {int(self.end.timestamp())}"


def weeks_until(now: datetime, number: int) -> list[Week]:
    """The current week and those before it, oldest first."""
    monday = (now - timedelta(days=now.weekday())).replace(hour=0, minute=0, second=0, microsecond=0)
    # A range needs at least a second, so the first second of Monday belongs to the week before.
    monday -= _WEEK * (now - monday < timedelta(seconds=1))
    starts = [monday - _WEEK * back for back in reversed(range(number))]
    return [Week(start, min(start + _WEEK, now)) for start in starts]


def read_hours(
    prometheus: PrometheusClient, replicas: Sequence[PrometheusClient] = (), *, weeks: int, namespaces: Sequence[str]
) -> Outcome:
    """Reads the GPU hours, and changes nothing.

    replicas: pods behind the Service of Prometheus, if there are several and they may be queried. Each of them
              records for itself, so each week is read from the pod with the most data.
    Raises: HopError if an option is invalid or nothing is recorded; ApiError if Prometheus does not answer.
    """
    _refuse(weeks, namespaces)
    now = datetime.fromtimestamp(_clock(prometheus), UTC)
    try:
        wanted = weeks_until(now, weeks)
        begins = _of_each(prometheus, replicas, lambda client: _recorded_since(client, wanted))
        since = min(filter(None, begins), default=None)
        if since is None:
            raise _nothing_recorded(prometheus, wanted[0].start)
        found = [_fullest(week, prometheus, replicas, _query(week, namespaces)) for week in wanted]
    except QueryError as err:
        fix = "check that Prometheus is 2.33 or later, and its limits on queries"
        raise HopError(HOURS, f"Prometheus {prometheus.name} rejects the query: {err}", fix) from err
    result = {"recorded_since": written(since), "weeks": found, "workloads": totals(found)}
    return Outcome(result=result, warnings=list(_late(since, wanted)))


def _of_each(
    prometheus: PrometheusClient, replicas: Iterable[PrometheusClient], ask: Callable[[PrometheusClient], Answer]
) -> list[Answer]:
    """A replica that does not answer is skipped."""
    found = [ask(prometheus)]
    for replica in replicas:
        with suppress(ApiError):
            found.append(ask(replica))
    return found


def _fullest(
    week: Week, prometheus: PrometheusClient, replicas: Iterable[PrometheusClient], query: str
) -> dict[str, Any]:
    answers = _of_each(prometheus, replicas, lambda client: _of_week(week, client.query(query)))
    return max(answers, key=lambda answer: answer["recorded_hours"])


def _clock(prometheus: PrometheusClient) -> float:
    """Time of the Prometheus; errors contain its name."""
    try:
        return prometheus.query("time()")[0].values[0]
    except ApiError as err:
        if err.status in (401, 403):
            raise
        fix = "check that it runs, and that the option prometheus has its service or its url"
        raise HopError(HOURS, f"Prometheus {prometheus.name} does not answer", fix, cause=str(err)) from err


def _refuse(weeks: int, namespaces: Sequence[str]) -> None:
    if not 1 <= weeks <= MOST_WEEKS:
        raise HopError(HOURS, f"weeks is {weeks}", f"set it to 1 to {MOST_WEEKS}")
    for namespace in namespaces:
        if not _NAMESPACE.fullmatch(namespace):
            raise HopError(HOURS, f"namespaces has {namespace!r}", "list names of namespaces, for example ml")


def written(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _recorded_since(prometheus: PrometheusClient, weeks: Sequence[Week]) -> datetime | None:
    """Start of the data in the weeks; None without data."""
    length, step = int((weeks[-1].end - weeks[0].start).total_seconds()), int(_STEP.total_seconds())
    query = f"min(min_over_time(timestamp({_OFFERED})[{length}s:{step}s]))"
    # Samples younger than a step are not found.
    found = prometheus.query(query) or prometheus.query(f"min(timestamp({_OFFERED}))")
    return datetime.fromtimestamp(found[0].values[0], UTC) if found else None


def _nothing_recorded(prometheus: PrometheusClient, start: datetime) -> HopError:
    """Why there are no data: no rule, a failing rule, or no GPU that the rule could see."""
    series = _OF_WORKLOADS["gpu_hours"]
    seen = f"Prometheus {prometheus.name} has no GPU hours since {start:%Y-%m-%d}"
    try:
        rules = [rule for rule in prometheus.recording_rules() if rule["name"] in (series, _OFFERED)]
    except (ApiError, QueryError):  # a proxy in front of several Prometheus may not know its rules
        return HopError(
            Hop.RULE,
            seen,
            "check that Prometheus evaluates the rules of role gpu_alerts (docs/monitoring.md, GPU hours)",
        )
    if not rules:
        fix = "run playbooks/monitoring.yml with gpu_alerts_state=present, then run again after some minutes"
        return HopError(Hop.RULE, seen, fix, cause=f"it has no rule that records {series}")
    if broken := next((rule for rule in rules if rule.get("lastError")), None):
        fix = "check the log of Prometheus for the rule group kubegpu-records-hours"
        return HopError(Hop.RULE, seen, fix, cause=f"its rule {broken['name']} fails: {broken['lastError']}")
    fix = "check that kube-state-metrics is scraped and nodes offer GPUs, then run again after some minutes"
    return HopError(Hop.RULE, seen, fix, cause="its rules are loaded, and have found no node that offers GPUs")


def _query(week: Week, namespaces: Sequence[str]) -> str:
    """One query for all; each result has its name in the label `of`. Values of several replicas count once."""
    which = f"{{{one_of('namespace', namespaces)}}}" if namespaces else ""
    parts = {
        name: f"max by (namespace, workload) (sum_over_time({series}{which}{week.promql}))"
        for name, series in _OF_WORKLOADS.items()
    } | {name: f"max ({operation}({series}{week.promql}))" for name, (operation, series) in _OF_CLUSTER.items()}
    return " or ".join(f'label_replace({query}, "of", "{name}", "", "")' for name, query in parts.items())


def _of_week(week: Week, found: Iterable[Series]) -> dict[str, Any]:
    cluster = dict.fromkeys(_OF_CLUSTER, 0.0)
    workloads: dict[tuple[str, str], dict[str, float]] = {}
    for series in found:
        name, hours = series.labels["of"], series.values[-1] / SAMPLES_PER_HOUR
        if name in cluster:
            cluster[name] = hours
        else:
            key = series.labels.get("namespace", ""), series.labels.get("workload", "")
            workloads.setdefault(key, dict.fromkeys(_OF_WORKLOADS, 0.0))[name] = hours
    rows = _rows(workloads)
    return {
        "start": written(week.start),
        "end": written(week.end),
        **{name: _rounded(hours) for name, hours in cluster.items()},
        **_row(_sum(workloads.values())),
        "workloads": rows,
    }


def _rows(workloads: Mapping[tuple[str, str], Mapping[str, float]]) -> list[dict[str, Any]]:
    """Sorted by GPU hours, descending."""
    order = sorted(workloads, key=lambda key: (-workloads[key]["gpu_hours"], key))
    return [{"namespace": key[0], "workload": key[1], **_row(workloads[key])} for key in order]


def _row(hours: Mapping[str, float]) -> dict[str, Any]:
    """unknown_hours: held GPUs of unknown load. idle_share: share of the other hours; None without any."""
    known = hours["busy_hours"] + hours["idle_hours"]
    return {
        **{name: _rounded(hours[name]) for name in _OF_WORKLOADS},
        "unknown_hours": _rounded(max(hours["gpu_hours"] - known, 0)),
        "idle_share": round(hours["idle_hours"] / known, 4) if known > 0 else None,
    }


def _rounded(hours: float) -> float:
    """Rounded to half a minute."""
    return round(hours, 2)


def _sum(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    whole = dict.fromkeys(_OF_WORKLOADS, 0.0)
    for part in parts:
        for name in whole:
            whole[name] += part[name]
    return whole


def totals(weeks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Sum of each workload over all weeks."""
    by_key: dict[tuple[str, str], list[Mapping[str, float]]] = {}
    for week in weeks:
        for row in week["workloads"]:
            by_key.setdefault((row["namespace"], row["workload"]), []).append(row)
    return _rows({key: _sum(rows) for key, rows in by_key.items()})


def _late(since: datetime, weeks: Sequence[Week]) -> Iterator[str]:
    start = weeks[0].start
    if since - start > 2 * _STEP:
        yield (
            f"GPU hours: the data of Prometheus begin at {since:%Y-%m-%d %H:%M} UTC, after {start:%Y-%m-%d}. "
            f"Hours before that are empty. Next: to keep {len(weeks)} weeks, set prometheus_stack_retention "
            f"to {7 * len(weeks)}d and provide the space."
        )
