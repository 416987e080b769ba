# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .findings import SPEC, HopError
from .metrics import Metric

DEFAULT_TARGET_PERCENT = 60.0

# Where the kinds that people scale are served; any other kind with a scale subresource needs its api_version spelt out.
API_VERSIONS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "Rollout": "argoproj.io/v1alpha1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
}


@dataclass(frozen=True)
class Target:
    """The object whose scale subresource the autoscaler sets."""

    kind: str
    name: str
    api_version: str

    @property
    def identity(self) -> tuple[str, str, str]:
        """Group, kind and name: the same object whatever version it is asked for in."""
        return self.api_version.rpartition("/")[0], self.kind, self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class ScalingPolicy:
    """At most `value` pods, or percent of the pods, in `period_seconds`."""

    type: str
    value: int
    period_seconds: int


@dataclass(frozen=True)
class ScalingRules:
    """How fast one direction may go.

    stabilization_window_seconds: the most cautious recommendation of this window counts.
    select_policy: Max lets the policy decide that allows most, Min the one that allows least, Disabled stops.
    tolerance:     half-width of the dead band around usage/target = 1; None leaves it to the cluster (0.1).
    """

    stabilization_window_seconds: int
    policies: tuple[ScalingPolicy, ...]
    select_policy: str
    tolerance: float | None = None

    def overridden(self, given: Mapping[str, Any] | None) -> ScalingRules:
        """These rules with the user's in place of ours; an option that is None was not given."""
        changes = {key: value for key, value in (given or {}).items() if value is not None}
        if "policies" in changes:
            changes["policies"] = tuple(ScalingPolicy(**policy) for policy in changes["policies"])
        return replace(self, **changes)


# No window upwards: it would only delay. The rate is what keeps a lagging metric from overshooting.
SCALE_UP = ScalingRules(0, (ScalingPolicy("Pods", 2, 60), ScalingPolicy("Percent", 50, 60)), "Max")
SCALE_DOWN = ScalingRules(300, (ScalingPolicy("Pods", 1, 60), ScalingPolicy("Percent", 25, 60)), "Min")


@dataclass(frozen=True)
class Autoscaler:
    """One workload that follows one metric of its pods.

    target_value:  average over the pods, percent for the GPU profiles.
    extra_metrics: further entries of an autoscaling/v2 HPA; the one that asks for most replicas wins.
    """

    name: str
    namespace: str
    target: Target
    metric: Metric
    target_value: float
    min_replicas: int
    max_replicas: int
    scale_up: ScalingRules = SCALE_UP
    scale_down: ScalingRules = SCALE_DOWN
    extra_metrics: tuple[Mapping[str, Any], ...] = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Autoscaler:
        """The autoscaler that a user's options describe.

        Raises: HopError at hop "autoscaler spec" if they contradict each other or something is missing.
        """
        target = _target(params)
        metric = Metric.from_params(params.get("metric") or "gpu")
        autoscaler = cls(
            name=params.get("name") or target.name,
            namespace=params.get("namespace") or "default",
            target=target,
            metric=metric,
            target_value=_target_value(params, metric),
            min_replicas=_whole(params, "min_replicas", default=1),
            max_replicas=_whole(params, "max_replicas"),
            scale_up=SCALE_UP.overridden(params.get("scale_up")),
            scale_down=SCALE_DOWN.overridden(params.get("scale_down")),
            extra_metrics=tuple(params.get("extra_metrics") or ()),
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
        if self.target_value <= 0:
            raise _refusal(self.name, f"target_value is {self.target_value:g}", "set it above 0")
        if self.metric.is_percent and self.target_value > 100:
            raise _refusal(
                self.name,
                f"target_value is {self.target_value:g}, but profile {self.metric.name} is in percent",
                "set it to at most 100",
            )


def autoscaler_key(params: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name, all that is needed to remove an autoscaler.

    Raises: HopError if neither a name nor a target gives them.
    """
    name = params.get("name") or (params.get("target") or {}).get("name")
    if not name:
        raise HopError(SPEC, seen="an autoscaler has neither a name nor a target", fix="give one of the two")
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


def _target_value(params: Mapping[str, Any], metric: Metric) -> float:
    value = params.get("target_value")
    if value is None and not metric.is_percent:
        raise _refusal(
            params.get("name") or metric.name,
            f"metric {metric.name} has no target_value",
            "set the average per pod to aim at, in the unit of the query",
        )
    return DEFAULT_TARGET_PERCENT if value is None else float(value)


def _whole(params: Mapping[str, Any], option: str, default: int | None = None) -> int:
    value = params.get(option)
    value = default if value is None else value
    if value is None:
        raise _refusal(autoscaler_key(params)[1], f"{option} is missing", f"set {option}")
    return int(value)


def _refusal(name: str, seen: str, fix: str) -> HopError:
    return HopError(SPEC, seen=f"autoscaler {name}: {seen}", fix=fix)
