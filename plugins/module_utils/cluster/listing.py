# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Lists objects of several namespaces."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..kube.objects import Key, Manifest, key_of
from .errors import ApiError
from .kube import KubeClient, Resource
from .parallel import all_in_parallel

# Up to this many namespaces are listed separately, without reading the rest of the cluster.
NAMESPACES_LISTED_ALONE = 50


def list_in(kube: KubeClient, resource: Resource, namespaces: Collection[str]) -> dict[Key, Manifest]:
    """The objects of a kind in some namespaces: listed separately, or in one list of the cluster if there are many.

    Raises: ApiError.
    """
    if len(namespaces) > NAMESPACES_LISTED_ALONE:
        try:
            return {key_of(manifest): manifest for manifest in kube.list(resource) or ()}
        except ApiError as err:
            if err.status != 403:
                raise
    answers = all_in_parallel(lambda namespace: kube.list(resource, namespace=namespace) or (), sorted(namespaces))
    return {key_of(manifest): manifest for answer in answers for manifest in answer}


def list_in_reach(
    kube: KubeClient, resource: Resource, namespaces: Collection[str], field_selector: str | None = None
) -> Sequence[Manifest]:
    """The objects of the whole cluster, or of the namespaces if the user is not allowed to list the cluster.

    Raises: ApiError, that of the whole cluster if there is no namespace to list.
    """
    try:
        return kube.list(resource, field_selector=field_selector) or ()
    except ApiError as err:
        if err.status != 403 or not namespaces:
            raise
    answers = all_in_parallel(
        lambda namespace: kube.list(resource, namespace=namespace, field_selector=field_selector) or (),
        sorted(namespaces),
    )
    return [manifest for answer in answers for manifest in answer]
