# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..autoscaling.spec import API_VERSIONS, Target
from ..cluster.metrics_api import CUSTOM_METRICS, EXTERNAL_METRICS, MetricsApi, MetricValue
from ..errors import HopError

# The hop of errors about contradictory options.
QUERY = "query"
ALL = "*"
_SERIES = {
    "pods": "namespace_pod:{}:avg",
    # Both rules serve metrics of namespaces. Of two series the adapter uses that of the last rule.
    "namespaces": "namespace_workload:{0}:avg or namespace_pod:{0}:avg",
    # A total, of a demand for instance, is recorded as a sum.
    "deployments.apps": "namespace_workload:{0}:avg or namespace_workload:{0}:sum",
    "statefulsets.apps": "namespace_workload:{0}:avg or namespace_workload:{0}:sum",
}


@dataclass(frozen=True)
class MetricQuery:
    """A query to a metrics API.

    resource: plural with its group, ``deployments.apps``. name: of one object, or ALL.
    label_selector, metric_label_selector: as the API takes them, terms joined by commas.
    target:   the object whose scale subresource gives the label selector.
    """

    group: str
    metric: str
    namespace: str | None
    resource: str = "pods"
    name: str = ALL
    label_selector: str = ""
    metric_label_selector: str = ""
    target: Target | None = None

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> MetricQuery:
        """Parses a user's options.

        Raises: HopError at hop "query" if they contradict each other.
        """
        query = cls(
            group=EXTERNAL_METRICS if params["api"] == "external" else CUSTOM_METRICS,
            metric=params["metric"],
            namespace=params["namespace"],
            resource=params["resource"],
            name=params["name"],
            label_selector=",".join(params["label_selectors"]),
            metric_label_selector=",".join(params["metric_label_selectors"]),
            target=_target(params["target"]) if params["target"] else None,
        )
        for is_wrong, seen, fix in _REFUSALS:
            if is_wrong(query):
                raise HopError(QUERY, seen, fix)
        return query

    @property
    def is_external(self) -> bool:
        return self.group == EXTERNAL_METRICS

    @property
    def discovery_name(self) -> str:
        """Name of the metric in discovery."""
        return self.metric if self.is_external else f"{self.resource}/{self.metric}"

    @property
    def series(self) -> str:
        """The series behind the metric, by the rules of the role prometheus_adapter; empty if none."""
        if self.is_external:
            return f"external:{self.metric}:sum"
        return _SERIES.get(self.resource, "").format(self.metric)

    def __str__(self) -> str:
        """Description of the queried objects."""
        objects = "any series" if self.is_external else f"{self.resource} {self.name}"
        place = f"in namespace {self.namespace}" if self.namespace else "in the cluster"
        terms = ",".join(filter(None, (self.label_selector, self.metric_label_selector)))
        return f"{objects} {place}{f' with {terms}' if terms else ''}"

    def values(self, api: MetricsApi, label_selector: str) -> list[MetricValue]:
        """One request. Raises ApiError."""
        if self.is_external:
            # Without objects, every selector applies to the metric's labels.
            terms = ",".join(filter(None, (label_selector, self.metric_label_selector)))
            return api.external(self.metric, namespace=self.namespace or "", label_selector=terms)
        return api.custom(
            self.metric,
            namespace=self.namespace,
            resource=self.resource,
            name=self.name,
            label_selector=label_selector,
            metric_label_selector=self.metric_label_selector,
        )

    def _has_no_path(self) -> bool:
        """client-go rejects the same: rest.IsValidPathSegmentName."""
        parts = (self.metric, self.namespace or "", self.resource, self.name)
        return any({"/", "%"} & set(part) or part in (".", "..") for part in parts)

    def _names_an_object(self) -> bool:
        return self.target is not None or self.name != ALL or self.resource != "pods"

    def _mixes_namespaces(self) -> bool:
        """A namespace is given once: by name, or by the namespace option as HPAs do."""
        given = {self.namespace, self.name} - {None, ALL}
        return self.resource == "namespaces" and len(given) != 1


Refusal = tuple[Callable[[MetricQuery], bool], str, str]

_REFUSALS: tuple[Refusal, ...] = (
    (
        MetricQuery._has_no_path,
        "metric, namespace, resource and name become parts of a path, so they must not contain '/' and '%'",
        "name the metric as discovery does, without the resource; write a resource's group behind it: deployments.apps",
    ),
    (
        lambda query: query.is_external and query._names_an_object(),
        "an external metric does not belong to an object",
        "leave target, name and resource out; metric_label_selectors choose among its series",
    ),
    (
        lambda query: query.target is not None and query.resource != "pods",
        "target stands for its pods, so resource must be pods",
        "leave resource out; or leave target out and select the object by resource and name",
    ),
    (
        lambda query: query.resource == "pods" and not query.namespace,
        "pods need a namespace, and none is given",
        "set namespace",
    ),
    (
        MetricQuery._mixes_namespaces,
        "with resource namespaces, a query is for one namespace",
        "set name to it and leave namespace out",
    ),
    (
        lambda query: bool(query.label_selector) and (query.name != ALL or query.resource == "namespaces"),
        "label_selectors select several objects, but one object is named",
        "leave label_selectors or name out",
    ),
)


def _target(given: Mapping[str, Any]) -> Target:
    kind, name = given["kind"], given["name"]
    api_version = given["api_version"] or API_VERSIONS.get(kind)
    if api_version is None:
        raise HopError(QUERY, seen=f"target kind {kind} is unknown", fix="set target.api_version as well")
    return Target(kind, name, api_version)
