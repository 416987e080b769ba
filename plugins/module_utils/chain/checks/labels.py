# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Iterator

from ...diagnosis.check import ALL, CheckResult, FindingTypes, check
from ...errors import counted
from ...hops import Hop
from ...kube.objects import Key, Manifest, labels_of, youngest
from ...kube.resource_claims import limits_of
from ..finding_texts import pods_text
from ..state.autoscaler import AutoscalerState
from ..state.cluster import State
from ..state.metric import MetricState

_LABELS = FindingTypes(Hop.LABELS)

POD_WITHOUT_GPU_LIMIT = _LABELS.error(
    "POD_WITHOUT_GPU_LIMIT",
    cause="the pods have no GPUs from the kubelet, so the exporter's series do not name them. They use GPUs without "
    "the kubelet, through NVIDIA_VISIBLE_DEVICES or as privileged pods",
    fix="set resources.limits nvidia.com/gpu in a container of the pod template",
    before="warn",
)


@check("pods have a GPU limit", POD_WITHOUT_GPU_LIMIT, needs=("targets", "prometheus", "metrics"))
def gpu_limits(state: State) -> Iterator[CheckResult]:
    for autoscaler in state.autoscalers:
        metric = next((metric for metric in autoscaler.metrics if metric.is_of_gpus), None)
        limits = limits_of(autoscaler.template)
        has_gpus = limits or autoscaler.template.get("resourceClaims") or state.names_a_pod_of(autoscaler)
        if metric and autoscaler.template and not has_gpus:
            yield CheckResult(
                POD_WITHOUT_GPU_LIMIT,
                autoscaler.workload,
                f"no container of its pod template has a limit of nvidia.com/*, and it scales on {metric.name}",
                state.affected_by([autoscaler]),
                state.clock.last_change_age_s(autoscaler.target) if autoscaler.target else None,
            )


METRIC_BLANK_ON_MIG = _LABELS.error(
    "METRIC_BLANK_ON_MIG",
    cause="the driver reports no GPU_UTIL for MIG instances",
    fix="use the metric gpu or mig, which read GR_ENGINE_ACTIVE",
    before="warn",
)
METRIC_BLANK_ON_WHOLE_GPUS = _LABELS.error(
    "METRIC_BLANK_ON_WHOLE_GPUS",
    cause="the metric mig reads only MIG instances, but the pods have whole GPUs",
    fix="use the metric gpu",
    before="warn",
)


@check("metrics fit MIG", METRIC_BLANK_ON_MIG, METRIC_BLANK_ON_WHOLE_GPUS)
def mig(state: State) -> Iterator[CheckResult]:
    for autoscaler in state.autoscalers:
        instances = autoscaler.mig_instances
        asked_for = ", ".join(autoscaler.gpus)
        for metric in autoscaler.metrics:
            affected = state.affected_by([autoscaler])
            if instances and metric.is_blank_on_mig:
                seen = f"metric {metric.name} reads {' or '.join(metric.sources)}, its pods ask for {asked_for}"
                yield CheckResult(METRIC_BLANK_ON_MIG, f"autoscaler {autoscaler}", seen, affected)
            elif (
                metric.name == "mig"
                and autoscaler.gpus
                and not instances
                and not _may_be_mig(state)
                and (state.is_before or metric.missing_in_api)
            ):
                seen = f"metric mig has no value for pods that ask for {asked_for}"
                yield CheckResult(METRIC_BLANK_ON_WHOLE_GPUS, f"autoscaler {autoscaler}", seen, affected)


def _may_be_mig(state: State) -> bool:
    """With MIG strategy "single", and on GKE, instances are offered as nvidia.com/gpu; a node label shows it."""
    return any(
        labels.get("nvidia.com/mig.strategy") == "single" or "cloud.google.com/gke-gpu-partition-size" in labels
        for labels in map(labels_of, state.nodes)
    )


EXPORTER_NO_POD_LABELS = _LABELS.error(
    "EXPORTER_NO_POD_LABELS",
    cause="no GPU series names a pod, although pods hold GPUs",
    fix="check the log of dcgm-exporter for pod-resources; check that no relabeling drops the labels pod and "
    "exported_pod",
    grace_s=120,
    is_consequence=True,
)
SERIES_WITHOUT_NAMESPACE = _LABELS.error(
    "SERIES_WITHOUT_NAMESPACE",
    cause="the series name pods, but not their namespace: a relabeling has dropped it",
    fix="remove the rule for namespace or exported_namespace from the monitor's metricRelabelings",
)


@check(
    "series name pods",
    EXPORTER_NO_POD_LABELS,
    SERIES_WITHOUT_NAMESPACE,
    needs=("component_pods", "prometheus", "metrics"),
)
def some_pod_is_named(state: State) -> Iterator[CheckResult]:
    users = [autoscaler for autoscaler, metric in _metrics_of_exporters(state) if metric.is_of_gpus]
    if not users or not state.prometheus.gpu_rows or state.prometheus.names_pods:
        return
    labels = [row.labels for row in state.prometheus.gpu_rows]
    if any(row.get("exported_pod") or (row.get("pod") and not row.get("namespace")) for row in labels):
        pod = next((row.get("pod") or row.get("exported_pod") for row in labels), None)
        yield CheckResult(
            SERIES_WITHOUT_NAMESPACE,
            "series DCGM_FI_*",
            f"{len(labels)} kinds of series, a pod is {pod}, no namespace",
            frozenset({ALL}),
        )
        return
    ready_pods = [pod for autoscaler in users for pod in autoscaler.ready_pods]
    yield CheckResult(
        EXPORTER_NO_POD_LABELS,
        "series DCGM_FI_*",
        f"{len(labels)} kinds of series, none names a pod of {counted(len(users), 'autoscaler')} with GPUs",
        frozenset({ALL}),
        youngest(
            [
                state.clock.longest_ready_s(ready_pods),
                *(state.clock.condition_age_s(pod, "Ready") for pod in state.agents.exporter_pods),
                state.prometheus_age_s,
                0.0 if _named_lately(state) else None,
            ]
        ),
    )


def _metrics_of_exporters(state: State) -> Iterator[tuple[AutoscalerState, MetricState]]:
    for autoscaler in state.autoscalers:
        for metric in autoscaler.metrics:
            if metric.sources and metric.expected_objects:
                yield autoscaler, metric


GPU_ROWS_FROM_ELSEWHERE = _LABELS.warning(
    "GPU_ROWS_FROM_ELSEWHERE",
    cause="targets that are not exporters of this cluster report GPUs of pods, and a recording rule without "
    "prometheus.selectors.exporter uses them",
    fix="set prometheus.selectors.exporter to labels that only the exporter's targets have, and remove the monitor of "
    "the others",
)


@check(
    "rows of GPUs come from the exporter",
    GPU_ROWS_FROM_ELSEWHERE,
    needs=("daemon_sets", "component_pods", "prometheus"),
)
def rows_are_the_exporters(state: State) -> Iterator[CheckResult]:
    """Finds the job by the target with the row's address."""
    jobs = {row.target[0] for row in state.targets.values()}
    jobs_at: dict[str, set[str]] = {}
    for row in state.prometheus.up:
        jobs_at.setdefault(row.target[1], set()).add(row.target[0])
    named = {row.labels.get("instance", ""): row.pod for row in state.prometheus.gpu_rows if row.pod}
    others = sorted(instance for instance in named if jobs_at.get(instance) and not jobs_at[instance] & jobs)
    if jobs and others:
        namespace, pod = named[others[0]] or ("", "")
        yield CheckResult(
            GPU_ROWS_FROM_ELSEWHERE,
            "series DCGM_FI_*",
            f"target {others[0]} of job {', '.join(sorted(jobs_at[others[0]]))} reports a GPU of {namespace}/{pod}; "
            f"the exporter's job is {', '.join(sorted(jobs))}",
        )


POD_WITHOUT_SERIES = _LABELS.error(
    "POD_WITHOUT_SERIES",
    cause="the exporter serves GPUs, but no series names these pods",
    fix="run dcgm-exporter and NVIDIA's device plugin on their nodes; for a model server's pods, create a PodMonitor",
    grace_s=120,
    is_consequence=True,
)


@check("series name each pod", POD_WITHOUT_SERIES, needs=("component_pods", "prometheus", "metrics"))
def each_pod_is_named(state: State) -> Iterator[CheckResult]:
    """Pods that no series names, by node, because the exporter of one node may be the cause."""
    exporters, named_lately = state.agents.by_node(state.agents.exporters), _named_lately(state)
    for autoscaler, metric in _metrics_of_exporters(state):
        named = set().union(*(state.prometheus.pods_named_by.get(source, set()) for source in metric.sources))
        by_node: dict[str, list[Manifest]] = {}
        for pod in autoscaler.ready_pods:
            if (autoscaler.key[0], pod["metadata"]["name"]) not in named:
                by_node.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
        for node, pods in by_node.items():
            # If Prometheus has a recent series that names the pod, it was lost just now.
            unnamed = [pod for pod in pods if (autoscaler.key[0], pod["metadata"]["name"]) not in named_lately]
            yield CheckResult(
                POD_WITHOUT_SERIES,
                f"pods of {autoscaler.workload}",
                f"no row of {' or '.join(metric.sources)} names {pods_text(pods)}{f' on node {node}' if node else ''}",
                state.affected_by([autoscaler]) | {f"node {node}"},
                youngest(
                    [
                        state.clock.longest_ready_s(unnamed) if unnamed else 0.0,
                        *(
                            state.clock.condition_age_s(pod, "Ready")
                            for pod in exporters.get(node, ())
                            if metric.is_of_gpus
                        ),
                        state.prometheus_age_s,
                    ]
                ),
                more_grace_s=autoscaler.lag_s,
            )


def _named_lately(state: State) -> set[Key]:
    """Pods that any row has named in the last minutes."""
    return {row.pod for row in state.prometheus.rows_lately if row.pod}


def summary(state: State) -> str:
    """The layouts of labels in use, and the number of pods that the series name."""
    rows = [row for row in state.prometheus.rows if row.pod]
    layouts = {
        "exported_namespace, exported_pod"
        if row.labels.get("exported_pod")
        else "exported_namespace, pod"
        if row.labels.get("exported_namespace")
        else "namespace, pod"
        for row in rows
    }
    return f"{counted(len({row.pod for row in rows}), 'pod')} named by {' and by '.join(sorted(layouts))}"


def nothing(state: State) -> str:
    return "" if any(row.pod for row in state.prometheus.rows) else "no series names a pod"
