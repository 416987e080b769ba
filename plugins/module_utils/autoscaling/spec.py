# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from ..errors import HopError, enumeration, first_of_all
from ..hops import Hop
from .demand import KINDS as DEMAND_KINDS
from .demand import Demand, demand_metric, sustained_metric
from .metrics import ACTIVITIES, Metric, Profile, demand_name, sustained_name
from .pod_names import LONGEST_NAME, are_cut, pod_names
from .scaling import (
    ASSUMED_DEAD_TIME_S,
    LONGEST_DEAD_TIME_S,
    ScalingRules,
    default_scale_down,
    default_scale_up,
    scale_up_to,
)

# Where the kinds that people scale are served; any other kind with a scale subresource needs its api_version spelt out.
API_VERSIONS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "Rollout": "argoproj.io/v1alpha1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
}

PODS, OBJECT, EXTERNAL = "Pods", "Object", "External"

# Quantities of an HPA count thousandths.
SMALLEST_TARGET = 0.001
_EXTRA_OPTIONS = {"metric", "metric_type", "target_value", "target_values"}

# Kinds whose pods Prometheus can tell without asking for pod names: the label that carries their name, which is also
# how the adapter finds the object that a value belongs to.
WORKLOAD_LABELS = {"Deployment": "deployment", "StatefulSet": "statefulset", "Rollout": "rollout"}


@dataclass(frozen=True)
class Target:
    """The object whose scale subresource the autoscaler sets."""

    kind: str
    name: str
    api_version: str

    def labels(self, namespace: str) -> dict[str, str]:
        """Of what is recorded for the object, by which the adapter finds it; for kinds of WORKLOAD_LABELS."""
        return {"namespace": namespace, WORKLOAD_LABELS[self.kind]: self.name}

    @property
    def identity(self) -> tuple[str, str, str]:
        """Group, kind and name: the same object whatever version it is asked for in."""
        return self.api_version.rpartition("/")[0], self.kind, self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class MetricTarget:
    """One metric and what it is to be.

    value: average per pod, in the metric's unit.
    type:  Pods reads a value for each pod; Object one for the target; External one from external.metrics.k8s.io.
    """

    metric: Metric
    value: float
    type: str = PODS

    @property
    def is_total(self) -> bool:
        """The metrics API gives the sum over the pods, which the HPA divides by their number."""
        return self.type == EXTERNAL or self.metric.per == "workload"

    @property
    def series(self) -> str:
        """The recorded series that the metrics API reads; empty if somebody else serves the metric."""
        if not self.metric.query:
            return ""
        if self.type == PODS:
            return self.metric.series
        if self.type == OBJECT:
            return f"namespace_workload:{self.metric.name}:{'sum' if self.is_total else 'avg'}"
        return f"external:{self.metric.name}:sum"


@dataclass(frozen=True)
class Autoscaler:
    """One workload that follows one metric, or several, of its pods.

    profile:       what `metric` names. metric_targets: its metrics, then those of extra_metrics that name one of ours.
    raw_metrics:   further entries of an autoscaling/v2 HPA, as they are; the one that asks for most replicas wins.
    dead_time:     seconds from which the scaling rules follow where the user gives none.
    is_given:      whether the user gives the dead time. is_measured: whether it comes from this workload's pods.
    adopt:         take over an HPA of this name that somebody else has made.
    demand:        whose requests tell the load beyond what the GPUs can do; its metric is the last of metric_targets.
    """

    name: str
    namespace: str
    target: Target
    profile: Profile
    metric_targets: tuple[MetricTarget, ...]
    min_replicas: int
    max_replicas: int
    extra_profiles: tuple[Profile, ...] = ()
    raw_metrics: tuple[Mapping[str, Any], ...] = ()
    given_scale_up: Mapping[str, Any] = field(default_factory=dict)
    given_scale_down: Mapping[str, Any] = field(default_factory=dict)
    dead_time: int = ASSUMED_DEAD_TIME_S
    is_given: bool = False
    is_measured: bool = False
    adopt: bool = False
    demand: Demand | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def metric(self) -> Metric:
        """The leading metric."""
        return self.metric_targets[0].metric

    @property
    def target_value(self) -> float:
        return self.metric_targets[0].value

    @property
    def profiles(self) -> tuple[Profile, ...]:
        return (self.profile, *self.extra_profiles)

    @property
    def demand_name(self) -> str:
        """Of the demand behind the leading metric, whether the HPA follows it or not."""
        name = self.metric.name
        return demand_name(next((activity for activity in ACTIVITIES if sustained_name(activity) == name), name))

    @property
    def follows_demand(self) -> bool:
        """One of its metrics is the demand behind the leading one; true of an HPA that was read back as well."""
        return bool(self.metric_targets) and any(
            (metric_target.metric.name, metric_target.type) == (self.demand_name, OBJECT)
            for metric_target in self.metric_targets
        )

    @property
    def scale_up(self) -> ScalingRules:
        rules = scale_up_to(self.max_replicas) if self.follows_demand else default_scale_up(self.dead_time)
        return rules.overridden(self.given_scale_up)

    @property
    def scale_down(self) -> ScalingRules:
        return default_scale_down(self.dead_time).overridden(self.given_scale_down)

    @property
    def needs_dead_time(self) -> bool:
        """Some of the scaling rules are left to us, and so is what they follow from."""
        down = self.given_scale_down
        all_policies = self.given_scale_up.get("policies") and down.get("policies")
        return not self.is_given and not (all_policies and down.get("stabilization_window_seconds") is not None)

    def with_dead_time(self, seconds: int) -> Autoscaler:
        return replace(self, dead_time=seconds, is_measured=True)

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Autoscaler:
        """The autoscaler that a user's options describe.

        Raises: HopError at hop "autoscaler spec" if they contradict each other or something is missing.
        """
        target = _target(params)
        for extra in params.get("extra_metrics") or ():
            if "metric" in extra and (unknown := sorted(set(extra) - _EXTRA_OPTIONS)):
                raise _refusal(
                    autoscaler_key(params)[1],
                    f"an extra metric has the option {unknown[0]}, which there is not",
                    f"use {', '.join(sorted(_EXTRA_OPTIONS))}",
                )
        profile = Profile.from_params(params.get("metric") or "gpu")
        ours = [extra for extra in params.get("extra_metrics") or () if "metric" in extra]
        extra_profiles = tuple(Profile.from_params(extra["metric"]) for extra in ours)
        metric_targets = _metric_targets(params, profile) + [
            metric_target
            for extra, extra_profile in zip(ours, extra_profiles, strict=True)
            for metric_target in _metric_targets({**extra, "name": autoscaler_key(params)[1]}, extra_profile)
        ]
        namespace = params.get("namespace") or "default"
        demand = _demand(params, namespace, target, profile)
        if demand:
            metric_targets = _with_demand(metric_targets, namespace, target)
        autoscaler = cls(
            name=params.get("name") or target.name,
            namespace=namespace,
            target=target,
            profile=profile,
            metric_targets=tuple(metric_targets),
            min_replicas=_whole(params, "min_replicas", default=1),
            max_replicas=_whole(params, "max_replicas"),
            extra_profiles=extra_profiles,
            raw_metrics=tuple(extra for extra in params.get("extra_metrics") or () if "metric" not in extra),
            given_scale_up=_given(params.get("scale_up")),
            given_scale_down=_given(params.get("scale_down")),
            dead_time=_whole(params, "dead_time_seconds", default=ASSUMED_DEAD_TIME_S),
            is_given=params.get("dead_time_seconds") is not None,
            adopt=bool(params.get("adopt")),
            demand=demand,
        )
        autoscaler._validate()
        return autoscaler

    def _validate(self) -> None:
        if self.min_replicas < 1:
            raise _refusal(self.name, f"min_replicas is {self.min_replicas}", "set it to 1 or more")
        if self.max_replicas < self.min_replicas:
            raise _refusal(
                self.name,
                f"max_replicas {self.max_replicas} is below min_replicas {self.min_replicas}",
                "raise max_replicas or lower min_replicas",
            )
        if not 1 <= self.dead_time <= LONGEST_DEAD_TIME_S:
            raise _refusal(
                self.name,
                f"dead_time_seconds is {self.dead_time}",
                f"set it to 1 to {LONGEST_DEAD_TIME_S}, or leave it out",
            )
        for direction, given in (("scale_up", self.given_scale_up), ("scale_down", self.given_scale_down)):
            if given.get("policies") == []:
                raise _refusal(
                    self.name, f"policies of {direction} are empty", "give at least one, or leave policies out"
                )
        for (name, kind), times in Counter(
            (metric_target.metric.name, metric_target.type) for metric_target in self.metric_targets
        ).items():
            if times > 1:
                raise _refusal(self.name, f"{kind} metric {name} is given {times} times", "give it once")
        for metric_target in self.metric_targets:
            self._validate_metric_target(metric_target)
        for raw in self.raw_metrics:
            if not raw.get("type"):
                raise _refusal(
                    self.name,
                    f"extra metric {dict(raw)!r} has neither a type nor a metric",
                    "write it as in an autoscaling/v2 HPA, with type, or as metric and target_value",
                )

    def _validate_metric_target(self, metric_target: MetricTarget) -> None:
        metric = metric_target.metric
        if not SMALLEST_TARGET <= metric_target.value < inf:
            raise _refusal(
                self.name,
                f"target_value of {metric.name} is {metric_target.value:g}",
                f"set it to {SMALLEST_TARGET} or more",
            )
        if metric.is_percent and metric_target.value > 100:
            raise _refusal(
                self.name,
                f"target_value is {metric_target.value:g}, but {metric.name} is in percent",
                "set it to at most 100",
            )
        if metric_target.type == PODS and metric.per == "workload":
            raise _refusal(
                self.name,
                f"{metric.name} is one value for the workload, but metric_type is Pods",
                "set metric_type to Object or External",
            )
        if not metric.query and metric_target.type != EXTERNAL:
            raise _refusal(
                self.name,
                f"metric {metric.name} has no query",
                "give the query; only a metric of external.metrics.k8s.io (metric_type: External) goes without",
            )
        if metric_target.type != PODS and metric.query and self.target.kind not in WORKLOAD_LABELS:
            raise _refusal(
                self.name,
                f"metric_type {metric_target.type} cannot tell the pods of a {self.target.kind}",
                f"leave metric_type at Pods; {metric_target.type} knows {enumeration(list(WORKLOAD_LABELS))}",
            )


def read_specs(specs: Iterable[Mapping[str, Any]]) -> list[Autoscaler]:
    """The autoscalers that options describe. Raises: HopError that names what is wrong with each."""
    found, errors = [], []
    for spec in specs:
        try:
            found.append(Autoscaler.from_params(spec))
        except HopError as err:
            errors.append(err)
    if errors:
        raise first_of_all(errors)
    return found


def autoscaler_key(params: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name, all that is needed to remove an autoscaler.

    Raises: HopError if neither a name nor a target gives them.
    """
    name = params.get("name") or (params.get("target") or {}).get("name")
    if not name:
        raise HopError(Hop.SPEC, seen="an autoscaler has neither a name nor a target", fix="give one of the two")
    return params.get("namespace") or "default", name


def _target(params: Mapping[str, Any]) -> Target:
    given = params.get("target") or {}
    kind, name = given.get("kind") or "Deployment", given.get("name")
    if not name:
        raise _refusal(params.get("name") or "?", "no target is given", "set target.kind and target.name")
    api_version = given.get("api_version") or API_VERSIONS.get(kind)
    if api_version is None:
        raise _refusal(
            params.get("name") or name, f"target kind {kind} is not one we know", "set target.api_version as well"
        )
    return Target(kind, name, api_version)


def _metric_targets(params: Mapping[str, Any], profile: Profile) -> list[MetricTarget]:
    """target_value is that of the profile's first metric; target_values names any."""
    named = params.get("target_values") or {}
    if unknown := set(named) - {metric.name for metric in profile.metrics}:
        raise _refusal(
            autoscaler_key(params)[1],
            f"target_values names {', '.join(sorted(unknown))}, which {profile.name} does not have",
            f"use {', '.join(metric.name for metric in profile.metrics)}",
        )
    first = profile.metrics[0].name
    if params.get("target_value") is not None:
        named = {first: params["target_value"], **named}
    return [
        MetricTarget(metric, _value(params, metric, named.get(metric.name)), _type(params, metric))
        for metric in profile.metrics
    ]


def _demand(params: Mapping[str, Any], namespace: str, target: Target, profile: Profile) -> Demand | None:
    given, name = params.get("demand"), autoscaler_key(params)[1]
    if not given:
        return None
    if profile.name not in ACTIVITIES:
        raise _refusal(
            name,
            f"it has a demand, but metric {profile.name} does not say how busy a GPU is",
            f"leave demand out, as for model servers; or use {', '.join(ACTIVITIES)}",
        )
    if target.kind not in DEMAND_KINDS:
        raise _refusal(
            name,
            f"a demand cannot tell the pods of a {target.kind}",
            f"leave demand out; it knows {enumeration(list(DEMAND_KINDS))}",
        )
    if are_cut(target.kind, target.name):
        raise _refusal(
            name,
            f"a demand cannot tell the pods of {target}, whose names leave out a part of such a long name",
            f"leave demand out, or name the Deployment with at most {LONGEST_NAME} characters",
        )
    return Demand.from_params(given, namespace, target.name)


def _with_demand(metric_targets: list[MetricTarget], namespace: str, target: Target) -> list[MetricTarget]:
    """The demand comes last. Of the pods it needs what lasts: it has told all else before them."""
    leading, *others = metric_targets
    demand = MetricTarget(demand_metric(leading.metric, target.labels(namespace)), leading.value, OBJECT)
    if leading.type == PODS:
        pods = pod_names(target.kind, target.name)
        leading = replace(leading, metric=sustained_metric(leading.metric, namespace, pods))
    return [leading, *others, demand]


def _value(params: Mapping[str, Any], metric: Metric, given: float | None) -> float:
    value = metric.target_value if given is None else given
    if value is None:
        raise _refusal(
            autoscaler_key(params)[1],
            f"metric {metric.name} has no target_value",
            "set the average per pod to aim at, in the unit of the query",
        )
    try:
        return float(value)
    except (TypeError, ValueError) as err:
        raise _refusal(
            autoscaler_key(params)[1], f"target_value of {metric.name} is {value!r}", "set it to a number"
        ) from err


def _type(params: Mapping[str, Any], metric: Metric) -> str:
    given = params.get("metric_type")
    if given not in (None, PODS, OBJECT, EXTERNAL):
        raise _refusal(
            autoscaler_key(params)[1],
            f"metric_type of {metric.name} is {given!r}",
            f"set it to {PODS}, {OBJECT} or {EXTERNAL}",
        )
    return given or (PODS if metric.per == "pod" else OBJECT)


def _given(rules: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (rules or {}).items() if value is not None}


def _whole(params: Mapping[str, Any], option: str, default: int | None = None) -> int:
    value = params.get(option)
    value = default if value is None else value
    if value is None:
        raise _refusal(autoscaler_key(params)[1], f"{option} is missing", f"set {option}")
    return int(value)


def _refusal(name: str, seen: str, fix: str) -> HopError:
    return HopError(Hop.SPEC, seen=f"autoscaler {name}: {seen}", fix=fix)
