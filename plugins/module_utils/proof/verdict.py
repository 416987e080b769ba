# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Judges each node and the chain by what was read, by the plan, and by the pods of the proof."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..chain.waiting_pods import Awaited, report
from ..errors import HopError, enumeration
from ..hops import Hop
from ..kube.capacity import gpus_per_pod
from ..kube.labels import NAME_LABEL
from ..kube.objects import Manifest, condition, statuses
from ..kube.pods import has_ended
from . import manifests
from .cuda import (
    CudaRun,
    cuda_errors,
    missing_gpus,
    offered_twice,
    read,
    surplus_gpus,
    together,
    unfinished_fabric,
    unrequested_gpus,
)
from .due_proofs import Due, ProofPlan, in_use, may_count
from .nodes import ProofNode
from .record import DENIED, VISIBLE, Entry, Record

# Nodes whose reasons an error gives.
SHOWN_NODES = 3
# The scheduler's message for a full node.
_NO_ROOM = re.compile(r"Insufficient [\w./-]*\w|Too many pods")


@dataclass(frozen=True)
class Verdict:
    """The result for one node.

    status:  proven, failed, waiting, kept, or due in check mode.
    gpus:    proven devices. pods: pods with GPUs that ran side by side in this run.
    unrequested: whether pods without a request saw GPUs, as in an Entry.
    seconds: of the CUDA programs. wall: from the first pod to the end.
    entry:   new entry of the record; None to keep the earlier one.
    errors:  of this node, in addition to those that its server reports.
    """

    node: ProofNode
    status: str
    reason: str
    text: str = ""
    gpus: int = 0
    pods: int = 0
    unrequested: str = ""
    seconds: float = 0.0
    wall: float = 0.0
    entry: Entry | None = None
    errors: Sequence[HopError] = ()
    warnings: Sequence[str] = ()

    @property
    def row(self) -> dict[str, Any]:
        names = ("status", "reason", "text", "gpus", "pods", "unrequested")
        return {
            "node": self.node.name,
            **{name: getattr(self, name) for name in names},
            "of": self.node.allocatable,
            "is_shared": self.node.is_shared,
            "seconds": round(self.seconds, 1),
            "wall": round(self.wall, 1),
        }


@dataclass(frozen=True)
class Basis:
    """What all verdicts of a run rest on.

    record: earlier proofs. broken: error of a node that is visible without a CUDA program, by its name.
    denies: whether GPUs are only for pods that request them. repeat: prove again what is recorded.
    """

    record: Record
    broken: Mapping[str, HopError]
    denies: bool
    repeat: bool

    def entry_of(self, node: ProofNode) -> Entry | None:
        return self.record.machines.get(node.machine)


@dataclass(frozen=True)
class Ended:
    """Pods of the proof when all have ended or the time is over.

    pods:   by name; a missing pod was deleted. events: of pods that could not be created.
    wall_s: seconds since they were created. at: time.
    """

    pods: Mapping[str, Manifest]
    events: Sequence[Manifest]
    wall_s: float
    at: str


def server_errors(nodes: Iterable[ProofNode], record: Record) -> dict[str, HopError]:
    """Errors that are visible without a CUDA program, by node."""
    found = {
        node.name: unfinished_fabric(node)
        or offered_twice(node)
        or missing_gpus(node, record.machines.get(node.machine))
        for node in nodes
    }
    return {name: error for name, error in found.items() if error}


def node_verdict(
    due: Due, basis: Basis, options: manifests.Options, ended: Ended, cuda: Sequence[str], idle: Sequence[str]
) -> Verdict:
    """cuda, idle: names of the node's pods, with and without a request of GPUs."""
    unrequested, visible = _unrequested(due.node, [ended.pods.get(name) for name in idle])
    broken = basis.broken.get(due.node.name) or (visible if basis.denies else None)
    pods = [ended.pods.get(name) for name in cuda]
    verdict = replace(_cuda_verdict(due, basis, options, ended, pods, unrequested, broken), pods=len(cuda))
    if visible is None:
        return verdict
    if basis.denies:
        return replace(verdict, errors=[visible, *verdict.errors])
    return replace(verdict, warnings=[str(visible)])


def _cuda_verdict(
    due: Due,
    basis: Basis,
    options: manifests.Options,
    ended: Ended,
    pods: Sequence[Manifest | None],
    unrequested: str,
    broken: HopError | None,
) -> Verdict:
    node, before = due.node, basis.entry_of(due.node)
    done = [pod for pod in pods if pod is not None and has_ended(pod) and not _is_displaced(pod)]
    runs = [read(_message(pod)) for pod in done]
    run = together(runs)
    asked = [gpus_per_pod(pod["spec"]).get(node.resource, 0) for pod in done]
    surplus = surplus_gpus(node, zip(asked, runs, strict=True))
    if len(done) == len(pods) or run.failures or surplus:
        errors = cuda_errors(node, run) or ([surplus] if surplus else [])
        unrequested = VISIBLE if surplus else unrequested
        reason = next(iter(errors), broken)
        failed = reason and _failed(node, reason, before, ended.at, unrequested, errors)
        return failed or _proven(due, run, before, ended, unrequested)
    if broken is not None:
        return _failed(node, broken, before, ended.at, unrequested)
    pod = next(pod for pod in pods if pod not in done)
    if pod is None or _is_displaced(pod):
        return waiting(node, "its pod was preempted, evicted or deleted", basis)
    if lack := missing_room(pod):
        return waiting(node, f"its pod has no room: {lack}", basis)
    error = _not_started(node, pod, ended.events, options)
    return _failed(node, error, before, ended.at, errors=[error])


def waiting(node: ProofNode, reason: str, basis: Basis) -> Verdict:
    """It cannot be proven now. A failure stays an error until a proof succeeds; an earlier proof may count."""
    before = basis.entry_of(node)
    is_open = before is not None and before.unrequested == VISIBLE and basis.denies
    if before and (before.error or is_open):
        seen = unrequested_gpus(node, ["GPUs"]) if not before.error else None
        error = _unresolved(Hop.NODE, replace(before, error=_recorded(seen)) if seen else before, reason)
        return Verdict(node, "failed", error.seen, unrequested=before.unrequested, errors=[error])
    if before and not basis.repeat and may_count(node, before):
        return Verdict(node, "waiting", f"{reason}; it was proven {before.at}", gpus=before.gpus)
    return Verdict(node, "waiting", reason)


def unproven(
    nodes: Iterable[ProofNode], planned: ProofPlan, basis: Basis, *, dry_run: bool, stopped: str
) -> list[Verdict]:
    """Verdicts about nodes that this run did not prove. stopped: the error that ended it; empty if none did."""
    due = {entry.node.name: entry.reason for entry in planned.due}
    return [_unproven(node, due, planned, basis, dry_run=dry_run, stopped=stopped) for node in nodes]


def _unproven(
    node: ProofNode, due: Mapping[str, str], planned: ProofPlan, basis: Basis, *, dry_run: bool, stopped: str
) -> Verdict:
    if node.name in basis.broken:
        return Verdict(node, "failed", basis.broken[node.name].seen)
    if node.name in due:
        return Verdict(node, "due", due[node.name]) if dry_run else Verdict(node, "failed", stopped)
    if node.name in planned.kept:
        entry = basis.entry_of(node) or Entry("")
        text = planned.waiting.get(node.name, "")
        return Verdict(node, "kept", planned.kept[node.name], text=text, gpus=entry.gpus, unrequested=entry.unrequested)
    return waiting(node, planned.waiting[node.name], basis)


def chain_row(
    nodes: Sequence[ProofNode], planned: ProofPlan, record: Record, *, dry_run: bool, stopped: str
) -> tuple[dict[str, Any], list[HopError]]:
    """The result of a chain that this run did not prove, and its errors."""
    if not planned.chain and record.chain is not None:
        return {"status": "kept", "reason": record.chain.at}, []
    if dry_run and (planned.due or any(map(takes_workload, nodes))):
        return {"status": "due", "reason": planned.chain}, []
    if stopped:
        return {"status": "failed", "reason": stopped}, []
    return waiting_chain(record, _why_no_workload(nodes))


def waiting_chain(record: Record, reason: str) -> tuple[dict[str, Any], list[HopError]]:
    """It cannot be proven now. A failure stays an error until a proof succeeds."""
    if record.chain is None or not record.chain.error:
        return {"status": "waiting", "reason": reason}, []
    error = _unresolved(Hop.WORKLOAD, record.chain, reason)
    return {"status": "failed", "reason": error.seen}, [error]


def missing_evidence(
    wanted: Collection[str], nodes: Iterable[ProofNode], verdicts: Iterable[Verdict], *, has_errors: bool
) -> list[HopError]:
    """Errors if nodes should have been proven and none is, now or earlier."""
    errors = []
    if missing := set(wanted) - {node.name for node in nodes}:
        errors.append(
            HopError(
                Hop.NODE,
                seen=f"nothing was proven on {enumeration(sorted(missing))}: it is no node with GPUs",
                fix="check the names in gpu_proof_nodes and the labels in kubegpu_gpu_node_selector: "
                "`kubectl get nodes --show-labels`",
            )
        )
    provable = [verdict for verdict in verdicts if not verdict.node.is_claimed]
    idle = [verdict for verdict in provable if verdict.status == "waiting" and not verdict.gpus]
    if idle and not has_errors and not errors and len(idle) == len(provable):
        reasons = "; ".join(f"{verdict.node.name}: {verdict.reason}" for verdict in idle[:SHOWN_NODES])
        errors.append(
            HopError(
                Hop.NODE,
                seen=f"nothing was proven on {enumeration([verdict.node.name for verdict in idle])}. {reasons}",
                fix="run the playbook kubegpu.autoscale.verify once a GPU is free, or set kubegpu_proof: false",
            )
        )
    return errors


def takes_workload(node: ProofNode) -> bool:
    return node.is_ready and not (node.is_cordoned or node.is_shared or node.claimable) and node.free > 0


def _unrequested(node: ProofNode, pods: Sequence[Manifest | None]) -> tuple[str, HopError | None]:
    """Whether pods without a request see GPUs; empty if one of them has left no result, or if none could run."""
    runs = [read(_message(pod)) for pod in pods if pod is not None and has_ended(pod)]
    error = unrequested_gpus(node, sorted({device for run in runs for device in run.devices}))
    if error is not None:
        return VISIBLE, error
    return DENIED if runs and len(runs) == len(pods) and all(run.is_read for run in runs) else "", None


def _proven(due: Due, run: CudaRun, before: Entry | None, ended: Ended, unrequested: str) -> Verdict:
    """With earlier proven GPUs, if nothing else has changed."""
    node = due.node
    is_same = before is not None and not before.error and not before.changes(node.versions)
    known = set(before.uuids) if before and is_same and not node.is_shared else set()
    uuids = sorted(known | set(run.computed))
    is_partial = len(uuids) < node.provable
    kept = tuple(uuids) if is_partial else ()
    return Verdict(
        node,
        "proven",
        due.reason,
        text=in_use(node, len(uuids)) if is_partial else "",
        gpus=len(uuids),
        unrequested=unrequested,
        seconds=run.seconds,
        wall=ended.wall_s,
        entry=Entry(ended.at, node.versions, node.name, len(uuids), kept, unrequested=unrequested),
    )


def _failed(
    node: ProofNode,
    error: HopError,
    before: Entry | None,
    at: str,
    unrequested: str = "",
    errors: Sequence[HopError] = (),
) -> Verdict:
    """The entry keeps the number of earlier proven GPUs as expected."""
    gpus = before.gpus if before else 0
    entry = Entry(at, node.versions, node.name, gpus, error=_recorded(error), unrequested=unrequested)
    return Verdict(node, "failed", error.seen, unrequested=unrequested, entry=entry, errors=errors)


def _not_started(node: ProofNode, pod: Manifest, events: Sequence[Manifest], options: manifests.Options) -> HopError:
    awaited = Awaited(
        options.namespace,
        f"{NAME_LABEL}=cuda",
        hop=Hop.WORKLOAD,
        seen=f"the CUDA pod did not end within {options.timeout_s} s",
        fix="",
    )
    text = report(awaited, [pod], events).removeprefix(f"{Hop.WORKLOAD}: ").removesuffix(" Next: ")
    return HopError(
        Hop.WORKLOAD,
        seen=f"node {node.name}: {text}",
        fix=f"on {node.name}: `ctr --namespace k8s.io tasks ls` and `journalctl -u kubelet`; "
        "gpu_proof_runtime_class and gpu_proof_image have to fit the cluster, and gpu_proof_wait_timeout the time "
        "to pull the image",
    )


def _recorded(error: HopError) -> dict[str, Any]:
    return {"text": error.seen, "cause": error.cause, "fix": error.fix, **error.result}


def _unresolved(hop: Hop, entry: Entry, obstacle: str) -> HopError:
    """The error of the last proof, which cannot be repeated now."""
    return HopError(
        hop,
        seen=f"{str(entry.error['text']).partition(chr(10))[0]}. This is from the proof of {entry.at}, and nothing was "
        f"proven since: {obstacle}",
        cause=str(entry.error.get("cause", "")),
        fix=f"{entry.error.get('fix', '')}; then run the playbook kubegpu.autoscale.verify".removeprefix("; then "),
    )


def _why_no_workload(nodes: Sequence[ProofNode]) -> str:
    if not nodes:
        return "no node offers a GPU"
    if all(node.is_shared for node in nodes):
        return "every GPU is shared or split, so no pod can have a whole one"
    return "no GPU is free on a working node"


def missing_room(pod: Manifest) -> str:
    """The resource that the scheduler finds too little of on the node; empty if none."""
    found = _NO_ROOM.search(str(condition(pod, "PodScheduled").get("message") or ""))
    return found[0] if found else ""


def _is_displaced(pod: Manifest) -> bool:
    """Whether the pod was preempted or evicted; a pod that failed by itself has no such condition."""
    return condition(pod, "DisruptionTarget").get("status") == "True"


def _message(pod: Manifest) -> str:
    """The container's termination message; without one, why the kubelet ended or rejected the pod."""
    ended = [(status.get("state") or {}).get("terminated") or {} for status in statuses(pod)]
    status = pod.get("status") or {}
    reported = ": ".join(filter(None, (status.get("reason"), status.get("message"))))
    return next((str(end["message"]) for end in ended if end.get("message")), reported)
