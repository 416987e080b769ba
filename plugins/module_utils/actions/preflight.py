# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The checks that can be asked before a change, on the state that the change would lead to."""

from __future__ import annotations

from collections.abc import Sequence

from ..autoscaling.manifests import Manifest, RuleOptions, horizontal_pod_autoscaler, prometheus_rules
from ..autoscaling.spec import Autoscaler, MetricTarget
from ..chain.checks import before, labels, metrics_api, prometheus, workload, workload_pods
from ..chain.state.api import ApiState
from ..chain.state.autoscaler import AutoscalerState
from ..chain.state.cluster import State
from ..chain.state.metric import MetricState
from ..chain.state.prometheus import PrometheusState
from ..chain.state.proposal import Proposal
from ..cluster.kube import HPAS
from ..cluster.ownership import is_up_to_date, other_managers
from ..diagnosis.check import Check, CheckResult, checks_in
from ..diagnosis.findings import Finding, results_of
from ..errors import first_of_all
from ..hops import Hop
from ..marks import INVENTORY, MANAGER, inventory_of, is_of
from .metrics_owner import Owner
from .observe import sources_of
from .snapshot import GROUPS, ClusterSnapshot, Objects

_CHECKS: tuple[Check[State], ...] = tuple(
    check
    for check in checks_in(before, workload_pods, workload, prometheus, labels, metrics_api)
    if check.is_asked_before
)


def preflight(
    autoscalers: Sequence[Autoscaler],
    objects: Objects,
    snapshot: ClusterSnapshot,
    rules: RuleOptions,
    *,
    dry_run: bool,
) -> list[str]:
    """The warnings. Raises: HopError with all reasons to refuse, if there is one."""
    state = state_before(autoscalers, objects, snapshot, rules)
    results = [result for result in results_of(_CHECKS, state) if result.type.before]
    refusing = {"refuse"} if dry_run else {"refuse", "await"}
    findings = _together(results)
    if refusals := [finding for finding in findings if finding.type.before in refusing]:
        raise first_of_all([finding.error() for finding in refusals])
    return [str(finding) for finding in findings]


def _together(results: Sequence[CheckResult]) -> list[Finding]:
    """Results that say the same of several objects become one finding; from left to right."""
    findings: dict[tuple[str, str], Finding] = {}
    for result in results:
        findings.setdefault((result.type.id, result.seen), Finding([])).results.append(result)
    return sorted(findings.values(), key=lambda finding: list(Hop).index(finding.type.hop))


def state_before(
    autoscalers: Sequence[Autoscaler], objects: Objects, snapshot: ClusterSnapshot, rules: RuleOptions
) -> State:
    """The cluster with the HPAs that are asked for in place of those that are there."""
    wanted = {autoscaler.key: horizontal_pod_autoscaler(autoscaler, rules.inventory) for autoscaler in autoscalers}
    proposal = Proposal(
        autoscalers,
        hpas=objects.hpas,
        managers={key: other_managers(objects.hpas[key], MANAGER) for key in wanted if key in objects.hpas},
        rules=objects.rules,
        unserved={key for key in wanted if not snapshot.targets[key].served},
        unscalable={key for key in wanted if snapshot.targets[key].served and not snapshot.targets[key].scalable},
        query_errors=snapshot.query_errors,
        empty_queries=snapshot.empty_queries,
        is_keda_known=snapshot.scaled_objects is not None,
        no_resources=""
        if "resource_api" in snapshot.unread
        else _no_resources(Owner("metrics.k8s.io", snapshot.resource_api)),
        rule={"metadata": {"namespace": rules.namespace, "name": "kubegpu", "labels": dict(rules.labels)}},
        unread=objects.unread,
        no_namespace=snapshot.no_namespace,
        inventory=rules.inventory,
        foreign_rules=_rules_of_others(autoscalers, objects, rules),
    )
    skipped = proposal.unserved | proposal.unscalable
    return State(
        0.0,
        proposal=proposal,
        nodes=snapshot.nodes,
        resource_slices=snapshot.resource_slices,
        prometheuses=snapshot.prometheuses,
        namespaces=snapshot.namespaces,
        unavailable=snapshot.unread,
        hpas=[*{**objects.hpas, **wanted}.values()],
        scaled_objects=snapshot.scaled_objects or (),
        prometheus=PrometheusState(snapshot.prometheus_name, error=str(snapshot.prometheus_error or "")),
        apis=[_api(Owner(group, service)) for group, service in snapshot.metrics_apis.items()],
        autoscalers=[
            AutoscalerState(
                {**wanted[autoscaler.key], "kind": HPAS.kind},
                snapshot.targets[autoscaler.key].manifest,
                metrics=[_metric(metric_target) for metric_target in autoscaler.metric_targets],
            )
            for autoscaler in autoscalers
            if autoscaler.key not in skipped
        ],
    )


def _rules_of_others(autoscalers: Sequence[Autoscaler], objects: Objects, rules: RuleOptions) -> dict[str, Manifest]:
    """Rules that would have to change and that another inventory made, by name."""
    theirs = {name: rule for name, rule in (objects.rules or {}).items() if not is_of(rule, rules.inventory)}
    kept = [autoscaler for autoscaler in autoscalers if not autoscaler.adopt]
    wanted = {rule["metadata"]["name"]: rule for rule in prometheus_rules(kept, rules)} if theirs else {}
    return {
        name: theirs[name]
        for name, rule in wanted.items()
        if name in theirs and not is_up_to_date(theirs[name], shared(theirs[name], rule), MANAGER)
    }


def shared(live: Manifest, wanted: Manifest) -> Manifest:
    """What is wanted of a rule that may be another inventory's: it keeps its label."""
    metadata = wanted["metadata"]
    labels = {**metadata["labels"], INVENTORY: inventory_of(live)}
    return {**wanted, "metadata": {**metadata, "labels": labels}}


def _no_resources(owner: Owner) -> str:
    if owner.api_service is None:
        return f"no server is registered for {owner.group}"
    return f"{owner} does not answer: {owner.unavailable}" if owner.unavailable else ""


def _api(owner: Owner) -> ApiState:
    """As its APIService says; it is not asked for metrics yet."""
    return ApiState(
        owner.group,
        owner.api_service,
        owner=str(owner),
        is_prometheus_adapter=owner.is_prometheus_adapter,
        unavailable=owner.unavailable,
        listed=frozenset(),
    )


def _metric(metric_target: MetricTarget) -> MetricState:
    metric = metric_target.metric
    return MetricState(
        metric.name,
        GROUPS[metric_target.type],
        metric_target.type,
        series=metric_target.series,
        sources=sources_of(metric),
        reporter=metric.reporter,
        unit=metric.unit,
        target_value=metric_target.value,
        listed=False,
    )
