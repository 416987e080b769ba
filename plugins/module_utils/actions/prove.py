# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Proves that GPUs compute and that a workload scales on them. Proofs are recorded, and repeated only after changes.

A run reads the cluster, plans, and judges what needs no program. It then creates its temporary objects, proves the
nodes and the chain, records each, and removes the objects, also after an error. The result has a row for each node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..autoscaling.manifests import RuleOptions, prometheus_rules
from ..autoscaling.spec import read_specs
from ..cluster.errors import ApiError
from ..cluster.identity import read_name
from ..cluster.kube import CONFIG_MAPS, NAMESPACES, PODS, KubeClient
from ..cluster.lease import Lease
from ..cluster.prometheus_client import PrometheusClient
from ..errors import HopError
from ..formats.times import timestamp
from ..kube.labels import NAME_LABEL, inventory_of, is_of, labels
from ..kube.objects import Manifest, is_ready
from ..proof import manifests
from ..proof.basis import ClusterParts
from ..proof.due_proofs import ProofPlan, plan
from ..proof.nodes import GpuServer
from ..proof.record import NAME, NAMESPACE, VISIBLE, Entry, Record
from ..proof.verdict import (
    Basis,
    Verdict,
    chain_row,
    missing_evidence,
    missing_room,
    server_errors,
    takes_workload,
    unproven,
    waiting_chain,
)
from ..reading.proof_reader import ProofReader, Seen
from .outcome import Outcome
from .proof_objects import (
    find_objects,
    foreign_object,
    has_leftovers,
    remove_objects,
    temporary_objects,
)
from .proof_of_chain import ChainProof
from .proof_of_nodes import prove_nodes
from .wait import Deadline, wait_until

# A preempted pod is recreated, and the scheduler rejects the new one within this time.
REPLACEMENT_S = 10
NO_CHAIN: Mapping[str, Any] = {"status": "off", "reason": "", "hops": []}


@dataclass(frozen=True)
class Request:
    """Options of a proof.

    servers:  servers of the inventory, as they report themselves. selector: labels of the nodes with GPUs.
    nodes:    names of the nodes to prove; empty for all.
    chain:    whether to also scale a temporary workload. repeat: prove again what is recorded.
    unrequested: `deny` if a pod that sees GPUs without a request is an error; `auto` for clusters that this collection
              created.
    holder:   names this run in the Lease that prevents two runs at the same time.
    """

    options: manifests.Options
    servers: Sequence[GpuServer] = ()
    selector: Mapping[str, str] = field(default_factory=dict)
    nodes: Sequence[str] = ()
    chain: bool = True
    repeat: bool = False
    unrequested: str = "auto"
    holder: str = ""


@dataclass(frozen=True)
class Cluster:
    """The clients of a run, and the options of its rules."""

    kube: KubeClient
    prometheus: PrometheusClient
    rules: RuleOptions
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Results:
    """Results of the programs of a run. chain: empty if it was not proven. stopped: the error that ended the run."""

    verdicts: Sequence[Verdict] = ()
    chain: Mapping[str, Any] = field(default_factory=dict)
    stopped: str = ""


def prove(cluster: Cluster, request: Request) -> Outcome:
    """Run the necessary proofs. Failures are collected in the outcome's errors, and successful proofs are recorded.

    Raises: HopError before anything is changed, if an object with one of its names was not made by a proof, or if
    another run is under way.
    """
    began, kube, outcome = cluster.clock(), cluster.kube, Outcome()
    reader = proof_reader(cluster, request)
    left = _find_leftovers(kube, request, reader.record_object)
    denies = _denies(kube, request)
    seen, planned = _read(reader, request, denies)

    basis = Basis(seen.record, server_errors(seen.nodes, seen.record), denies, request.repeat)
    outcome.errors += basis.broken.values()
    is_needed = bool(planned.due) or (bool(planned.chain) and any(map(takes_workload, seen.nodes)))
    results = Results()
    outcome.changed = left or (is_needed and kube.dry_run)
    if (is_needed or left) and not kube.dry_run:
        with _lease(kube, request).held():
            if left:
                remove_objects(kube, request.options, cluster.rules, outcome)
            if is_needed:
                results = _prove(cluster, request, seen, planned, basis, outcome)

    described = {verdict.node.name for verdict in results.verdicts}
    rest = [node for node in seen.nodes if node.name not in described]
    others = unproven(rest, planned, basis, dry_run=kube.dry_run, stopped=results.stopped)
    verdicts = [*results.verdicts, *others]
    outcome.errors += [error for verdict in others for error in verdict.errors]
    chain = {**NO_CHAIN, **results.chain}
    if not results.chain and request.chain:
        row, errors = chain_row(seen.nodes, planned, seen.record, dry_run=kube.dry_run, stopped=results.stopped)
        chain |= row
        outcome.errors += errors
    outcome.errors += missing_evidence(request.nodes, seen.nodes, verdicts, has_errors=bool(outcome.errors))
    outcome.result = {
        "generated_at": timestamp(kube.now().timestamp()) if is_needed else "",
        "seconds": round(cluster.clock() - began, 1),
        "proven_now": is_needed and not kube.dry_run,
        "nodes": [verdict.row for verdict in verdicts],
        "gpu_nodes": list(seen.gpu_nodes),
        "adds_nodes": seen.adds_nodes,
        "chain": chain,
    }
    return outcome


def clear(cluster: Cluster, request: Request) -> Outcome:
    """Remove the leftover objects of a run, and the record."""
    kube, inventory, outcome = cluster.kube, request.options.inventory, Outcome()
    record = kube.get(CONFIG_MAPS, NAME, NAMESPACE)
    left = has_leftovers(find_objects(kube, request.options), inventory)
    if left and not kube.dry_run:
        with _lease(kube, request).held():
            remove_objects(kube, request.options, cluster.rules, outcome)
    is_ours = record is not None and is_of(record, inventory)
    if record is not None and is_ours:
        kube.delete(CONFIG_MAPS, record, partial(is_of, inventory=inventory))
    outcome.changed = left or is_ours
    empty = {"generated_at": "", "seconds": 0.0, "proven_now": False, "nodes": [], "gpu_nodes": [], "adds_nodes": False}
    outcome.result = {**empty, "chain": dict(NO_CHAIN)}
    return outcome


def proof_reader(cluster: Cluster, request: Request) -> ProofReader:
    specs = read_specs([manifests.autoscaler(request.options, manifests.MOST_REPLICAS)])
    given = ClusterParts(
        rules=prometheus_rules(specs, cluster.rules),
        prometheus=cluster.prometheus.name,
        runtime_class=request.options.runtime_class,
        backend=request.options.backend,
    )
    return ProofReader(cluster.kube, request.servers, request.selector, given)


def _find_leftovers(kube: KubeClient, request: Request, record: Manifest | None) -> bool:
    """Whether an interrupted run of this inventory left objects.

    Raises: HopError if an object that no proof created has a name that this one needs.
    """
    inventory = request.options.inventory
    found = find_objects(kube, request.options)
    named = [*([(CONFIG_MAPS, record)] if record else []), *found]
    if foreign := foreign_object(named, inventory):
        resource, error = foreign
        if resource is NAMESPACES:
            _lease(kube, request).refuse_if_held()  # it may belong to another run in progress
        raise error
    return has_leftovers(found, inventory)


def _denies(kube: KubeClient, request: Request) -> bool:
    """Whether GPUs are only for pods that request them. `auto`: in clusters that this collection created."""
    return bool(read_name(kube)) if request.unrequested == "auto" else request.unrequested == "deny"


def _read(reader: ProofReader, request: Request, denies: bool) -> tuple[Seen, ProofPlan]:
    """The cluster, and the plan. If something must be proven, free GPUs determine what can be."""
    seen = reader.seen(request.nodes, with_pods=False)
    planned = _plan(seen, request, denies)
    if planned.is_empty:
        return seen, planned
    seen = reader.seen(request.nodes, with_pods=True)
    return seen, _plan(seen, request, denies)


def _plan(seen: Seen, request: Request, denies: bool) -> ProofPlan:
    is_seen = any(entry.unrequested == VISIBLE for entry in seen.record.machines.values())
    chain = seen.chain if request.chain else None
    return plan(seen.nodes, seen.record, chain, repeat=request.repeat, denies=is_seen and denies)


def _lease(kube: KubeClient, request: Request) -> Lease:
    metadata = {"name": NAME, "namespace": NAMESPACE, "labels": labels(request.options.inventory)}
    return Lease(kube, metadata, request.holder, kube.now, "the proof of this cluster")


def _prove(
    cluster: Cluster, request: Request, seen: Seen, planned: ProofPlan, basis: Basis, outcome: Outcome
) -> Results:
    """Run the programs, and remove everything except the record, also after an error."""
    kube, options = cluster.kube, request.options
    verdicts: list[Verdict] = []
    chain: Mapping[str, Any] = {}
    try:
        with temporary_objects(kube, options, cluster.rules, outcome):
            verdicts = prove_nodes(kube, options, planned.due, basis, clock=cluster.clock)
            outcome.errors += [error for verdict in verdicts for error in verdict.errors]
            outcome.warnings += [warning for verdict in verdicts for warning in verdict.warnings]
            record = _recorded(seen, verdicts)
            _write(kube, record, options.inventory)
            if planned.chain:
                chain, record = _prove_chain(cluster, options, seen, planned, record, outcome)
                _write(kube, record, options.inventory)
    except (HopError, ApiError) as err:
        outcome.errors.append(err)
        return Results(verdicts, chain, _first_line(err))
    return Results(verdicts, chain)


def _recorded(seen: Seen, verdicts: Sequence[Verdict]) -> Record:
    """The record with the new entries, without machines that are no nodes any more."""
    if not verdicts:
        return seen.record
    kept = {machine: entry for machine, entry in seen.record.machines.items() if machine in seen.machines}
    new = {verdict.node.machine: verdict.entry for verdict in verdicts if verdict.entry}
    return Record({**kept, **new}, seen.record.chain)


def _prove_chain(
    cluster: Cluster, options: manifests.Options, seen: Seen, planned: ProofPlan, record: Record, outcome: Outcome
) -> tuple[Mapping[str, Any], Record]:
    """Prove the chain on nodes that have computed. Returns its result, empty without such a node, and the record."""
    kube = cluster.kube
    nodes = [
        node
        for node in seen.nodes
        if takes_workload(node) and (entry := record.machines.get(node.machine)) and not entry.error
    ]
    if not nodes:
        return {}, record
    gpus = sum(node.free for node in nodes)
    proof = ChainProof(kube, cluster.prometheus, cluster.rules, options, clock=cluster.clock)
    try:
        proof.prove(nodes, gpus, {node.name for node in seen.nodes})
    except (HopError, ApiError) as err:
        if lack := _lost_room(kube, options):
            row, errors = waiting_chain(seen.record, f"its pod has no room: {lack}")
            outcome.errors += errors
            return {**proof.describe(), **row}, record
        outcome.errors.append(err)
        failed = Entry(timestamp(kube.now().timestamp()), seen.chain, error={"text": str(err)})
        row = {**proof.describe(), "status": "failed", "reason": _first_line(err)}
        return row, Record(record.machines, failed)
    proven = Entry(timestamp(kube.now().timestamp()), seen.chain, gpus=min(gpus, 2))
    return {**proof.describe(), "status": "proven", "reason": planned.chain}, Record(record.machines, proven)


def _lost_room(kube: KubeClient, options: manifests.Options) -> str:
    """What the workload's pod lacks, because every other pod may preempt it; empty if nothing."""

    def read() -> Sequence[Manifest]:
        selector = f"{NAME_LABEL}={manifests.WORKLOAD}"
        return kube.list(PODS, namespace=options.namespace, label_selector=selector) or ()

    def is_decided(pods: Sequence[Manifest]) -> bool:
        return any(is_ready(pod) or missing_room(pod) for pod in pods)

    pods = wait_until(read, is_decided, Deadline(REPLACEMENT_S), poll_s=0.5)
    return "" if any(map(is_ready, pods)) else next(filter(None, map(missing_room, pods)), "")


def _write(kube: KubeClient, record: Record, inventory: str) -> None:
    live = kube.get(CONFIG_MAPS, NAME, NAMESPACE)
    kube.apply(CONFIG_MAPS, record.config_map((inventory_of(live) if live else "") or inventory), live, force=True)


def _first_line(err: Exception) -> str:
    return str(err).partition("\n")[0]
