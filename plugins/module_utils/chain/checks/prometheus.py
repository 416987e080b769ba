# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks that Prometheus answers, stores its samples, and has consistent replicas."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...diagnosis.check import ALL, CheckResult, Evidence, FindingTypes, check
from ...hops import Hop
from ...kube.objects import condition, is_ready, labels_of, name_of, youngest
from ..daemon_sets import place_of
from ..finding_texts import condition_text
from ..state.cluster import State
from ..state.targets import exporter_targets

_SCRAPE = FindingTypes(Hop.SCRAPE)

_PODS = ("daemon_sets", "component_pods", "prometheus")

PROMETHEUS_UNREACHABLE = _SCRAPE.error(
    "PROMETHEUS_UNREACHABLE",
    cause="Prometheus does not answer",
    fix="check why its pods are not ready; open its port from the control plane to the nodes, or set prometheus.url",
    grace_s=300,
    explained_by=(Hop.NODE,),
    evidence=(
        Evidence(
            r"x509|certificate|\btls\b",
            "the certificate of Prometheus is not accepted",
            "set prometheus.ca_cert to the CA of its certificate, or prometheus.scheme to http",
        ),
        Evidence(
            r"\b40[13]\b|forbidden|unauthorized",
            "the user has no permission to query Prometheus",
            "allow the user to get services/proxy in Prometheus' namespace, or set prometheus.url and "
            "prometheus.bearer_token",
        ),
        Evidence(
            r"not found|\b404\b",
            "the Service, port or path does not exist",
            "run the prometheus_stack role, or set prometheus.namespace, prometheus.service, prometheus.port and "
            "prometheus.path_prefix",
        ),
        Evidence(
            r"no endpoints",
            "the Service of Prometheus has no ready pod",
            "kubectl -n {namespace} get pods; kubectl -n {namespace} describe prometheus",
        ),
    ),
    before="await",
)


PROMETHEUS_MISSING = _SCRAPE.error(
    "PROMETHEUS_MISSING",
    cause="no Prometheus is installed in this cluster, or its Service has another name",
    fix="run the prometheus_stack role, which comes with exporter and adapter; for one that exists set "
    "prometheus.namespace and prometheus.service, or prometheus.url (kubegpu_prometheus of the inventory)",
    before="await",
)


@check("Prometheus answers", PROMETHEUS_UNREACHABLE, PROMETHEUS_MISSING, needs=("prometheus",))
def prometheus_answers(state: State) -> Iterator[CheckResult]:
    if state.prometheus.error and _is_missing(state):
        seen = "the cluster has neither this Service nor a Prometheus object"
        yield CheckResult(PROMETHEUS_MISSING, f"Prometheus {state.prometheus.name}", seen, frozenset({ALL}))
    elif state.prometheus.error:
        yield CheckResult(
            PROMETHEUS_UNREACHABLE,
            f"Prometheus {state.prometheus.name}",
            state.prometheus.error,
            frozenset({ALL}),
            state.prometheus_age_s,
            template_vars={"namespace": state.prometheus.name.partition("/")[0]},
            is_cut_off=state.are_cut_off(state.prometheus.pods),
        )


def _is_missing(state: State) -> bool:
    """Whether neither the Service nor an object of the operator exists. Without a right to see them it may."""
    is_unknown = "prometheuses" in state.unavailable
    is_not_found = re.search(r'services "[^"]+" not found', state.prometheus.error)
    return bool(is_not_found) and not is_unknown and not state.prometheuses and not state.prometheus.pods


PROMETHEUS_REPLICAS_DIFFER = _SCRAPE.error(
    "PROMETHEUS_REPLICAS_DIFFER",
    cause="the pods behind the Service of Prometheus have different data, so values appear and disappear",
    fix="compare Status > Targets and Status > Rule health of both: kubectl -n {namespace} port-forward {pod} 9090",
    grace_s=120,
    is_consequence=True,
    explained_by=(Hop.NODE,),
    evidence=(
        Evidence(
            r"\(shard ",
            "the Service of Prometheus selects any of its shards, but each shard scrapes only a part of the targets",
            "set spec.shards of the Prometheus object to 1, or prometheus.service to one that queries all shards, such "
            "as Thanos",
        ),
    ),
)


@check(
    "the replicas of Prometheus have the same data",
    PROMETHEUS_REPLICAS_DIFFER,
    needs=(*_PODS, "metrics", "prometheus_replicas"),
)
def replicas_agree(state: State) -> Iterator[CheckResult]:
    """Compares names of series and targets. Values always differ, because each replica scrapes at different times."""
    replicas = state.prometheus.replicas
    titles = _replica_titles(state)
    place = {"namespace": state.prometheus.name.partition("/")[0]}
    for series in sorted(frozenset().union(*(replica.series for replica in replicas.values()))):
        lacking = [name for name, replica in replicas.items() if series not in replica.series]
        users = [
            autoscaler
            for autoscaler in state.autoscalers
            if any(series in (metric.series, *metric.sources) for metric in autoscaler.metrics)
        ]
        if lacking and users:
            ready_s = [state.clock.longest_ready_s(autoscaler.ready_pods) for autoscaler in users]
            yield CheckResult(
                PROMETHEUS_REPLICAS_DIFFER,
                f"Prometheus {state.prometheus.name}",
                f"{', '.join(titles[name] for name in lacking)} has no {series}, which the other has",
                state.affected_by(users),
                youngest([state.rule_age_s(series), max((age for age in ready_s if age is not None), default=None)]),
                max((autoscaler.lag_s for autoscaler in users), default=0),
                {**place, "pod": lacking[0]},
            )
    up = {name: exporter_targets(state.agents.exporter_pods, replica.up) for name, replica in replicas.items()}
    for pod in filter(is_ready, state.agents.exporter_pods):
        lacking = [name for name, targets in up.items() if name_of(pod) not in targets]
        if lacking and len(lacking) < len(up):
            node = pod["spec"].get("nodeName", "")
            yield CheckResult(
                PROMETHEUS_REPLICAS_DIFFER,
                f"Prometheus {state.prometheus.name}",
                f"{', '.join(titles[name] for name in lacking)} cannot scrape {name_of(pod)} on node {node}, "
                "which the other can",
                state.affected_by_nodes([node]),
                youngest([state.clock.condition_age_s(pod, "Ready"), state.prometheus_age_s]),
                template_vars={**place, "pod": lacking[0]},
            )


def _replica_titles(state: State) -> dict[str, str]:
    """Names of the replicas' pods, with the shard if there are several."""
    shards = {
        pod["metadata"]["name"]: labels_of(pod).get("operator.prometheus.io/shard", "0")
        for pod in state.prometheus.pods
        if pod["metadata"]["name"] in state.prometheus.replicas
    }
    several = len(set(shards.values())) > 1
    return {name: f"{name} (shard {shard})" if several else name for name, shard in shards.items()}


PROMETHEUS_EPHEMERAL = _SCRAPE.warning(
    "PROMETHEUS_EPHEMERAL",
    cause="Prometheus has one replica without a volume: a drain of its node deletes all history, and no autoscaler "
    "gets a value until it runs elsewhere",
    fix="set prometheus_stack_volume_size to the size of a volume, for example 20Gi, and run "
    "kubegpu.autoscale.monitoring; it needs a default StorageClass",
)
# In smaller clusters a drain of any node stops a large part of the workloads as well.
_NODES_TO_DRAIN = 3


@check("a drain does not delete the data of Prometheus", PROMETHEUS_EPHEMERAL, needs=("prometheuses", "nodes"))
def data_survives_a_drain(state: State) -> Iterator[CheckResult]:
    """Checks the Prometheus objects in the namespace of the Prometheus that is queried."""
    if len(state.nodes) < _NODES_TO_DRAIN:
        return
    for prometheus in state.prometheuses:
        spec = prometheus.get("spec") or {}
        is_ours = prometheus["metadata"]["namespace"] == state.prometheus.name.partition("/")[0]
        storage = spec.get("storage") or {}
        if is_ours and spec.get("replicas", 1) == 1 and (not storage or "emptyDir" in storage):
            seen = f"it has one replica and no volume, in a cluster of {len(state.nodes)} nodes"
            yield CheckResult(PROMETHEUS_EPHEMERAL, f"Prometheus {name_of(prometheus)}", seen)


PROMETHEUS_STORES_NOTHING = _SCRAPE.error(
    "PROMETHEUS_STORES_NOTHING",
    cause="Prometheus scrapes its targets, but stores no samples: its disk is full or not writable",
    fix="kubectl -n {namespace} logs {pod} -c prometheus; enlarge its volume, or lower retention and retentionSize",
    grace_s=300,
)
PROMETHEUS_RELOAD_FAILS = _SCRAPE.warning(
    "PROMETHEUS_RELOAD_FAILS",
    cause="Prometheus could not load its last configuration and still uses the previous one, without later changes to "
    "monitors and rules",
    fix="kubectl -n {namespace} logs {pod} -c prometheus shows the error. Correct the monitor, the rule or the "
    "additional scrape configuration",
)
PROMETHEUS_WAL_CORRUPT = _SCRAPE.warning(
    "PROMETHEUS_WAL_CORRUPT",
    cause="Prometheus has found its write-ahead log corrupt since its start and has dropped samples: its disk was full "
    "or is faulty, or it was killed",
    fix="kubectl -n {namespace} logs {pod} -c prometheus; check the free space and the health of its volume",
)


@check(
    "Prometheus stores samples and uses its current configuration",
    PROMETHEUS_STORES_NOTHING,
    PROMETHEUS_RELOAD_FAILS,
    PROMETHEUS_WAL_CORRUPT,
    needs=("prometheus",),
)
def prometheus_is_well(state: State) -> Iterator[CheckResult]:
    """By Prometheus' own status. A proxy in front of several Prometheus does not report one."""
    prometheus = state.prometheus
    name, runtime = f"Prometheus {prometheus.name}", prometheus.runtime
    pod = next((pod["metadata"]["name"] for pod in prometheus.pods), "POD")
    template_vars = {"namespace": prometheus.name.partition("/")[0], "pod": pod}
    if prometheus.unstored:
        seen = f"{prometheus.unstored} targets are up, and `up` has no series"
        yield CheckResult(
            PROMETHEUS_STORES_NOTHING,
            name,
            seen,
            frozenset({ALL}),
            state.prometheus_age_s,
            template_vars=template_vars,
        )
    if runtime.get("reloadConfigSuccess") is False:
        seen = f"reloadConfigSuccess is false, the configuration in force is of {runtime.get('lastConfigTime')}"
        yield CheckResult(PROMETHEUS_RELOAD_FAILS, name, seen, template_vars=template_vars)
    if corruptions := runtime.get("corruptionCount"):
        seen = f"corruptionCount is {corruptions} since {runtime.get('startTime')}"
        yield CheckResult(PROMETHEUS_WAL_CORRUPT, name, seen, template_vars=template_vars)


PROMETHEUS_NOT_RECONCILED = _SCRAPE.warning(
    "PROMETHEUS_NOT_RECONCILED",
    cause="the Prometheus operator cannot reconcile the Prometheus object, so later changes have no effect",
    fix="follow the message; kubectl -n {namespace} describe prometheus {name}",
    grace_s=300,
)


@check("the operator reconciles Prometheus", PROMETHEUS_NOT_RECONCILED, needs=("prometheuses",))
def prometheus_is_reconciled(state: State) -> Iterator[CheckResult]:
    """Prometheus objects in the namespace of the queried one."""
    for prometheus in state.prometheuses:
        found = condition(prometheus, "Reconciled")
        is_ours = prometheus["metadata"]["namespace"] == state.prometheus.name.partition("/")[0]
        if is_ours and found.get("status") == "False":
            yield CheckResult(
                PROMETHEUS_NOT_RECONCILED,
                f"Prometheus {name_of(prometheus)}",
                condition_text(found),
                age_s=state.clock.condition_age_s(prometheus, "Reconciled"),
                template_vars=place_of(prometheus),
            )
