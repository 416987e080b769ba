# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...diagnosis.check import CheckResult, Evidence, FindingTypes, check
from ...hops import Hop
from ...kube.objects import Manifest, condition
from ...server.fabric import COMPLETED
from ...server.gpu_node import OURS
from ..finding_texts import condition_text
from ..state.cluster import State
from ..state.nodes import is_up

_NODE = FindingTypes(Hop.NODE)

DRIVER_NEEDS_REBOOT = _NODE.error(
    "DRIVER_NEEDS_REBOOT",
    cause="the loaded driver differs from the installed one, so NVML does not work",
    fix="run the nvidia_driver role with nvidia_driver_reboot_ok: true, or reboot the node",
)
DRIVER_BROKEN = _NODE.error(
    "DRIVER_BROKEN",
    cause="the driver does not work with the node's GPUs",
    fix="follow the message, then run the nvidia_driver role",
)


DRIVER_UVM_MISSING = _NODE.error(
    "DRIVER_UVM_MISSING",
    cause="nvidia-uvm is not loaded: nvidia-smi and the exporter work, but no CUDA program in a container starts",
    fix="run the nvidia_driver role, which loads it at boot; or on node {name}: nvidia-modprobe -u -c=0. Then restart "
    "the device plugin's pod on it",
)
FABRIC_NOT_COMPLETED = _NODE.error(
    "FABRIC_NOT_COMPLETED",
    cause="the fabric manager has not configured the GPUs, so every CUDA program fails with error 802",
    fix="on node {name}: nvidia-smi -q | grep -A4 Fabric; journalctl -u nvidia-fabricmanager",
)
GPU_MISSING = _NODE.error(
    "GPU_MISSING",
    cause="a GPU has fallen off the bus",
    fix="on node {name}: journalctl -k --grep 'NVRM|Xid'; power-cycle the server. If the GPU was removed, set "
    "nvidia_driver_expected_gpus to the number of GPUs in the host ({found})",
)


@check(
    "drivers, by gpu_facts",
    DRIVER_NEEDS_REBOOT,
    DRIVER_BROKEN,
    DRIVER_UVM_MISSING,
    FABRIC_NOT_COMPLETED,
    GPU_MISSING,
    needs=("facts",),
)
def drivers(state: State) -> Iterator[CheckResult]:
    for node, facts in state.facts.items():
        affected = state.affected_by_nodes([node])
        if facts.get("driver_problem"):
            yield CheckResult(DRIVER_BROKEN, f"node {node}", facts["driver_problem"], affected)
        elif facts.get("reboot_required"):
            seen = facts.get("reboot_reason") or "reboot_required"
            yield CheckResult(DRIVER_NEEDS_REBOOT, f"node {node}", seen, affected)
        yield from _cuda_needs(node, facts, affected)


def _cuda_needs(node: str, facts: Mapping[str, Any], affected: frozenset[str]) -> Iterator[CheckResult]:
    """Checks of what CUDA needs, but nvidia-smi does not."""
    words = {"name": node}
    if facts.get("driver_version_loaded") and facts.get("uvm_available") is False:
        yield CheckResult(DRIVER_UVM_MISSING, f"node {node}", "no /dev/nvidia-uvm", affected, template_vars=words)
    states = set((facts.get("fabric") or {}).values()) - {COMPLETED}
    if states:
        seen = f"Fabric State: {', '.join(sorted(states))}"
        yield CheckResult(FABRIC_NOT_COMPLETED, f"node {node}", seen, affected, template_vars=words)
    found = sum(gpu.get("bound_driver") in OURS for gpu in facts.get("gpus") or ())
    expected = facts.get("expected_gpus")
    if expected is not None and found < expected:
        seen = f"{found} of {expected} expected GPUs are on the PCI bus"
        yield CheckResult(GPU_MISSING, f"node {node}", seen, affected, template_vars={**words, "found": str(found)})


CUDA_FAILED = _NODE.error(
    "CUDA_FAILED",
    cause="a CUDA program failed on a GPU of the node in the last proof",
    fix="on node {name}: journalctl -k --grep 'NVRM|Xid'; nvidia-smi. Then run the playbook kubegpu.autoscale.verify",
    evidence=(
        Evidence(
            r"no /dev/nvidia-uvm",
            "the container had no /dev/nvidia-uvm: nvidia-uvm was not loaded when the CDI specification was made",
            "run the nvidia_driver role, restart the device plugin's pod on node {name}, then run the playbook "
            "kubegpu.autoscale.verify",
        ),
        Evidence(
            r"\(802\)",
            "the NVLink fabric was not completed",
            "on node {name}: nvidia-smi -q | grep -A4 Fabric; journalctl -u nvidia-fabricmanager. Then run "
            "the playbook kubegpu.autoscale.verify",
        ),
        Evidence(
            r"\(80[34]\)",
            "the driver's libraries were of another release than the loaded kernel module",
            "reboot node {name}, then run the playbook kubegpu.autoscale.verify",
        ),
    ),
)


@check("CUDA has computed on the GPUs, by the last proof", CUDA_FAILED, needs=("nodes", "cuda_errors"))
def cuda_has_computed(state: State) -> Iterator[CheckResult]:
    """No result for nodes that were never proven."""
    for node, error in state.cuda_errors.items():
        seen = ": ".join(filter(None, (str(error.get("text", "")), str(error.get("cause", "")))))
        affected = state.affected_by_nodes([node])
        yield CheckResult(CUDA_FAILED, f"node {node}", seen, affected, template_vars={"name": node})


NODE_NOT_READY = _NODE.error(
    "NODE_NOT_READY",
    cause="the kubelet of a GPU node does not report, so the state of that node is unknown",
    fix="kubectl describe node {name}; on the node: journalctl -u kubelet",
    grace_s=120,
    is_consequence=True,
    explained_by=(Hop.SERVER,),
)


@check("GPU nodes are ready", NODE_NOT_READY, needs=("nodes",))
def nodes_ready(state: State) -> Iterator[CheckResult]:
    for name, node in state.gpu_nodes.items():
        if not is_up(node):
            yield CheckResult(
                NODE_NOT_READY,
                f"node {name}",
                condition_text(condition(node, "Ready")),
                state.affected_by_nodes([name]),
                state.clock.condition_age_s(node, "Ready"),
                template_vars={"name": name},
            )


NODE_CONDITION_BAD = _NODE.warning(
    "NODE_CONDITION_BAD",
    cause="the kubelet, or a problem detector on the node, reports a problem of a GPU node",
    fix="follow the message; kubectl describe node {name}",
    grace_s=120,
    evidence=(
        Evidence(
            r"DiskPressure",
            "the node's disk is nearly full: the kubelet evicts pods, removes images and takes no new pods",
            "free or enlarge the disk of node {name}: images and logs below /var, emptyDir volumes of its pods",
        ),
        Evidence(
            r"MemoryPressure",
            "the node's memory is nearly exhausted: the kubelet evicts pods and takes no new pods of low priority",
            "set memory requests and limits of the pods on node {name}: kubectl describe node {name} lists them",
        ),
        Evidence(
            r"PIDPressure",
            "the node has nearly no process IDs left: the kubelet evicts pods and takes no new ones",
            "find what starts so many processes on node {name}, or raise podPidsLimit and kernel.pid_max",
        ),
        Evidence(
            r"NetworkUnavailable",
            "the pod network of the node is not ready, so its pods cannot be reached",
            "check the pods of the network plugin on node {name}: kubectl -n kube-system get pods -o wide",
        ),
    ),
)
# Conditions of the kubelet and of node-problem-detector are bad if True. Those ending in Ready are bad if False:
# cloud agents set them.
_BAD_IF_TRUE = re.compile(r".*(Pressure|Unavailable|Deadlock|Readonly\w*|Unhealthy|Problem|Corrupt\w*)|Frequent\w+")


@check("GPU nodes report no problem", NODE_CONDITION_BAD, needs=("nodes",))
def node_conditions(state: State) -> Iterator[CheckResult]:
    """Skips nodes that do not report, because all their conditions are Unknown."""
    for name, node in state.gpu_nodes.items():
        for found in (node.get("status") or {}).get("conditions") or ():
            if is_up(node) and _is_bad(found):
                yield CheckResult(
                    NODE_CONDITION_BAD,
                    f"node {name}",
                    condition_text(found),
                    age_s=state.clock.condition_age_s(node, found["type"]),
                    template_vars={"name": name},
                )


def _is_bad(found: Manifest) -> bool:
    kind, status = found.get("type", ""), found.get("status")
    if kind.endswith("Ready"):
        return kind != "Ready" and status == "False"
    return status == "True" and bool(_BAD_IF_TRUE.fullmatch(kind))


def summary(state: State) -> str:
    return f"{len(state.gpu_nodes)} of {len(state.nodes)} nodes have GPUs"


def nothing(state: State) -> str:
    return "" if state.gpu_nodes else "no node is known to have GPUs"
