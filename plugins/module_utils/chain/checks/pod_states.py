# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The states of pods in Prometheus, which the decisions for KEDA's HPAs are recorded from."""

from __future__ import annotations

from collections.abc import Iterator

from ...autoscaling.keda_rules import POD_STATES
from ...autoscaling.spec import KEDA, PODS
from ...diagnosis.check import CheckResult, Evidence, FindingTypes, check
from ...errors import enumeration
from ...hops import Hop
from ...kube.objects import youngest
from ..state.autoscaler import AutoscalerState
from ..state.cluster import State

_RULE = FindingTypes(Hop.RULE)

_START_GRACE_S = 120
# kube-prometheus-stack's scrape interval.
_SLOWEST_S = 30

RULE_NO_POD_STATES = _RULE.error(
    "RULE_NO_POD_STATES",
    cause="Prometheus lacks series of kube-state-metrics by which the rules decide for KEDA's HPA, so it has no value",
    fix="check that kube-state-metrics runs and is scraped",
    grace_s=_START_GRACE_S,
    is_consequence=True,
    evidence=(
        Evidence(
            r"has no kube_pod_owner$",
            "kube-state-metrics does not report the owners of pods, so the rules decide nothing for KEDA's HPA",
            "allow kube_pod_owner and kube_replicaset_owner in kube-state-metrics: metricAllowlist, metricDenylist",
        ),
    ),
)
RULE_POD_STATES_SLOW = _RULE.warning(
    "RULE_POD_STATES_SLOW",
    cause="the decision for KEDA's HPA knows new and terminating pods only after the next scrape of kube-state-metrics",
    fix="scrape kube-state-metrics at least every 30 s: kube-state-metrics.prometheus.monitor.interval of "
    "kube-prometheus-stack",
)


@check(
    "the states of pods are recorded for KEDA's HPAs",
    RULE_NO_POD_STATES,
    RULE_POD_STATES_SLOW,
    needs=("prometheus", "metrics"),
)
def pod_states(state: State) -> Iterator[CheckResult]:
    users = list(_deciding(state))
    if not users or state.prometheus.error:
        return
    found = {row.labels.get("__name__") for row in state.prometheus.pod_states}
    missing = [name for name in POD_STATES if name not in found]
    if missing:
        yield CheckResult(
            RULE_NO_POD_STATES,
            f"Prometheus {state.prometheus.name}",
            f"it has no {enumeration(missing)}",
            state.affected_by(users),
            youngest([state.prometheus_age_s, *(state.clock.longest_ready_s(user.ready_pods) for user in users)]),
        )
    slow = [row for row in state.prometheus.pod_states_every if row.value > _SLOWEST_S]
    for row in slow[:1]:
        seen = f"{'/'.join(filter(None, row.target))} is scraped every {row.value:.0f} s"
        yield CheckResult(RULE_POD_STATES_SLOW, "kube-state-metrics", seen)


def _deciding(state: State) -> Iterator[AutoscalerState]:
    """Autoscalers whose HPA reads a decision."""
    for autoscaler in state.autoscalers:
        if autoscaler.ready_pods and any(
            metric.backend == KEDA and metric.type == PODS for metric in autoscaler.metrics
        ):
            yield autoscaler
