# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks for min_replicas: 0: what prevents an autoscaler from reaching zero, or from leaving it again.

At zero there are no pods, so only a metric that exists without them can wake the workload. To scale down, the largest
proposal of all metrics wins, so each metric must propose 0, which a target of type AverageValue does at exactly 0.
Source: kubernetes KEP-2021, pkg/controller/podautoscaler/horizontal.go of v1.36.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..formats.feature_gates import FLAG, SCALE_TO_ZERO, SCALES_TO_ZERO_MINOR, gate_of
from .scaling_rules import ScalingRules
from .spec import EXTERNAL, OBJECT, PODS, Autoscaler, MetricTarget

_GATES_FLAG = f"--{FLAG}="
_VERSION = re.compile(r":v1\.(\d+)")

# Problem and fix.
Fault = tuple[str, str]


def faults(autoscaler: Autoscaler) -> Iterator[Fault]:
    """Why the autoscaler would never reach zero, stay there forever, or flap, with any backend."""
    if autoscaler.min_replicas:
        return
    for target in autoscaler.metric_targets:
        yield from _faults_of_metric(target)
    for raw in autoscaler.raw_metrics:
        yield from _faults_of_raw(raw)
    if autoscaler.scale_down.select_policy == "Disabled":
        yield "scale_down.select_policy is Disabled, so it never scales to zero", "set it to Min or Max"


def native_faults(autoscaler: Autoscaler) -> Iterator[Fault]:
    """Why an HPA that scales to zero itself would stay there. KEDA takes the first step itself."""
    if autoscaler.min_replicas or _leaves_zero(autoscaler.scale_up):
        return
    rules = autoscaler.scale_up
    seen = (
        "scale_up.select_policy is Disabled"
        if rules.select_policy == "Disabled"
        else "scale_up lets a policy in percent decide, and a percentage of 0 replicas is 0"
    )
    yield f"{seen}, so it never leaves zero", "give scale_up a policy of type Pods, and select_policy Max"


def controller_gap(managers: Sequence[Mapping[str, Any]]) -> str:
    """Why kube-controller-manager does not scale to zero, by its pods; empty if it does, or if they are not visible.

    An API server that is newer than the controller accepts a minimum of 0, and nothing would wake the workload.
    """
    for pod in managers:
        for container in pod["spec"]["containers"]:
            is_on = _gate(container)
            version = _VERSION.search(container.get("image") or "")
            if is_on is None and version:
                is_on = int(version[1]) >= SCALES_TO_ZERO_MINOR
            if is_on is False:
                image = (container.get("image") or "").rpartition("/")[2]
                return f"pod {pod['metadata']['name']} ({image}) has the feature gate {SCALE_TO_ZERO} off"
    return ""


def _gate(container: Mapping[str, Any]) -> bool | None:
    """The feature gate in its flags; None if the version decides."""
    flags = [*(container.get("command") or ()), *(container.get("args") or ())]
    return gate_of(SCALE_TO_ZERO, [flag.removeprefix(_GATES_FLAG) for flag in flags if flag.startswith(_GATES_FLAG)])


def _faults_of_metric(target: MetricTarget) -> Iterator[Fault]:
    name, fix = target.metric.name, "scale on a total that exists without pods: metric with a query and per: workload"
    if target.type == PODS:
        yield (
            f"metric {name} has a value for each pod, so it never asks for 0 replicas, and has no value at zero",
            f"{fix}. The load of GPUs can be a part of that query",
        )
    elif target.type == OBJECT and not target.is_total:
        yield (
            f"metric {name} is an average over the pods, which is multiplied by the ready pods: it flaps around zero",
            fix,
        )
    elif target.metric.query and target.metric.per == "pod":
        yield f"metric {name} is recorded from pods, so it has no value at zero", fix


def _faults_of_raw(raw: Mapping[str, Any]) -> Iterator[Fault]:
    type_ = raw["type"]
    if type_ not in (OBJECT, EXTERNAL):
        yield (
            f"extra_metrics has a metric of type {type_}, which never asks for 0 replicas, and has no value at zero",
            "remove it; only metrics of type Object and External work at zero",
        )
    elif raw[type_.lower()]["target"]["type"] == "Value":
        yield (
            f"extra_metrics has a metric of type {type_} with target type Value, which is multiplied by the ready "
            "pods: it flaps around zero",
            "use target type AverageValue",
        )


def _leaves_zero(rules: ScalingRules) -> bool:
    """Whether the policies allow a first replica."""
    allow = [policy.type == "Pods" for policy in rules.policies]
    return {"Max": any(allow), "Min": all(allow)}.get(rules.select_policy, False)
