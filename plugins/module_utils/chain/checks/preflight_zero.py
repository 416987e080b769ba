# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks of autoscalers with min_replicas: 0 against the cluster. They run only before a change."""

from __future__ import annotations

from collections.abc import Iterator

from ...autoscaling.backends import needs_scaled_object
from ...autoscaling.spec import Autoscaler
from ...diagnosis.check import CheckResult, FindingTypes, check
from ...formats.feature_gates import SCALE_TO_ZERO, SCALES_TO_ZERO_MINOR
from ...hops import Hop
from ...kube.objects import condition
from ..state.cluster import State

_SPEC = FindingTypes(Hop.SPEC)

# A total below this share of its target is noise rather than load.
_NOISE = 0.01

SPEC_ZERO_UNSUPPORTED = _SPEC.error(
    "SPEC_ZERO_UNSUPPORTED",
    cause=f"before Kubernetes 1.{SCALES_TO_ZERO_MINOR} an HPA scales to zero only with the feature gate "
    f"{SCALE_TO_ZERO}, of kube-apiserver and of kube-controller-manager",
    fix="set backend: keda, which scales to zero and back by itself (the role keda installs it); or upgrade Kubernetes "
    f"to 1.{SCALES_TO_ZERO_MINOR}; or set min_replicas to 1",
    before="refuse",
)


@check("the control plane scales to zero", SPEC_ZERO_UNSUPPORTED)
def zero_is_supported(state: State) -> Iterator[CheckResult]:
    if state.proposal.no_zero:
        for autoscaler in _to_zero(state, by_keda=False):
            seen = f"min_replicas is 0, and {state.proposal.no_zero}"
            yield CheckResult(SPEC_ZERO_UNSUPPORTED, f"autoscaler {autoscaler}", seen)


SPEC_ZERO_TOLERANCE = _SPEC.warning(
    "SPEC_ZERO_TOLERANCE",
    cause="a tolerance has no effect at zero replicas: any value above 0 wakes the workload",
    fix="let the query return 0 for what should not wake it",
    before="warn",
)


@check("a tolerance has an effect", SPEC_ZERO_TOLERANCE)
def zero_has_no_tolerance(state: State) -> Iterator[CheckResult]:
    for autoscaler in _to_zero(state):
        if (tolerance := autoscaler.given_scale_up.get("tolerance")) is not None:
            seen = f"min_replicas is 0, and scale_up.tolerance is {tolerance:g}"
            yield CheckResult(SPEC_ZERO_TOLERANCE, f"autoscaler {autoscaler}", seen)


SPEC_ZERO_WITHOUT_VALUE = _SPEC.warning(
    "SPEC_ZERO_WITHOUT_VALUE",
    cause="without a value the workload neither scales to zero nor wakes up",
    fix="if a missing series means that there is no load, append `or vector(0)` to the query",
    before="warn",
)
SPEC_ZERO_NOT_EXACT = _SPEC.warning(
    "SPEC_ZERO_NOT_EXACT",
    cause="any value above 0 asks for one replica, so the workload scales to zero only at exactly 0",
    fix="cut small values off in the query, for example `(sum(...) > 0.1) or vector(0)`",
    before="warn",
)


@check("the metrics reach zero", SPEC_ZERO_WITHOUT_VALUE, SPEC_ZERO_NOT_EXACT)
def zero_is_reached(state: State) -> Iterator[CheckResult]:
    for autoscaler in _to_zero(state):
        for target in autoscaler.metric_targets:
            name, total = target.metric.name, state.proposal.totals.get(target.metric.name)
            if name in state.proposal.empty_queries:
                seen = f"min_replicas is 0, and metric {name} has no value at the moment"
                yield CheckResult(SPEC_ZERO_WITHOUT_VALUE, f"autoscaler {autoscaler}", seen)
            elif total is not None and 0 < total < _NOISE * target.value:
                seen = f"min_replicas is 0, and metric {name} is {total:g} at the moment, for target {target.value:g}"
                yield CheckResult(SPEC_ZERO_NOT_EXACT, f"autoscaler {autoscaler}", seen)


SPEC_ZERO_ASLEEP = _SPEC.warning(
    "SPEC_ZERO_ASLEEP",
    cause="an HPA wakes only a workload that it scaled to zero itself, and treats any other as switched off",
    fix="kubectl -n {namespace} scale {target} --replicas=1",
    before="warn",
)
SPEC_ZERO_WAKES = _SPEC.warning(
    "SPEC_ZERO_WAKES",
    cause="KEDA's HPA has a minimum of 1, to which the HPA controller raises a workload that it scaled to zero",
    fix="none needed: KEDA scales it to zero again after the stabilization window of scale_down",
    before="warn",
)


@check("workloads at zero wake up", SPEC_ZERO_ASLEEP, SPEC_ZERO_WAKES)
def zero_is_left(state: State) -> Iterator[CheckResult]:
    targets = {autoscaler.key: autoscaler.target or {} for autoscaler in state.autoscalers}
    for autoscaler in _to_zero(state):
        replicas = ((targets.get(autoscaler.key) or {}).get("spec") or {}).get("replicas")
        hpa = state.proposal.hpas.get(autoscaler.key)
        was_scaled = hpa is not None and condition(hpa, "ScaledToZero").get("status") == "True"
        finding_type = SPEC_ZERO_WAKES if was_scaled else SPEC_ZERO_ASLEEP
        if replicas == 0 and was_scaled is needs_scaled_object(autoscaler):
            kind = autoscaler.target.kind.lower()
            yield CheckResult(
                finding_type,
                f"autoscaler {autoscaler}",
                f"{autoscaler.target} has 0 replicas, {'by' if was_scaled else 'and not by'} its HPA",
                template_vars={"namespace": autoscaler.namespace, "target": f"{kind} {autoscaler.target.name}"},
            )


def _to_zero(state: State, *, by_keda: bool | None = None) -> Iterator[Autoscaler]:
    """by_keda: selects the backend."""
    for autoscaler in state.proposal.autoscalers:
        if not autoscaler.min_replicas and by_keda in (None, needs_scaled_object(autoscaler)):
            yield autoscaler
