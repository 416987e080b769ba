# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Iterator

from ...diagnosis.check import CheckResult, FindingTypes, check
from ...errors import counted, enumeration
from ...hops import Hop
from ...kube.capacity import NVIDIA, gpus_of
from ...kube.objects import youngest
from ...kube.resource_claims import GPU_DRIVER, class_of
from ..daemon_sets import NOT_CREATED, failing_pods, missing_on, obstacle, place_of
from ..finding_texts import first_and_rest
from ..state.cluster import State
from ..state.nodes import is_up, lost_gpus, offers_gpus

_DEVICE_PLUGIN = FindingTypes(Hop.DEVICE_PLUGIN)

# Time for a driver, an image pull and the first NVML call of a new node.
NODE_GRACE_S = 300

DEVICE_PLUGIN_MISSING = _DEVICE_PLUGIN.error(
    "DEVICE_PLUGIN_MISSING",
    cause="the cluster has no DaemonSet of NVIDIA's device plugin, so no kubelet has GPUs",
    fix="run the nvidia_device_plugin role",
    grace_s=NODE_GRACE_S,
)


@check("the device plugin is installed", DEVICE_PLUGIN_MISSING, needs=("nodes", "daemon_sets", "resource_slices"))
def plugin_exists(state: State) -> Iterator[CheckResult]:
    bare = state.bare_nodes
    if bare and not state.agents.plugins:
        yield CheckResult(
            DEVICE_PLUGIN_MISSING,
            first_and_rest("node", bare),
            f"{len(bare)} GPU nodes have no {NVIDIA}gpu, and no DaemonSet runs an image of the device plugin",
            state.affected_by_nodes(bare),
            youngest(state.clock.age_s(node) for node in bare.values()),
        )


DEVICE_PLUGIN_NO_NVML = _DEVICE_PLUGIN.error(
    "DEVICE_PLUGIN_NO_NVML",
    cause="the container does not see the driver: containerd's default runtime is not nvidia and the pod names no "
    "RuntimeClass, or the node has no driver",
    fix="run the nvidia_driver and nvidia_container_toolkit roles, or set the plugin's runtimeClassName to nvidia",
    grace_s=NODE_GRACE_S,
    is_consequence=True,
)
DEVICE_PLUGIN_NOT_READY = _DEVICE_PLUGIN.error(
    "DEVICE_PLUGIN_NOT_READY",
    cause="the device plugin on the node does not run",
    fix="kubectl -n {namespace} describe pod {name}; kubectl -n {namespace} logs {name} --previous",
    grace_s=120,
    is_consequence=True,
)


@check(
    "the device plugin's pods run",
    DEVICE_PLUGIN_NO_NVML,
    DEVICE_PLUGIN_NOT_READY,
    needs=("nodes", "daemon_sets", "component_pods"),
)
def plugin_pods(state: State) -> Iterator[CheckResult]:
    yield from failing_pods(
        state, state.agents.pods_of(state.agents.plugins), DEVICE_PLUGIN_NO_NVML, DEVICE_PLUGIN_NOT_READY
    )


DEVICE_PLUGIN_NOT_ON_NODE = _DEVICE_PLUGIN.error(
    "DEVICE_PLUGIN_NOT_ON_NODE",
    cause="the device plugin is not scheduled on the node: {why}",
    fix="run the gpu_node_labels role; for a taint add a toleration to the plugin's values",
    grace_s=NODE_GRACE_S,
    is_consequence=True,
    evidence=NOT_CREATED,
)


@check(
    "each GPU node has the device plugin", DEVICE_PLUGIN_NOT_ON_NODE, needs=("nodes", "daemon_sets", "component_pods")
)
def plugin_on_nodes(state: State) -> Iterator[CheckResult]:
    pods = state.agents.by_node(state.agents.plugins)
    for name, node in state.bare_nodes.items():
        if state.agents.plugins and name not in pods:
            _labels, why = obstacle(state, state.agents.plugins, node)
            yield CheckResult(
                DEVICE_PLUGIN_NOT_ON_NODE,
                f"node {name}",
                missing_on(state.agents.plugins, why),
                state.affected_by_nodes([name]),
                state.clock.age_s(node),
                template_vars={"why": why},
            )


NODE_WITHOUT_GPUS = _DEVICE_PLUGIN.error(
    "NODE_WITHOUT_GPUS",
    cause="the device plugin runs, but offers no healthy GPU: it sees none, or the kubelet was restarted after it",
    fix="kubectl -n {namespace} logs {name}; kubectl -n {namespace} delete pod {name}",
    grace_s=120,
    is_consequence=True,
)
GPU_UNHEALTHY = _DEVICE_PLUGIN.warning(
    "GPU_UNHEALTHY",
    cause="the device plugin has marked GPUs as unhealthy, for example after an Xid error",
    fix="on the node: dmesg | grep -i xid; then reset the GPU or reboot the node",
    grace_s=120,
    is_consequence=True,
)


@check(
    "nodes have allocatable GPUs", NODE_WITHOUT_GPUS, GPU_UNHEALTHY, needs=("nodes", "daemon_sets", "component_pods")
)
def allocatable_gpus(state: State) -> Iterator[CheckResult]:
    pods_by_node, bare = state.agents.by_node(state.agents.plugins), state.bare_nodes
    for name, node in state.gpu_nodes.items():
        pods = pods_by_node.get(name, [])
        age_s = youngest(
            [state.clock.condition_age_s(node, "Ready"), *(state.clock.condition_age_s(pod, "Ready") for pod in pods)]
        )
        affected = state.affected_by_nodes([name])
        if pods and name in bare:
            yield CheckResult(
                NODE_WITHOUT_GPUS,
                f"node {name}",
                f"Ready, with a pod of the device plugin, but status.allocatable has no {NVIDIA}gpu",
                affected,
                age_s,
                template_vars=place_of(pods[0]),
            )
        elif (lost := lost_gpus(node)) and is_up(node):
            yield CheckResult(GPU_UNHEALTHY, f"node {name}", lost, affected, age_s)


GPUS_OFFERED_TWICE = _DEVICE_PLUGIN.error(
    "GPUS_OFFERED_TWICE",
    cause="the device plugin and the DRA driver of a node both offer its GPUs, so two pods can get the same GPU",
    fix="keep one of them on each node: disable gpus in the DRA driver's values, or remove the device plugin from the "
    "node",
    before="refuse",
)


@check("a node's GPUs are offered once", GPUS_OFFERED_TWICE, needs=("nodes", "resource_slices"))
def offered_once(state: State) -> Iterator[CheckResult]:
    """A limit that a DeviceClass turns into a claim adds no extended resource to the node's status."""
    for name, node in state.gpu_nodes.items():
        if (claimable := state.claimable_devices.get(name)) and offers_gpus(node):
            yield CheckResult(
                GPUS_OFFERED_TWICE,
                f"node {name}",
                f"status.allocatable has {sum(gpus_of([node]).values())} GPUs, and ResourceSlices of "
                f"{GPU_DRIVER} offer {claimable}",
                state.affected_by_nodes([name]),
            )


DEVICE_CLASS_MISSING = _DEVICE_PLUGIN.error(
    "DEVICE_CLASS_MISSING",
    cause="GPUs are only allocated by claims, and no DeviceClass has this resource as its extendedResourceName. The "
    "classes of the GPU operator have none, so such pods stay Pending",
    fix="claim the GPUs with a ResourceClaimTemplate, or replace the limit with deviceclass.resource.kubernetes.io/"
    "{device_class}; or create a DeviceClass with the selectors of {device_class} and extendedResourceName: {resource}",
    before="warn",
)


@check("limits of GPUs can be claimed", DEVICE_CLASS_MISSING, needs=("targets", "nodes", "device_classes"))
def device_classes(state: State) -> Iterator[CheckResult]:
    """Where no node offers the resource, and devices can be claimed."""
    classes = state.device_classes
    if not state.claimable_devices or classes is None:
        return
    names = [found["metadata"]["name"] for found in classes]
    offered = {
        resource
        for node in state.nodes
        for part in ("capacity", "allocatable")
        for resource in (node.get("status") or {}).get(part) or ()
    }
    for autoscaler in state.autoscalers:
        for resource in autoscaler.gpus:
            if resource not in offered and class_of(resource, classes) is None:
                known = GPU_DRIVER if GPU_DRIVER in names else next(iter(names), GPU_DRIVER)
                yield CheckResult(
                    DEVICE_CLASS_MISSING,
                    autoscaler.workload,
                    f"its pods have a limit of {resource}, which no node offers; "
                    f"{enumeration(names) or 'no DeviceClass exists, none'} has no such extendedResourceName",
                    state.affected_by([autoscaler]),
                    template_vars={"device_class": known, "resource": resource},
                )


def summary(state: State) -> str:
    devices = sum(state.claimable_devices.values())
    plugins = f"{counted(len(state.agents.pods_of(state.agents.plugins)), 'pod')} of the device plugin"
    return f"{devices} GPUs can be claimed, {plugins}" if devices else plugins


def nothing(state: State) -> str:
    return (
        ""
        if state.agents.pods_of(state.agents.plugins) or state.claimable_devices
        else "no pod of a device plugin is known"
    )
