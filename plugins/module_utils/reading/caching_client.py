# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""A client that sends each request to the API server only once, for one reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..cluster.errors import ApiError
from ..cluster.kube import KubeClient, Resource
from ..kube.label_selectors import labels_match, parse_selector
from ..kube.objects import Manifest, labels_of


class CachingClient(KubeClient):
    """A client that only reads, and everything only once, so that all readers see the same."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self._lists: dict[tuple[Resource, *tuple[str | None, ...]], Sequence[Manifest] | ApiError | None] = {}
        self._objects: dict[tuple[Resource, str, str | None, str | None], Manifest | None] = {}
        self._kinds: dict[str, dict[str, Resource]] = {}
        self.dry_run = True
        # Paths without permission for a raw GET. Callers treat the error as a response.
        self.forbidden: list[ApiError] = []

    def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> Sequence[Manifest] | None:
        for whole in (
            self._lists.get((resource, None, None, None)),
            self._lists.get((resource, namespace, None, None)),
        ):
            if isinstance(whole, list) and not field_selector and (namespace or label_selector):
                selector = parse_selector(label_selector or "") or {}
                return [
                    manifest
                    for manifest in whole
                    if namespace in (None, manifest["metadata"].get("namespace"))
                    and labels_match(selector, labels_of(manifest))
                ]
        key = resource, namespace, label_selector, field_selector
        if key not in self._lists:
            try:
                self._lists[key] = self._kube.list(
                    resource, namespace=namespace, label_selector=label_selector, field_selector=field_selector
                )
            except ApiError as err:
                self._lists[key] = err
        found = self._lists[key]
        if isinstance(found, ApiError):
            raise found
        return found

    def user(self) -> str:
        return self._kube.user()

    def list_metadata(
        self, resource: Resource, *, label_selector: str, namespace: str | None = None
    ) -> Sequence[Manifest]:
        return self._kube.list_metadata(resource, label_selector=label_selector, namespace=namespace)

    def discover(self, api_version: str) -> dict[str, Resource]:
        if api_version not in self._kinds:
            self._kinds[api_version] = self._kube.discover(api_version)
        return self._kinds[api_version]

    def get(
        self, resource: Resource, name: str, namespace: str | None = None, subresource: str | None = None
    ) -> Manifest | None:
        key = resource, name, namespace, subresource
        if key not in self._objects:
            self._objects[key] = self._kube.get(resource, name, namespace, subresource)
        return self._objects[key]

    def why_not_created(self, resource: Resource, manifest: Manifest) -> str:
        return self._kube.why_not_created(resource, manifest)

    def get_raw(self, path: str, query: Mapping[str, str] | None = None, *, retry: bool = False) -> Any:
        try:
            return self._kube.get_raw(path, query, retry=retry)
        except ApiError as err:
            if err.status in (401, 403):
                self.forbidden.append(err)
            raise
