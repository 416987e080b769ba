# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""All objects of one part of the collection: wanted objects are applied, and other objects of the part are deleted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ..cluster.errors import ApiError
from ..cluster.kube import KubeClient, Resource
from ..cluster.ownership import is_up_to_date
from ..cluster.parallel import all_in_parallel, in_parallel
from ..errors import HopError
from ..hops import Hop
from ..kube.labels import INVENTORY, MANAGED_BY, MANAGER, PART_OF, hand_over, is_managed, is_of, maker, marked
from ..kube.objects import Manifest
from .outcome import Outcome

# Kind, namespace and name of an object.
Identity = tuple[str, str, str]


def make_objects(
    kube: KubeClient,
    part_of: str,
    kinds: Sequence[Mapping[str, str]],
    wanted: Sequence[Manifest],
    inventory: str,
    *,
    namespaces: Sequence[str] | None = None,
    in_use: Callable[[Sequence[Manifest], Sequence[Manifest]], Sequence[Manifest]] = lambda _unwanted, _others: (),
) -> Outcome:
    """Apply objects that differ, and delete this inventory's other objects of `part_of`.

    kinds: `api_version` and `kind` of all objects of the part, now or earlier. Kinds that are not served have none.
    namespaces: namespaces of the part, in addition to those of `wanted`; None for the whole cluster.
    in_use: of the objects that would be deleted, those that stay. Its second argument is the existing wanted objects.
    Raises: HopError before making changes, if an object has another owner or a kind is missing.
    """
    outcome = Outcome()
    served = _served(kube, kinds)
    selector = f"{MANAGED_BY}={MANAGER},{PART_OF}={part_of},{INVENTORY}={inventory}"
    # A part of that name in other namespaces can have another owner, and not every user can list the whole cluster.
    places = None if namespaces is None else sorted({*namespaces, *(_identity(manifest)[1] for manifest in wanted)})
    asked = [(resource, place) for resource in served.values() for place in (places if places is not None else [None])]
    lists = all_in_parallel(lambda query: kube.list(query[0], namespace=query[1], label_selector=selector), asked)
    ours = {
        _identity(found): found
        for (resource, _place), listed in zip(asked, lists, strict=True)
        for found in (_named(manifest, resource) for manifest in listed or ())
    }
    desired = {_identity(manifest): marked(manifest, inventory, part_of) for manifest in wanted}
    unwanted = [found for identity, found in ours.items() if identity not in desired]
    for kept in in_use(unwanted, [found for identity, found in ours.items() if identity in desired]):
        del ours[_identity(kept)]
    missing = sorted({kind for kind, _namespace, _name in desired} - set(served))
    if missing and not kube.dry_run:
        raise HopError(
            Hop.API_SERVER,
            seen=f"no {' and no '.join(missing)} is served, so nothing was changed",
            fix="install the CRD of that kind first, for a PrometheusRule the Prometheus operator; or skip the objects "
            "with the role's state absent",
        )
    outcome.warnings += [f"no {kind} is served yet, so it cannot be checked" for kind in missing]
    for identity in desired.keys() - ours.keys():
        _refuse_foreign(kube, served.get(identity[0]), identity, inventory)

    def send(identity: Identity) -> Manifest | None:
        kind = identity[0]
        if identity not in desired:
            kube.delete(served[kind], ours[identity], partial(is_of, inventory=inventory))
            return None
        if kind not in served:
            return desired[identity]
        try:
            return kube.apply(served[kind], desired[identity], ours.get(identity), force=identity in ours)
        except ApiError as err:
            if kube.dry_run and err.is_not_found:  # its namespace does not exist yet
                return desired[identity]
            raise

    needed = [
        identity
        for identity in dict.fromkeys([*desired, *ours])
        if identity not in ours
        or identity not in desired
        or not is_up_to_date(ours[identity], desired[identity], MANAGER)
    ]
    done = dict(zip(needed, in_parallel(send, needed), strict=True))
    outcome.result["objects"] = [
        {
            **dict(zip(("kind", "namespace", "name"), identity, strict=True)),
            "action": outcome.record(ours.get(identity), done[identity]) if identity in done else "unchanged",
        }
        for identity in dict.fromkeys([*desired, *ours])
    ]
    return outcome


def _served(kube: KubeClient, kinds: Sequence[Mapping[str, str]]) -> dict[str, Resource]:
    """Served kinds by name."""
    discovered = {version: kube.discover(version) for version in dict.fromkeys(kind["api_version"] for kind in kinds)}
    return {
        kind["kind"]: discovered[kind["api_version"]][kind["kind"]]
        for kind in kinds
        if kind["kind"] in discovered[kind["api_version"]]
    }


def _named(manifest: Manifest, resource: Resource) -> Manifest:
    """The API server omits these in lists."""
    return {**manifest, "apiVersion": resource.api_version, "kind": resource.kind}


def _refuse_foreign(kube: KubeClient, resource: Resource | None, identity: Identity, inventory: str) -> None:
    kind, namespace, name = identity
    live = None if resource is None else kube.get(resource, name, namespace)
    if live is None:
        return
    if is_managed(live) and not is_of(live, inventory):
        raise HopError(
            Hop.API_SERVER,
            seen=f"{kind} {namespace}/{name} {maker(live)}, and this run is for inventory {inventory}. "
            "Nothing was changed",
            fix="set kubegpu_inventory_id (inventory_id of the module) to the id of the object if it is the same "
            f"inventory, or give the object to this one: {hand_over(kind, namespace, name, inventory)}",
        )
    if is_managed(live):
        raise HopError(
            Hop.API_SERVER,
            seen=f"{kind} {namespace}/{name} exists for an autoscaler or another part of inventory {inventory}. "
            "Nothing was changed",
            fix="remove the entry of the list that needs it twice, or remove the autoscaler first (state: absent)",
        )
    raise HopError(
        Hop.API_SERVER,
        seen=f"{kind} {namespace}/{name} is not managed by this collection. Nothing was changed",
        fix=f"rename or remove it: kubectl -n {namespace} get {kind.lower()} {name} -o yaml",
    )


def _identity(manifest: Manifest) -> Identity:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata["namespace"], metadata["name"]
