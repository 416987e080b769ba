# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks that the exporter's values are complete, plausible and current."""

from __future__ import annotations

from collections.abc import Iterator

from ...autoscaling.dcgm_fields import ENGINE_ACTIVE, GPU_UTIL
from ...diagnosis.check import CheckResult, FindingTypes, check
from ...errors import enumeration
from ...hops import Hop
from ...kube.known_components import EXPORTER
from ...kube.objects import Key, Manifest, containers_of, name_of, youngest
from ...kube.visible_devices import is_admin
from ..exporter_options import collect_interval_s, repeats_values
from ..finding_texts import first_and_rest
from ..state.autoscaler import AutoscalerState
from ..state.cluster import State
from .device_plugin import NODE_GRACE_S

_EXPORTER = FindingTypes(Hop.EXPORTER)

# The chart's exporter becomes ready after 45 s.
_START_GRACE_S = 120
_PODS = ("nodes", "daemon_sets", "component_pods")

PROFILING_MISSING = _EXPORTER.error(
    "PROFILING_MISSING",
    cause="a metric needs DCGM's profiling fields, which are missing: {why}",
    fix="grant SYS_ADMIN to the exporter; if the GPUs do not support profiling, use the metric gpu_util",
    grace_s=_START_GRACE_S,
    is_consequence=True,
)


@check("profiling fields", PROFILING_MISSING, needs=("daemon_sets", "prometheus"))
def profiling(state: State) -> Iterator[CheckResult]:
    """Only for metrics without another source: the metric gpu falls back to GPU_UTIL by itself."""
    needing = [
        autoscaler
        for autoscaler in state.autoscalers
        if any(metric.is_of_gpus and metric.needs_profiling for metric in autoscaler.metrics)
    ]
    names = {row.labels.get("__name__", "") for row in state.prometheus.gpu_rows}
    if not needing or GPU_UTIL not in names or _has_profiling(names):
        return
    able = any(_may_profile(daemon_set) for daemon_set in state.agents.exporters)
    why = "these GPUs or this DCGM have none" if able else "the exporter lacks the capability SYS_ADMIN"
    yield CheckResult(
        PROFILING_MISSING,
        first_and_rest("autoscaler", map(str, needing)),
        f"Prometheus has {GPU_UTIL}, but no DCGM_FI_PROF_*: {why}",
        state.affected_by(needing),
        youngest(
            [state.prometheus_age_s, *(state.clock.condition_age_s(pod, "Ready") for pod in state.agents.exporter_pods)]
        ),
        template_vars={"why": why},
    )


def _has_profiling(names: set[str]) -> bool:
    return any("_PROF_" in name for name in names)


def _may_profile(daemon_set: Manifest) -> bool:
    return any(map(is_admin, containers_of(daemon_set)))


PROFILING_FROZEN = _EXPORTER.error(
    "PROFILING_FROZEN",
    cause="another profiler (nsys, ncu, a second DCGM) uses the GPU's counters, or an Xid error has stopped sampling",
    fix="stop the other profiler; dcgmi profile --resume; restart the exporter on the node",
)


@check("profiling is alive", PROFILING_FROZEN, needs=("prometheus",))
def profiling_frozen(state: State) -> Iterator[CheckResult]:
    for row in state.prometheus.frozen:
        users = _users_of_pod(state, row.pod)
        yield CheckResult(
            PROFILING_FROZEN,
            f"GPU {row.labels.get('UUID')}",
            f"{GPU_UTIL} is at least {row.value:g} and {ENGINE_ACTIVE} is 0 for 5 minutes",
            state.affected_by(users) if users else frozenset(),
        )


EXPORTER_LOSES_A_GPU = _EXPORTER.error(
    "EXPORTER_LOSES_A_GPU",
    cause="DCGM cannot read a field of the GPU and writes a huge number instead. Rules of this collection ignore it; a "
    "rule without bounds scales to the maximum",
    fix="on the node: dmesg | grep -i xid; restart the exporter there, then reset the GPU or reboot the node",
)
EXPORTER_IMPOSSIBLE_VALUES = _EXPORTER.warning(
    "EXPORTER_IMPOSSIBLE_VALUES",
    cause="DCGM writes a huge number for a field that it cannot read. No autoscaled pod holds the GPU, but a rule "
    "without bounds can include it",
    fix="restart the exporter on the node; profiles of this collection ignore such values",
)


@check("values are plausible", EXPORTER_LOSES_A_GPU, EXPORTER_IMPOSSIBLE_VALUES, needs=("prometheus",))
def impossible_values(state: State) -> Iterator[CheckResult]:
    """GPUs held by autoscaled pods. Without any, other GPUs count."""
    held: list[CheckResult] = []
    others: list[CheckResult] = []
    for row in state.prometheus.blanks:
        seen = f"{row.labels.get('__name__', 'DCGM_FI_*')} is {row.value:g}"
        if users := _users_of_pod(state, row.pod):
            pod = f"pod {'/'.join(row.pod or ())}"
            held.append(CheckResult(EXPORTER_LOSES_A_GPU, pod, seen, state.affected_by(users)))
        else:
            others.append(CheckResult(EXPORTER_IMPOSSIBLE_VALUES, f"target {row.labels.get('instance')}", seen))
    yield from held or others


def _users_of_pod(state: State, pod: Key | None) -> list[AutoscalerState]:
    """Autoscalers whose target has the pod."""
    return [autoscaler for autoscaler in state.autoscalers if pod in autoscaler.pod_keys]


EXPORTER_TWICE = _EXPORTER.warning(
    "EXPORTER_TWICE",
    cause="two exporters, or two jobs, report the same GPU: a sum counts it twice",
    fix="keep one of them; disable the GPU operator's exporter with dcgmExporter.enabled: false",
    grace_s=NODE_GRACE_S,
)


@check("each GPU is reported once", EXPORTER_TWICE, needs=("prometheus",))
def reported_once(state: State) -> Iterator[CheckResult]:
    gpus = sorted({row.labels.get("UUID", "") for row in state.prometheus.doubled})
    if gpus:
        yield CheckResult(
            EXPORTER_TWICE,
            first_and_rest("GPU", gpus),
            f"{len(gpus)} GPUs are reported by several targets; exporters: "
            f"{', '.join(map(name_of, state.agents.exporters)) or 'none is a DaemonSet'}",
            age_s=youngest(state.clock.condition_age_s(pod, "Ready") for pod in state.agents.exporter_pods),
        )


EXPORTER_COLLECTS_SLOWLY = _EXPORTER.warning(
    "EXPORTER_COLLECTS_SLOWLY",
    cause="the exporter reads the GPUs less often than Prometheus scrapes it, so values repeat and are late",
    fix="set dcgm_exporter_collect_interval to the scrape interval or less (DCGM_EXPORTER_INTERVAL, milliseconds)",
)


@check("collect interval", EXPORTER_COLLECTS_SLOWLY, needs=("daemon_sets",))
def collect_interval(state: State) -> Iterator[CheckResult]:
    scrapes = state.known_scrape_intervals
    for daemon_set in state.agents.exporters if scrapes else ():
        collect_s = collect_interval_s(EXPORTER.container(daemon_set) or {})
        if repeats_values(collect_s, min(scrapes)):
            yield CheckResult(
                EXPORTER_COLLECTS_SLOWLY,
                f"DaemonSet {name_of(daemon_set)}",
                f"it reads the GPUs every {collect_s:g} s, Prometheus scrapes every {min(scrapes):g} s",
                age_s=state.clock.last_change_age_s(daemon_set),
            )


@check(
    "profiling fields on each node",
    PROFILING_MISSING,
    needs=("nodes", "daemon_sets", "component_pods", "prometheus", "metrics"),
)
def profiling_by_node(state: State) -> Iterator[CheckResult]:
    """DCGM omits profiling for a whole node if one of its GPUs does not support it."""
    fields = _fields_by_node(state)
    needed = {
        node
        for autoscaler in state.autoscalers
        if any(metric.is_of_gpus and metric.needs_profiling for metric in autoscaler.metrics)
        for node in autoscaler.nodes
    }
    exporters = state.agents.by_node(state.agents.exporters)
    for node in sorted(needed) if any(map(_has_profiling, fields.values())) else ():
        if GPU_UTIL in fields.get(node, ()) and not _has_profiling(fields[node]):
            yield CheckResult(
                PROFILING_MISSING,
                f"node {node}",
                f"its exporter reports {GPU_UTIL}, but no DCGM_FI_PROF_*, which other nodes have",
                state.affected_by_nodes([node]),
                state.readable_s(exporters.get(node, ())),
                template_vars={"why": "one GPU of a node without them is enough"},
            )


def _fields_by_node(state: State) -> dict[str, set[str]]:
    """Sources of the metrics that each node's exporter reports, if its target can be identified."""
    nodes = {
        row.labels.get("instance", ""): pod["spec"].get("nodeName", "")
        for pod in state.agents.exporter_pods
        if (row := state.targets.get(name_of(pod)))
    }
    fields: dict[str, set[str]] = {}
    for row in state.prometheus.gpu_rows:
        if node := nodes.get(row.labels.get("instance", "")):
            fields.setdefault(node, set()).add(row.labels.get("__name__", ""))
    return fields


EXPORTER_FIELD_MISSING = _EXPORTER.error(
    "EXPORTER_FIELD_MISSING",
    cause="the exporter reports GPUs, but not {fields}. Its list of counters lacks the field, or this version of "
    "exporter or driver no longer provides it",
    fix="add the field to the exporter's counters (CSV), go back to the version that had it, or use another metric",
    grace_s=_START_GRACE_S,
    is_consequence=True,
)


@check(
    "the exporter has the metrics' fields",
    EXPORTER_FIELD_MISSING,
    needs=("daemon_sets", "component_pods", "prometheus", "metrics"),
)
def metric_fields(state: State) -> Iterator[CheckResult]:
    """Only if no other source gives the metric a value, and an exporter is scraped.

    After a scrape that exceeds its sampleLimit, Prometheus still returns older readings, without a staleness marker.
    """
    if state.targets and not any(row.value for row in state.targets.values()):
        return
    names = {row.labels.get("__name__", "") for row in state.prometheus.gpu_rows}
    users: dict[tuple[str, ...], list[AutoscalerState]] = {}
    for autoscaler in state.autoscalers:
        for metric in autoscaler.metrics:
            is_told = metric.is_blank_on_mig and autoscaler.mig_instances
            is_missing = metric.is_of_gpus and metric.sources and not names & set(metric.sources)
            if is_missing and metric.missing_in_api and not is_told:
                users.setdefault(metric.sources, []).append(autoscaler)
    images = {
        (EXPORTER.container(daemon_set) or {}).get("image", "").split("/")[-1] for daemon_set in state.agents.exporters
    }
    others = ", ".join(sorted(names)) or "other readings of GPUs"
    for sources, autoscalers in users.items() if names or state.prometheus.serving else ():
        fields = " or ".join(sources)
        yield CheckResult(
            EXPORTER_FIELD_MISSING,
            f"autoscaler {enumeration(list(map(str, autoscalers)))}",
            f"Prometheus has {others}, but no {fields}; exporter: {', '.join(sorted(images)) or 'no DaemonSet'}",
            state.affected_by(autoscalers),
            state.readable_s(state.agents.exporter_pods),
            template_vars={"fields": fields},
        )
