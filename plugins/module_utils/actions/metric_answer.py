# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..autoscaling.manifests import Manifest
from ..autoscaling.spec import API_VERSIONS, Target
from ..chain.check import CheckResult
from ..chain.objects import is_ready
from ..cluster.errors import ApiError
from ..cluster.metrics_api import CUSTOM_METRICS, EXTERNAL_METRICS, MetricsApi, MetricValue
from ..errors import HopError

# The hop at which options that contradict each other are refused.
QUERY = "query"
ALL = "*"


@dataclass(frozen=True)
class MetricQuery:
    """What is asked, of which API group.

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
        """The query that a user's options describe.

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
        """The metric's name in discovery."""
        return self.metric if self.is_external else f"{self.resource}/{self.metric}"

    @property
    def scope(self) -> str:
        """Where is asked, in words."""
        return f"in namespace {self.namespace}" if self.namespace else "in the cluster"

    @property
    def choice(self) -> str:
        """What is chosen there, in words that follow `scope`; empty for everything."""
        terms = ",".join(filter(None, (self.label_selector, self.metric_label_selector)))
        return f" with {terms}" if terms else ""

    def values(self, api: MetricsApi, label_selector: str) -> list[MetricValue]:
        """One request. Raises ApiError."""
        if self.is_external:
            # Where there are no objects, every selector is one of the metric's labels.
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
        """client-go refuses the same: rest.IsValidPathSegmentName."""
        parts = (self.metric, self.namespace or "", self.resource, self.name)
        return any({"/", "%"} & set(part) or part in (".", "..") for part in parts)

    def _names_an_object(self) -> bool:
        return self.target is not None or self.name != ALL or self.resource != "pods"

    def _mixes_namespaces(self) -> bool:
        """A namespace is named once: by name, or as HPAs do by the namespace that they are in."""
        given = {self.namespace, self.name} - {None, ALL}
        return self.resource == "namespaces" and len(given) != 1


Refusal = tuple[Callable[[MetricQuery], bool], str, str]

_REFUSALS: tuple[Refusal, ...] = (
    (
        MetricQuery._has_no_path,
        "metric, namespace, resource and name become parts of a path, in which '/' and '%' cannot stand",
        "name the metric as discovery does, without the resource; write a resource's group behind it: deployments.apps",
    ),
    (
        lambda query: query.is_external and query._names_an_object(),
        "an external metric belongs to no object",
        "leave target, name and resource out; metric_label_selectors choose among its series",
    ),
    (
        lambda query: query.target is not None and query.resource != "pods",
        "target stands for its pods, so resource has to be pods",
        "leave resource out; or leave target out and ask for the object itself by resource and name",
    ),
    (
        lambda query: query.resource == "pods" and not query.namespace,
        "pods are in a namespace, and none is given",
        "set namespace",
    ),
    (
        MetricQuery._mixes_namespaces,
        "with resource namespaces, one namespace is asked for at a time",
        "set name to it and leave namespace out",
    ),
    (
        lambda query: bool(query.label_selector) and (query.name != ALL or query.resource == "namespaces"),
        "label_selectors choose among objects, but one object is named",
        "leave label_selectors or name out",
    ),
)


@dataclass(frozen=True)
class TargetPods:
    """The pods that an HPA on the target would look at.

    is_scalable: its kind is served and has a scale subresource.
    scale:       that subresource, None if there is no such object.
    """

    is_scalable: bool = False
    scale: Manifest | None = None
    pods: Sequence[Manifest] = ()

    @property
    def selector(self) -> str:
        return (self.scale or {}).get("status", {}).get("selector", "")

    @property
    def ready(self) -> frozenset[str]:
        """Names of the ready pods."""
        return frozenset(
            pod["metadata"]["name"]
            for pod in self.pods
            if is_ready(pod) and not pod["metadata"].get("deletionTimestamp")
        )


@dataclass(frozen=True)
class Answer:
    """What one look at the API has shown.

    version: of the API. names: the metrics that discovery lists.
    outage:  why the API itself gave no answer.
    refusal: what it said in place of values.
    finding: the first broken hop, None if all that was asked for has a value.
    """

    query: MetricQuery
    version: str = "v1beta1"
    names: frozenset[str] = frozenset()
    outage: ApiError | None = None
    target: TargetPods | None = None
    items: tuple[MetricValue, ...] = ()
    refusal: str = ""
    finding: CheckResult | None = None

    @property
    def is_listed(self) -> bool:
        return self.query.discovery_name in self.names

    @property
    def missing(self) -> list[str]:
        """Ready pods of the target that have no value."""
        return sorted(self.target.ready - {item.name for item in self.items}) if self.target else []

    @property
    def is_complete(self) -> bool:
        return bool(self.items) and not self.missing

    @property
    def result(self) -> dict[str, Any]:
        """As the module returns it, and as conditions see it."""
        finding = self.finding
        return {
            "api": "external" if self.query.is_external else "custom",
            "metric": self.query.metric,
            "namespace": self.query.namespace,
            "items": [asdict(item) for item in self.items],
            "listed": self.is_listed,
            "missing": self.missing,
            "hop": str(finding.type.hop) if finding else None,
            "seen": finding.seen if finding else None,
            "fix": finding.fix if finding else None,
        }


def _target(given: Mapping[str, Any]) -> Target:
    kind, name = given["kind"], given["name"]
    api_version = given["api_version"] or API_VERSIONS.get(kind)
    if api_version is None:
        raise HopError(QUERY, seen=f"target kind {kind} is not one we know", fix="set target.api_version as well")
    return Target(kind, name, api_version)
