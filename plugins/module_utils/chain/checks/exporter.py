# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks that an exporter runs on each GPU node, and names the pods that hold GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...diagnosis.check import ALL, CheckResult, FindingTypes, check
from ...errors import counted
from ...hops import Hop
from ...kube.capacity import NVIDIA, gpus_of
from ...kube.known_components import EXPORTER
from ...kube.objects import KILLED, Manifest, environment, flag, labels_of, name_of, pod_spec, statuses, youngest
from ..daemon_sets import NOT_CREATED, RESTARTS, failing_pods, missing_on, nodes_without_exporter, place_of
from ..exporter_options import collect_interval_s, names_pods
from ..finding_texts import first_and_rest
from ..state.cluster import State
from .device_plugin import NODE_GRACE_S

_EXPORTER = FindingTypes(Hop.EXPORTER)

# The chart's exporter becomes ready after 45 s.
_START_GRACE_S = 120
# Older restarts are ignored.
_RECENT_S = 3600
_PODS = ("nodes", "daemon_sets", "component_pods")

EXPORTER_MOUNT_FAILS = _EXPORTER.error(
    "EXPORTER_MOUNT_FAILS",
    cause="the exporter waits for a volume that its node does not have. For example, /home/kubernetes/bin/nvidia "
    "exists only on GKE",
    fix="remove the volume from the exporter's values, or create it: kubectl -n {namespace} describe pod {name}",
    grace_s=_START_GRACE_S,
)


# Precedes the checks of its consequences.
@check("the exporter's volumes can be mounted", EXPORTER_MOUNT_FAILS, needs=("daemon_sets", "component_pods", "events"))
def mounts(state: State) -> Iterator[CheckResult]:
    for pod in state.agents.waiting_exporters:
        # Two events alternate: the error of one volume, and that the kubelet has waited for all volumes.
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


EXPORTER_MISSING = _EXPORTER.error(
    "EXPORTER_MISSING",
    cause="the cluster has no dcgm-exporter, and Prometheus has no series of GPUs",
    fix="run the dcgm_exporter role",
    grace_s=NODE_GRACE_S,
)


@check("dcgm-exporter is installed", EXPORTER_MISSING, needs=("nodes", "daemon_sets", "prometheus"))
def exporter_exists(state: State) -> Iterator[CheckResult]:
    if state.gpu_nodes and not state.agents.exporters and not state.prometheus.gpu_rows:
        yield CheckResult(
            EXPORTER_MISSING,
            first_and_rest("node", state.gpu_nodes),
            "no DaemonSet runs an image dcgm-exporter, and Prometheus has no series DCGM_FI_*",
            frozenset({ALL}),
            youngest(state.clock.age_s(node) for node in state.gpu_nodes.values()),
        )


EXPORTER_NOT_ON_NODE = _EXPORTER.error(
    "EXPORTER_NOT_ON_NODE",
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


EXPORTER_OUT_OF_MEMORY = _EXPORTER.warning(
    "EXPORTER_OUT_OF_MEMORY",
    cause="DCGM's memory grows with the GPUs of a node and their fields. The chart's limit of 512 Mi is too little "
    "for 8 GPUs",
    fix="raise its limit (the role's default is 2Gi): dcgm_exporter_values: {{resources: {{limits: {{memory: 4Gi}}}}}}",
)
EXPORTER_PROBES_KILL = _EXPORTER.error(
    "EXPORTER_PROBES_KILL",
    cause="the kubelet kills the exporter before it can answer: {why}",
    fix="dcgm_exporter_values: {{livenessProbe: {{initialDelaySeconds: 60, periodSeconds: 60}}}}, and a collect "
    "interval well below these",
)


@check(
    "the exporter is not restarted",
    EXPORTER_OUT_OF_MEMORY,
    EXPORTER_PROBES_KILL,
    needs=("daemon_sets", "component_pods"),
)
def exporter_restarts(state: State) -> Iterator[CheckResult]:
    """Restarts of running pods that the exporter did not cause itself; a reboot of the node does not count."""
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
    """Whether the pod's node has returned within so many seconds."""
    node = state.gpu_nodes.get(pod["spec"].get("nodeName", ""))
    back_s = state.clock.condition_age_s(node, "Ready") if node else None
    return back_s is not None and back_s <= ended_s


def _why_probe_kills(container: Manifest) -> str:
    probe = container.get("livenessProbe") or {}
    delay, collect_s = probe.get("initialDelaySeconds", 0), collect_interval_s(container)
    if delay <= collect_s:
        return f"its liveness probe begins after {delay} s, the first values come after {collect_s:g} s"
    return f"its liveness probe waits {probe.get('timeoutSeconds', 1)} s for an answer"


EXPORTER_NO_NVML = _EXPORTER.error(
    "EXPORTER_NO_NVML",
    cause="the container does not see the driver: containerd's default runtime is not nvidia and the pod names no "
    "RuntimeClass",
    fix="run the nvidia_container_toolkit role; set dcgm_exporter_runtime_class to nvidia",
    grace_s=NODE_GRACE_S,
    is_consequence=True,
)
EXPORTER_NOT_READY = _EXPORTER.error(
    "EXPORTER_NOT_READY",
    cause="the exporter of the node does not run",
    fix="kubectl -n {namespace} describe pod {name}; kubectl -n {namespace} logs {name} --previous",
    grace_s=_START_GRACE_S,
    is_consequence=True,
)


@check("the exporter's pods run", EXPORTER_NO_NVML, EXPORTER_NOT_READY, needs=_PODS)
def exporter_pods(state: State) -> Iterator[CheckResult]:
    yield from failing_pods(state, state.agents.exporter_pods, EXPORTER_NO_NVML, EXPORTER_NOT_READY)


EXPORTER_SERVES_NOTHING = _EXPORTER.error(
    "EXPORTER_SERVES_NOTHING",
    cause="the exporter answers, but no longer sees a GPU: the driver was reloaded, or a systemctl daemon-reload has "
    "removed the devices from its container",
    fix="kubectl -n {namespace} delete pod {name}; if this happens again, use CDI (nvidia_container_toolkit role), "
    "which "
    "keeps the devices",
    grace_s=_START_GRACE_S,
    is_consequence=True,
)


@check("the exporter sees GPUs", EXPORTER_SERVES_NOTHING, needs=(*_PODS, "prometheus"))
def exporter_values(state: State) -> Iterator[CheckResult]:
    """Exporters that Prometheus scrapes without any value. No result if relabeling hides the exporter of a series."""
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
                "up is 1, but it has no series DCGM_FI_*",
                state.affected_by_nodes([node]),
                youngest([state.clock.condition_age_s(pod, "Ready"), state.prometheus_age_s]),
                template_vars=place_of(pod),
            )


EXPORTER_NAMES_NO_PODS = _EXPORTER.error(
    "EXPORTER_NAMES_NO_PODS",
    cause="the exporter is not configured to query the kubelet for the pods of GPUs",
    fix="set DCGM_EXPORTER_KUBERNETES to true, as the dcgm_exporter role and NVIDIA's chart do",
)
EXPORTER_NO_POD_RESOURCES = _EXPORTER.error(
    "EXPORTER_NO_POD_RESOURCES",
    cause="the kubelet's pod-resources folder is not mounted, so the exporter cannot query the pods of GPUs",
    fix="mount /var/lib/kubelet/pod-resources, or the folder of a kubelet with another root (chart: kubeletPath)",
)
EXPORTER_DEVICE_IDS = _EXPORTER.error(
    "EXPORTER_DEVICE_IDS",
    cause="GKE's device plugin names GPUs nvidia0, but the exporter expects UUIDs",
    fix="set DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE to device-name",
)


@check(
    "the exporter queries which pods hold GPUs",
    EXPORTER_NAMES_NO_PODS,
    EXPORTER_NO_POD_RESOURCES,
    EXPORTER_DEVICE_IDS,
    needs=("nodes", "daemon_sets", "prometheus"),
)
def exporter_settings(state: State) -> Iterator[CheckResult]:
    """Why no series names a pod; no result if any does."""
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


EXPORTER_RESOURCE_NAMES = _EXPORTER.error(
    "EXPORTER_RESOURCE_NAMES",
    cause="the exporter supports only nvidia.com/gpu and nvidia.com/mig-*, so its series do not name pods with another "
    "resource",
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


EXPORTER_SHARED_GPUS = _EXPORTER.warning(
    "EXPORTER_SHARED_GPUS",
    cause="the exporter's series name only one of the pods that share a GPU",
    fix="use the metric shared, and dcgm_exporter_shared_gpus: true, which enables KUBERNETES_VIRTUAL_GPUS, hostPID "
    "and kubernetes.enablePodUID; or scale on a metric of the application",
)
EXPORTER_SHARED_GPUS_BLIND = _EXPORTER.warning(
    "EXPORTER_SHARED_GPUS_BLIND",
    cause="without the host's process IDs the exporter cannot measure each pod, so each pod has the value 0",
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
    """By GPU feature discovery's label, by the resource's name, or because more GPUs are offered than exist."""
    offered = gpus_of([node])
    return (
        labels_of(node).get("nvidia.com/gpu.sharing-strategy", "none") != "none"
        or any(resource.endswith(".shared") for resource in offered)
        or _offers_more_than_it_has(offered, facts.get("gpus") or ())
    )


def _offers_more_than_it_has(offered: Mapping[str, int], gpus: Sequence[Mapping[str, Any]]) -> bool:
    """MIG instances may be offered as whole GPUs, so nodes that may have some are skipped."""
    has_no_mig = bool(gpus) and all(gpu.get("mig_capable") is False for gpu in gpus)
    return has_no_mig and offered.get(f"{NVIDIA}gpu", 0) > len(gpus)


def summary(state: State) -> str:
    if not state.agents.exporter_pods:
        return "an exporter that is not a DaemonSet of this cluster"
    return f"{counted(len(state.agents.exporter_pods), 'pod')} of dcgm-exporter"


def nothing(state: State) -> str:
    return "" if state.agents.exporter_pods or state.prometheus.gpu_rows else "no dcgm-exporter is known"
