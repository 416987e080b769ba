# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...autoscaling.capacity import NVIDIA, gpus_of
from ...diagnosis.check import ALL, CheckResult, FindingType, check
from ...errors import enumeration
from ...hops import Hop
from ..daemon_sets import NOT_CREATED, RESTARTS, failing_pods, missing_on, nodes_without_exporter, place_of
from ..exporter_options import collect_interval_s, names_pods, repeats_values
from ..objects import (
    KILLED,
    Key,
    Manifest,
    containers_of,
    environment,
    flag,
    labels_of,
    name_of,
    pod_spec,
    statuses,
    youngest,
)
from ..signs import EXPORTER
from ..state.autoscaler import AutoscalerState
from ..state.cluster import State
from ..texts import first_and_rest
from .device_plugin import NODE_GRACE_S

# Readiness of the chart's exporter begins after 45 s.
_START_GRACE_S = 120
# Older restarts have passed.
_RECENT_S = 3600
_PROFILED = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
_UTILISATION = "DCGM_FI_DEV_GPU_UTIL"
_PODS = ("nodes", "daemon_sets", "component_pods")

EXPORTER_MOUNT_FAILS = FindingType(
    "EXPORTER_MOUNT_FAILS",
    Hop.EXPORTER,
    "error",
    cause="the exporter waits for a volume that its node does not have. For instance, /home/kubernetes/bin/nvidia "
    "exists on GKE only",
    fix="take the volume out of the exporter's values, or make it: kubectl -n {namespace} describe pod {name}",
    grace_s=_START_GRACE_S,
)


# Before the checks that see what follows from it.
@check("the exporter's volumes can be mounted", EXPORTER_MOUNT_FAILS, needs=("daemon_sets", "component_pods", "events"))
def mounts(state: State) -> Iterator[CheckResult]:
    for pod in state.agents.waiting_exporters:
        # Two events alternate: the fault of one volume, and that the kubelet has waited for all volumes.
        events = [event for event in state.warnings.about(pod) if event.get("reason") == "FailedMount"]
        events.sort(key=lambda event: "MountVolume" in str(event.get("message")))
        if events:
            node = pod["spec"]["nodeName"]
            yield CheckResult(
                EXPORTER_MOUNT_FAILS,
                f"pod {name_of(pod)} on node {node}",
                str(events[-1].get("message")),
                state.affected_by_nodes([node]),
                state.clock.age_s(pod),
                template_vars=place_of(pod),
            )


EXPORTER_MISSING = FindingType(
    "EXPORTER_MISSING",
    Hop.EXPORTER,
    "error",
    cause="the cluster has no dcgm-exporter, and Prometheus has no series of GPUs",
    fix="run the dcgm_exporter role",
    grace_s=NODE_GRACE_S,
)


@check("dcgm-exporter is there", EXPORTER_MISSING, needs=("nodes", "daemon_sets", "prometheus"))
def exporter_exists(state: State) -> Iterator[CheckResult]:
    if state.gpu_nodes and not state.agents.exporters and not state.prometheus.gpu_rows:
        yield CheckResult(
            EXPORTER_MISSING,
            first_and_rest("node", state.gpu_nodes),
            "no DaemonSet runs an image dcgm-exporter, and Prometheus has no series DCGM_FI_*",
            frozenset({ALL}),
            youngest(state.clock.age_s(node) for node in state.gpu_nodes.values()),
        )


EXPORTER_NOT_ON_NODE = FindingType(
    "EXPORTER_NOT_ON_NODE",
    Hop.EXPORTER,
    "error",
    cause="dcgm-exporter has no pod on a GPU node: {why}",
    fix="add a toleration to the exporter's values (dcgm_exporter_values: {{tolerations: [...]}})",
    grace_s=NODE_GRACE_S,
    is_consequence=True,
    evidence=NOT_CREATED,
)


@check("each GPU node has an exporter", EXPORTER_NOT_ON_NODE, needs=_PODS)
def exporter_on_nodes(state: State) -> Iterator[CheckResult]:
    for name, node, labels, why in nodes_without_exporter(state):
        if not labels:
            yield CheckResult(
                EXPORTER_NOT_ON_NODE,
                f"node {name}",
                missing_on(state.agents.exporters, why),
                state.affected_by_nodes([name]),
                state.clock.age_s(node),
                template_vars={"why": why},
            )


EXPORTER_OUT_OF_MEMORY = FindingType(
    "EXPORTER_OUT_OF_MEMORY",
    Hop.EXPORTER,
    "warning",
    cause="DCGM's memory grows with the GPUs of a node and their fields. The chart's limit of 512 Mi is too little "
    "for 8 GPUs",
    fix="raise its limit, which is 2Gi by the role: dcgm_exporter_values: {{resources: {{limits: {{memory: 4Gi}}}}}}",
)
EXPORTER_PROBES_KILL = FindingType(
    "EXPORTER_PROBES_KILL",
    Hop.EXPORTER,
    "error",
    cause="the kubelet ends the exporter before it can answer: {why}",
    fix="dcgm_exporter_values: {{livenessProbe: {{initialDelaySeconds: 60, periodSeconds: 30}}}}, and a collect "
    "interval well below these",
)


@check(
    "the exporter is not restarted",
    EXPORTER_OUT_OF_MEMORY,
    EXPORTER_PROBES_KILL,
    needs=("daemon_sets", "component_pods"),
)
def exporter_restarts(state: State) -> Iterator[CheckResult]:
    """Restarts that were not the exporter's own fault, of pods that run again; a reboot of the node is no restart."""
    for daemon_set in state.agents.exporters:
        container = EXPORTER.container(daemon_set) or {}
        for pod in state.agents.pods_of([daemon_set]):
            for status in statuses(pod):
                ended = (status.get("lastState") or {}).get("terminated") or {}
                age_s = state.clock.seconds_since(ended.get("finishedAt"))
                if age_s is None or age_s > _RECENT_S or _was_away_since(state, pod, age_s):
                    continue
                place = f"pod {name_of(pod)}"
                seen = f"{status.get('restartCount')} restarts, the last {age_s / 60:.0f} minutes ago"
                if ended.get("reason") == "OOMKilled":
                    limit = (container.get("resources") or {}).get("limits", {}).get("memory", "none")
                    yield CheckResult(EXPORTER_OUT_OF_MEMORY, place, f"{seen}: OOMKilled, limit {limit}", age_s=age_s)
                elif status.get("restartCount", 0) >= RESTARTS and ended.get("exitCode") in (0, *KILLED):
                    why = _why_probe_kills(container)
                    yield CheckResult(
                        EXPORTER_PROBES_KILL,
                        place,
                        f"{seen}, exit code {ended['exitCode']}: {why}",
                        state.affected_by_nodes([pod["spec"].get("nodeName", "")]),
                        age_s,
                        template_vars={"why": why},
                    )


def _was_away_since(state: State, pod: Manifest, ended_s: float) -> bool:
    """Whether the pod's node has come back since so many seconds."""
    node = state.gpu_nodes.get(pod["spec"].get("nodeName", ""))
    back_s = state.clock.condition_age_s(node, "Ready") if node else None
    return back_s is not None and back_s <= ended_s


def _why_probe_kills(container: Manifest) -> str:
    probe = container.get("livenessProbe") or {}
    delay, collect_s = probe.get("initialDelaySeconds", 0), collect_interval_s(container)
    if delay <= collect_s:
        return f"its liveness probe begins after {delay} s, the first values come after {collect_s:g} s"
    return f"its liveness probe waits {probe.get('timeoutSeconds', 1)} s for an answer"


EXPORTER_NO_NVML = FindingType(
    "EXPORTER_NO_NVML",
    Hop.EXPORTER,
    "error",
    cause="the container does not see the driver: containerd's default runtime is not nvidia and the pod names no "
    "RuntimeClass",
    fix="run the nvidia_container_toolkit role; set dcgm_exporter_runtime_class to nvidia",
    grace_s=NODE_GRACE_S,
    is_consequence=True,
)
EXPORTER_NOT_READY = FindingType(
    "EXPORTER_NOT_READY",
    Hop.EXPORTER,
    "error",
    cause="the exporter of the node does not run",
    fix="kubectl -n {namespace} describe pod {name}; kubectl -n {namespace} logs {name} --previous",
    grace_s=_START_GRACE_S,
    is_consequence=True,
)


@check("the exporter's pods run", EXPORTER_NO_NVML, EXPORTER_NOT_READY, needs=_PODS)
def exporter_pods(state: State) -> Iterator[CheckResult]:
    yield from failing_pods(state, state.agents.exporter_pods, EXPORTER_NO_NVML, EXPORTER_NOT_READY)


EXPORTER_SERVES_NOTHING = FindingType(
    "EXPORTER_SERVES_NOTHING",
    Hop.EXPORTER,
    "error",
    cause="the exporter answers, but sees no GPU any more: the driver was reloaded under it, or a systemctl "
    "daemon-reload has taken the devices from its container",
    fix="kubectl -n {namespace} delete pod {name}; if it comes back, use CDI (nvidia_container_toolkit role), which "
    "keeps the devices",
    grace_s=_START_GRACE_S,
    is_consequence=True,
)


@check("the exporter sees GPUs", EXPORTER_SERVES_NOTHING, needs=(*_PODS, "prometheus"))
def exporter_values(state: State) -> Iterator[CheckResult]:
    """Exporters that Prometheus reads without any value. Silent where a relabeling hides whose series are whose."""
    if state.prometheus.serving is None:
        return
    serving = {row.labels.get("instance") for row in state.prometheus.serving}
    if serving - {row.labels.get("instance") for row in state.prometheus.up}:
        return
    for pod in state.agents.exporter_pods:
        row, node = state.targets.get(name_of(pod)), pod["spec"].get("nodeName", "")
        if row and row.value and node in state.gpu_nodes and row.labels.get("instance") not in serving:
            yield CheckResult(
                EXPORTER_SERVES_NOTHING,
                f"pod {name_of(pod)} on node {node}",
                "up is 1, but it has no readings DCGM_FI_*",
                state.affected_by_nodes([node]),
                youngest([state.clock.condition_age_s(pod, "Ready"), state.prometheus_age_s]),
                template_vars=place_of(pod),
            )


EXPORTER_NAMES_NO_PODS = FindingType(
    "EXPORTER_NAMES_NO_PODS",
    Hop.EXPORTER,
    "error",
    cause="the exporter is not told to ask the kubelet which pod holds a GPU",
    fix="set DCGM_EXPORTER_KUBERNETES to true, as the dcgm_exporter role and NVIDIA's chart do",
)
EXPORTER_NO_POD_RESOURCES = FindingType(
    "EXPORTER_NO_POD_RESOURCES",
    Hop.EXPORTER,
    "error",
    cause="the kubelet's pod-resources folder is not mounted, so the exporter cannot ask which pod holds a GPU",
    fix="mount /var/lib/kubelet/pod-resources, or the folder of a kubelet with another root (chart: kubeletPath)",
)
EXPORTER_DEVICE_IDS = FindingType(
    "EXPORTER_DEVICE_IDS",
    Hop.EXPORTER,
    "error",
    cause="GKE's device plugin calls GPUs nvidia0, the exporter looks for UUIDs",
    fix="set DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE to device-name",
)


@check(
    "the exporter asks which pods hold GPUs",
    EXPORTER_NAMES_NO_PODS,
    EXPORTER_NO_POD_RESOURCES,
    EXPORTER_DEVICE_IDS,
    needs=("nodes", "daemon_sets", "prometheus"),
)
def exporter_settings(state: State) -> Iterator[CheckResult]:
    """Why no series names a pod; silent as soon as one does."""
    if state.prometheus.names_pods:
        return
    is_on_gke = any("cloud.google.com/gke-accelerator" in labels_of(node) for node in state.gpu_nodes.values())
    for daemon_set in state.agents.exporters:
        container, name = EXPORTER.container(daemon_set) or {}, f"DaemonSet {name_of(daemon_set)}"
        affected = frozenset({ALL}) if len(state.agents.exporters) == 1 else frozenset()
        age_s = state.clock.last_change_age_s(daemon_set)
        id_type = (
            environment(container).get("DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE")
            or flag(container, "--kubernetes-gpu-id-type")
            or "uid"
        )
        if not names_pods(container):
            yield CheckResult(EXPORTER_NAMES_NO_PODS, name, "DCGM_EXPORTER_KUBERNETES is not true", affected, age_s)
        elif not _mounts_pod_resources(daemon_set):
            seen = "none of its volumes is a pod-resources folder"
            yield CheckResult(EXPORTER_NO_POD_RESOURCES, name, seen, affected, age_s)
        elif is_on_gke and id_type != "device-name" and state.prometheus.gpu_rows:
            seen = f"DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE is {id_type}"
            yield CheckResult(EXPORTER_DEVICE_IDS, name, seen, affected, age_s)


def _mounts_pod_resources(daemon_set: Manifest) -> bool:
    volumes = pod_spec(daemon_set).get("volumes") or ()
    return any("pod-resources" in (volume.get("hostPath") or {}).get("path", "") for volume in volumes)


EXPORTER_RESOURCE_NAMES = FindingType(
    "EXPORTER_RESOURCE_NAMES",
    Hop.EXPORTER,
    "error",
    cause="the exporter knows nvidia.com/gpu and nvidia.com/mig-* only, so it does not name pods with another resource",
    fix="dcgm_exporter_values: {{extraEnv: [{{name: NVIDIA_RESOURCE_NAMES, value: '{resources}'}}]}}",
)


@check(
    "the exporter knows the resources of the pods",
    EXPORTER_RESOURCE_NAMES,
    needs=("daemon_sets", "prometheus", "metrics"),
)
def resource_names(state: State) -> Iterator[CheckResult]:
    known = {
        name.strip()
        for daemon_set in state.agents.exporters
        for name in environment(EXPORTER.container(daemon_set) or {}).get("NVIDIA_RESOURCE_NAMES", "").split(",")
    }
    for autoscaler in state.autoscalers:
        if not any(metric.is_of_gpus for metric in autoscaler.metrics):
            continue
        unknown = [name for name in autoscaler.gpus if not _is_built_in(name) and name not in known]
        if state.agents.exporters and unknown and not state.names_a_pod_of(autoscaler):
            yield CheckResult(
                EXPORTER_RESOURCE_NAMES,
                autoscaler.workload,
                f"its pods ask for {', '.join(unknown)}, NVIDIA_RESOURCE_NAMES is "
                f"{', '.join(sorted(known - {''})) or 'empty'}",
                state.affected_by([autoscaler]),
                template_vars={"resources": ",".join(unknown)},
            )


def _is_built_in(resource: str) -> bool:
    return resource == f"{NVIDIA}gpu" or resource.startswith(f"{NVIDIA}mig-")


EXPORTER_SHARED_GPUS = FindingType(
    "EXPORTER_SHARED_GPUS",
    Hop.EXPORTER,
    "warning",
    cause="the exporter names only one of the pods that share a GPU",
    fix="use the metric shared, and dcgm_exporter_shared_gpus: true, which turns KUBERNETES_VIRTUAL_GPUS, hostPID and "
    "kubernetes.enablePodUID on; or scale on a metric of the application",
)
EXPORTER_SHARED_GPUS_BLIND = FindingType(
    "EXPORTER_SHARED_GPUS_BLIND",
    Hop.EXPORTER,
    "warning",
    cause="without the host's process ids the exporter cannot tell which pod uses how much: each pod reads 0",
    fix="set dcgm_exporter_shared_gpus: true, or hostPID and kubernetes.enablePodUID of the chart",
)


@check("shared GPUs", EXPORTER_SHARED_GPUS, EXPORTER_SHARED_GPUS_BLIND, needs=("nodes", "daemon_sets"))
def sharing(state: State) -> Iterator[CheckResult]:
    shared = [name for name, node in state.gpu_nodes.items() if _is_shared(node, state.facts.get(name, {}))]
    for daemon_set in state.agents.exporters if shared else ():
        container, name = EXPORTER.container(daemon_set) or {}, f"DaemonSet {name_of(daemon_set)}"
        nodes, age_s = first_and_rest("node", shared), state.clock.last_change_age_s(daemon_set)
        if environment(container).get("KUBERNETES_VIRTUAL_GPUS", "").lower() != "true":
            seen = f"{nodes} share GPUs, KUBERNETES_VIRTUAL_GPUS is not true"
            yield CheckResult(EXPORTER_SHARED_GPUS, name, seen, age_s=age_s)
        elif not pod_spec(daemon_set).get("hostPID"):
            yield CheckResult(EXPORTER_SHARED_GPUS_BLIND, name, f"{nodes} share GPUs, hostPID is not true", age_s=age_s)


def _is_shared(node: Manifest, facts: Mapping[str, Any]) -> bool:
    """By GPU feature discovery's label, by the resource's name, or because more are offered than there are."""
    offered = gpus_of([node])
    return (
        labels_of(node).get("nvidia.com/gpu.sharing-strategy", "none") != "none"
        or any(resource.endswith(".shared") for resource in offered)
        or _offers_more_than_it_has(offered, facts.get("gpus") or ())
    )


def _offers_more_than_it_has(offered: Mapping[str, int], gpus: Sequence[Mapping[str, Any]]) -> bool:
    """MIG instances may be offered as whole GPUs: a node that may have any says nothing."""
    has_no_mig = bool(gpus) and all(gpu.get("mig_capable") is False for gpu in gpus)
    return has_no_mig and offered.get(f"{NVIDIA}gpu", 0) > len(gpus)


PROFILING_MISSING = FindingType(
    "PROFILING_MISSING",
    Hop.EXPORTER,
    "error",
    cause="a metric needs DCGM's profiling fields, which are not there: {why}",
    fix="grant SYS_ADMIN to the exporter; where GPUs have no profiling use the metric gpu_util",
    grace_s=_START_GRACE_S,
    is_consequence=True,
)


@check("profiling fields", PROFILING_MISSING, needs=("daemon_sets", "prometheus"))
def profiling(state: State) -> Iterator[CheckResult]:
    """Only where a metric has no other source: the metric gpu falls back on GPU_UTIL by itself."""
    needing = [
        autoscaler
        for autoscaler in state.autoscalers
        if any(metric.is_of_gpus and metric.needs_profiling for metric in autoscaler.metrics)
    ]
    names = {row.labels.get("__name__", "") for row in state.prometheus.gpu_rows}
    if not needing or _UTILISATION not in names or _has_profiling(names):
        return
    able = any(_may_profile(daemon_set) for daemon_set in state.agents.exporters)
    why = "these GPUs or this DCGM have none" if able else "the exporter lacks the capability SYS_ADMIN"
    yield CheckResult(
        PROFILING_MISSING,
        first_and_rest("autoscaler", map(str, needing)),
        f"Prometheus has {_UTILISATION}, but no DCGM_FI_PROF_*: {why}",
        state.affected_by(needing),
        youngest(
            [state.prometheus_age_s, *(state.clock.condition_age_s(pod, "Ready") for pod in state.agents.exporter_pods)]
        ),
        template_vars={"why": why},
    )


def _has_profiling(names: set[str]) -> bool:
    return any("_PROF_" in name for name in names)


def _may_profile(daemon_set: Manifest) -> bool:
    contexts = [container.get("securityContext") or {} for container in containers_of(daemon_set)]
    return any(
        context.get("privileged") or "SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ())
        for context in contexts
    )


PROFILING_FROZEN = FindingType(
    "PROFILING_FROZEN",
    Hop.EXPORTER,
    "error",
    cause="another profiler (nsys, ncu, a second DCGM) holds the GPU's counters, or an Xid error has stopped sampling",
    fix="end the other profiler; dcgmi profile --resume; restart the exporter on the node",
)


@check("profiling is alive", PROFILING_FROZEN, needs=("prometheus",))
def profiling_frozen(state: State) -> Iterator[CheckResult]:
    for row in state.prometheus.frozen:
        users = _users_of_pod(state, row.pod)
        yield CheckResult(
            PROFILING_FROZEN,
            f"GPU {row.labels.get('UUID')}",
            f"{_UTILISATION} is at least {row.value:g} and {_PROFILED} is 0 for 5 minutes",
            state.affected_by(users) if users else frozenset(),
        )


EXPORTER_LOSES_A_GPU = FindingType(
    "EXPORTER_LOSES_A_GPU",
    Hop.EXPORTER,
    "error",
    cause="DCGM cannot read a field of the GPU and writes a huge number instead. A rule of this collection leaves it "
    "out; a rule without bounds scales to the maximum on it",
    fix="on the node: dmesg | grep -i xid; restart the exporter there, then reset the GPU or reboot the node",
)
EXPORTER_IMPOSSIBLE_VALUES = FindingType(
    "EXPORTER_IMPOSSIBLE_VALUES",
    Hop.EXPORTER,
    "warning",
    cause="DCGM writes a huge number for a field that it cannot read. No autoscaled pod holds the GPU, but a rule "
    "without bounds may count it",
    fix="restart the exporter on the node; profiles of this collection leave such values out",
)


@check("values can be true", EXPORTER_LOSES_A_GPU, EXPORTER_IMPOSSIBLE_VALUES, needs=("prometheus",))
def impossible_values(state: State) -> Iterator[CheckResult]:
    """For GPUs that autoscaled pods hold. Only if there are no such values, for other GPUs."""
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


EXPORTER_TWICE = FindingType(
    "EXPORTER_TWICE",
    Hop.EXPORTER,
    "warning",
    cause="two exporters, or two jobs, report the same GPU: a sum counts it twice",
    fix="keep one of them; the gpu-operator's is switched off by dcgmExporter.enabled: false",
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


EXPORTER_COLLECTS_SLOWLY = FindingType(
    "EXPORTER_COLLECTS_SLOWLY",
    Hop.EXPORTER,
    "warning",
    cause="the exporter reads the GPUs less often than Prometheus asks it: values repeat and react late",
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
                f"it reads the GPUs every {collect_s:g} s, Prometheus asks every {min(scrapes):g} s",
                age_s=state.clock.last_change_age_s(daemon_set),
            )


@check(
    "profiling fields on each node",
    PROFILING_MISSING,
    needs=("nodes", "daemon_sets", "component_pods", "prometheus", "metrics"),
)
def profiling_by_node(state: State) -> Iterator[CheckResult]:
    """DCGM leaves profiling out for a whole node if one of its GPUs has none."""
    fields = _fields_by_node(state)
    needed = {
        node
        for autoscaler in state.autoscalers
        if any(metric.is_of_gpus and metric.needs_profiling for metric in autoscaler.metrics)
        for node in autoscaler.nodes
    }
    exporters = state.agents.by_node(state.agents.exporters)
    for node in sorted(needed) if any(map(_has_profiling, fields.values())) else ():
        if _UTILISATION in fields.get(node, ()) and not _has_profiling(fields[node]):
            yield CheckResult(
                PROFILING_MISSING,
                f"node {node}",
                f"its exporter reports {_UTILISATION}, but no DCGM_FI_PROF_*, which other nodes have",
                state.affected_by_nodes([node]),
                state.readable_s(exporters.get(node, ())),
                template_vars={"why": "one GPU of a node without them is enough"},
            )


def _fields_by_node(state: State) -> dict[str, set[str]]:
    """Which of the metrics' sources each node's exporter reports, where its target can be told from others."""
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


EXPORTER_FIELD_MISSING = FindingType(
    "EXPORTER_FIELD_MISSING",
    Hop.EXPORTER,
    "error",
    cause="the exporter reports GPUs, but not {fields}. Its list of counters lacks the field, or this version of "
    "exporter or driver does not give it any more",
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
    """Only where nothing else gives the metric a value."""
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


def summary(state: State) -> str:
    if not state.agents.exporter_pods:
        return "an exporter that is no DaemonSet of this cluster"
    return f"{len(state.agents.exporter_pods)} pods of dcgm-exporter"


def nothing(state: State) -> str:
    return "" if state.agents.exporter_pods or state.prometheus.gpu_rows else "no dcgm-exporter is known"
