# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..errors import HopError
from ..hops import Hop
from ..kube.api_versions import HPA_VERSION, SCALED_OBJECT_VERSION
from ..kube.labels import MANAGED_BY, MANAGER, maker
from ..kube.objects import Manifest, name_of
from .errors import ANONYMOUS, ApiError
from .ownership import is_up_to_date
from .rights import nobody

if TYPE_CHECKING:  # imports the client library, which filters do not need
    from .transport import Transport


@dataclass(frozen=True)
class Resource:
    """A kind as the API server serves it.

    plural:   its name in paths.
    scalable: has a scale subresource.
    namespaced: its objects are in namespaces.
    pruned_fields: sections and fields removed from list results to save memory, about half of each object.
    """

    api_version: str
    kind: str
    plural: str
    scalable: bool = False
    namespaced: bool = True
    pruned_fields: tuple[tuple[str, str], ...] = ()

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        parts = [group_path(self.api_version)]
        if namespace and self.namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/".join(parts)


APISERVICES = Resource("apiregistration.k8s.io/v1", "APIService", "apiservices", namespaced=False)
CONFIG_MAPS = Resource("v1", "ConfigMap", "configmaps")
CRDS = Resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
DAEMON_SETS = Resource("apps/v1", "DaemonSet", "daemonsets")
DEVICE_CLASSES = Resource("resource.k8s.io/v1", "DeviceClass", "deviceclasses", namespaced=False)
DEPLOYMENTS = Resource("apps/v1", "Deployment", "deployments", scalable=True)
EVENTS = Resource("v1", "Event", "events")
HPAS = Resource(HPA_VERSION, "HorizontalPodAutoscaler", "horizontalpodautoscalers")
LEASES = Resource("coordination.k8s.io/v1", "Lease", "leases")
NAMESPACES = Resource("v1", "Namespace", "namespaces", namespaced=False)
NODES = Resource(
    "v1",
    "Node",
    "nodes",
    namespaced=False,
    pruned_fields=(("metadata", "managedFields"), ("status", "images")),
)
PODS = Resource("v1", "Pod", "pods", pruned_fields=(("metadata", "managedFields"),))
POD_MONITORS = Resource("monitoring.coreos.com/v1", "PodMonitor", "podmonitors")
PROMETHEUSES = Resource("monitoring.coreos.com/v1", "Prometheus", "prometheuses")
RESOURCE_CLAIM_TEMPLATES = Resource("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates")
RESOURCE_QUOTAS = Resource("v1", "ResourceQuota", "resourcequotas")
RESOURCE_SLICES = Resource("resource.k8s.io/v1", "ResourceSlice", "resourceslices", namespaced=False)
RULES = Resource("monitoring.coreos.com/v1", "PrometheusRule", "prometheusrules")
RUNTIME_CLASSES = Resource("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", namespaced=False)
SCALED_OBJECTS = Resource(SCALED_OBJECT_VERSION, "ScaledObject", "scaledobjects")
SECRETS = Resource("v1", "Secret", "secrets")
SERVICES = Resource("v1", "Service", "services")
SERVICE_MONITORS = Resource("monitoring.coreos.com/v1", "ServiceMonitor", "servicemonitors")
STATEFUL_SETS = Resource("apps/v1", "StatefulSet", "statefulsets", scalable=True)
VALIDATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)


# Requested of objects whose content must not be read, such as Secrets.
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

# A resourceVersion that no object has, with which the API server creates an object and changes none.
NO_OBJECT = "1"

# Attempts to delete an object that changes constantly, as the status of an HPA does.
DELETIONS = 5

# Objects per page, as in the API server's own clients.
PAGE_SIZE = 500


_SELF_SUBJECT_REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


def group_path(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def title_of(manifest: Manifest, kind: str = "") -> str:
    """An object for a message: kind, namespace and name. kind: of an item of a list, which has none."""
    return f"{kind or manifest['kind']} {name_of(manifest)}"


class KubeClient:
    """The API server. Each method sends one request.

    dry_run: the server evaluates writes, including defaults and admission, but does not store them.
    """

    def __init__(self, transport: Transport, *, dry_run: bool = False) -> None:
        self._send = transport
        self.dry_run = dry_run
        self._write_query = {"dryRun": "All"} if dry_run else {}

    @property
    def dry(self) -> KubeClient:
        """The same API server, whose writes are dry runs."""
        return KubeClient(self._send, dry_run=True)

    def discover(self, api_version: str) -> dict[str, Resource]:
        """The kinds served under `api_version`, by name; none if it is not served."""
        try:
            served = self._send("GET", group_path(api_version), query={})["resources"]
        except ApiError as err:
            if err.is_not_found:
                return {}
            raise
        names = {entry["name"] for entry in served}
        return {
            entry["kind"]: Resource(
                api_version,
                entry["kind"],
                entry["name"],
                scalable=f"{entry['name']}/scale" in names,
                namespaced=entry.get("namespaced", True),
            )
            for entry in served
            if "/" not in entry["name"]
        }

    def user(self) -> str:
        """The API server's user for this client; empty if it is not reported, as before Kubernetes 1.28.

        Raises: HopError if the user is anonymous.
        """
        try:
            name: str = self._review()["status"]["userInfo"].get("username", "")
        except ApiError as err:
            if err.status not in (403, 404):
                raise
            name = err.refused_user
        if name == ANONYMOUS:
            raise nobody()
        return name

    def now(self) -> datetime:
        """The time of the API server, or else of this machine."""
        try:
            made = self._review()["metadata"].get("creationTimestamp")
        except ApiError as err:
            if err.status not in (403, 404):
                raise
            made = None
        return datetime.fromisoformat(made) if made else datetime.now(UTC)

    def _review(self) -> Any:
        path = f"{group_path('authentication.k8s.io/v1')}/selfsubjectreviews"
        return self._send("POST", path, query={}, body=_SELF_SUBJECT_REVIEW)

    def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> Sequence[Manifest] | None:
        """The objects of a kind, read page by page; None if the kind is not served."""
        path = resource.path(namespace)
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        query = {name: selector for name, selector in selectors.items() if selector}
        try:
            return self._pages(path, {**query, "limit": str(PAGE_SIZE)}, resource.pruned_fields)
        except ApiError as err:
            if err.is_not_found:
                return None
            if err.is_gone:  # the next page has expired; a whole list in one response cannot
                return self._pages(path, query, resource.pruned_fields)
            raise

    def _pages(
        self, path: str, query: Mapping[str, str], pruned_fields: Sequence[tuple[str, str]]
    ) -> Sequence[Manifest]:
        found: list[Manifest] = []
        token = ""
        while True:
            page = self._send("GET", path, query={**query, "continue": token} if token else query)
            items = page["items"] or []  # null for none
            for item in items:
                for section, name in pruned_fields:
                    item.get(section, {}).pop(name, None)
            found += items
            token = page.get("metadata", {}).get("continue", "")
            if not token:
                return found

    def list_metadata(
        self, resource: Resource, *, label_selector: str, namespace: str | None = None
    ) -> Sequence[Manifest]:
        """The objects of a kind, without their content."""
        query = {"labelSelector": label_selector}
        found = self._send("GET", resource.path(namespace), query=query, accept=METADATA_ONLY)["items"]
        return found or []  # null for none

    def get(
        self, resource: Resource, name: str, namespace: str | None = None, subresource: str | None = None
    ) -> Manifest | None:
        """One object, or None if the object or its kind does not exist."""
        try:
            return self._send("GET", resource.path(namespace, name, subresource), query={})
        except ApiError as err:
            if err.is_not_found:
                return None
            raise

    def apply(
        self, resource: Resource, manifest: Manifest, seen: Manifest | None = None, *, force: bool = False
    ) -> Manifest:
        """Server-side apply; returns the resulting object. `force` overwrites fields of other managers.

        seen: the object to change, or None to create one. Another object with its name is not changed.
        Raises: HopError if another client manages a field that would change, or created or deleted the object.
        ApiError for other errors.
        """
        wanted, metadata = manifest, manifest["metadata"]
        if seen is None:
            manifest = {**manifest, "metadata": {**metadata, "resourceVersion": NO_OBJECT}}
        elif uid := seen["metadata"].get("uid"):
            manifest = {**manifest, "metadata": {**metadata, "uid": uid}}
        try:
            return self._send(
                "PATCH",
                resource.path(metadata.get("namespace"), metadata["name"]),
                query={
                    "fieldManager": MANAGER,
                    "fieldValidation": "Strict",
                    **({"force": "true"} if force else {}),
                    **self._write_query,
                },
                body=manifest,
                content_type="application/apply-patch+yaml",
            )
        except ApiError as err:
            if seen is None and err.status == 409 and not err.field_conflicts:
                return self._made_meanwhile(resource, wanted, err)
            if err.is_other_object or _is_of_another_uid(err):
                raise HopError(
                    Hop.API_SERVER,
                    seen=f"{title_of(manifest)} was deleted or recreated during the change. It was not changed",
                    fix="check which other client changes it, then run again",
                ) from err
            if err.field_conflicts:
                raise _conflict(manifest, err) from err
            if err.is_unknown_field:
                fix = "correct the field; a raw entry of extra_metrics is written as in an autoscaling/v2 HPA"
                raise HopError(Hop.SPEC, seen=f"{title_of(manifest)}: {err.message}", fix=fix) from err
            raise

    def _made_meanwhile(self, resource: Resource, wanted: Manifest, err: ApiError) -> Manifest:
        """The existing object, if it is as wanted: from another run, or from a request whose response was lost."""
        metadata = wanted["metadata"]
        live = self.get(resource, metadata["name"], metadata.get("namespace"))
        if live is not None and is_up_to_date(live, wanted, MANAGER):
            return live
        whose = f"it {maker(live)}" if live is not None else "it was deleted"
        raise HopError(
            Hop.API_SERVER,
            seen=f"{title_of(wanted)} was created by another client at the same time: {whose}. It was not changed",
            fix="rename or delete it if it does not belong to this collection; otherwise run again",
        ) from err

    def create(self, resource: Resource, manifest: Manifest) -> Manifest:
        """Sent only once, because a second request would fail after the first."""
        path = resource.path(manifest["metadata"].get("namespace"))
        return self._send("POST", path, query=self._write_query, body=manifest, retry=False)

    def why_not_created(self, resource: Resource, manifest: Manifest) -> str:
        """Why the API server would reject an object as invalid; empty if it would create it. Never creates it.

        Raises: ApiError if that is unknown, for example without the permission or the namespace.
        """
        path = resource.path(manifest["metadata"].get("namespace"))
        try:
            self._send("POST", path, query={"dryRun": "All"}, body=manifest, retry=False)
        except ApiError as err:
            if err.status != 422:
                raise
            return err.message
        return ""

    def merge(self, resource: Resource, manifest: Manifest) -> Manifest:
        """Sets the fields of `manifest` in an existing object, as kubectl patch does. Other fields stay as they are."""
        metadata = manifest["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"])
        send = partial(self._send, "PATCH", path, query=self._write_query, body=manifest)
        try:
            return send(content_type="application/strategic-merge-patch+json")
        except ApiError as err:
            if err.status != 415:
                raise
        return send(content_type="application/merge-patch+json")  # kinds of a CRD have no other

    def replace(self, resource: Resource, manifest: Manifest) -> Manifest:
        """Replaces an object only if it still has the resourceVersion in the manifest."""
        metadata = manifest["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"])
        return self._send("PUT", path, query=self._write_query, body=manifest, retry=False)

    def delete(
        self, resource: Resource, seen: Manifest, may_go: Callable[[Manifest], bool], *, orphan: bool = False
    ) -> bool:
        """Delete the seen object and its dependents; False if it was already deleted.

        may_go: checks the object again if it has changed since. orphan: keep its dependents.
        Raises: HopError if it may no longer be deleted, or if another object now has its name.
        """
        metadata = seen["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace")
        for _attempt in range(DELETIONS):
            try:
                self._send("DELETE", resource.path(namespace, name), query={}, body=self._deletion(seen, orphan=orphan))
                return True
            except ApiError as err:
                if err.is_not_found:
                    return False
                if not err.is_other_object:
                    raise
            live = self.get(resource, name, namespace)
            if live is None:
                return False
            if live["metadata"].get("uid") != metadata.get("uid") or not may_go(live):
                break
            seen = live
        raise HopError(
            Hop.API_SERVER,
            seen=f"{title_of(seen, resource.kind)} was changed by another client during the deletion. "
            "It was not deleted",
            fix="check which other client changes it, then run again",
        )

    def _deletion(self, seen: Manifest, *, orphan: bool) -> Manifest:
        """Options of the request. With a body, the API server ignores those of the query."""
        metadata = seen["metadata"]
        preconditions = {field: metadata[field] for field in ("uid", "resourceVersion") if metadata.get(field)}
        return {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            # Explicit, because by default a Job would leave its pods.
            "propagationPolicy": "Orphan" if orphan else "Background",
            "preconditions": preconditions,
            **({"dryRun": ["All"]} if self.dry_run else {}),
        }

    def get_raw(self, path: str, query: Mapping[str, str] | None = None, *, retry: bool = False) -> Any:
        """The response of an aggregated API, or of a service behind the API server, at `path`.

        Sent once by default: the API server returns 503 while no pod serves it, and the caller evaluates that.
        """
        return self._send("GET", path, query=query or {}, retry=retry)


# Never the deletion of a CRD, because all objects of its kind would be deleted, too.
_TAKEOVERS = {
    "HorizontalPodAutoscaler": "adopt them with adopt: true",
    "ScaledObject": "adopt them with adopt: true",
    "CustomResourceDefinition": f"leave the CRD to it: `kubectl label crd {{name}} {MANAGED_BY}-`",
}


def _is_of_another_uid(err: ApiError) -> bool:
    """The API server treats a changed uid as a change of an immutable field."""
    return err.status in (409, 422) and "metadata.uid" in err.message


def _conflict(manifest: Manifest, err: ApiError) -> HopError:
    seen = "; ".join(f"{cause['message']} at {cause['field']}" for cause in err.field_conflicts)
    takeover = _TAKEOVERS.get(manifest["kind"], "delete the object")
    return HopError(
        Hop.API_SERVER,
        seen=f"{title_of(manifest)}: {seen}",
        fix=f"have that manager release the fields, or {takeover.format(name=manifest['metadata']['name'])}",
    )
