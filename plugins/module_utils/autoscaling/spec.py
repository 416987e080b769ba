# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import HopError, enumeration, first_of_all
from ..hops import Hop
from .demand import KINDS as DEMAND_KINDS
from .demand import OPTIONS as DEMAND_OPTIONS
from .demand import Demand, demand_metric, sustained_metric
from .kube_names import DNS_LABEL, DNS_SUBDOMAIN, GROUP_VERSION, KIND, LONGEST_LABEL, LONGEST_SUBDOMAIN
from .metrics import ACTIVITIES, Metric, Profile, demand_name, sustained_name
from .options import SMALLEST_QUANTITY, Options, check_values, shown
from .pod_names import LONGEST_NAME, are_cut, pod_names
from .raw_metrics import check_raw_metric
from .scaling_rules import (
    ASSUMED_DEAD_TIME_S,
    DEFAULT_SCALE_DOWN,
    LONGEST_DEAD_TIME_S,
    ScalingRules,
    default_scale_up,
    given_rules,
    proven_percent,
    scale_up_to,
)

# API versions of common targets. Any other kind with a scale subresource needs its api_version.
API_VERSIONS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "Rollout": "argoproj.io/v1alpha1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
}

PODS, OBJECT, EXTERNAL = "Pods", "Object", "External"

# Backends: prometheus-adapter, or KEDA, which also creates the HPA.
ADAPTER, KEDA = "adapter", "keda"
BACKEND_NAMES = (ADAPTER, KEDA)

SMALLEST_TARGET = SMALLEST_QUANTITY
_HIGHEST_PRIORITY = 1000
_METRIC_OPTIONS = ("metric", "metric_type", "target_value", "target_values")
_OPTIONS = (
    *("name", "namespace", "target", *_METRIC_OPTIONS, "min_replicas", "max_replicas", "priority"),
    *("dead_time_seconds", "scale_up", "scale_down", "demand", "extra_metrics", "adopt", "backend"),
)

# Kinds whose pods Prometheus can identify without pod names: the label with their name, which is also
# how the adapter finds the object of a value.
WORKLOAD_LABELS = {"Deployment": "deployment", "StatefulSet": "statefulset", "Rollout": "rollout"}


@dataclass(frozen=True)
class Target:
    """The object whose scale subresource the autoscaler sets."""

    kind: str
    name: str
    api_version: str

    def labels(self, namespace: str) -> dict[str, str]:
        """Label of the recorded series, by which the adapter finds the object; for kinds of WORKLOAD_LABELS."""
        return {"namespace": namespace, WORKLOAD_LABELS[self.kind]: self.name}

    @property
    def identity(self) -> tuple[str, str, str]:
        """Group, kind and name, which identify the object in any API version."""
        return self.api_version.rpartition("/")[0], self.kind, self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class MetricTarget:
    """One metric and its target.

    value: average per pod, in the metric's unit.
    type:  Pods reads a value for each pod; Object one for the target; External one from external.metrics.k8s.io.
    """

    metric: Metric
    value: float
    type: str = PODS

    @property
    def is_total(self) -> bool:
        """Whether the metrics API returns the sum over the pods, which the HPA divides by their number."""
        return self.type == EXTERNAL or self.metric.per == "workload"

    @property
    def series(self) -> str:
        """The recorded series that the metrics API reads; empty for an existing external metric."""
        if not self.metric.query:
            return ""
        if self.type == PODS:
            return self.metric.series
        if self.type == OBJECT:
            return f"namespace_workload:{self.metric.name}:{'sum' if self.is_total else 'avg'}"
        return f"external:{self.metric.name}:sum"


@dataclass(frozen=True)
class Autoscaler:
    """An autoscaler: one workload that scales on one or several metrics.

    profile:       the profile in `metric`. metric_targets: its metrics, then custom ones of extra_metrics.
    raw_metrics:   additional entries of an autoscaling/v2 HPA, unchanged; the largest proposal wins.
    dead_time:     seconds, for the scaling rules that the user does not set.
    is_given:      whether the user sets the dead time. is_measured: whether it comes from this workload's pods.
    adopt:         adopt an existing HPA of this name.
    demand:        source of the request counts, for load beyond the GPUs' capacity; its metric is the last one.
    backend:       ADAPTER or KEDA.
    priority:      who is served first where GPUs are divided; no part of the HPA.
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
    backend: str = ADAPTER
    priority: int = field(default=0, compare=False)

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
        """Name of the leading metric's demand, whether or not the HPA uses it."""
        name = self.metric.name
        return demand_name(next((activity for activity in ACTIVITIES if sustained_name(activity) == name), name))

    @property
    def follows_demand(self) -> bool:
        """Whether one of its metrics is the demand of the leading one; also for an HPA that was read back."""
        return bool(self.metric_targets) and any(
            (metric_target.metric.name, metric_target.type) == (self.demand_name, OBJECT)
            for metric_target in self.metric_targets
        )

    @property
    def scale_up(self) -> ScalingRules:
        if self.follows_demand:
            rules = scale_up_to(self.max_replicas)
        elif self._reads_activity:
            percent = proven_percent(min(found.value for found in self.metric_targets))
            rules = default_scale_up(self.dead_time, percent)
        else:
            rules = default_scale_up(self.dead_time)
        return rules.overridden(self.given_scale_up)

    @property
    def scale_down(self) -> ScalingRules:
        return DEFAULT_SCALE_DOWN.overridden(self.given_scale_down)

    @property
    def _reads_activity(self) -> bool:
        """Whether all its metrics are the activity of each pod's GPUs, which ends at 100 percent."""
        return (
            bool(self.metric_targets)
            and not self.raw_metrics
            and all(
                (metric_target.metric.name in ACTIVITIES, metric_target.type) == (True, PODS)
                for metric_target in self.metric_targets
            )
        )

    @property
    def needs_dead_time(self) -> bool:
        """Whether the dead time must be measured: the user sets neither it nor all scaling rules."""
        down = self.given_scale_down
        all_policies = self.given_scale_up.get("policies") and down.get("policies")
        return not self.is_given and not (all_policies and down.get("stabilization_window_seconds") is not None)

    def with_dead_time(self, seconds: int) -> Autoscaler:
        return replace(self, dead_time=seconds, is_given=False, is_measured=True)

    @classmethod
    def from_params(cls, params: Mapping[str, Any], path: str = "", backend: str = ADAPTER) -> Autoscaler:
        """Parses the options of an autoscaler, with defaults.

        path:    path of the options, for errors.
        backend: default metrics backend.
        Raises: HopError at hop "autoscaler spec" if the API server would reject it, options contradict each other or
        something is missing. The error has the option's path.
        """
        options = _named(params, _OPTIONS, path)
        namespace, name = _key(options)
        target = _target(options)
        profile = _profile(options, "gpu")
        extra_profiles, metric_targets = [], _metric_targets(options, profile, target)
        raw_metrics = []
        for place, entry in options.entries("extra_metrics"):
            if isinstance(entry, Mapping):
                entry = {option: value for option, value in entry.items() if value is not None}
            if not isinstance(entry, Mapping) or "metric" in entry:
                extra = Options(entry, _METRIC_OPTIONS, place, options.subject)
                extra_profiles.append(_profile(extra))
                metric_targets += _metric_targets(extra, extra_profiles[-1], target)
            else:
                check_raw_metric(entry, place, options.subject)
                raw_metrics.append(entry)
        demand = _demand(options, namespace, target, profile)
        if demand:
            metric_targets = _with_demand(metric_targets, namespace, target)
        autoscaler = cls(
            name=name,
            namespace=namespace,
            target=target,
            profile=profile,
            metric_targets=tuple(metric_targets),
            min_replicas=options.whole("min_replicas", 0, default=1),
            max_replicas=options.whole("max_replicas", 1),
            extra_profiles=tuple(extra_profiles),
            raw_metrics=tuple(raw_metrics),
            given_scale_up=given_rules(options, "scale_up"),
            given_scale_down=given_rules(options, "scale_down"),
            dead_time=options.whole("dead_time_seconds", 1, LONGEST_DEAD_TIME_S, default=ASSUMED_DEAD_TIME_S),
            is_given="dead_time_seconds" in options,
            adopt=options.truth("adopt"),
            demand=demand,
            backend=options.choice("backend", BACKEND_NAMES) or backend,
            priority=options.whole("priority", -_HIGHEST_PRIORITY, _HIGHEST_PRIORITY, default=0),
        )
        autoscaler._validate(options)
        return autoscaler

    @property
    def has_workload_rule(self) -> bool:
        """Whether the workload needs a separate PrometheusRule, whose name contains both names."""
        return any(metric_target.type != PODS and metric_target.metric.query for metric_target in self.metric_targets)

    def _validate(self, options: Options) -> None:
        if self.max_replicas < self.min_replicas:
            raise options.error(
                "max_replicas",
                f"{self.max_replicas} is below min_replicas {self.min_replicas}",
                "raise max_replicas or lower min_replicas",
            )
        for (name, kind), times in Counter(
            (metric_target.metric.name, metric_target.type) for metric_target in self.metric_targets
        ).items():
            if times > 1:
                raise options.error("extra_metrics", f"give the {kind} metric {name} {times} times", "give it once")
        rule = workload_rule_name(self.key)
        if self.has_workload_rule and len(rule) > LONGEST_SUBDOMAIN:
            raise options.error(
                "name",
                f"makes the name of the PrometheusRule {rule[:30]}... {len(rule)} characters long",
                f"shorten name or namespace by {len(rule) - LONGEST_SUBDOMAIN} characters",
            )


def workload_rule_name(key: tuple[str, str]) -> str:
    """Name of the PrometheusRule of one workload. Its dot distinguishes it from names of profiles, which have none."""
    return f"kubegpu-{key[0]}.{key[1]}"


def read_specs(specs: Any, backend: str = ADAPTER) -> list[Autoscaler]:
    """Parses autoscalers. Raises: HopError with the problem of each invalid one.

    backend: default metrics backend.
    """
    found, errors = [], []
    for path, spec in _listed(specs):
        try:
            found.append(Autoscaler.from_params(spec, path, backend))
        except HopError as err:
            errors.append(err)
    if errors:
        raise first_of_all(errors)
    return found


def read_keys(specs: Any) -> list[tuple[str, str]]:
    """Namespace and name of each. Raises: HopError as autoscaler_key."""
    return [autoscaler_key(spec, path) for path, spec in _listed(specs)]


def autoscaler_key(params: Mapping[str, Any], path: str = "") -> tuple[str, str]:
    """Namespace and name, which suffice to remove an autoscaler.

    Raises: HopError if neither a name nor a target gives them.
    """
    return _key(_named(params, params.keys() if isinstance(params, Mapping) else _OPTIONS, path))


def _listed(specs: Any) -> list[tuple[str, Any]]:
    if specs is None:
        raise HopError(Hop.SPEC, seen="autoscalers is missing", fix="give a list of autoscalers, [] for none")
    check_values(specs, "autoscalers")
    return Options({"autoscalers": specs}, ("autoscalers",)).entries("autoscalers")


def _named(params: Any, known: Collection[str], path: str) -> Options:
    """The options, with errors that begin with the autoscaler's name if it is known."""
    options = Options(params, known, path)
    target = options.raw("target")
    name = options.raw("name") or (target.get("name") if isinstance(target, Mapping) else None)
    return options.named(f"autoscaler {shown(name).strip(chr(39))}") if isinstance(name, str | int) else options


def _key(options: Options) -> tuple[str, str]:
    name = options.text("name", rule=DNS_SUBDOMAIN)
    if not name:
        target = options.options("target", ("kind", "name", "api_version"))
        name = target.text("name", rule=DNS_SUBDOMAIN) if target else ""
    if not name:
        place = f"{options.path}: " if options.path else ""
        raise HopError(
            Hop.SPEC, seen=f"{place}an autoscaler has neither a name nor a target", fix="give one of the two"
        )
    return options.text("namespace", rule=DNS_LABEL) or "default", name


def _target(options: Options) -> Target:
    given = options.options("target", ("kind", "name", "api_version"))
    if given is None or not given.text("name"):
        raise options.error("target", "has no name: no target is given", "set target.kind and target.name")
    kind = given.text("kind", rule=KIND) or "Deployment"
    name = given.text("name", rule=DNS_SUBDOMAIN)
    api_version = given.text("api_version", rule=GROUP_VERSION) or API_VERSIONS.get(kind)
    if api_version is None:
        raise given.error("kind", f"is {kind}, whose API is unknown", "set target.api_version as well")
    return Target(kind, name, api_version)


def _profile(options: Options, default: str | None = None) -> Profile:
    try:
        return Profile.from_params(options.raw("metric", default))
    except HopError as err:
        raise options.error("metric", f"is wrong: {err.seen}", err.fix) from err


def _metric_targets(options: Options, profile: Profile, target: Target) -> list[MetricTarget]:
    """target_value is for the profile's first metric; target_values sets any."""
    named = options.options("target_values", [metric.name for metric in profile.metrics])
    return [
        _metric_target(options, metric, _value(options, named, metric, leads=metric is profile.metrics[0]), target)
        for metric in profile.metrics
    ]


def _metric_target(options: Options, metric: Metric, value: float, target: Target) -> MetricTarget:
    type_ = options.choice("metric_type", (PODS, OBJECT, EXTERNAL)) or (PODS if metric.per == "pod" else OBJECT)
    if type_ == PODS and metric.per == "workload":
        raise options.error(
            "metric_type",
            f"is Pods, but {metric.name} is one value for the workload",
            "set metric_type to Object or External",
        )
    if not metric.query and type_ != EXTERNAL:
        raise options.error(
            "metric",
            f"{metric.name} has no query",
            "give the query; only a metric of external.metrics.k8s.io (metric_type: External) needs none",
        )
    if type_ != PODS and metric.query and target.kind not in WORKLOAD_LABELS:
        raise options.error(
            "metric_type",
            f"{type_} cannot identify the pods of a {target.kind}",
            f"leave metric_type at Pods; {type_} supports {enumeration(list(WORKLOAD_LABELS))}",
        )
    if type_ == EXTERNAL and metric.query and len(target.name) > LONGEST_LABEL:
        raise options.error(
            "metric_type",
            f"is External, which selects by a label, and {target.name[:20]}... is longer than a label's value",
            f"use Pods or Object, or a target whose name has at most {LONGEST_LABEL} characters",
        )
    return MetricTarget(metric, value, type_)


def _value(options: Options, named: Options | None, metric: Metric, *, leads: bool) -> float:
    """The target value of a metric; the default is that of the profile."""
    place, option = (named, metric.name) if named and metric.name in named else (options, "target_value")
    given = place.number(option, SMALLEST_TARGET) if leads or place is named else None
    value = metric.target_value if given is None else given
    if value is None:
        raise place.error(
            option,
            f"is missing: metric {metric.name} has no target_value",
            "set the average per pod to aim at, in the unit of the query",
        )
    if metric.is_percent and value > 100:
        raise place.error(option, f"is {value:g}, but {metric.name} is in percent", "set it to at most 100")
    if metric.is_percent and value <= 1:
        fix = f"set it to {100 * value:g} for {100 * value:g} percent"
        raise place.error(option, f"is {value:g}, but {metric.name} is in percent, so any load exceeds it", fix)
    return value


def _demand(options: Options, namespace: str, target: Target, profile: Profile) -> Demand | None:
    given = options.options("demand", DEMAND_OPTIONS)
    if not given or not [*given]:
        return None
    if profile.name not in ACTIVITIES:
        raise options.error(
            "demand",
            f"is set, but metric {profile.name} does not show how busy a GPU is",
            f"leave demand out, as for model servers; or use {', '.join(ACTIVITIES)}",
        )
    if target.kind not in DEMAND_KINDS:
        raise options.error(
            "demand",
            f"cannot identify the pods of a {target.kind}",
            f"leave demand out; it supports {enumeration(list(DEMAND_KINDS))}",
        )
    if are_cut(target.kind, target.name):
        raise options.error(
            "demand",
            f"cannot identify the pods of {target}, whose names leave out a part of such a long name",
            f"leave demand out, or name the Deployment with at most {LONGEST_NAME} characters",
        )
    return Demand.from_options(given, namespace, target.name)


def _with_demand(metric_targets: list[MetricTarget], namespace: str, target: Target) -> list[MetricTarget]:
    """The demand is last. Beside it the sustained pod metric is used: the demand shows everything else earlier."""
    leading, *others = metric_targets
    demand = MetricTarget(demand_metric(leading.metric, target.labels(namespace)), leading.value, OBJECT)
    if leading.type == PODS:
        pods = pod_names(target.kind, target.name)
        leading = replace(leading, metric=sustained_metric(leading.metric, namespace, pods))
    return [leading, *others, demand]
