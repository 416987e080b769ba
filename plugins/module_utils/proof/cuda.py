# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Evaluates the result of a pod's CUDA program, and explains its errors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import HopError, counted, enumeration
from ..hops import Hop
from .nodes import ProofNode
from .record import NAME, NAMESPACE, VISIBLE, Entry

UVM = "nvidia-uvm"
_SAME_GPU = "two pods got the same GPU"
# Of a UUID: the program shortens those of many GPUs.
_SHORT = 12
# CUresult of cuda.h.
NO_DEVICE, DEVICE_UNAVAILABLE, NOT_READY, MISMATCH, NOT_SUPPORTED, UNKNOWN = 100, 46, 802, 803, 804, 999
NOT_INITIALIZED, OUT_OF_MEMORY, ECC, MPS_FAILED = 3, 2, 214, 805
NO_BINARY, INVALID_PTX = 209, 218


@dataclass(frozen=True)
class CudaRun:
    """The result of a pod.

    gpus:    a row per GPU with `uuid`, and `error` if it failed; only the first failures if there are many.
    error:   why there are no rows; can be empty. is_read: whether the program left a result.
    devices: NVIDIA's device nodes in the container.
    """

    gpus: Sequence[Mapping[str, Any]] = ()
    error: Mapping[str, Any] | None = None
    devices: Sequence[str] = ()
    seconds: float = 0.0
    is_read: bool = True

    @property
    def computed(self) -> tuple[str, ...]:
        """UUIDs of GPUs with the right result."""
        return tuple(str(row["uuid"]) for row in self.gpus if not row.get("error"))

    @property
    def failures(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Failures; fix the first one first."""
        rows = [
            (f"GPU {row['uuid'] or number}", row["error"]) for number, row in enumerate(self.gpus) if row.get("error")
        ]
        return [("CUDA", self.error), *rows] if self.error else rows


def read(message: str) -> CudaRun:
    """Parses the program's result; an error with the end of the message if it is invalid."""
    try:
        found = json.loads(message)
        return CudaRun(found["gpus"], found["error"], found["devices"], found["seconds"])
    except (ValueError, KeyError, TypeError):
        text = f"the program left no result: {message.strip()[-300:] or 'nothing'}"
        return CudaRun(error={"text": text, "function": "", "code": 0}, is_read=False)


def together(runs: Sequence[CudaRun]) -> CudaRun:
    """The runs of several pods as one. A GPU that two pods got is an error, because each of them may use all of it."""
    computed = [uuid[:_SHORT] for run in runs for uuid in run.computed]
    twice = sorted({uuid for uuid in computed if computed.count(uuid) > 1})
    shared = {"text": f"{_SAME_GPU}, {', '.join(twice)}", "function": "", "code": 0} if twice else None
    return CudaRun(
        [row for run in runs for row in run.gpus],
        next((run.error for run in runs if run.error), shared),
        sorted({device for run in runs for device in run.devices}),
        max((run.seconds for run in runs), default=0.0),
    )


def surplus_gpus(node: ProofNode, pods: Iterable[tuple[int, CudaRun]]) -> HopError | None:
    """The error if a pod sees more devices than it requested; None otherwise. pods: each with what it requested."""
    for wanted, run in pods:
        if len(run.gpus) > wanted:
            return HopError(
                Hop.NODE,
                seen=f"node {node.name}: a pod that requested {counted(wanted, 'GPU')} sees {len(run.gpus)}",
                cause="its container gets GPUs that other pods may have requested: the device plugin passes them as an "
                "environment variable that the image or a webhook overwrites, or the pod runs privileged",
                fix=f"on {node.name}: compare NVIDIA_VISIBLE_DEVICES of a container with its limit; "
                "docs/isolation.md has the settings of the device plugin and the container toolkit",
                result={"unrequested": VISIBLE},
            )
    return None


def offered_twice(node: ProofNode) -> HopError | None:
    """The error if pods can request and claim the same GPUs; None otherwise."""
    if not node.is_offered_twice:
        return None
    return HopError(
        Hop.DEVICE_PLUGIN,
        seen=f"node {node.name} offers {node.allocatable} GPUs, and {node.claimable} can be claimed",
        cause="its device plugin and its DRA driver both offer its GPUs, so two pods can get the same GPU",
        fix="keep one of them on each node: disable gpus in the DRA driver's values, or remove the device plugin from "
        "the node",
    )


def unrequested_gpus(node: ProofNode, devices: Sequence[str]) -> HopError | None:
    """The error if a pod that requests no GPU sees devices; None if it sees none."""
    if not devices:
        return None
    return HopError(
        Hop.NODE,
        seen=f"node {node.name}: an unprivileged pod that requests no GPU sees {enumeration(sorted(devices))}, because "
        "it sets NVIDIA_VISIBLE_DEVICES=all, as NVIDIA's images do",
        cause="the container toolkit of the node accepts the variable, so every pod can compute on GPUs that other "
        "pods requested",
        fix="run the playbook kubegpu.autoscale.gpu, whose output names what prevents it; or set "
        "kubegpu_unrequested_gpus: allow (docs/isolation.md)",
        result={"unrequested": VISIBLE},
    )


def missing_gpus(node: ProofNode, entry: Entry | None) -> HopError | None:
    """Why the node has fewer GPUs than it should have; None if it has all.

    entry: earlier proof. Without an expected number, the proven GPUs are expected, and those of the capacity.
    Devices that are shared, split or claimed are no GPUs, so only the GPUs on the bus are compared with that number.
    """
    server = node.server
    offered = [server.gpus] if server is not None and server.expected is not None else []
    if not (node.is_claimed or (node.is_shared and node.allocatable)):
        offered.append(node.allocatable)
    if not offered:
        return None
    if server is not None and server.expected is not None:
        wanted, source = server.expected, "nvidia_driver_expected_gpus"
    else:
        wanted, source = max(
            (server.gpus if server else 0, "the PCI bus"),
            (_proven_gpus(node, entry), "the last proof"),
            (node.capacity, "its capacity"),
        )
    if (least := min(offered)) >= wanted:
        return None
    on_bus = f", {server.gpus} on the PCI bus" if server else ""
    lost = server is not None and server.gpus < wanted
    return HopError(
        Hop.NODE if lost else Hop.DEVICE_PLUGIN,
        seen=f"node {node.name} offers {least} of {wanted} GPUs ({source}{on_bus})",
        cause="a GPU has fallen off the bus" if lost else "the driver or the device plugin does not offer every GPU",
        fix=f"on {node.name}: `journalctl -k --grep 'NVRM: Xid'` and `nvidia-smi`; if the GPU was removed for good, "
        f"set nvidia_driver_expected_gpus: {least} for the host"
        if lost
        else f"on {node.name}: `nvidia-smi`; `kubectl describe node {node.name}` and the log of the device plugin; "
        f"if it has fewer GPUs for good, `kubectl -n {NAMESPACE} delete configmap {NAME}`, and prove again",
    )


def _proven_gpus(node: ProofNode, entry: Entry | None) -> int:
    """GPUs of the earlier proof, at least one; 0 if it was of other devices, for example before MIG was enabled."""
    if entry is None:
        return 0
    if not node.allocatable:
        return max(entry.gpus, 1)
    now = node.versions.get("resource")
    return entry.gpus if entry.versions.get("resource", now) == now else 0


def unfinished_fabric(node: ProofNode) -> HopError | None:
    """Why CUDA cannot start: the NVLink fabric is not completed; None if it is."""
    states = node.server.unfinished if node.server else {}
    if not states:
        return None
    shown = ", ".join(sorted(set(states.values())))
    return HopError(
        Hop.NODE,
        seen=f"node {node.name}: Fabric State of {len(states)} GPUs is {shown}, not Completed",
        cause="the fabric manager has not joined the GPUs, so every CUDA program fails with error 802",
        fix=f"on {node.name}: `nvidia-smi -q | grep -A4 Fabric`, `journalctl -u nvidia-fabricmanager`; restart it once "
        "the GPUs are idle: `systemctl restart nvidia-fabricmanager`",
    )


def cuda_errors(node: ProofNode, run: CudaRun) -> list[HopError]:
    """An error for each failure, and for requested GPUs that CUDA does not show."""
    found = [_error(node, subject, failure, run.devices) for subject, failure in run.failures]
    if found or len(run.gpus) >= node.asked:
        return found
    if not run.gpus:
        none = {"text": "the container has no GPU", "function": "", "code": NO_DEVICE}
        return [_error(node, "CUDA", none, run.devices)]
    return [
        HopError(
            Hop.NODE,
            seen=f"node {node.name}: CUDA shows {len(run.gpus)} of the {node.asked} GPUs that the pod requested",
            cause="a GPU is in MIG mode without an instance, the driver has lost one, or the device plugin shares GPUs "
            "and the node has no label nvidia.com/gpu.replicas",
            fix=f"on {node.name}: `nvidia-smi` and `nvidia-smi mig -lgi`; for shared GPUs enable GPU feature discovery",
        )
    ]


def _error(node: ProofNode, subject: str, failure: Mapping[str, Any], devices: Sequence[str]) -> HopError:
    cause, fix = _meaning(node.name, failure, devices)
    code = f" ({failure['code']})" if failure["code"] else ""
    return HopError(
        Hop.NODE,
        seen=f"node {node.name}: {subject} does not compute: {failure['text']}{code}",
        cause=cause,
        fix=fix,
        result={"code": failure["code"], "function": failure["function"]},
    )


def _meaning(node: str, failure: Mapping[str, Any], devices: Sequence[str]) -> tuple[str, str]:
    """Cause and fix, by CUDA's code and the devices in the container."""
    return next(_meanings(node, failure["code"], failure["text"], devices))


def _meanings(node: str, code: int, text: str, devices: Sequence[str]) -> Iterator[tuple[str, str]]:
    kernel_log = f"on {node}: `journalctl -k --grep 'NVRM|Xid'`"
    if "no CUDA driver here" in text or (code == NO_DEVICE and not devices):
        yield (
            "NVIDIA's runtime added neither driver nor device to the container",
            f"check the RuntimeClass of gpu_proof_runtime_class; on {node}: `nvidia-ctk cdi list`",
        )
    if text.startswith(_SAME_GPU):
        yield (
            "the device plugin gives a GPU to several pods, or the container toolkit ignores what pods request",
            f"`kubectl describe node {node}`; if GPUs are shared, enable GPU feature discovery, which labels the node",
        )
    if code in (UNKNOWN, NOT_INITIALIZED, NO_DEVICE) and UVM not in devices:
        yield (
            "the container has no /dev/nvidia-uvm: the module nvidia_uvm was not loaded when the CDI specification was "
            "made",
            f"on {node}: `modprobe nvidia-uvm` and `systemctl restart nvidia-cdi-refresh`, or run the role "
            "nvidia_driver, which loads it at boot; then restart the device plugin's pod",
        )
    if code == NOT_READY:
        yield (
            "the NVLink fabric is not completed",
            f"on {node}: `nvidia-smi -q | grep -A4 Fabric` and `journalctl -u nvidia-fabricmanager`",
        )
    if code in (MISMATCH, NOT_SUPPORTED):
        yield (
            "the libraries are of another release than the loaded kernel module",
            f"reboot {node}, or run the playbook kubegpu.autoscale.upgrade_driver",
        )
    if code == DEVICE_UNAVAILABLE:
        yield (
            "another process uses the GPU exclusively (compute mode), or MIG is on without an instance",
            f"on {node}: `nvidia-smi -q -d COMPUTE` and `nvidia-smi mig -lgi`",
        )
    if code in (NO_BINARY, INVALID_PTX):
        yield (
            "the GPU is older than Maxwell, so the driver cannot compile the program of the proof for it",
            "remove the GPU from the cluster (kubegpu_ignored_gpus)",
        )
    if code == OUT_OF_MEMORY:
        yield "a program outside of Kubernetes uses the GPU's memory", f"on {node}: `nvidia-smi`"
    yield (
        "the GPU or its driver reports an error",
        f"{kernel_log}, `nvidia-smi`; NVIDIA's docs list Xids",
    )
