# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads a cluster in parts. The readers of the doctor, of a change and of a survey add theirs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from ..cluster.errors import ApiError
from ..cluster.kube import (
    APISERVICES,
    DAEMON_SETS,
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    POD_MONITORS,
    PROMETHEUSES,
    RESOURCE_SLICES,
    RULES,
    SCALED_OBJECTS,
    SERVICE_MONITORS,
    SERVICES,
    VALIDATING_WEBHOOKS,
    KubeClient,
    Resource,
)
from ..cluster.listing import list_in_reach
from ..cluster.parallel import in_parallel
from ..kube.objects import Manifest
from .caching_client import CachingClient
from .unread_parts import UnreadParts


class Listed:
    """All objects of a kind, as a part of a reader, read when they are first needed.

    in_reach: list the reader's namespaces if the user is not allowed to list the whole cluster.
    """

    def __init__(self, resource: Resource, *, in_reach: bool = False) -> None:
        self.resource = resource
        self._in_reach = in_reach

    def __set_name__(self, _owner: type[Reader], name: str) -> None:
        self._name = name

    def __get__(self, reader: Reader, _owner: type[Reader]) -> Sequence[Manifest]:
        namespaces = reader.namespaces_in_reach if self._in_reach else ()
        found = reader.take(self._name, partial(list_in_reach, reader.kube, self.resource, namespaces))
        return reader.__dict__.setdefault(self._name, found)


class Reader:
    """A cluster, each part read once. An unreadable part is empty, and `gaps` has the reason.

    kube: a client that sends each request only once.
    """

    daemon_sets = Listed(DAEMON_SETS)
    device_classes = Listed(DEVICE_CLASSES)
    namespaces = Listed(NAMESPACES)
    nodes = Listed(NODES)
    pod_monitors = Listed(POD_MONITORS)
    prometheuses = Listed(PROMETHEUSES)
    resource_slices = Listed(RESOURCE_SLICES)
    rule_objects = Listed(RULES)
    scaled_objects = Listed(SCALED_OBJECTS, in_reach=True)
    service_monitors = Listed(SERVICE_MONITORS)
    services = Listed(SERVICES)
    webhooks = Listed(VALIDATING_WEBHOOKS)

    def __init__(self, kube: KubeClient, *, namespaces: Collection[str] = (), is_strict: bool = False) -> None:
        """namespaces: of the objects to read. is_strict: raise all errors except missing permissions."""
        self.kube = CachingClient(kube)
        self.gaps = UnreadParts(is_strict)
        self.namespaces_in_reach = namespaces

    def take(self, part: str, read: Callable[[], Any], empty: Any = ()) -> Any:
        """The result of `read`; `empty` if there is nothing, or if it fails, which `gaps` records."""
        return self.gaps.take(part, read, empty)

    def is_known(self, part: str) -> bool:
        """Whether a part can be read. Reads it."""
        getattr(self, part)
        return part not in self.gaps.unavailable

    def read_ahead(self, resources: Sequence[Resource]) -> None:
        """Request several lists in parallel. Raises: ApiError if the server does not answer."""
        for answer in in_parallel(self.kube.list, resources):
            if isinstance(answer, ApiError) and answer.status == 0:
                raise answer

    @classmethod
    def resource_of(cls, part: str) -> Resource:
        """The kind of a part that is a list."""
        found = next(vars(owner)[part] for owner in cls.__mro__ if part in vars(owner))
        return found.resource

    def api_service(self, group: str, *versions: str) -> Manifest | None:
        """The APIService of a group, in the first version that exists."""

        def read() -> Manifest | None:
            found = (self.kube.get(APISERVICES, f"{version}.{group}") for version in versions)
            return next(filter(None, found), None)

        return self.take("apis", read, None)
