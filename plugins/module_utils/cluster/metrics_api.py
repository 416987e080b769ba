# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from ..autoscaling.spec import ADAPTER, EXTERNAL, KEDA, OBJECT, PODS, Autoscaler, MetricTarget
from ..kube.quantity import parse_quantity
from .errors import ApiError
from .prometheus_client import RawGetter

CUSTOM_METRICS = "custom.metrics.k8s.io"
EXTERNAL_METRICS = "external.metrics.k8s.io"
# The API that an HPA queries for a metric of this type.
GROUPS = {PODS: CUSTOM_METRICS, OBJECT: CUSTOM_METRICS, EXTERNAL: EXTERNAL_METRICS}
# KEDA's HPA reads external metrics only.
_GROUPS = {ADAPTER: GROUPS, KEDA: dict.fromkeys(GROUPS, EXTERNAL_METRICS)}

# Versions of custom.metrics.k8s.io that the controller's client supports. Of external.metrics.k8s.io only v1beta1.
_KNOWN_VERSIONS = ("v1beta2", "v1beta1")
_EXTERNAL_VERSION = "v1beta1"


def group_of(autoscaler: Autoscaler, metric_target: MetricTarget) -> str:
    """The API that an autoscaler's HPA queries for one of its metrics."""
    return _GROUPS[autoscaler.backend][metric_target.type]


@dataclass(frozen=True)
class MetricValue:
    """One value of a metrics API.

    kind, namespace, name: the described object, empty for an external metric.
    timestamp:             RFC 3339, from the adapter.
    labels:                of an external metric.
    """

    kind: str
    namespace: str
    name: str
    value: float
    timestamp: str
    labels: Mapping[str, str] = field(default_factory=dict)


class MetricsApi:
    """The two metrics APIs, queried as by the HPA controller. Each method sends one request.

    The version of custom.metrics.k8s.io is the preferred one in discovery, looked up once.
    Each method raises ApiError if the API is not served or rejects the request; an unknown metric or object
    is a 404.
    Source: k8s.io/metrics pkg/client/custom_metrics and pkg/client/external_metrics.
    """

    def __init__(self, get_raw: RawGetter) -> None:
        self._get_raw = get_raw
        self._custom_version = ""

    def version(self, group: str = CUSTOM_METRICS) -> str:
        """The version of the API."""
        if group == EXTERNAL_METRICS:
            return _EXTERNAL_VERSION
        if not self._custom_version:
            self._custom_version = self._preferred_version(f"/apis/{group}")
        return self._custom_version or _KNOWN_VERSIONS[-1]

    def listed(self, group: str = CUSTOM_METRICS) -> set[str]:
        """The metrics that discovery lists: ``pods/gpu``, ``namespaces/gpu``; of the external API just ``queue``.

        Not every adapter lists its metrics: KEDA lists one name, ``externalmetrics``, for all.
        """
        path = self._path(group)
        return {resource["name"] for resource in _list(self._get_raw(path), "resources", path)}

    def custom(
        self,
        metric: str,
        *,
        namespace: str | None,
        resource: str = "pods",
        name: str = "*",
        label_selector: str = "",
        metric_label_selector: str = "",
    ) -> list[MetricValue]:
        """The values of `metric` for one object, or for all that match `label_selector`.

        namespace: None for cluster-scoped objects.
        resource:  plural, with the group if there is one: ``deployments.apps``. The metrics of a namespace itself,
                   `namespace` or else `name`, have a separate path: ``namespaces``.
        """
        place = ("namespaces", namespace) if namespace else ()
        parts = [*place, resource, name, metric]
        if resource == "namespaces":
            parts = ["namespaces", namespace or name, "metrics", metric]
        query = {"labelSelector": label_selector, "metricLabelSelector": metric_label_selector}
        return self._values(self._path(CUSTOM_METRICS, *parts), query)

    def external(self, metric: str, *, namespace: str, label_selector: str = "") -> list[MetricValue]:
        """The values of `metric`, one for each set of labels that `label_selector` selects.

        The metric replaces the resource in the path, which the controller's client writes in lower case.
        """
        path = self._path(EXTERNAL_METRICS, "namespaces", namespace, metric.lower())
        return self._values(path, {"labelSelector": label_selector})

    def _path(self, group: str, *parts: str) -> str:
        return "/".join(["/apis", group, self.version(group), *(quote(part, safe="*") for part in parts)])

    def _values(self, path: str, query: Mapping[str, str]) -> list[MetricValue]:
        given = {option: selector for option, selector in query.items() if selector}
        try:
            return [_value(item) for item in _list(self._get_raw(path, given), "items", path)]
        except ValueError as err:
            raise ApiError(200, str(err), f"GET {path}") from err

    def _preferred_version(self, path: str) -> str:
        """Empty if the API is not served, which the request then shows."""
        try:
            answer = self._get_raw(path)
        except ApiError as err:
            if err.is_not_found:
                return ""
            raise
        served = [entry["version"] for entry in _list(answer, "versions", path)]
        preferred = answer.get("preferredVersion", {}).get("version", "")
        for version in (preferred, *served):
            if version in _KNOWN_VERSIONS:
                return version
        raise ApiError(501, f"served as {', '.join(served)}, which no HPA reads", f"GET {path}")


def _list(answer: Any, key: str, path: str) -> Sequence[Mapping[str, Any]]:
    """The list under `key` in the response; an empty Go list may be null."""
    if not isinstance(answer, dict) or key not in answer:
        raise ApiError(200, f"the answer has no {key}: it is not a metric API's", f"GET {path}")
    return answer[key] or ()


def _value(item: Mapping[str, Any]) -> MetricValue:
    described = item.get("describedObject") or {}
    return MetricValue(
        kind=described.get("kind", ""),
        namespace=described.get("namespace", ""),
        name=described.get("name", ""),
        value=parse_quantity(str(item.get("value"))),
        timestamp=item.get("timestamp") or "",
        labels=item.get("metricLabels") or {},
    )
