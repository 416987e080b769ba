# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""PromQL of the decision that the HPA controller makes on a Pods metric, for an HPA that gets External metrics.

The controller ignores the states of pods for an External metric, so Prometheus applies its arithmetic (replicas.py) and
records two series per workload, which the HPA combines by its rule that the largest proposal wins:

desired_replicas  target type AverageValue, target 1: proposes this number of replicas, and 0 the current number.
unchanged         target type Value, target 1: 1 proposes `spec.replicas` as the controller reads it in the same
                  evaluation, 0 proposes none.

So an unchanged number needs no copy of the current count, which would be a scrape old. Both series need a tolerance of
0 in the HPA: the tolerance of the autoscaler is part of the rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent

from .pod_owners import FROZEN_STATES, STATUS_REPLICAS, owners
from .promql import quoted
from .replicas import Tolerance, in_thousandths

Recording = tuple[str, str]

# kube-state-metrics' series of the desired replicas, and its label of the workload, by kind.
_SPEC_REPLICAS = {
    "Deployment": ("deployment", "kube_deployment_spec_replicas"),
    "StatefulSet": ("statefulset", "kube_statefulset_replicas"),
}
# All decisions need these series of kube-state-metrics: states of pods, and to which workloads they belong.
POD_STATES = ("kube_pod_status_phase", "kube_pod_owner")
WORKLOAD_TYPES = {"Deployment": "deployment", "StatefulSet": "statefulset"}

_OF_WORKLOAD = "namespace, workload, workload_type"

# The HPA reads `desired_replicas` before `unchanged`. If an evaluation happens between them, two zeros would propose
# the minimum. So `unchanged` remains 1 for longer than the time between two reads: KEDA gives a query 3 s.
HELD_S = 10


@dataclass(frozen=True)
class Decisions:
    """Names of the series recorded for the workloads that scale on one metric."""

    metric: str

    @property
    def target(self) -> str:
        return f"namespace_workload:{self.metric}_target:milli"

    @property
    def lowest(self) -> str:
        """The lowest ratio of usage to target at which the count does not change."""
        return f"namespace_workload:{self.metric}_tolerance:lowest"

    @property
    def highest(self) -> str:
        return f"namespace_workload:{self.metric}_tolerance:highest"

    @property
    def ratio(self) -> str:
        """Usage of the pods that have a value, relative to their target."""
        return self._of("ratio")

    @property
    def value(self) -> str:
        """Value of each counted pod, in thousandths."""
        return f"namespace_workload_pod:{self.metric}_decision:value"

    @property
    def desired_replicas(self) -> str:
        return self._of("desired_replicas")

    @property
    def unchanged(self) -> str:
        """1 if the number of replicas does not change."""
        return self._of("unchanged")

    def _of(self, part: str) -> str:
        return f"namespace_workload:{self.metric}_decision:{part}"

    def of_target(self, value: float, tolerance: Tolerance) -> list[Recording]:
        """Inputs of one workload for the shared rule: target and tolerance, as the controller reads them."""
        lowest, highest = tolerance.band
        return [
            (self.target, f"vector({in_thousandths(value)})"),
            (self.lowest, f"vector({lowest!r})"),
            (self.highest, f"vector({highest!r})"),
        ]

    def recordings(self, values: str, interval_s: int, namespace: str = "") -> Iterator[Recording]:
        """Rules for all workloads with a target, in the order of evaluation. Workloads without a value get no decision.

        values:     recorded series of the metric, one per namespace and pod.
        interval_s: between two evaluations.
        namespace:  limits the rules to one namespace; empty for all.
        """
        within = f"{{namespace={quoted(namespace)}}}" if namespace else ""
        states = ",".join(filter(None, (within.strip("{}"), "<kube_state_metrics>")))
        owned, pods = (f"namespace_workload_pod:{self.metric}_decision:{part}" for part in ("owned", "pods"))
        value = self.value
        # A pod that two phases have at once is in none.
        pending, running, failed = (
            f'(max by (namespace, pod) (kube_pod_status_phase{{phase="{phase}",{states}}}) == 1)'
            for phase in ("Pending", "Running", "Failed")
        )
        pending, failed = (f"({phase} unless {running})" for phase in (pending, failed))
        active = (
            f"({owned}{within} unless on (namespace, pod) kube_pod_deletion_timestamp{{{states}}} "
            f"unless on (namespace, pod) {failed})"
        )
        # The status of a StatefulSet counts terminating pods, too.
        counted = {"Deployment": active, "StatefulSet": f"{owned}{within}"}
        lost = " or ".join(
            f"({_by_workload(series, label, kind, states)} > on ({_OF_WORKLOAD}) "
            f"count by ({_OF_WORKLOAD}) ({counted[kind]}))"
            for kind, (label, series) in STATUS_REPLICAS.items()
        )
        with_value, missing, waiting = self._of("values"), self._of("missing"), self._of("pending")
        total, counted_pods = self._of("total"), self._of("counted_pods")
        adjusted_ratio, proposed_replicas = self._of("adjusted_ratio"), self._of("proposed_replicas")
        yield (
            owned,
            f"{owners(namespace)}\nand on ({_OF_WORKLOAD})\n{self.target}{within}\nunless on ()\n{FROZEN_STATES}",
        )
        yield pods, f"{active}\nunless on ({_OF_WORKLOAD})\n({lost})"
        yield _recording(
            value,
            f"""
            {pods}{within}
            * on (namespace, pod) group_left ()
            floor(1000 * max by (namespace, pod) ({values}{within} < Inf))
            unless on (namespace, pod)
            {pending}""",
        )
        yield with_value, f"count by ({_OF_WORKLOAD}) ({value}{within})"
        yield total, f"sum by ({_OF_WORKLOAD}) ({value}{within})"
        yield _recording(
            waiting,
            f"""
            count by ({_OF_WORKLOAD}) (
              {pods}{within}
              and on (namespace, pod)
              {pending}
            )
            or
            0 * {with_value}{within}""",
        )
        yield _recording(
            missing,
            f"""
            count by ({_OF_WORKLOAD}) (
              {pods}{within}
              unless on (namespace, pod)
              {value}{within}
              unless on (namespace, pod)
              {pending}
            )
            or
            0 * {with_value}{within}""",
        )
        yield self.ratio, f"floor({total}{within} / {with_value}{within}) / {self.target}{within}"
        ratio, goal = f"{self.ratio}{within}", f"{self.target}{within}"
        yield _recording(
            counted_pods,
            f"""
            {with_value}{within}
            + {missing}{within} * ({ratio} != bool 1)
            + {waiting}{within} * ({ratio} > bool 1)""",
        )
        yield _recording(
            adjusted_ratio,
            f"""
            floor(
              ({total}{within} + {missing}{within} * {goal} * ({ratio} < bool 1)) / {counted_pods}{within}
            ) / {goal}""",
        )
        adjusted, count = f"{adjusted_ratio}{within}", f"{counted_pods}{within}"
        proposal = f"{proposed_replicas}{within}"
        yield _recording(
            proposed_replicas,
            f"""
            ceil({adjusted} * {count})
            unless ({adjusted} >= {self.lowest}{within} <= {self.highest}{within})
            unless (({ratio} - 1) * ({adjusted} - 1) < 0)""",
        )
        # The proposal if all pods have a value. Otherwise never against the direction; an unknown count is kept.
        agreed = f"({proposal} and {count} == {with_value}{within})"
        fewer = f"(({proposal} and {adjusted} < 1) < {self._of('current')}{within})"
        yield self._of("current"), self._current(within, states)
        yield _recording(
            self.desired_replicas,
            f"""
            {agreed}
            or
            ({proposal} and {adjusted} > 1)
            or
            {fewer}
            or
            0 * {with_value}{within}""",
        )
        yield _recording(
            self._of("unchanged_now"),
            f"""
            0 * {agreed}
            or
            0 * {fewer}
            or
            {with_value}{within} ^ 0""",
        )
        held_s = max(HELD_S, 3 * interval_s)
        yield self.unchanged, f"max_over_time({self._of('unchanged_now')}{within}[{held_s}s]) and {with_value}{within}"

    def _current(self, within: str, states: str) -> str:
        """Desired replicas of the workload, from the last scrape of kube-state-metrics."""
        return "\nor\n".join(
            f"0 * {self.target}{within}\n+ on ({_OF_WORKLOAD})\n{_by_workload(series, label, kind, states)}"
            for kind, (label, series) in _SPEC_REPLICAS.items()
        )


def _by_workload(series: str, label: str, kind: str, states: str) -> str:
    """PromQL: the largest value of each workload of a kind. label: with its name. states: matchers."""
    named = f'label_replace({series}{{{states}}}, "workload", "$1", "{label}", "(.+)")'
    return f'max by ({_OF_WORKLOAD}) (label_replace({named}, "workload_type", "{WORKLOAD_TYPES[kind]}", "", ""))'


def _recording(series: str, query: str) -> Recording:
    return series, _text(query)


def _text(query: str) -> str:
    return dedent(query).strip()
