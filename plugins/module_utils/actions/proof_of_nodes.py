# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Runs CUDA pods on all nodes that must be proven, at the same time, and reads how they ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from ..cluster.errors import ApiError
from ..cluster.kube import EVENTS, PODS, KubeClient
from ..cluster.parallel import all_in_parallel
from ..formats.times import timestamp
from ..kube.objects import Manifest
from ..kube.pods import has_ended
from ..proof import manifests
from ..proof.due_proofs import Due
from ..proof.verdict import Basis, Ended, Verdict, missing_room, node_verdict
from ..reading.proof_reader import POLICIES
from .wait import Deadline, wait_until

ADMISSION_S = 30
FORBIDDEN, CONFLICT = 403, 409
# Status codes of an admission policy or webhook.
REJECTED = (FORBIDDEN, 422)


def prove_nodes(
    kube: KubeClient,
    options: manifests.Options,
    due: Sequence[Due],
    basis: Basis,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> list[Verdict]:
    """A verdict for each node of `due`. Raises: ApiError if a pod cannot be created or read."""
    if not due:
        return []
    began = clock()
    cuda = {entry.node.name: manifests.cuda_pods(options, entry.node) for entry in due}
    all_in_parallel(lambda pod: _create(kube, pod), [pod for pods in cuda.values() for pod in pods])
    idle = _create_idle_pods(kube, options, due)
    names = {name: [pod["metadata"]["name"] for pod in pods] for name, pods in cuda.items()}
    pods = _ended_pods(kube, options, {name for listed in (*names.values(), *idle.values()) for name in listed})
    ended = Ended(pods, _events(kube, options, pods), clock() - began, timestamp(kube.now().timestamp()))
    return [node_verdict(entry, basis, options, ended, names[entry.node.name], idle[entry.node.name]) for entry in due]


def _create_idle_pods(kube: KubeClient, options: manifests.Options, due: Sequence[Due]) -> dict[str, list[str]]:
    """Create the pods without a request. Returns their names by node, without those that a policy rejects.

    Those that something else rejects are included, because a verdict about them rests on nothing that is read.
    """

    def create(made: tuple[str, Manifest]) -> tuple[str, str] | None:
        node, pod = made
        try:
            _create(kube, pod)
        except ApiError as err:
            if err.status not in REJECTED:
                raise
            if POLICIES.kind in err.message:
                return None
        return node, pod["metadata"]["name"]

    wanted = [(entry.node.name, pod) for entry in due for pod in manifests.idle_pods(options, entry.node)]
    running = list(filter(None, all_in_parallel(create, wanted)))
    return {entry.node.name: [pod for node, pod in running if node == entry.node.name] for entry in due}


def _create(kube: KubeClient, pod: Manifest) -> None:
    """Create the pod when the namespace's ServiceAccount and the PriorityClass are available. Raises: ApiError."""

    def attempt() -> ApiError | None:
        try:
            kube.create(PODS, pod)
        except ApiError as err:
            return err
        return None

    def is_final(err: ApiError | None) -> bool:
        return err is None or err.status != FORBIDDEN or bool(err.refused_user)

    err = wait_until(attempt, is_final, Deadline(ADMISSION_S), poll_s=0.2)
    if err is not None and err.status != CONFLICT:  # the response to the first request may have been lost
        raise err


def _ended_pods(kube: KubeClient, options: manifests.Options, names: set[str]) -> dict[str, Manifest]:
    """The last state of the pods: ended, without a GPU, or neither in time. A missing pod was deleted."""

    def read() -> dict[str, Manifest]:
        listed = kube.list(PODS, namespace=options.namespace) or ()
        return {pod["metadata"]["name"]: pod for pod in listed if pod["metadata"]["name"] in names}

    def is_over(pods: Mapping[str, Manifest]) -> bool:
        return all(has_ended(pod) or missing_room(pod) for pod in pods.values())

    return wait_until(read, is_over, Deadline(options.timeout_s), poll_s=0.5, longest_poll_s=3.0)


def _events(kube: KubeClient, options: manifests.Options, pods: Mapping[str, Manifest]) -> Sequence[Manifest]:
    """Events that say why pods did not start; none if all have ended."""
    if all(map(has_ended, pods.values())):
        return ()
    return kube.list(EVENTS, namespace=options.namespace, field_selector="reason=FailedCreate") or ()
