# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Proves that GPUs compute and that a workload scales on them. Proofs are recorded, and repeated only after changes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from ..autoscaling.manifests import RuleOptions, prometheus_rules
from ..autoscaling.spec import read_specs
from ..chain.waiting_pods import Awaited, report
from ..cluster.errors import ApiError
from ..cluster.identity import read_name
from ..cluster.kube import CONFIG_MAPS, EVENTS, NAMESPACES, PODS, KubeClient, Resource
from ..cluster.lease import Lease
from ..cluster.parallel import all_in_parallel
from ..cluster.prometheus_client import PrometheusClient
from ..errors import HopError, enumeration
from ..formats.times import timestamp
from ..hops import Hop
from ..kube.labels import PART_OF, inventory_of, is_managed, is_of, labels, maker
from ..kube.objects import Manifest, condition, is_ready, labels_of, statuses
from ..proof import manifests
from ..proof.basis import ClusterParts
from ..proof.cuda import CudaRun, cuda_errors, missing_gpus, read, together, unfinished_fabric, unrequested_gpus
from ..proof.due_proofs import Due, ProofPlan, in_use, may_count, plan
from ..proof.nodes import GpuServer, ProofNode
from ..proof.record import DENIED, NAME, NAMESPACE, VISIBLE, Entry, Record
from .outcome import Outcome
from .proof_of_chain import ChainProof
from .proof_reading import POLICIES, Reader, Seen
from .reconcile import remove
from .wait import Deadline, wait_until

PRIORITY_CLASSES = Resource("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses")
REMOVAL_S = 120
# The API server removes no namespace while an aggregated API does not answer: one that restarts does within seconds.
UNSERVED_S = 15
UNSERVED = "NamespaceDeletionDiscoveryFailure"
ADMISSION_S = 30
# A preempted pod is recreated, and the scheduler rejects the new one within this time.
REPLACEMENT_S = 10
# Nodes whose reasons an error gives.
SHOWN_NODES = 3
FORBIDDEN, CONFLICT = 403, 409
# Status codes of an admission policy or webhook.
REJECTED = (FORBIDDEN, 422)
_ENDED = ("Succeeded", "Failed")
# Of the scheduler: the node is full.
_NO_ROOM = re.compile(r"Insufficient [\w./-]*\w|Too many pods")


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


class Prover:
    """One run. Its outcome has the results of each node and of the chain, with times."""

    def __init__(
        self,
        kube: KubeClient,
        prometheus: PrometheusClient,
        rules: RuleOptions,
        request: Request,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube, self._prometheus, self._rules = kube, prometheus, rules
        self._request, self._options, self._clock = request, request.options, clock
        self._outcome = Outcome()
        self._rows: list[dict[str, Any]] = []
        self._broken: dict[str, HopError] = {}
        self._chain: dict[str, Any] = {"status": "off", "reason": "", "hops": []}
        self._stopped = ""

    def prove(self) -> Outcome:
        """Run the necessary proofs. Failures are collected in the outcome's errors, and successful proofs are recorded.

        Raises: HopError before anything is changed, if an object with one of its names was not made by a proof, or if
        another run is under way.
        """
        began = self._clock()
        reader = Reader(self._kube, self._request.servers, self._request.selector, self._given())
        existing = self._temporary()
        self._check_names(existing)
        left = self._leftover(existing)
        seen = self._look(reader, with_pods=False)
        planned = self._plan(seen)
        if not planned.is_empty:  # free GPUs determine what can be proven
            seen = self._look(reader, with_pods=True)
            planned = self._plan(seen)
        self._judge_servers(seen)
        is_needed = bool(planned.due) or self._may_prove_chain(seen, planned)
        if self._kube.dry_run:
            self._describe(seen, planned, dry_run=True)
            self._outcome.changed = is_needed or left
        elif is_needed or left:
            with self._lease().held():
                if left:
                    self._remove()
                self._outcome.changed = left
                if is_needed:
                    self._prove(seen, planned)
                else:
                    self._describe(seen, planned)
        else:
            self._describe(seen, planned)
        self._fail_without_evidence(seen)
        self._outcome.result = {
            "generated_at": timestamp(self._kube.now().timestamp()) if is_needed else "",
            "seconds": round(self._clock() - began, 1),
            "proven_now": is_needed and not self._kube.dry_run,
            "nodes": self._rows,
            "chain": self._chain,
        }
        return self._outcome

    def clear(self) -> Outcome:
        """Remove the leftover objects of a run, and the record."""
        live = self._kube.get(CONFIG_MAPS, NAME, NAMESPACE)
        left = self._leftover(self._temporary())
        if left and not self._kube.dry_run:
            with self._lease().held():
                self._remove()
        is_ours = live is not None and is_of(live, self._options.inventory)
        if live is not None and is_ours:
            self._kube.delete(CONFIG_MAPS, live, partial(is_of, inventory=self._options.inventory))
        self._outcome.changed = left or is_ours
        self._outcome.result = {
            "generated_at": "",
            "seconds": 0.0,
            "proven_now": False,
            "nodes": [],
            "chain": self._chain,
        }
        return self._outcome

    def _fail_without_evidence(self, seen: Seen) -> None:
        """Add an error if nodes should have been proven and none is, now or earlier."""
        missing = set(self._request.nodes) - {node.name for node in seen.nodes}
        if missing:
            self._outcome.errors.append(
                HopError(
                    Hop.NODE,
                    seen=f"nothing was proven on {enumeration(sorted(missing))}: it is no node with GPUs",
                    fix="check the names in gpu_proof_nodes and the labels in kubegpu_gpu_node_selector: "
                    "`kubectl get nodes --show-labels`",
                )
            )
        claimed = {node.name for node in seen.nodes if node.is_claimed}
        provable = [row for row in self._rows if row["node"] not in claimed]
        waiting = [row for row in provable if row["status"] == "waiting" and not row["gpus"]]
        if waiting and not self._outcome.errors and len(waiting) == len(provable):
            reasons = "; ".join(f"{row['node']}: {row['reason']}" for row in waiting[:SHOWN_NODES])
            self._outcome.errors.append(
                HopError(
                    Hop.NODE,
                    seen=f"nothing was proven on {enumeration([row['node'] for row in waiting])}. {reasons}",
                    fix="run the playbook kubegpu.autoscale.verify once a GPU is free, or set kubegpu_proof: false",
                )
            )

    # Reading.

    def _given(self) -> ClusterParts:
        """What the options of this run determine."""
        specs = read_specs([manifests.autoscaler(self._options, manifests.MOST_REPLICAS)])
        return ClusterParts(
            rules=prometheus_rules(specs, self._rules),
            prometheus=self._prometheus.name,
            runtime_class=self._options.runtime_class,
            backend=self._options.backend,
        )

    def _look(self, reader: Reader, *, with_pods: bool) -> Seen:
        seen = reader.look(with_pods=with_pods)
        if not self._request.nodes:
            return seen
        return replace(seen, nodes=[node for node in seen.nodes if node.name in self._request.nodes])

    def _plan(self, seen: Seen) -> ProofPlan:
        chain = seen.chain if self._request.chain else None
        is_seen = any(entry.unrequested == VISIBLE for entry in seen.record.machines.values())
        return plan(seen.nodes, seen.record, chain, repeat=self._request.repeat, denies=is_seen and self._denies)

    def _temporary(self) -> list[tuple[Resource, Manifest]]:
        """The namespace and the PriorityClass, if they exist, and namespaces of earlier runs with other names."""
        names = ((NAMESPACES, self._options.namespace), (PRIORITY_CLASSES, manifests.PRIORITY))
        named = [(resource, live) for resource, name in names if (live := self._kube.get(resource, name)) is not None]
        return [*named, *((NAMESPACES, live) for live in self._namespaces())]

    def _namespaces(self) -> list[Manifest]:
        """Those that a proof of this inventory created."""
        listed = self._kube.list(NAMESPACES, label_selector=f"{PART_OF}={manifests.PART}") or ()
        return [live for live in listed if self._is_ours(live)]

    def _leftover(self, existing: Sequence[tuple[Resource, Manifest]]) -> bool:
        """Whether a killed run of this inventory left objects."""
        return any(self._is_ours(live) for _resource, live in existing)

    def _check_names(self, existing: Sequence[tuple[Resource, Manifest]]) -> None:
        """Raises: HopError if an object that no proof created has a name that this one needs."""
        record = self._kube.get(CONFIG_MAPS, NAME, NAMESPACE)
        if record is not None and not is_managed(record):
            raise self._foreign(CONFIG_MAPS, record, f"`kubectl -n {NAMESPACE} delete configmap {NAME}`")
        for resource, live in existing:
            name = live["metadata"]["name"]
            if resource is PRIORITY_CLASSES and not _is_of_proof(live):
                raise self._foreign(resource, live, f"`kubectl delete priorityclass {name}`")
            if resource is NAMESPACES and not self._is_ours(live):
                self._lease().refuse_if_held()  # it may belong to another run in progress
                fix = f"`kubectl delete namespace {name}`; or set gpu_proof_namespace to a name that no namespace has"
                raise self._foreign(resource, live, fix)

    def _foreign(self, resource: Resource, live: Manifest, fix: str) -> HopError:
        return HopError(
            Hop.API_SERVER,
            seen=f"{resource.kind} {live['metadata']['name']} {maker(live)} and was not created by a proof of "
            f"inventory {self._options.inventory}. Nothing was changed",
            fix=f"if it is not needed: {fix}",
        )

    def _is_ours(self, live: Manifest) -> bool:
        """Whether a proof of this inventory created the object, so that it may be deleted with its contents."""
        return _is_of_proof(live) and is_of(live, self._options.inventory)

    def _lease(self) -> Lease:
        metadata = {"name": NAME, "namespace": NAMESPACE, "labels": labels(self._options.inventory)}
        return Lease(self._kube, metadata, self._request.holder, self._kube.now, "the proof of this cluster")

    def _judge_servers(self, seen: Seen) -> None:
        """Add the errors that are visible without a CUDA program."""
        for node in seen.nodes:
            found = unfinished_fabric(node) or missing_gpus(node, seen.record.machines.get(node.machine))
            if found:
                self._broken[node.name] = found
        self._outcome.errors += self._broken.values()

    def _may_prove_chain(self, seen: Seen, planned: ProofPlan) -> bool:
        return bool(planned.chain) and any(map(_takes_workload, seen.nodes))

    # The proof.

    def _prove(self, seen: Seen, planned: ProofPlan) -> None:
        """Run the necessary proofs, and remove everything except the record, also after an error."""
        record = seen.record
        try:
            with self._things():
                record = self._prove_nodes(seen, planned, record)
                self._write(seen, record)
                if planned.chain:
                    record = self._prove_chain(seen, planned, record)
                    self._write(seen, record)
        except (HopError, ApiError) as err:
            self._outcome.errors.append(err)
            self._stopped = _first_line(err)
        self._describe(seen, planned)

    @contextmanager
    def _things(self) -> Iterator[None]:
        """Create the namespace, the PriorityClass and the scripts, and remove them at the end."""
        kube = self._kube
        try:
            kube.apply(NAMESPACES, manifests.namespace(self._options))
            self._outcome.changed = True
            live = kube.get(PRIORITY_CLASSES, manifests.PRIORITY)
            kube.apply(PRIORITY_CLASSES, manifests.priority_class(self._options), live)
            kube.apply(CONFIG_MAPS, manifests.scripts(self._options))
            yield
        finally:
            self._remove()

    def _remove(self) -> None:
        """Remove the temporary objects. A failure is a warning, because the next run removes what is left."""
        kube, options = self._kube, self._options
        try:
            left = self._namespaces()
            names = dict.fromkeys([options.namespace, *(live["metadata"]["name"] for live in left)])
            removed = remove(kube, [{"namespace": name, "name": manifests.WORKLOAD} for name in names], self._rules)
            self._outcome.errors += removed.errors
            self._outcome.warnings += removed.warnings
            for live in left:
                kube.delete(NAMESPACES, live, self._is_ours)
            for live in left:
                self._wait_until_gone(live["metadata"]["name"])
            found = kube.get(PRIORITY_CLASSES, manifests.PRIORITY)
            # Last, because the next run finds leftover objects by it.
            if found is not None and self._is_ours(found) and not removed.errors:
                kube.delete(PRIORITY_CLASSES, found, self._is_ours)
        except (HopError, ApiError) as err:
            text = f"namespace {options.namespace} of the proof was not removed: {err}. The next run removes it"
            self._outcome.warnings.append(text)

    def _wait_until_gone(self, name: str) -> None:
        """Raises: HopError if the namespace is not deleted in time."""
        restart = Deadline(UNSERVED_S)

        def is_over(live: Manifest | None) -> bool:
            return live is None or (bool(_unserved(live)) and not restart.pause(0))

        live = wait_until(lambda: self._kube.get(NAMESPACES, name), is_over, Deadline(REMOVAL_S), poll_s=0.5)
        if live is not None and (unserved := _unserved(live)):
            fix = "kubectl get apiservices, which shows the API that does not answer"
            raise HopError(Hop.API_SERVER, seen=f"namespace {name} is not gone: {unserved}", fix=fix)
        if live is not None:
            fix = f"kubectl get namespace {name} --output=yaml, whose status shows what blocks the deletion"
            raise HopError(Hop.API_SERVER, seen=f"namespace {name} is not gone after {REMOVAL_S} s", fix=fix)

    def _prove_nodes(self, seen: Seen, planned: ProofPlan, record: Record) -> Record:
        """Run a CUDA pod on each node, all at the same time."""
        if not planned.due:
            return record
        began = self._clock()
        due = planned.due
        of_nodes = {entry.node.name: manifests.cuda_pods(self._options, entry.node) for entry in due}
        all_in_parallel(self._create, [pod for pods in of_nodes.values() for pod in pods])
        idle = self._run_idle_pods(due)
        names = {name: [pod["metadata"]["name"] for pod in pods] for name, pods in of_nodes.items()}
        found = self._finished_pods({name for listed in (*names.values(), *idle.values()) for name in listed})
        machines = {key: entry for key, entry in record.machines.items() if key in seen.machines}
        for entry in due:
            name = entry.node.name
            pods = [found.get(pod) for pod in names[name]]
            unrequested = self._judge_idle(entry.node, [found.get(pod) for pod in idle[name]])
            judged = self._judge(entry, pods, machines.get(entry.node.machine), self._clock() - began, unrequested)
            machines |= judged
        return Record(machines, record.chain)

    def _run_idle_pods(self, due: Sequence[Due]) -> dict[str, list[str]]:
        """Create the pods without a request. Returns their names by node, without those that a policy rejects.

        Those that something else rejects are included, because a verdict about them rests on nothing that is read.
        """

        def create(made: tuple[str, Manifest]) -> tuple[str, str] | None:
            node, pod = made
            try:
                self._create(pod)
            except ApiError as err:
                if err.status not in REJECTED:
                    raise
                if POLICIES.kind in err.message:
                    return None
            return node, pod["metadata"]["name"]

        wanted = [(entry.node.name, pod) for entry in due for pod in manifests.idle_pods(self._options, entry.node)]
        running = list(filter(None, all_in_parallel(create, wanted)))
        return {entry.node.name: [pod for node, pod in running if node == entry.node.name] for entry in due}

    def _judge_idle(self, node: ProofNode, pods: Sequence[Manifest | None]) -> str:
        """Whether pods without a request see GPUs; empty if one of them has left no result, or if none could run."""
        runs = [read(_message(pod)) for pod in pods if pod is not None and _phase(pod) in _ENDED]
        error = unrequested_gpus(node, sorted({device for run in runs for device in run.devices}))
        if error is None:
            return DENIED if runs and len(runs) == len(pods) and all(run.is_read for run in runs) else ""
        if self._denies:
            self._outcome.errors.append(error)
            self._broken.setdefault(node.name, error)
        else:
            self._outcome.warnings.append(str(error))
        return VISIBLE

    @cached_property
    def _denies(self) -> bool:
        """Whether GPUs are only for pods that request them."""
        if self._request.unrequested == "auto":
            return bool(read_name(self._kube))
        return self._request.unrequested == "deny"

    def _create(self, pod: Manifest) -> None:
        """Create the pod when the namespace's ServiceAccount and the PriorityClass are available. Raises: ApiError."""

        def attempt() -> ApiError | None:
            try:
                self._kube.create(PODS, pod)
            except ApiError as err:
                return err
            return None

        def is_final(err: ApiError | None) -> bool:
            return err is None or err.status != FORBIDDEN or bool(err.refused_user)

        err = wait_until(attempt, is_final, Deadline(ADMISSION_S), poll_s=0.2)
        if err is not None and err.status != CONFLICT:  # the response to the first request may have been lost
            raise err

    def _finished_pods(self, names: set[str]) -> dict[str, Manifest]:
        """The last state of the pods: ended, without a GPU, or neither in time. A missing pod was deleted."""

        def look() -> dict[str, Manifest]:
            listed = self._kube.list(PODS, namespace=self._options.namespace) or ()
            return {pod["metadata"]["name"]: pod for pod in listed if pod["metadata"]["name"] in names}

        def is_over(pods: Mapping[str, Manifest]) -> bool:
            return all(_phase(pod) in _ENDED or _lack(pod) for pod in pods.values())

        return wait_until(look, is_over, Deadline(self._options.timeout_s), poll_s=0.5, longest_poll_s=3.0)

    def _judge(
        self, due: Due, pods: Sequence[Manifest | None], before: Entry | None, seconds: float, unrequested: str
    ) -> dict[str, Entry]:
        node = due.node
        ended = [pod for pod in pods if pod is not None and not _is_displaced(pod) and _phase(pod) in _ENDED]
        run = together([read(_message(pod)) for pod in ended])
        is_decided = len(ended) == len(pods) or bool(run.failures)
        if not is_decided and node.name not in self._broken:
            pod = next(pod for pod in pods if pod not in ended)
            if pod is None or _is_displaced(pod):
                self._wait(node, "its pod was preempted, evicted or deleted", before)
                return {}
            if lack := _lack(pod):
                self._wait(node, f"its pod has no room: {lack}", before)
                return {}
            error = self._not_started(node, pod)
            self._outcome.errors.append(error)
            return self._failed(node, error, before)
        errors = cuda_errors(node, run) if is_decided else []
        self._outcome.errors += errors
        if errors or node.name in self._broken:
            return self._failed(node, errors[0] if errors else self._broken[node.name], before, unrequested)
        return self._proven(due, run, before, seconds, unrequested)

    def _proven(
        self, due: Due, run: CudaRun, before: Entry | None, seconds: float, unrequested: str
    ) -> dict[str, Entry]:
        """The entry with earlier proven GPUs, if nothing else has changed."""
        node = due.node
        is_same = before is not None and not before.error and not before.changes(node.versions)
        known = set(before.uuids) if before and is_same and not node.is_shared else set()
        uuids = sorted(known | set(run.computed))
        is_partial = len(uuids) < node.provable
        text = in_use(node, len(uuids)) if is_partial else ""
        times = {"seconds": run.seconds, "wall": seconds}
        self._row(node, "proven", due.reason, text=text, gpus=len(uuids), unrequested=unrequested, **times)
        uuids_kept = tuple(uuids) if is_partial else ()
        entry = Entry(self._at(), node.versions, node.name, len(uuids), uuids_kept, unrequested=unrequested)
        return {node.machine: entry}

    def _failed(
        self, node: ProofNode, error: HopError, before: Entry | None, unrequested: str = ""
    ) -> dict[str, Entry]:
        """Keeps the number of earlier proven GPUs as expected."""
        self._row(node, "failed", error.seen, unrequested=unrequested)
        gpus = before.gpus if before else 0
        entry = Entry(self._at(), node.versions, node.name, gpus, error=_recorded(error), unrequested=unrequested)
        return {node.machine: entry}

    def _wait(self, node: ProofNode, reason: str, before: Entry | None) -> None:
        """It cannot be proven now. A failure stays an error until a proof succeeds; an earlier proof may count."""
        is_open = before is not None and before.unrequested == VISIBLE and self._denies
        if before and (before.error or is_open):
            seen = unrequested_gpus(node, ["GPUs"]) if not before.error else None
            error = _unresolved(Hop.NODE, replace(before, error=_recorded(seen)) if seen else before, reason)
            self._outcome.errors.append(error)
            self._row(node, "failed", error.seen, unrequested=before.unrequested)
        elif before and not self._request.repeat and may_count(node, before):
            self._row(node, "waiting", f"{reason}; it was proven {before.at}", gpus=before.gpus)
        else:
            self._row(node, "waiting", reason)

    def _not_started(self, node: ProofNode, pod: Manifest) -> HopError:
        events = self._kube.list(EVENTS, namespace=self._options.namespace, field_selector="reason=FailedCreate") or ()
        awaited = Awaited(
            self._options.namespace,
            f"{manifests.APP}=cuda",
            hop=Hop.WORKLOAD,
            seen=f"the CUDA pod did not end within {self._options.timeout_s} s",
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

    def _prove_chain(self, seen: Seen, planned: ProofPlan, record: Record) -> Record:
        """Prove the chain on nodes that have computed."""
        nodes = [
            node
            for node in seen.nodes
            if _takes_workload(node) and (entry := record.machines.get(node.machine)) and not entry.error
        ]
        if not nodes:
            return record
        gpus = sum(node.free for node in nodes)
        proof = ChainProof(self._kube, self._prometheus, self._rules, self._options, clock=self._clock)
        try:
            proof.prove(nodes, gpus)
        except (HopError, ApiError) as err:
            if lack := self._lost_its_room():
                self._chain = {**proof.describe(), **self._waiting_chain(seen, f"its pod has no room: {lack}")}
                return record
            self._outcome.errors.append(err)
            self._chain = {**proof.describe(), "status": "failed", "reason": _first_line(err)}
            return Record(record.machines, Entry(self._at(), seen.chain, error={"text": str(err)}))
        self._chain = {**proof.describe(), "status": "proven", "reason": planned.chain}
        return Record(record.machines, Entry(self._at(), seen.chain, gpus=min(gpus, 2)))

    def _lost_its_room(self) -> str:
        """What the workload's pod lacks, because every other pod may preempt it; empty if nothing."""

        def look() -> Sequence[Manifest]:
            selector = f"{manifests.APP}={manifests.WORKLOAD}"
            return self._kube.list(PODS, namespace=self._options.namespace, label_selector=selector) or ()

        def is_decided(pods: Sequence[Manifest]) -> bool:
            return any(is_ready(pod) or _lack(pod) for pod in pods)

        pods = wait_until(look, is_decided, Deadline(REPLACEMENT_S), poll_s=0.5)
        return "" if any(map(is_ready, pods)) else next(filter(None, map(_lack, pods)), "")

    # Record and result.

    def _write(self, seen: Seen, record: Record) -> None:
        live = self._kube.get(CONFIG_MAPS, NAME, NAMESPACE)
        inventory = (inventory_of(live) if live else "") or self._options.inventory
        self._kube.apply(CONFIG_MAPS, record.config_map(inventory), live, force=True)

    def _at(self) -> str:
        return timestamp(self._kube.now().timestamp())

    def _row(self, node: ProofNode, status: str, reason: str, **more: Any) -> None:
        counts = {"gpus": 0, "of": node.allocatable, "unrequested": ""}
        row = {"node": node.name, "status": status, "reason": reason, "text": "", **counts}
        seconds = {name: round(more.pop(name, 0.0), 1) for name in ("seconds", "wall")}
        self._rows.append({**row, "is_shared": node.is_shared, **seconds, **more})

    def _describe(self, seen: Seen, planned: ProofPlan, *, dry_run: bool = False) -> None:
        """Add rows for the nodes that this run did not prove, with the reason."""
        described = {row["node"] for row in self._rows}
        due = {entry.node.name: entry.reason for entry in planned.due}
        for node in seen.nodes:
            entry = seen.record.machines.get(node.machine)
            if node.name in described:
                continue
            if node.name in self._broken:
                self._row(node, "failed", self._broken[node.name].seen)
            elif node.name in due:
                self._row(node, "due" if dry_run else "failed", due[node.name] if dry_run else self._stopped)
            elif node.name in planned.kept:
                kept = entry.gpus if entry else 0
                text = planned.waiting.get(node.name, "")
                unrequested = entry.unrequested if entry else ""
                self._row(node, "kept", planned.kept[node.name], gpus=kept, text=text, unrequested=unrequested)
            else:
                self._wait(node, planned.waiting[node.name], entry)
        if self._chain["status"] == "off" and self._request.chain:
            self._chain |= self._unproven_chain(seen, planned, dry_run)

    def _unproven_chain(self, seen: Seen, planned: ProofPlan, dry_run: bool) -> dict[str, Any]:
        entry = seen.record.chain
        if not planned.chain and entry is not None:
            return {"status": "kept", "reason": entry.at}
        if dry_run and (planned.due or any(map(_takes_workload, seen.nodes))):
            return {"status": "due", "reason": planned.chain}
        if self._stopped:
            return {"status": "failed", "reason": self._stopped}
        return self._waiting_chain(seen, _why_no_workload(seen.nodes))

    def _waiting_chain(self, seen: Seen, reason: str) -> dict[str, Any]:
        """It cannot be proven now. A failure stays an error until a proof succeeds."""
        if seen.record.chain is None or not seen.record.chain.error:
            return {"status": "waiting", "reason": reason}
        error = _unresolved(Hop.WORKLOAD, seen.record.chain, reason)
        self._outcome.errors.append(error)
        return {"status": "failed", "reason": error.seen}


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


def _takes_workload(node: ProofNode) -> bool:
    return node.is_ready and not node.is_cordoned and not node.is_shared and node.free > 0


def _why_no_workload(nodes: Sequence[ProofNode]) -> str:
    if not nodes:
        return "no node offers a GPU"
    if all(node.is_shared for node in nodes):
        return "every GPU is shared or split, so no pod can have a whole one"
    return "no GPU is free on a working node"


def _phase(pod: Manifest) -> str:
    return str((pod.get("status") or {}).get("phase", "Unknown"))


def _lack(pod: Manifest) -> str:
    """What the scheduler finds too little of on the node; empty if nothing."""
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


def _is_of_proof(live: Manifest) -> bool:
    return is_managed(live) and labels_of(live).get(PART_OF) == manifests.PART


def _unserved(namespace: Mapping[str, Any]) -> str:
    """The API that keeps a namespace from being deleted; empty without one."""
    failure = condition(namespace, UNSERVED)
    return str(failure.get("message") or UNSERVED) if failure.get("status") == "True" else ""


def _first_line(err: Exception) -> str:
    return str(err).partition("\n")[0]
