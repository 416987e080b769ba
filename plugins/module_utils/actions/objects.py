# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""All objects of one part of the collection: what is wanted is there, and nothing else of that part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..autoscaling.manifests import Manifest
from ..cluster.errors import ApiError
from ..cluster.kube import KubeClient, Resource
from ..cluster.ownership import is_up_to_date
from ..cluster.parallel import all_in_parallel, in_parallel
from ..errors import HopError
from ..hops import Hop
from ..marks import MANAGED_BY, MANAGER, PART_OF, marked
from .outcome import Outcome

# Of an object: kind, namespace and name.
Identity = tuple[str, str, str]


def make_objects(
    kube: KubeClient,
    part_of: str,
    kinds: Sequence[Mapping[str, str]],
    wanted: Sequence[Manifest],
    *,
    namespaces: Sequence[str] | None = None,
) -> Outcome:
    """Apply what differs, and delete what is marked as of `part_of` and not wanted.

    kinds: `api_version` and `kind` of all that the part has or had; one that is not served has no objects.
    namespaces: where the part is, beside those of `wanted`; None for the whole cluster.
    Raises: HopError before anything is changed, if somebody else made an object of that name, or a kind is missing.
    """
    outcome = Outcome()
    served = _served(kube, kinds)
    selector = f"{MANAGED_BY}={MANAGER},{PART_OF}={part_of}"
    # A part of that name elsewhere is somebody else's. Nor may everybody list the whole cluster.
    places = None if namespaces is None else sorted({*namespaces, *(_identity(manifest)[1] for manifest in wanted)})
    asked = [(resource, place) for resource in served.values() for place in (places if places is not None else [None])]
    lists = all_in_parallel(lambda query: kube.list(query[0], namespace=query[1], label_selector=selector), asked)
    ours = {
        _identity(found): found
        for (resource, _place), listed in zip(asked, lists, strict=True)
        for found in (_named(manifest, resource) for manifest in listed or ())
    }
    desired = {_identity(manifest): marked(manifest, part_of) for manifest in wanted}
    missing = sorted({kind for kind, _namespace, _name in desired} - set(served))
    if missing and not kube.dry_run:
        raise HopError(
            Hop.API_SERVER,
            seen=f"no {' and no '.join(missing)} is served, so nothing was changed",
            fix="install what brings that kind first; for a PrometheusRule that is the Prometheus operator; or leave "
            "the objects out, by the role's state absent",
        )
    outcome.warnings += [f"no {kind} is served yet: it cannot be judged" for kind in missing]
    for identity in desired.keys() - ours.keys():
        _refuse_foreign(kube, served.get(identity[0]), identity)

    def send(identity: Identity) -> Manifest | None:
        kind, namespace, name = identity
        if identity not in desired:
            kube.delete(served[kind], name, namespace)
            return None
        try:
            return kube.apply(served[kind], desired[identity], force=True) if kind in served else desired[identity]
        except ApiError as err:
            if kube.dry_run and err.is_not_found:  # its namespace is still to come
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
    """The kinds that the cluster has, by name."""
    discovered = {version: kube.discover(version) for version in dict.fromkeys(kind["api_version"] for kind in kinds)}
    return {
        kind["kind"]: discovered[kind["api_version"]][kind["kind"]]
        for kind in kinds
        if kind["kind"] in discovered[kind["api_version"]]
    }


def _named(manifest: Manifest, resource: Resource) -> Manifest:
    """In a list the server leaves these out."""
    return {**manifest, "apiVersion": resource.api_version, "kind": resource.kind}


def _refuse_foreign(kube: KubeClient, resource: Resource | None, identity: Identity) -> None:
    kind, namespace, name = identity
    if resource is not None and kube.get(resource, name, namespace) is not None:
        raise HopError(
            Hop.API_SERVER,
            seen=f"{kind} {namespace}/{name} was made by somebody else, so nothing was changed",
            fix=f"rename or remove it: kubectl -n {namespace} get {kind.lower()} {name} -o yaml",
        )


def _identity(manifest: Manifest) -> Identity:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata["namespace"], metadata["name"]
