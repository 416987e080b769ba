"""From recorded series to hours. Its PromQL is run in tests/integration/test_gpu_hours_info.py."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions import gpu_hours
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.gpu_hours import read_hours, weeks_until
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError, QueryError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus import Series
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from collection import ROOT

MONDAY = datetime(2026, 11, 16, tzinfo=UTC)
NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
CHAT = {"namespace": "ml", "workload": "chat"}


class Recording:
    """A Prometheus that remembers what it was asked, and gives the first answer whose words are in the query."""

    name = "monitoring/prometheus:9090"

    def __init__(self, answers: Mapping[str, Any], rules: Any = ()) -> None:
        self.asked: list[str] = []
        self._answers = {"time()": values(NOW.timestamp()), **answers}
        self._rules = rules

    def query(self, promql: str) -> list[Series]:
        self.asked.append(promql)
        found = next((found for words, found in self._answers.items() if words in promql), [])
        if isinstance(found, Exception):
            raise found
        return found

    def recording_rules(self) -> list[dict[str, Any]]:
        if isinstance(self._rules, Exception):
            raise self._rules
        return list(self._rules)


def values(value: float, **labels: str) -> list[Series]:
    return [Series(labels, (value,))]


def read(prometheus: Recording, *replicas: Recording, weeks: int = 2, namespaces: list[str] | None = None) -> Any:
    return read_hours(prometheus, replicas, weeks=weeks, namespaces=namespaces or [])  # type: ignore[arg-type]


def test_a_week_begins_on_monday_and_the_running_one_ends_now() -> None:
    first, second = weeks_until(NOW, 2)
    assert (first.start, first.end) == (MONDAY, datetime(2026, 11, 23, tzinfo=UTC))
    assert (second.start, second.end) == (first.end, NOW)
    assert second.promql == f"[216000s] @ {int(NOW.timestamp())}"
    assert [week.start for week in weeks_until(MONDAY, 1)] == [datetime(2026, 11, 9, tzinfo=UTC)]


def test_samples_are_minutes_and_what_is_neither_busy_nor_idle_is_unknown() -> None:
    at = f"@ {int(datetime(2026, 11, 23, tzinfo=UTC).timestamp())}"
    prometheus = Recording(
        {
            "timestamp": values(MONDAY.timestamp()),
            at: [
                *values(6000, of="gpu_hours", **CHAT),
                *values(1800, of="busy_hours", **CHAT),
                *values(3600, of="idle_hours", **CHAT),
                *values(9000, of="gpu_hours", namespace="research", workload="notebook"),
                *values(10080, of="recorded_hours"),
                *values(40320, of="offered_hours"),
                *values(25320, of="free_hours"),
            ],
            "sum_over_time": values(600, of="gpu_hours", **CHAT),
        }
    )
    outcome = read(prometheus)
    assert (outcome.changed, outcome.warnings) == (False, [])
    whole, running = outcome.result["weeks"]
    assert (whole["start"], whole["end"]) == ("2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z")
    assert (whole["recorded_hours"], whole["offered_hours"], whole["free_hours"]) == (168, 672, 422)
    assert (whole["gpu_hours"], whole["busy_hours"], whole["idle_hours"]) == (250, 30, 60)
    notebook, chat = whole["workloads"]
    assert notebook == {
        "namespace": "research", "workload": "notebook",
        "gpu_hours": 150, "busy_hours": 0, "idle_hours": 0, "unknown_hours": 150, "idle_share": None,
    }  # fmt: skip
    assert (chat["gpu_hours"], chat["unknown_hours"], chat["idle_share"]) == (100, 10, 0.6667)
    assert running["recorded_hours"] == 0
    assert [row["gpu_hours"] for row in outcome.result["workloads"]] == [150, 110]
    assert outcome.result["recorded_since"] == "2026-11-16T00:00:00Z"


def test_of_several_replicas_the_one_with_most_of_a_week_tells_it() -> None:
    """The Service asks any of them, and one that has lost its disk begins anew."""

    def recording(since: datetime, whole_week: int, running_week: int) -> Recording:
        def week(minutes: int) -> list[Series]:
            return [*values(minutes, of="recorded_hours"), *values(minutes, of="gpu_hours", **CHAT)]

        at = f"@ {int(datetime(2026, 11, 23, tzinfo=UTC).timestamp())}"
        return Recording(
            {"timestamp": values(since.timestamp()), at: week(whole_week), "sum_over_time": week(running_week)}
        )

    fresh, old = recording(NOW, 0, 3600), recording(MONDAY, 10080, 60)
    away = Recording({"sum_over_time": ApiError(503, "no endpoints", "query")})
    result = read(fresh, old, away).result

    assert result["recorded_since"] == "2026-11-16T00:00:00Z"
    assert [week["gpu_hours"] for week in result["weeks"]] == [168, 60]


def test_namespaces_choose_workloads_and_not_the_cluster() -> None:
    prometheus = Recording({"timestamp": values(NOW.timestamp())})
    read(prometheus, weeks=1, namespaces=["ml", "lab"])
    query = prometheus.asked[-1]
    assert 'namespace_workload:gpus_idle:sum{namespace=~"ml|lab"}[216000s]' in query
    assert "cluster:gpus_free:sum[216000s]" in query


def test_weeks_before_the_first_data_are_told() -> None:
    [warning] = read(Recording({"timestamp": values(NOW.timestamp() - 3600)}), weeks=4).warnings
    assert "begin at 2026-11-25 11:00 UTC, after 2026-11-02" in warning
    assert "set prometheus_stack_retention to 28d" in warning


def test_what_is_younger_than_a_step_is_found() -> None:
    prometheus = Recording({"min(timestamp(": values(NOW.timestamp())})
    assert read(prometheus).result["recorded_since"] == "2026-11-25T12:00:00Z"


@pytest.mark.parametrize(
    ("rules", "seen"),
    [
        ((), "it has no rule that records namespace_workload:gpus_held:sum"),
        ([{"name": "cluster:gpus_offered:sum", "lastError": "many-to-many"}], "sum fails: many-to-many"),
        ([{"name": "cluster:gpus_offered:sum"}], "found no node that offers GPUs"),
        (ApiError(404, "no such page", "rules"), "check that Prometheus evaluates the rules of role gpu_alerts"),
    ],
)
def test_where_nothing_is_recorded_the_reason_is_named(rules: Any, seen: str) -> None:
    with pytest.raises(HopError, match="monitoring/prometheus:9090 has no GPU hours since 2026-11-16") as told:
        read(Recording({}, rules))
    assert seen in str(told.value)
    assert (told.value.hop, bool(told.value.fix)) == ("rule", True)


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({"weeks": 0}, "weeks is 0\n  fix: set it to 1 to 260"),
        ({"weeks": 261}, "weeks is 261"),
        ({"namespaces": ['ml"} or vector(1']}, "namespaces has"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_asked(options: dict[str, Any], seen: str) -> None:
    prometheus = Recording({})
    with pytest.raises(HopError, match=seen):
        read(prometheus, **options)
    assert prometheus.asked == []


@pytest.mark.parametrize(
    ("found", "seen"),
    [
        (ApiError(503, "no endpoints", "query"), "does not answer.*no endpoints"),
        (QueryError("too many samples"), "rejects the query: too many samples"),
    ],
)
def test_a_prometheus_that_does_not_answer_is_named(found: Exception, seen: str) -> None:
    words = "time()" if isinstance(found, ApiError) else "timestamp"
    with pytest.raises(HopError, match="(?s)monitoring/prometheus:9090 " + seen):
        read(Recording({words: found}))


def test_a_right_that_is_missing_is_told_as_such() -> None:
    with pytest.raises(ApiError):
        read(Recording({"time()": ApiError(403, "forbidden", "query")}))


def test_what_is_asked_for_is_recorded_once_a_minute() -> None:
    [group] = yaml.safe_load((ROOT / "roles" / "gpu_alerts" / "files" / "hours.yml").read_text())["groups"]
    asked = {*gpu_hours._OF_WORKLOADS.values(), *(series for _operation, series in gpu_hours._OF_CLUSTER.values())}
    assert asked <= {rule["record"] for rule in group["rules"]}
    assert (group["interval"], gpu_hours.SAMPLES_PER_HOUR) == ("1m", 60)
