# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The objects of an autoscaler, by the backend that serves its metrics to the HPA controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ..kube.labels import AUTOSCALER_ANNOTATION, PART_OF, namespace_of
from ..kube.objects import Manifest, labels_of
from . import scaled_object
from .backend_limits import refuse
from .inputs import INPUTS
from .manifests import (
    SCALED_OBJECT,
    RuleOptions,
    horizontal_pod_autoscaler,
    metric_names,
    prometheus_rules,
    recordings_of,
    rule_names,
    selectors_of,
)
from .metrics import with_what_they_read
from .spec import ADAPTER, EXTERNAL, KEDA, OBJECT, Autoscaler
from .zero import faults, native_faults


class Backend(Protocol):
    """Creates the objects from the recorded series to the HPA.

    kind: kind of the object that scales the target.
    """

    kind: str

    def check(self, autoscalers: Sequence[Autoscaler], rules: RuleOptions) -> None:
        """Raises: HopError that names each autoscaler that this backend cannot scale."""

    def rules(self, autoscalers: Sequence[Autoscaler], rules: RuleOptions) -> list[Manifest]:
        """The PrometheusRules that the autoscalers need."""

    def rule_names(self, autoscaler: Autoscaler) -> list[str]:
        """Names of the PrometheusRules that must exist before the scaler does."""

    def scaler(self, autoscaler: Autoscaler, rules: RuleOptions) -> Manifest:
        """The object that scales the target."""


class Adapter:
    """prometheus-adapter with the generic rules of the role prometheus_adapter, which new metrics never change."""

    kind = "HorizontalPodAutoscaler"

    def check(self, autoscalers: Sequence[Autoscaler], rules: RuleOptions) -> None:
        refuse((autoscaler, [*faults(autoscaler), *native_faults(autoscaler)]) for autoscaler in autoscalers)

    def rules(self, autoscalers: Sequence[Autoscaler], rules: RuleOptions) -> list[Manifest]:
        return prometheus_rules(autoscalers, rules)

    def rule_names(self, autoscaler: Autoscaler) -> list[str]:
        return rule_names(autoscaler)

    def scaler(self, autoscaler: Autoscaler, rules: RuleOptions) -> Manifest:
        return horizontal_pod_autoscaler(autoscaler, rules.inventory)


class Keda:
    """KEDA, which creates the HPA of each ScaledObject and serves its metrics."""

    kind = SCALED_OBJECT

    def check(self, autoscalers: Sequence[Autoscaler], rules: RuleOptions) -> None:
        scaled_object.check(autoscalers, rules)

    def rules(self, autoscalers: Sequence[Autoscaler], rules: RuleOptions) -> list[Manifest]:
        return scaled_object.decision_rules(autoscalers, rules)

    def rule_names(self, autoscaler: Autoscaler) -> list[str]:
        return scaled_object.rule_names(autoscaler)

    def scaler(self, autoscaler: Autoscaler, rules: RuleOptions) -> Manifest:
        return scaled_object.scaled_object(autoscaler, rules)


BACKENDS: Mapping[str, Backend] = {ADAPTER: Adapter(), KEDA: Keda()}


def backend_of(autoscaler: Autoscaler) -> Backend:
    return BACKENDS[autoscaler.backend]


def needs_scaled_object(autoscaler: Autoscaler) -> bool:
    """Whether a ScaledObject scales the target, and owns its HPA."""
    return backend_of(autoscaler).kind == SCALED_OBJECT


def manifests(autoscalers: Sequence[Autoscaler], rules: RuleOptions) -> list[Manifest]:
    """All objects: the PrometheusRules, then a HorizontalPodAutoscaler or ScaledObject for each autoscaler.

    Raises: HopError that names each autoscaler that its backend cannot scale.
    """
    check_backends(autoscalers, rules)
    return [*all_rules(autoscalers, rules), *(backend_of(one).scaler(one, rules) for one in autoscalers)]


def check_backends(autoscalers: Sequence[Autoscaler], rules: RuleOptions) -> None:
    """Raises: HopError that names each autoscaler that its backend cannot scale."""
    for name, backend in BACKENDS.items():
        backend.check([autoscaler for autoscaler in autoscalers if autoscaler.backend == name], rules)


def all_rules(autoscalers: Sequence[Autoscaler], rules: RuleOptions) -> list[Manifest]:
    """The PrometheusRules of all backends; both share the rule of a profile."""
    made = [
        rule
        for name, backend in BACKENDS.items()
        for rule in backend.rules([autoscaler for autoscaler in autoscalers if autoscaler.backend == name], rules)
    ]
    return [*{rule["metadata"]["name"]: rule for rule in made}.values()]


def inputs_read(autoscalers: Sequence[Autoscaler]) -> set[str]:
    """Inputs that the rules of the autoscalers read: their selectors are noted on the rules."""
    every = RuleOptions(selectors={name: {"job": name} for name in INPUTS})
    return set().union(*map(selectors_of, all_rules(autoscalers, every)))


def unused_rules(rules: Iterable[Manifest], scalers: Iterable[Manifest], part: str | None = None) -> list[Manifest]:
    """The rules that none of these HPAs and ScaledObjects uses.

    part: part of the collection; its rules are removed with that part. None for the rules of autoscalers.
    """
    named: dict[str, list[Manifest]] = {}
    asked_for: dict[str, set[str]] = {"": set()}
    for scaler in scalers:
        namespace, name = scaler["metadata"]["namespace"], scaler["metadata"]["name"]
        named.setdefault(f"{namespace}/{name}", []).append(scaler)
        names = with_what_they_read(metric_names(scaler))
        for place in ("", namespace):
            asked_for.setdefault(place, set()).update(names)
    of_part = (rule for rule in rules if labels_of(rule).get(PART_OF) == part)
    return [rule for rule in of_part if not _is_used(rule, named, asked_for)]


def _is_used(rule: Manifest, scalers: Mapping[str, Sequence[Manifest]], asked_for: Mapping[str, set[str]]) -> bool:
    """Whether a scaler uses the rule, in the namespace that the rule serves or in the cluster.

    The rule of one workload is used by the scaler of that workload, if it reads more than its pods.
    asked_for: names of metrics by namespace; metrics of the whole cluster under the empty name.
    """
    only = (rule["metadata"].get("annotations") or {}).get(AUTOSCALER_ANNOTATION)
    if only is not None:
        names = {name for scaler in scalers.get(only, ()) for name in metric_names(scaler, (OBJECT, EXTERNAL))}
    else:
        names = asked_for.get(namespace_of(rule), set())
    series = (recording["record"].split(":") for recording in recordings_of(rule))
    return any(name in names for _level, name, *_operation in (parts for parts in series if len(parts) > 1))
