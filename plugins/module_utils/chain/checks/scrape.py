# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks whether Prometheus scrapes its targets: exporters, and pods of workloads."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnosis.check import CheckResult, Evidence, FindingTypes, check
from ...hops import Hop
from ...kube.objects import Key, is_ready, key_of, name_of, youngest
from ..daemon_sets import place_of
from ..state.cluster import State
from ..state.targets import exporter_targets
from .monitors import is_exporter_unseen

_SCRAPE = FindingTypes(Hop.SCRAPE)

_PODS = ("daemon_sets", "component_pods", "prometheus")

# Why Prometheus cannot scrape a target, by its lastError. Limits first: their messages quote names and label values.
_WHY_DOWN = (
    Evidence(
        r"sample limit exceeded",
        "the target serves more samples than sampleLimit allows, so Prometheus keeps none of them",
        "raise sampleLimit of its monitor, or enforcedSampleLimit of the Prometheus object; or serve fewer series",
    ),
    Evidence(
        r"body size limit exceeded",
        "the answer of the target is longer than bodySizeLimit allows, so Prometheus keeps nothing of it",
        "raise bodySizeLimit of its monitor, or enforcedBodySizeLimit of the Prometheus object; or serve fewer series",
    ),
    Evidence(
        r"label(_name_length|_value_length)?_limit exceeded",
        "a series of the target has more or longer labels than Prometheus allows, so it keeps none of the target",
        "raise labelLimit, labelNameLengthLimit or labelValueLengthLimit of its monitor, or the enforced one of the "
        "Prometheus object; or drop the label by relabelings",
    ),
    Evidence(
        r"no space left|write to WAL|log samples",
        "Prometheus cannot write to its disk",
        "enlarge the volume of Prometheus, or lower its retention: kubectl -n {namespace} get pvc",
    ),
)
TARGET_DOWN = _SCRAPE.error(
    "TARGET_DOWN",
    cause="Prometheus has the exporter as a target, but cannot scrape it",
    fix="check lastError under Status > Targets in Prometheus; kubectl -n {namespace} logs {name}",
    grace_s=120,
    is_consequence=True,
    evidence=(
        *_WHY_DOWN,
        Evidence(
            r"x509|certificate",
            "Prometheus does not accept the exporter's certificate",
            "set tlsConfig of the monitor to the authority of the certificate, or serve plain http",
        ),
        Evidence(
            r"HTTP response to HTTPS client|\btls\b",
            "Prometheus and the exporter disagree about https",
            "set scheme of the monitor's endpoint to what the exporter serves",
        ),
        Evidence(
            r"status 40[13]",
            "the exporter rejects the login of Prometheus",
            "configure authorization in the monitor's endpoint, or disable the login of the exporter",
        ),
        Evidence(
            r"status 404",
            "the exporter does not serve the monitor's path",
            "set path of the monitor's endpoint to /metrics",
        ),
        Evidence(
            r"connection refused",
            "nothing listens on the exporter's port",
            "kubectl -n {namespace} logs {name}; check that the port of the monitor is the exporter's",
        ),
        Evidence(
            r"deadline exceeded|timeout|no route|i/o",
            "the exporter does not answer in time: a network policy blocks it, the exporter hangs, or a dcgm-exporter "
            "before 4.5.3 waits for its kubelet",
            "check the NetworkPolicies of namespace {namespace}; kubectl -n {namespace} logs {name}",
        ),
    ),
)
TARGET_MISSING = _SCRAPE.error(
    "TARGET_MISSING",
    cause="Prometheus has no target for an exporter that is ready",
    fix="check Status > Service discovery in Prometheus; compare the monitor's selector, port and namespaces",
    grace_s=120,
    is_consequence=True,
)


@check("each exporter is a target that is up", TARGET_DOWN, TARGET_MISSING, needs=_PODS)
def targets(state: State) -> Iterator[CheckResult]:
    """Checked by pod if any pod can be found among the targets, because a static job may hide them behind a name.

    One of several exporters on a node must be a target: it reports all GPUs.
    """
    if state.prometheus.error or not (state.targets or is_exporter_unseen(state)):
        return
    # After a change of a monitor, nothing is scraped for some seconds.
    answered = exporter_targets(state.agents.exporter_pods, state.prometheus.up_lately)
    answered_lately = _answered_lately(state)
    read = {
        pod["spec"].get("nodeName", "")
        for pod in state.agents.exporter_pods
        if (row := state.targets.get(name_of(pod))) and row.value
    }
    for pod in state.agents.exporter_pods:
        row, node = state.targets.get(name_of(pod)), pod["spec"].get("nodeName", "")
        if not is_ready(pod) or (row is None and node in read):
            continue
        age_s = youngest([state.clock.condition_age_s(pod, "Ready"), state.prometheus_age_s])
        place, affected = f"pod {name_of(pod)} on node {node}", state.affected_by_nodes([node])
        if row is None:
            seen = "ready, but `up` has no series of it"
            if name_of(pod) in answered:
                age_s = 0.0
            yield CheckResult(TARGET_MISSING, place, seen, affected, age_s, template_vars=place_of(pod))
        elif not row.value:
            job, instance = row.target
            if row.target in answered_lately:
                age_s = 0.0
            error = state.prometheus.scrape_errors.get(row.target, "")
            seen = f"up is 0, job {job}, {instance}{error and f': {error}'}"
            yield CheckResult(TARGET_DOWN, place, seen, affected, age_s, template_vars=place_of(pod))


POD_TARGET_DOWN = _SCRAPE.error(
    "POD_TARGET_DOWN",
    cause="Prometheus has the pods of the workload as targets, but cannot scrape the metrics that the autoscaler needs",
    fix="check lastError under Status > Targets in Prometheus; kubectl -n {namespace} logs {name}",
    grace_s=120,
    is_consequence=True,
    evidence=(
        *_WHY_DOWN,
        Evidence(
            r"status 40[13]|x509|certificate|HTTP response to HTTPS client|\btls\b",
            "Prometheus and the pods disagree about https, or about the login",
            "set scheme, tlsConfig and authorization of the pods' monitor to what the pods serve",
        ),
        Evidence(
            r"status 404|expected|unsupported|parse|invalid",
            "the pods do not serve metrics at the monitor's path",
            "set path of the monitor's endpoint to that of the metrics",
        ),
        Evidence(
            r"connection refused",
            "nothing listens on the port of the pods' monitor",
            "set port of the monitor's endpoint to that of the metrics",
        ),
        Evidence(
            r"deadline exceeded|timeout|no route|i/o",
            "the pods do not answer in time: a network policy blocks it, or they are busy",
            "check the NetworkPolicies of namespace {namespace}; raise scrapeTimeout of the monitor",
        ),
    ),
)


@check("metrics of the workload's pods are scraped", POD_TARGET_DOWN, needs=("prometheus", "targets", "metrics"))
def own_targets(state: State) -> Iterator[CheckResult]:
    """Checks only autoscalers with a missing value that pods report themselves: the exporter reports those of GPUs."""
    answered_lately = _answered_lately(state)
    for autoscaler in state.autoscalers:
        if not any(metric.missing_in_api for metric in autoscaler.metrics if not metric.is_of_gpus):
            continue
        for pod in autoscaler.ready_pods:
            row = state.own_targets.get(key_of(pod))
            if row is None or row.value:
                continue
            job, instance = row.target
            error = state.prometheus.scrape_errors.get(row.target, "")
            age_s = youngest([state.clock.condition_age_s(pod, "Ready"), state.prometheus_age_s])
            yield CheckResult(
                POD_TARGET_DOWN,
                f"pod {name_of(pod)}",
                f"up is 0, job {job}, {instance}{error and f': {error}'}",
                state.affected_by([autoscaler]),
                0.0 if row.target in answered_lately else age_s,
                template_vars=place_of(pod),
            )


def _answered_lately(state: State) -> set[Key]:
    """Targets by job and instance: a single failed scrape is not an outage."""
    return {row.target for row in state.prometheus.up_lately}


SCRAPE_SLOW = _SCRAPE.warning(
    "SCRAPE_SLOW",
    cause="the exporter takes nearly all the time between two scrapes to answer: values are old, and a scrape that "
    "takes longer is lost",
    fix="raise dcgm_exporter_scrape_interval and dcgm_exporter_collect_interval, or serve fewer counters; with many "
    "MIG instances dcgm-exporter is slow (NVIDIA/dcgm-exporter#599)",
    grace_s=300,
)


@check("each exporter answers well within its scrape interval", SCRAPE_SLOW, needs=_PODS)
def scrape_durations(state: State) -> Iterator[CheckResult]:
    shares = {row.target: row.value for row in state.prometheus.slow}
    for pod in state.agents.exporter_pods:
        row, node = state.targets.get(name_of(pod)), pod["spec"].get("nodeName", "")
        if row is not None and row.value and row.target in shares:
            yield CheckResult(
                SCRAPE_SLOW,
                f"pod {name_of(pod)} on node {node}",
                f"its answers take {shares[row.target]:.0%} of the time, in the last 2 minutes",
                state.affected_by_nodes([node]),
                youngest([state.clock.condition_age_s(pod, "Ready"), state.prometheus_age_s]),
                template_vars=place_of(pod),
            )


def summary(state: State) -> str:
    return f"{state.prometheus.name} has {len(state.prometheus.gpu_rows)} kinds of GPU series"


def nothing(state: State) -> str:
    return "" if state.agents.exporter_pods or state.prometheus.gpu_rows else "no dcgm-exporter is known"
