# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reading a cluster once, and noting which parts could not be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..autoscaling.manifests import Manifest
from ..chain.objects import labels_of
from ..chain.selectors import labels_match, parse_selector
from ..cluster.errors import ApiError, QueryError
from ..cluster.kube import KubeClient, Resource
from ..cluster.rights import right_to
from ..errors import HopError


class ReadOnce(KubeClient):
    """A client that only reads, and each thing only once, so that all that looks at it sees the same."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self._lists: dict[tuple[Resource, *tuple[str | None, ...]], Sequence[Manifest] | ApiError | None] = {}
        self._objects: dict[tuple[Resource, str, str | None, str | None], Manifest | None] = {}
        self.dry_run = True
        # What there was no right to get raw: who asks for values takes a refusal for an answer.
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

    def discover(self, api_version: str) -> dict[str, Resource]:
        return self._kube.discover(api_version)

    def get(
        self, resource: Resource, name: str, namespace: str | None = None, subresource: str | None = None
    ) -> Manifest | None:
        key = resource, name, namespace, subresource
        if key not in self._objects:
            self._objects[key] = self._kube.get(resource, name, namespace, subresource)
        return self._objects[key]

    def get_raw(self, path: str, query: Mapping[str, str] | None = None, *, retry: bool = False) -> Any:
        try:
            return self._kube.get_raw(path, query, retry=retry)
        except ApiError as err:
            if err.status in (401, 403):
                self.forbidden.append(err)
            raise


@dataclass
class Reading:
    """Why parts of the state could not be read.

    denied: the rights that were missing for it.
    """

    unavailable: dict[str, str] = field(default_factory=dict)
    denied: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, read: Callable[[], Any], empty: Any = ()) -> Any:
        """Raises ApiError only if the API server does not answer at all: then nothing can be looked at."""
        return self.note(name, attempt(read), empty)

    def note(self, name: str, answer: Any, empty: Any = ()) -> Any:
        if isinstance(answer, ApiError) and answer.status == 0:
            raise answer
        if isinstance(answer, Exception):
            self.lack(name, answer)
        return empty if answer is None or isinstance(answer, Exception) else answer

    def lack(self, name: str, err: Exception) -> None:
        self.unavailable[name] = reason(err)
        if isinstance(err, ApiError) and err.status == 403:
            self.denied[name] = right_to(err.request)


def attempt(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (ApiError, HopError, QueryError) as err:
        return err


def reason(err: Exception) -> str:
    if isinstance(err, ApiError) and err.status == 401:
        return f"the credentials have expired or are wrong: {err}"
    if isinstance(err, ApiError) and err.status == 403:
        return f"no right to {right_to(err.request)}"
    return str(err)


def message_of(err: Exception) -> str:
    return err.message if isinstance(err, ApiError) else str(err)
