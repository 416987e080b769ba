# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads what a change depends on, and the state that the change would lead to.

Called by actions that change autoscalers. In: a client and the wanted autoscalers. Out: the existing objects, and a
`State` for the checks before the change. Only a missing right is noted; any other error ends the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property

from ..autoscaling.backends import all_rules, needs_scaled_object
from ..autoscaling.manifests import RuleOptions, autoscaler_behind, horizontal_pod_autoscaler, resources_of
from ..autoscaling.recorded_metrics import RecordedMetric
from ..autoscaling.spec import Autoscaler, MetricTarget
from ..autoscaling.zero import controller_gap
from ..chain.metrics_owner import Owner
from ..chain.state.api import ApiState
from ..chain.state.autoscaler import AutoscalerState
from ..chain.state.cluster import State
from ..chain.state.metric import MetricState
from ..chain.state.prometheus import PrometheusState
from ..chain.state.proposal import Proposal
from ..cluster.errors import ApiError
from ..cluster.kube import (
    APISERVICES,
    DEVICE_CLASSES,
    HPAS,
    NAMESPACES,
    PODS,
    SCALED_OBJECTS,
    KubeClient,
)
from ..cluster.metrics_api import CUSTOM_METRICS, group_of
from ..cluster.ownership import other_managers
from ..cluster.prometheus_client import PrometheusClient
from ..kube.labels import MANAGER, is_managed, is_of
from ..kube.objects import Key, Manifest, key_of
from .existing_autoscalers import Existing, lacks, read_existing
from .metric_values import sources_of
from .query_trial import Trial, try_queries
from .reader import Reader
from .targets import TargetState, read_targets
from .unread_parts import attempt


class ChangeReader(Reader):
    """A cluster before a change of autoscalers. Every error except a missing right is raised."""

    def __init__(
        self,
        kube: KubeClient,
        prometheus: PrometheusClient,
        autoscalers: Sequence[Autoscaler],
        rule_namespace: str,
        metrics: Sequence[RecordedMetric] = (),
    ) -> None:
        """metrics: those to record without an autoscaler."""
        namespaces = {autoscaler.namespace for autoscaler in autoscalers} | {metric.namespace for metric in metrics}
        super().__init__(kube, namespaces=namespaces, is_strict=True)
        self.prometheus = prometheus
        self._autoscalers = autoscalers
        self._rule_namespace = rule_namespace
        self._metrics = [one.metric for one in metrics if one.metric]

    @cached_property
    def existing(self) -> Existing:
        """Raises: ApiError, HopError if the HPAs cannot be listed."""
        return read_existing(self.kube, self._rule_namespace, self.namespaces_in_reach)

    @cached_property
    def trial(self) -> Trial:
        return try_queries(self.prometheus, self._autoscalers, self._metrics)

    @cached_property
    def targets(self) -> Mapping[Key, TargetState]:
        """Objects by namespace and name of the autoscaler."""
        return read_targets(self.kube, self._autoscalers, managers=False)

    def of(self, autoscalers: Sequence[Autoscaler]) -> ChangeReader:
        """The same cluster before another change of the same autoscalers, nothing of it read again."""
        other = copy(self)
        other._autoscalers = autoscalers
        return other

    def state(self, rules: RuleOptions) -> State:
        """The cluster with the wanted HPAs instead of the existing ones."""
        proposal = self._proposal(rules)
        trial, wanted = self.trial, self._wanted(rules)
        return State(
            0.0,
            proposal=proposal,
            server_version=self._server_version,
            nodes=self.nodes,
            resource_slices=self.resource_slices,
            device_classes=self.known_classes,
            prometheuses=self.prometheuses,
            namespaces=self.namespaces if self._are_namespaces_selected else (),
            hpas=[*{**self.existing.hpas, **wanted}.values()],
            scaled_objects=self._scaled_objects,
            prometheus=PrometheusState(self.prometheus.name, error=trial.error),
            apis=[_api(Owner(group, self.api_service(group, "v1beta1"))) for group in self._groups],
            autoscalers=[
                AutoscalerState(
                    {**wanted[autoscaler.key], "kind": HPAS.kind},
                    self.targets[autoscaler.key].manifest,
                    metrics=[_metric(autoscaler, metric_target) for metric_target in autoscaler.metric_targets],
                )
                for autoscaler in self._autoscalers
                if autoscaler.key not in proposal.unserved | proposal.unscalable
            ],
            unavailable=self._unavailable,
        )

    def _wanted(self, rules: RuleOptions) -> dict[Key, Manifest]:
        """The HPAs, each with the ScaledObject that owns it, if it should have one."""
        return {autoscaler.key: _wanted_hpa(autoscaler, rules) for autoscaler in self._autoscalers}

    @cached_property
    def _server_version(self) -> str | None:
        """Read only for KEDA's HPAs, which need a field of newer versions."""
        if not any(map(needs_scaled_object, self._autoscalers)):
            return None
        version = self.take("version", lambda: self.kube.get_raw("/version"), None)
        return version.get("gitVersion") if isinstance(version, Mapping) else None

    @cached_property
    def _is_keda_served(self) -> bool:
        """Read only for autoscalers of KEDA, because an empty list of ScaledObjects does not show it."""
        if not any(map(needs_scaled_object, self._autoscalers)):
            return True
        return SCALED_OBJECTS.kind in self.take("keda", lambda: self.kube.discover(SCALED_OBJECTS.api_version), {})

    @cached_property
    def _no_zero(self) -> str:
        """Decided by the API server's response to an HPA with a minimum of 0, and by the controllers that scale it.

        Read only for HPAs of this collection: KEDA scales to zero itself.
        """
        wanted = [one for one in self._autoscalers if not one.min_replicas and not needs_scaled_object(one)]
        if not wanted:
            return ""
        metadata = {"namespace": wanted[0].namespace, "generateName": "kubegpu-zero-"}
        probe = {**horizontal_pod_autoscaler(wanted[0]), "metadata": metadata}
        if rejection := self.take("zero", lambda: self._why_not_created(probe), ""):
            return f"the API server rejects it: {rejection}"
        pods = attempt(
            lambda: self.kube.list(PODS, namespace="kube-system", label_selector="component=kube-controller-manager")
        )
        return controller_gap(pods) if isinstance(pods, list) else ""

    def _why_not_created(self, hpa: Manifest) -> str:
        try:
            return self.kube.why_not_created(HPAS, hpa)
        except ApiError as err:
            if err.is_not_found:  # the namespace does not exist yet
                return ""
            raise

    @property
    def _scaled_objects(self) -> list[Manifest]:
        """Without HPAs that are removed because their autoscalers now have another backend."""
        leaving = {autoscaler.key for autoscaler in self._autoscalers if not needs_scaled_object(autoscaler)}
        return [found for found in self.scaled_objects if not (is_managed(found) and key_of(found) in leaving)]

    def _proposal(self, rules: RuleOptions) -> Proposal:
        trial, targets, hpas = self.trial, self.targets, self.existing.hpas
        return Proposal(
            self._autoscalers,
            hpas=hpas,
            managers={key: other_managers(hpas[key], MANAGER) for key in targets if key in hpas},
            rules=self.existing.rules,
            unserved={key for key, target in targets.items() if not target.served},
            unscalable={key for key, target in targets.items() if target.served and not target.scalable},
            query_errors=trial.query_errors,
            empty_queries=trial.empty_queries,
            totals=trial.totals,
            no_zero=self._no_zero,
            # The response is 403 even without KEDA, because permissions are checked first.
            is_keda_known=self.is_known("scaled_objects"),
            is_keda_served=self._is_keda_served,
            scaled_objects={key_of(found): found for found in self.scaled_objects},
            no_resources=self._no_resources,
            rule={"metadata": {"namespace": rules.namespace, "name": "kubegpu", "labels": dict(rules.labels)}},
            unread=self.existing.unread,
            no_namespace=self._no_namespace,
            inventory=rules.inventory,
            foreign_rules=_rules_of_others(self._autoscalers, self.existing, rules),
        )

    @property
    def _groups(self) -> list[str]:
        """APIs of the autoscalers' metrics."""
        groups = [
            group_of(autoscaler, metric_target)
            for autoscaler in self._autoscalers
            for metric_target in autoscaler.metric_targets
        ]
        return list(dict.fromkeys([*groups, *([CUSTOM_METRICS] if self._metrics else [])]))

    @cached_property
    def known_classes(self) -> Sequence[Manifest] | None:
        """Read only where devices can be claimed; None if they are not, or if they cannot be listed."""
        classes = attempt(lambda: self.kube.list(DEVICE_CLASSES)) if self.resource_slices else None
        return classes if isinstance(classes, list) else None

    @property
    def _are_namespaces_selected(self) -> bool:
        """Whether a Prometheus selects rules by the labels of their namespaces."""
        return any((prometheus.get("spec") or {}).get("ruleNamespaceSelector") for prometheus in self.prometheuses)

    @property
    def _unavailable(self) -> dict[str, str]:
        """Unreadable ScaledObjects are a warning, by `is_keda_known`, and do not prevent checks."""
        return {part: why for part, why in self.gaps.unavailable.items() if part != "scaled_objects"}

    @cached_property
    def _no_resources(self) -> str:
        """Why CPU and memory of pods are not served. Read only if an autoscaler needs them."""
        if not any(map(resources_of, self._autoscalers)):
            return ""
        service = self.take("resource_api", lambda: self.kube.get(APISERVICES, "v1beta1.metrics.k8s.io"), None)
        return "" if "resource_api" in self.gaps.unavailable else _why_away(Owner("metrics.k8s.io", service))

    @property
    def _no_namespace(self) -> str:
        """Empty if rules exist already, or if the namespace cannot be read: then creating a rule fails."""
        namespace = "" if self.existing.rules else self._rule_namespace
        is_missing = bool(namespace) and attempt(lambda: self.kube.get(NAMESPACES, namespace)) is None
        return namespace if is_missing else ""


def _rules_of_others(
    autoscalers: Sequence[Autoscaler], existing: Existing, rules: RuleOptions
) -> dict[str, tuple[Manifest, list[str]]]:
    """Rules of other inventories that would have to change, by name, each with what it lacks."""
    theirs = {name: rule for name, rule in (existing.rules or {}).items() if not is_of(rule, rules.inventory)}
    wanted = {rule["metadata"]["name"]: rule for rule in all_rules(autoscalers, rules)} if theirs else {}
    adopted = {str(autoscaler) for autoscaler in autoscalers if autoscaler.adopt}
    return {
        name: (theirs[name], missing)
        for name, rule in wanted.items()
        if name in theirs and autoscaler_behind(rule) not in adopted and (missing := lacks(theirs[name], rule))
    }


def _why_away(owner: Owner) -> str:
    if owner.api_service is None:
        return f"no server is registered for {owner.group}"
    return f"{owner} does not answer: {owner.unavailable}" if owner.unavailable else ""


def _api(owner: Owner) -> ApiState:
    """From its APIService, without querying metrics."""
    return ApiState(
        owner.group,
        owner.api_service,
        owner=str(owner),
        is_prometheus_adapter=owner.is_prometheus_adapter,
        is_keda=owner.is_keda,
        unavailable=owner.unavailable,
        listed=frozenset(),
    )


def _wanted_hpa(autoscaler: Autoscaler, rules: RuleOptions) -> Manifest:
    hpa = horizontal_pod_autoscaler(autoscaler, rules.inventory)
    owner = {"kind": SCALED_OBJECTS.kind, "name": autoscaler.name}
    return {
        **hpa,
        "metadata": {**hpa["metadata"], **({"ownerReferences": [owner]} if needs_scaled_object(autoscaler) else {})},
    }


def _metric(autoscaler: Autoscaler, metric_target: MetricTarget) -> MetricState:
    metric = metric_target.metric
    return MetricState(
        metric.name,
        group_of(autoscaler, metric_target),
        metric_target.type,
        backend=autoscaler.backend,
        series=metric_target.series,
        sources=sources_of(metric),
        reporter=metric.reporter,
        unit=metric.unit,
        target_value=metric_target.value,
        listed=False,
    )
