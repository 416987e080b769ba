# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Checks of what runs on GPU nodes: driver, device plugin, labels, dcgm-exporter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...autoscaling.capacity import NVIDIA, gpus_of, may_run_on
from ..findings import Check, Symptom
from ..objects import (
    KILLED,
    Manifest,
    condition,
    containers_of,
    environment,
    flag,
    has_crashed,
    is_ready,
    labels_of,
    mentions_nvml,
    name_of,
    pod_spec,
    statuses,
    trouble,
    youngest,
)
from ..state import (
    ALL,
    AutoscalerState,
    State,
    collect_interval_s,
    exporter_container,
    lost_gpus,
    names_pods,
    repeats_values,
)

# Older restarts have passed.
_RECENT_S = 3600
_RESTARTS = 3
_OWN_TAINTS = ("node.kubernetes.io/",)
_PROFILED = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
_UTILISATION = "DCGM_FI_DEV_GPU_UTIL"


def _drivers(state: State) -> Iterator[Symptom]:
    for node, facts in state.facts.items():
        reach = state.on_nodes([node])
        if facts.get("driver_problem"):
            yield Symptom("DRIVER_BROKEN", f"node {node}", facts["driver_problem"], reach)
        elif facts.get("reboot_required"):
            yield Symptom("DRIVER_NEEDS_REBOOT", f"node {node}", facts.get("reboot_reason") or "reboot_required", reach)


def _nodes_ready(state: State) -> Iterator[Symptom]:
    for name, node in state.gpu_nodes.items():
        found = condition(node, "Ready")
        if found and found.get("status") != "True":
            yield Symptom(
                "NODE_NOT_READY",
                f"node {name}",
                f"Ready is {found.get('status')}, {found.get('reason')}: {found.get('message')}",
                state.on_nodes([name]),
                state.turned(node, "Ready"),
                words={"name": name},
            )


def _is_up(node: Manifest) -> bool:
    return condition(node, "Ready").get("status", "True") == "True"


def _plugin_there(state: State) -> Iterator[Symptom]:
    bare = state.bare_nodes
    if bare and not state.plugins:
        yield Symptom(
            "DEVICE_PLUGIN_MISSING",
            _some("node", bare),
            f"{len(bare)} GPU nodes have no {NVIDIA}gpu, and no DaemonSet runs an image of the device plugin",
            state.on_nodes(bare),
            youngest(state.created(node) for node in bare.values()),
        )


def _plugin_pods(state: State) -> Iterator[Symptom]:
    yield from _unready_pods(state, state.pods_of(state.plugins), "DEVICE_PLUGIN_NO_NVML", "DEVICE_PLUGIN_NOT_READY")


def _unready_pods(state: State, pods: Sequence[Manifest], no_nvml: str, not_ready: str) -> Iterator[Symptom]:
    for pod in pods:
        if pod["spec"].get("nodeName") in state.gpu_nodes and not _is_fine(pod):
            yield _unready(state, pod, pods, no_nvml, not_ready)


def _is_fine(pod: Manifest) -> bool:
    return is_ready(pod) or bool(pod["metadata"].get("deletionTimestamp"))


def _unready(state: State, pod: Manifest, siblings: Sequence[Manifest], no_nvml: str, not_ready: str) -> Symptom:
    text, node = trouble(pod), pod["spec"].get("nodeName", "")
    is_blind = mentions_nvml(text)
    if not is_blind and _lacks_runtime(pod, siblings):
        is_blind, text = True, f"{text}; its pod names no RuntimeClass"
    return Symptom(
        no_nvml if is_blind else not_ready,
        f"pod {name_of(pod)} on node {node}",
        text or f"phase {(pod.get('status') or {}).get('phase')}, not ready",
        state.on_nodes([node]),
        # A pod in a crash loop is ready in between, so what counts is when it was made.
        state.created(pod) if _restarts(pod) >= _RESTARTS else state.turned(pod, "Ready"),
        words=_words(pod),
    )


def _lacks_runtime(pod: Manifest, siblings: Sequence[Manifest]) -> bool:
    """Whether it ends by itself, without a RuntimeClass, and no other pod shows that it would do without one."""
    return (
        not pod["spec"].get("runtimeClassName")
        and has_crashed(pod)
        and not any(is_ready(each) and not each["spec"].get("runtimeClassName") for each in siblings)
    )


def _words(pod: Manifest) -> dict[str, str]:
    return {"namespace": pod["metadata"]["namespace"], "name": pod["metadata"]["name"]}


def _restarts(pod: Manifest) -> int:
    return max((status.get("restartCount", 0) for status in statuses(pod)), default=0)


def _plugin_on_nodes(state: State) -> Iterator[Symptom]:
    there = state.by_node(state.plugins)
    for name, node in state.bare_nodes.items():
        if state.plugins and name not in there:
            labels, why = _obstacle(state.plugins, node)
            yield Symptom(
                "DEVICE_PLUGIN_NOT_ON_NODE",
                f"node {name}",
                f"it has no pod of {' or '.join(name_of(each) for each in state.plugins)}: {why}",
                state.on_nodes([name]),
                state.created(node),
                words={"why": why, "labels": labels},
            )


def _obstacle(daemon_sets: Sequence[Manifest], node: Manifest) -> tuple[str, str]:
    """The labels that a node lacks for the first DaemonSet, empty if it has them; and what keeps its pods away."""
    pod = pod_spec(daemon_sets[0])
    without_taints = {**node, "spec": {}}
    if not may_run_on(pod, without_taints):
        return _wanted_labels(pod), f"it lacks a label that the DaemonSet selects nodes by ({_wanted_labels(pod)})"
    taints = [each for each in (node.get("spec") or {}).get("taints") or () if not _is_tolerated_by_all(each)]
    if taints and not may_run_on(pod, {**node, "spec": {"taints": taints}}):
        return "", "a taint is not tolerated, " + ", ".join(_taint(each) for each in taints)
    return "", "the DaemonSet's controller has made none there"


def _is_tolerated_by_all(taint: Manifest) -> bool:
    """The DaemonSet controller adds tolerations for these itself."""
    return taint["key"].startswith(_OWN_TAINTS)


def _taint(taint: Mapping[str, Any]) -> str:
    return f"{taint['key']}{'=' + taint['value'] if taint.get('value') else ''}:{taint['effect']}"


def _wanted_labels(pod: Mapping[str, Any]) -> str:
    selected = [f"{key}={value}" for key, value in (pod.get("nodeSelector") or {}).items()]
    affinity = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = [
        f"{each['key']}={(each.get('values') or ['...'])[0]}"
        for term in (affinity or {}).get("nodeSelectorTerms") or ()
        for each in term.get("matchExpressions") or ()
    ]
    return ", ".join(selected) or " or ".join(terms)


def _allocatable(state: State) -> Iterator[Symptom]:
    there, bare = state.by_node(state.plugins), state.bare_nodes
    for name, node in state.gpu_nodes.items():
        pods = there.get(name, [])
        age = youngest([state.turned(node, "Ready"), *(state.turned(pod, "Ready") for pod in pods)])
        reach = state.on_nodes([name])
        if pods and name in bare:
            yield Symptom(
                "NODE_WITHOUT_GPUS",
                f"node {name}",
                f"Ready, with a pod of the device plugin, but status.allocatable has no {NVIDIA}gpu",
                reach,
                age,
                words=_words(pods[0]),
            )
        elif (lost := lost_gpus(node)) and _is_up(node):
            yield Symptom("GPU_UNHEALTHY", f"node {name}", lost, reach, age)


def _exporter_labels(state: State) -> Iterator[Symptom]:
    yield from _nodes_without_exporter(state, for_labels=True)


def _exporter_on_nodes(state: State) -> Iterator[Symptom]:
    yield from _nodes_without_exporter(state, for_labels=False)


def _nodes_without_exporter(state: State, *, for_labels: bool) -> Iterator[Symptom]:
    """Nodes whose GPUs can be asked for, but are not seen."""
    there = state.by_node(state.exporters)
    for name, node in state.gpu_nodes.items():
        if not state.exporters or name in there or name in state.bare_nodes:
            continue
        labels, why = min((_obstacle([each], node) for each in state.exporters), key=lambda found: bool(found[0]))
        if bool(labels) == for_labels:
            yield Symptom(
                "NODE_LABEL_MISSING" if for_labels else "EXPORTER_NOT_ON_NODE",
                f"node {name}",
                f"it has no pod of {' or '.join(name_of(each) for each in state.exporters)}: {why}",
                state.on_nodes([name]),
                state.created(node),
                words={"component": "dcgm-exporter", "labels": labels, "why": why},
            )


def _exporter_there(state: State) -> Iterator[Symptom]:
    if state.gpu_nodes and not state.exporters and not state.gpu_rows:
        yield Symptom(
            "EXPORTER_MISSING",
            _some("node", state.gpu_nodes),
            "no DaemonSet runs an image dcgm-exporter, and Prometheus has no series DCGM_FI_*",
            frozenset({ALL}),
            youngest(state.created(node) for node in state.gpu_nodes.values()),
        )


def _exporter_pods(state: State) -> Iterator[Symptom]:
    yield from _unready_pods(state, state.exporter_pods, "EXPORTER_NO_NVML", "EXPORTER_NOT_READY")


def _exporter_values(state: State) -> Iterator[Symptom]:
    """Exporters that are read, and have nothing to say. Silent where a relabeling hides whose series are whose."""
    if state.prometheus.serving is None:
        return
    serving = {row.labels.get("instance") for row in state.prometheus.serving}
    if serving - {row.labels.get("instance") for row in state.prometheus.up}:
        return
    for pod in state.exporter_pods:
        row, node = state.targets.get(name_of(pod)), pod["spec"].get("nodeName", "")
        if row and row.value and node in state.gpu_nodes and row.labels.get("instance") not in serving:
            yield Symptom(
                "EXPORTER_SERVES_NOTHING",
                f"pod {name_of(pod)} on node {node}",
                "up is 1, but it has no readings DCGM_FI_*",
                state.on_nodes([node]),
                youngest([state.turned(pod, "Ready"), state.prometheus_age]),
                words=_words(pod),
            )


def _exporter_restarts(state: State) -> Iterator[Symptom]:
    """Restarts that were not the exporter's own fault, of pods that run again."""
    for daemon_set in state.exporters:
        container = exporter_container(daemon_set) or {}
        for pod in state.pods_of([daemon_set]):
            for status in statuses(pod):
                ended = (status.get("lastState") or {}).get("terminated") or {}
                age = state.age(ended.get("finishedAt"))
                if age is None or age > _RECENT_S:
                    continue
                place = f"pod {name_of(pod)}"
                seen = f"{status.get('restartCount')} restarts, the last {age / 60:.0f} minutes ago"
                if ended.get("reason") == "OOMKilled":
                    limit = (container.get("resources") or {}).get("limits", {}).get("memory", "none")
                    yield Symptom("EXPORTER_OUT_OF_MEMORY", place, f"{seen}: OOMKilled, limit {limit}")
                elif status.get("restartCount", 0) >= _RESTARTS and ended.get("exitCode") in (0, *KILLED):
                    why = _probe(container)
                    yield Symptom(
                        "EXPORTER_PROBES_KILL",
                        place,
                        f"{seen}, exit code {ended['exitCode']}: {why}",
                        state.on_nodes([pod["spec"].get("nodeName", "")]),
                        words={"why": why},
                    )


def _probe(container: Manifest) -> str:
    probe = container.get("livenessProbe") or {}
    delay, collect_s = probe.get("initialDelaySeconds", 0), collect_interval_s(container)
    if delay <= collect_s:
        return f"its liveness probe begins after {delay} s, the first values come after {collect_s:g} s"
    return f"its liveness probe waits {probe.get('timeoutSeconds', 1)} s for an answer"


def _exporter_settings(state: State) -> Iterator[Symptom]:
    """Why no series names a pod; silent as soon as one does."""
    if state.gpus_name_pods:
        return
    for daemon_set in state.exporters:
        container, name = exporter_container(daemon_set) or {}, f"DaemonSet {name_of(daemon_set)}"
        reach = frozenset({ALL}) if len(state.exporters) == 1 else frozenset()
        if not names_pods(container):
            yield Symptom("EXPORTER_NAMES_NO_PODS", name, "DCGM_EXPORTER_KUBERNETES is not true", reach)
        elif not _mounts_pod_resources(daemon_set):
            yield Symptom("EXPORTER_NO_POD_RESOURCES", name, "none of its volumes is a pod-resources folder", reach)
        elif _on_gke(state) and _id_type(container) != "device-name" and state.gpu_rows:
            yield Symptom(
                "EXPORTER_DEVICE_IDS", name, f"DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE is {_id_type(container)}", reach
            )


def _mounts_pod_resources(daemon_set: Manifest) -> bool:
    paths = [(each.get("hostPath") or {}).get("path", "") for each in pod_spec(daemon_set).get("volumes") or ()]
    return any("pod-resources" in path for path in paths)


def _on_gke(state: State) -> bool:
    return any("cloud.google.com/gke-accelerator" in labels_of(node) for node in state.gpu_nodes.values())


def _id_type(container: Manifest) -> str:
    given = environment(container).get("DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE")
    return given or flag(container, "--kubernetes-gpu-id-type") or "uid"


def _resource_names(state: State) -> Iterator[Symptom]:
    known = {
        name.strip()
        for each in state.exporters
        for name in environment(exporter_container(each) or {}).get("NVIDIA_RESOURCE_NAMES", "").split(",")
    }
    for each in state.autoscalers:
        unknown = [name for name in each.gpus if not _is_built_in(name) and name not in known]
        if state.exporters and unknown and not _is_named(state, each):
            yield Symptom(
                "EXPORTER_RESOURCE_NAMES",
                each.workload,
                f"its pods ask for {', '.join(unknown)}, NVIDIA_RESOURCE_NAMES is "
                f"{', '.join(sorted(known - {''})) or 'empty'}",
                state.of([each]),
                words={"resources": ",".join(unknown)},
            )


def _is_built_in(resource: str) -> bool:
    return resource == f"{NVIDIA}gpu" or resource.startswith(f"{NVIDIA}mig-")


def _is_named(state: State, autoscaler: AutoscalerState) -> bool:
    return any(_pods(autoscaler) & named for named in state.named_pods.values())


def _sharing(state: State) -> Iterator[Symptom]:
    shared = [name for name, node in state.gpu_nodes.items() if _is_shared(node, state.facts.get(name, {}))]
    for daemon_set in state.exporters if shared else ():
        container = exporter_container(daemon_set) or {}
        name = f"DaemonSet {name_of(daemon_set)}"
        if environment(container).get("KUBERNETES_VIRTUAL_GPUS", "").lower() != "true":
            yield Symptom(
                "EXPORTER_SHARED_GPUS", name, f"{_some('node', shared)} share GPUs, KUBERNETES_VIRTUAL_GPUS is not true"
            )
        elif not pod_spec(daemon_set).get("hostPID"):
            yield Symptom(
                "EXPORTER_SHARED_GPUS_BLIND", name, f"{_some('node', shared)} share GPUs, hostPID is not true"
            )


def _is_shared(node: Manifest, facts: Mapping[str, Any]) -> bool:
    """By GPU feature discovery's label, by the resource's name, or because more are offered than there are."""
    offered = gpus_of([node])
    return (
        labels_of(node).get("nvidia.com/gpu.sharing-strategy", "none") != "none"
        or any(resource.endswith(".shared") for resource in offered)
        or _offers_more_than_it_has(offered, facts.get("gpus") or ())
    )


def _offers_more_than_it_has(offered: Mapping[str, int], gpus: Sequence[Mapping[str, Any]]) -> bool:
    """MIG instances may be offered as whole GPUs, too: a node that may have any says nothing."""
    no_mig = bool(gpus) and all(gpu.get("mig_capable") is False for gpu in gpus)
    return no_mig and offered.get(f"{NVIDIA}gpu", 0) > len(gpus)


def _profiling(state: State) -> Iterator[Symptom]:
    """Only where a metric has no other source: the metric gpu falls back on GPU_UTIL by itself."""
    needing = [each for each in state.autoscalers if any(m.is_of_gpus and m.needs_profiling for m in each.metrics)]
    names = {row.labels.get("__name__", "") for row in state.gpu_rows}
    if not needing or _UTILISATION not in names or any("_PROF_" in name for name in names):
        return
    able = [each for each in state.exporters if _may_profile(each)]
    why = "these GPUs or this DCGM have none" if able else "the exporter lacks the capability SYS_ADMIN"
    yield Symptom(
        "PROFILING_MISSING",
        _some("autoscaler", [str(each) for each in needing]),
        f"Prometheus has {_UTILISATION}, but no DCGM_FI_PROF_*: {why}",
        state.of(needing),
        youngest([state.prometheus_age, *(state.turned(pod, "Ready") for pod in state.exporter_pods)]),
        words={"why": why},
    )


def _may_profile(daemon_set: Manifest) -> bool:
    return any(
        (each.get("securityContext") or {}).get("privileged")
        or "SYS_ADMIN" in (((each.get("securityContext") or {}).get("capabilities") or {}).get("add") or ())
        for each in containers_of(daemon_set)
    )


def _profiling_frozen(state: State) -> Iterator[Symptom]:
    for row in state.prometheus.frozen:
        users = [each for each in state.autoscalers if row.pod and row.pod in _pods(each)]
        yield Symptom(
            "PROFILING_FROZEN",
            f"GPU {row.labels.get('UUID')}",
            f"{_UTILISATION} is at least {row.value:g} and {_PROFILED} is 0 for 5 minutes",
            state.of(users) if users else frozenset(),
        )


def _pods(autoscaler: AutoscalerState) -> set[tuple[str, str]]:
    return {(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in autoscaler.pods}


def _mig(state: State) -> Iterator[Symptom]:
    for each in state.autoscalers:
        on_mig = [resource for resource in each.gpus if resource.startswith(f"{NVIDIA}mig-")]
        for metric in each.metrics:
            if on_mig and set(metric.sources) == {_UTILISATION}:
                yield Symptom(
                    "METRIC_BLANK_ON_MIG",
                    f"autoscaler {each}",
                    f"metric {metric.name} reads {_UTILISATION}, its pods ask for {', '.join(on_mig)}",
                    state.of([each]),
                )


def _impossible_values(state: State) -> Iterator[Symptom]:
    """Of GPUs that autoscaled pods hold; only if there are none, of others."""
    held: list[Symptom] = []
    others: list[Symptom] = []
    for row in state.prometheus.blanks:
        seen = f"{row.labels.get('__name__', 'DCGM_FI_*')} is {row.value:g}"
        if users := [each for each in state.autoscalers if row.pod in _pods(each)]:
            held.append(Symptom("EXPORTER_LOSES_A_GPU", f"pod {'/'.join(row.pod or ())}", seen, state.of(users)))
        else:
            others.append(Symptom("EXPORTER_IMPOSSIBLE_VALUES", f"target {row.labels.get('instance')}", seen))
    yield from held or others


def _doubled(state: State) -> Iterator[Symptom]:
    if not state.prometheus.doubled:
        return
    gpus = sorted({row.labels.get("UUID", "") for row in state.prometheus.doubled})
    yield Symptom(
        "EXPORTER_TWICE",
        _some("GPU", gpus),
        f"{len(gpus)} GPUs are reported by several targets; exporters: "
        f"{', '.join(name_of(each) for each in state.exporters) or 'none is a DaemonSet'}",
        age_s=youngest(state.turned(pod, "Ready") for pod in state.exporter_pods),
    )


def _collect_interval(state: State) -> Iterator[Symptom]:
    scrapes = [each.budget["scrape_s"] for each in state.autoscalers if each.budget and _is_known(each, "scrape")]
    if not scrapes:
        return
    for daemon_set in state.exporters:
        collect_s = collect_interval_s(exporter_container(daemon_set) or {})
        if repeats_values(collect_s, min(scrapes)):
            yield Symptom(
                "EXPORTER_COLLECTS_SLOWLY",
                f"DaemonSet {name_of(daemon_set)}",
                f"it reads the GPUs every {collect_s:g} s, Prometheus asks every {min(scrapes):g} s",
            )


def _is_known(autoscaler: AutoscalerState, period: str) -> bool:
    return ((autoscaler.budget or {}).get("sources") or {}).get(period) != "assumed" and any(
        metric.is_of_gpus for metric in autoscaler.metrics
    )


def _some(kind: str, names: Sequence[str] | Mapping[str, Any]) -> str:
    names = list(names)
    return f"{kind} {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")


_NODES = ("nodes",)
_DAEMONS = ("nodes", "daemon_sets")
_PODS = ("nodes", "daemon_sets", "component_pods")

NODE_CHECKS = (
    Check("node", "drivers, by gpu_facts", _drivers, ("facts",)),
    Check("node", "GPU nodes are ready", _nodes_ready, _NODES),
    Check("device_plugin", "the device plugin is there", _plugin_there, _DAEMONS),
    Check("device_plugin", "the device plugin's pods run", _plugin_pods, _PODS),
    Check("device_plugin", "each GPU node has the device plugin", _plugin_on_nodes, _PODS),
    Check("device_plugin", "nodes offer their GPUs", _allocatable, _PODS),
    Check("node_labels", "nodes have the labels that the exporter selects", _exporter_labels, _PODS),
    Check("exporter", "dcgm-exporter is there", _exporter_there, (*_DAEMONS, "prometheus")),
    Check("exporter", "each GPU node has an exporter", _exporter_on_nodes, _PODS),
    Check("exporter", "the exporter is not restarted", _exporter_restarts, ("daemon_sets", "component_pods")),
    Check("exporter", "the exporter's pods run", _exporter_pods, _PODS),
    Check("exporter", "the exporter sees GPUs", _exporter_values, (*_PODS, "prometheus")),
    Check("exporter", "the exporter asks which pods hold GPUs", _exporter_settings, (*_DAEMONS, "prometheus")),
    Check("exporter", "the exporter knows the resources of the pods", _resource_names, ("daemon_sets",)),
    Check("exporter", "shared GPUs", _sharing, _DAEMONS),
    Check("exporter", "profiling fields", _profiling, ("daemon_sets", "prometheus")),
    Check("exporter", "profiling is alive", _profiling_frozen, ("prometheus",)),
    Check("exporter", "metrics fit MIG", _mig),
    Check("exporter", "values can be true", _impossible_values, ("prometheus",)),
    Check("exporter", "each GPU is reported once", _doubled, ("prometheus",)),
    Check("exporter", "collect interval", _collect_interval, ("daemon_sets",)),
)
