# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Iterator

from ...autoscaling.spec import EXTERNAL
from ...diagnosis.check import CheckResult, FindingType, check
from ...errors import enumeration
from ...hops import Hop
from ..objects import youngest
from ..state.api import ApiState
from ..state.cluster import State
from ..state.metric import MetricState

METRIC_IN_CAPITALS = FindingType(
    "METRIC_IN_CAPITALS",
    Hop.METRIC,
    "error",
    cause="HPAs ask for external metrics in lower case",
    fix="give the metric a name in lower case where it is made",
)
METRIC_NOT_LISTED = FindingType(
    "METRIC_NOT_LISTED",
    Hop.METRIC,
    "error",
    cause="the API does not offer the metric: no rule of the adapter makes it of a series, or the series has no "
    "samples",
    fix="ask Prometheus for {series}. If it has samples, run the prometheus_adapter role: its rules make a metric of "
    "each recorded series. An adapter of somebody else needs these rules, which docs/existing-clusters.md has",
    is_consequence=True,
)
METRIC_WITHOUT_VALUE = FindingType(
    "METRIC_WITHOUT_VALUE",
    Hop.METRIC,
    "error",
    cause="the API gives no value for these objects: the series lacks them, or the adapter's rule loses the labels "
    "namespace and pod",
    fix="ask Prometheus for {series} with these labels. If it is there, mend the query of {owner}: it has to keep "
    "namespace and pod (by (<<.GroupBy>>))",
    # Rules ignore rows older than 90 s, but Prometheus returns the rows of a removed target for its lookback of 300 s.
    # Until these are gone, nothing shows that a monitor is the cause.
    grace_s=240,
    is_consequence=True,
)
METRIC_DISAGREES = FindingType(
    "METRIC_DISAGREES",
    Hop.METRIC,
    "warning",
    cause="the API gives another value than Prometheus has recorded: it asks another Prometheus, or a second rule "
    "makes the metric",
    fix="see --prometheus-url of the adapter, and its rules for a second one of that name",
    grace_s=120,
)


@check(
    "each pod has a value, and Prometheus' one",
    METRIC_IN_CAPITALS,
    METRIC_NOT_LISTED,
    METRIC_WITHOUT_VALUE,
    METRIC_DISAGREES,
    needs=("metrics",),
)
def values(state: State) -> Iterator[CheckResult]:
    apis = {api.group: api for api in state.apis}
    for autoscaler in state.autoscalers:
        name, affected = autoscaler.name, state.affected_by([autoscaler])
        reached = affected | {f"node {node}" for node in autoscaler.nodes}
        for metric in autoscaler.metrics:
            api = apis.get(metric.group, ApiState(metric.group))
            settled_s = [
                state.rule_age_s(metric.series),
                *(state.clock.condition_age_s(pod, "Ready") for pod in api.pods),
            ]
            missing = metric.missing_in_api
            missing_s = state.missing_for_s(autoscaler, missing, of_gpus=metric.is_of_gpus)
            age_s = youngest([missing_s, *settled_s, state.prometheus_age_s])
            template_vars = {"owner": api.owner or metric.group, "series": metric.series or "its series"}
            # Others list one name for all that they serve, or a few of them: only prometheus-adapter's list is whole.
            if missing and metric.type == EXTERNAL and metric.name != metric.name.lower():
                seen = f"no value of {metric.name}: HPAs ask in lower case, for {metric.name.lower()}"
                yield CheckResult(METRIC_IN_CAPITALS, name, seen, reached)
            elif missing and metric.listed is False and api.is_prometheus_adapter:
                others = [other for other in sorted(api.listed or ()) if other.rpartition("/")[2] == metric.name]
                seen = f"{api.owner} lists {len(api.listed or ())} metrics, no {metric.name} for {enumeration(missing)}"
                seen += f", but {enumeration(others)}" if others else ""
                grace_s = 2 * api.relist_s + autoscaler.lag_s
                yield CheckResult(METRIC_NOT_LISTED, name, seen, reached, age_s, grace_s, template_vars)
            elif missing:
                seen = f"no {metric.name} for {enumeration(missing)}{metric.refusal and f': {metric.refusal}'}"
                yield CheckResult(METRIC_WITHOUT_VALUE, name, seen, reached, age_s, autoscaler.lag_s, template_vars)
            elif metric.disagreeing:
                seen = _difference(metric, metric.disagreeing[0])
                yield CheckResult(METRIC_DISAGREES, name, seen, affected, youngest(settled_s), autoscaler.lag_s)


def _difference(metric: MetricState, name: str) -> str:
    samples = metric.recorded[name]
    recorded = f"Prometheus recorded {min(samples):g} to {max(samples):g}"
    return f"{metric.name} of {name} is {metric.values[name]:g}, {recorded}"


def summary(state: State) -> str:
    return f"{sum(len(autoscaler.metrics) for autoscaler in state.autoscalers)} metrics are looked at"


def nothing(state: State) -> str:
    expected = any(metric.expected_objects for autoscaler in state.autoscalers for metric in autoscaler.metrics)
    return "" if expected else "no ready pod of an autoscaler has to have a value"
