# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The temporary objects of a proof: its namespace, its PriorityClass and its scripts.

Everything else of a proof is in the namespace, and is deleted with it. An object with one of these names that no proof
of this inventory created is neither changed nor deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from ..autoscaling.manifests import RuleOptions
from ..cluster.errors import ApiError
from ..cluster.kube import CONFIG_MAPS, NAMESPACES, KubeClient, Resource
from ..errors import HopError
from ..hops import Hop
from ..kube.labels import PART_OF, is_managed, is_of, maker
from ..kube.objects import Manifest, condition, labels_of
from ..proof import manifests
from ..proof.record import NAME, NAMESPACE
from .outcome import Outcome
from .reconcile import remove
from .wait import Deadline, wait_until

PRIORITY_CLASSES = Resource("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", namespaced=False)
REMOVAL_S = 120
# The API server removes no namespace while an aggregated API does not answer: one that restarts does within seconds.
UNSERVED_S = 15
UNSERVED = "NamespaceDeletionDiscoveryFailure"
# An object with its kind.
Found = tuple[Resource, Manifest]


def find_objects(kube: KubeClient, options: manifests.Options) -> list[Found]:
    """The namespace and the PriorityClass, if they exist, and namespaces of earlier runs with other names."""
    names = ((NAMESPACES, options.namespace), (PRIORITY_CLASSES, manifests.PRIORITY))
    named = [(resource, live) for resource, name in names if (live := kube.get(resource, name)) is not None]
    return [*named, *((NAMESPACES, live) for live in _namespaces(kube, options.inventory))]


def has_leftovers(found: Sequence[Found], inventory: str) -> bool:
    """Whether an interrupted run of this inventory left objects."""
    return any(_is_ours(live, inventory) for _resource, live in found)


def foreign_object(found: Sequence[Found], inventory: str) -> tuple[Resource, HopError] | None:
    """The first object with a name that the proof needs and that no proof created, and the error about it."""
    for resource, live in found:
        name, fix = live["metadata"]["name"], ""
        if resource is CONFIG_MAPS and not is_managed(live):
            fix = f"`kubectl -n {NAMESPACE} delete configmap {NAME}`"
        elif resource is PRIORITY_CLASSES and not _is_of_proof(live):
            fix = f"`kubectl delete priorityclass {name}`"
        elif resource is NAMESPACES and not _is_ours(live, inventory):
            fix = f"`kubectl delete namespace {name}`; or set gpu_proof_namespace to a name that no namespace has"
        if fix:
            return resource, HopError(
                Hop.API_SERVER,
                seen=f"{resource.kind} {name} {maker(live)} and was not created by a proof of inventory {inventory}. "
                "Nothing was changed",
                fix=f"if it is not needed: {fix}",
            )
    return None


@contextmanager
def temporary_objects(
    kube: KubeClient, options: manifests.Options, rules: RuleOptions, outcome: Outcome
) -> Iterator[None]:
    """Create the objects, and remove them and all that is in the namespace at the end."""
    try:
        kube.apply(NAMESPACES, manifests.namespace(options))
        outcome.changed = True
        live = kube.get(PRIORITY_CLASSES, manifests.PRIORITY)
        if live is None or _is_ours(live, options.inventory):  # one that another inventory left serves as well
            kube.apply(PRIORITY_CLASSES, manifests.priority_class(options), live)
        kube.apply(CONFIG_MAPS, manifests.scripts(options))
        yield
    finally:
        remove_objects(kube, options, rules, outcome)


def remove_objects(kube: KubeClient, options: manifests.Options, rules: RuleOptions, outcome: Outcome) -> None:
    """Remove the objects of this inventory. A failure is a warning, because the next run removes what is left."""
    may_go = partial(_is_ours, inventory=options.inventory)
    try:
        left = _namespaces(kube, options.inventory)
        names = dict.fromkeys([options.namespace, *(live["metadata"]["name"] for live in left)])
        removed = remove(kube, [{"namespace": name, "name": manifests.WORKLOAD} for name in names], rules)
        outcome.errors += removed.errors
        outcome.warnings += removed.warnings
        for live in left:
            kube.delete(NAMESPACES, live, may_go)
        for live in left:
            _wait_until_gone(kube, live["metadata"]["name"])
        found = kube.get(PRIORITY_CLASSES, manifests.PRIORITY)
        # Last, because the next run finds leftover objects by it.
        if found is not None and may_go(found) and not removed.errors:
            kube.delete(PRIORITY_CLASSES, found, may_go)
    except (HopError, ApiError) as err:
        text = f"namespace {options.namespace} of the proof was not removed: {err}. The next run removes it"
        outcome.warnings.append(text)


def _namespaces(kube: KubeClient, inventory: str) -> list[Manifest]:
    """Those that a proof of this inventory created."""
    listed = kube.list(NAMESPACES, label_selector=f"{PART_OF}={manifests.PART}") or ()
    return [live for live in listed if _is_ours(live, inventory)]


def _is_ours(live: Manifest, inventory: str) -> bool:
    """Whether a proof of this inventory created the object, so that it may be deleted with its contents."""
    return _is_of_proof(live) and is_of(live, inventory)


def _is_of_proof(live: Manifest) -> bool:
    return is_managed(live) and labels_of(live).get(PART_OF) == manifests.PART


def _wait_until_gone(kube: KubeClient, name: str) -> None:
    """Raises: HopError if the namespace is not deleted in time."""
    restart = Deadline(UNSERVED_S)

    def is_over(live: Manifest | None) -> bool:
        return live is None or (bool(_unserved(live)) and not restart.pause(0))

    live = wait_until(lambda: kube.get(NAMESPACES, name), is_over, Deadline(REMOVAL_S), poll_s=0.5)
    if live is not None and (unserved := _unserved(live)):
        fix = "kubectl get apiservices, which shows the API that does not answer"
        raise HopError(Hop.API_SERVER, seen=f"namespace {name} is not gone: {unserved}", fix=fix)
    if live is not None:
        fix = f"kubectl get namespace {name} --output=yaml, whose status shows what blocks the deletion"
        raise HopError(Hop.API_SERVER, seen=f"namespace {name} is not gone after {REMOVAL_S} s", fix=fix)


def _unserved(namespace: Manifest) -> str:
    """The API that keeps a namespace from being deleted; empty without one."""
    failure = condition(namespace, UNSERVED)
    return str(failure.get("message") or UNSERVED) if failure.get("status") == "True" else ""
