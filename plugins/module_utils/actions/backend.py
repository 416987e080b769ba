# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From recorded series to the HPA controller: one implementation for each way in which a cluster may do it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ..autoscaling.manifests import (
    AUTOSCALER_ANNOTATION,
    Manifest,
    RuleOptions,
    manifests,
    metric_names,
    recordings_of,
    rule_names,
)
from ..autoscaling.metrics import with_what_they_read
from ..autoscaling.spec import EXTERNAL, OBJECT, Autoscaler
from ..chain.objects import Key
from ..marks import namespace_of
from ..reading.served import AdapterMetrics, ServedMetrics


class Backend(ServedMetrics, Protocol):
    """From recorded series to the value that an HPA reads."""

    def desired_objects(self, autoscalers: Sequence[Autoscaler], rules: RuleOptions) -> list[Manifest]:
        """All objects that have to exist."""

    def rule_names(self, autoscaler: Autoscaler) -> list[str]:
        """Of those that have to exist before its HPA does."""

    def unused_rules(self, rules: Iterable[Manifest], hpas: Mapping[Key, Manifest]) -> list[Manifest]:
        """Those of these rules that none of these HPAs uses."""


class PrometheusAdapter(AdapterMetrics):
    """prometheus-adapter with the generic rules of the role prometheus_adapter, which a new metric never changes."""

    def desired_objects(self, autoscalers: Sequence[Autoscaler], rules: RuleOptions) -> list[Manifest]:
        return manifests(autoscalers, rules)

    def rule_names(self, autoscaler: Autoscaler) -> list[str]:
        return rule_names(autoscaler)

    def unused_rules(self, rules: Iterable[Manifest], hpas: Mapping[Key, Manifest]) -> list[Manifest]:
        named = {f"{namespace}/{name}": hpa for (namespace, name), hpa in hpas.items()}
        asked_for: dict[str, set[str]] = {"": set()}
        for (namespace, _name), hpa in hpas.items():
            names = with_what_they_read(metric_names(hpa))
            for place in ("", namespace):
                asked_for.setdefault(place, set()).update(names)
        return [rule for rule in rules if not _is_used(rule, named, asked_for)]


def _is_used(rule: Manifest, hpas: Mapping[str, Manifest], asked_for: Mapping[str, set[str]]) -> bool:
    """By any HPA of the namespace that the rule serves, or of the cluster.

    The rule of one workload: by that one's HPA, if it reads more than its pods.
    asked_for: names of metrics by namespace; those of the whole cluster under the empty name.
    """
    only = (rule["metadata"].get("annotations") or {}).get(AUTOSCALER_ANNOTATION)
    if only is not None:
        names = metric_names(hpas[only], (OBJECT, EXTERNAL)) if only in hpas else set()
    else:
        names = asked_for.get(namespace_of(rule), set())
    series = (recording["record"].split(":") for recording in recordings_of(rule))
    return any(name in names for _level, name, *_operation in (parts for parts in series if len(parts) > 1))
