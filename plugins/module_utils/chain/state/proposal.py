# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The requested change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass, field

from ...autoscaling.spec import Autoscaler
from ...kube.labels import DEFAULT_INVENTORY
from ...kube.objects import Key, Manifest


@dataclass(frozen=True)
class Proposal:
    """The requested change, and the state of the cluster that it depends on.

    hpas:         existing HPAs by namespace and name. managers: other managers of the requested ones.
    scaled_objects: existing ScaledObjects by namespace and name, of any owner.
    is_keda_known, is_keda_served: whether ScaledObjects can be read, and whether that kind exists.
    rules:        managed PrometheusRules by name; None if that kind is not served.
    unserved:     autoscalers with a target of an unknown kind; unscalable: with a target without a scale subresource.
    query_errors: error of a user's query, by metric. empty_queries: metrics whose query returns nothing now.
    totals:       current values of custom metrics of a workload, by metric.
    no_zero:      why HPAs of this cluster do not scale to zero; empty if they do, or if none should.
    rule:         namespace and labels of a managed rule; None if unknown.
    unread:       why HPAs of other namespaces are unknown; empty if they are known.
    no_resources: why CPU and memory of pods are missing; empty if they are served or not requested.
    no_namespace: the namespace of the rules, if it does not exist.
    inventory:    ID of the inventory of the change.
    foreign_rules: rules of other inventories that would have to change, by name, each with what it lacks.
    """

    autoscalers: Sequence[Autoscaler] = ()
    _by_name: KW_ONLY
    hpas: Mapping[Key, Manifest] = field(default_factory=dict)
    managers: Mapping[Key, Sequence[str]] = field(default_factory=dict)
    scaled_objects: Mapping[Key, Manifest] = field(default_factory=dict)
    rules: Mapping[str, Manifest] | None = field(default_factory=dict)
    unserved: AbstractSet[Key] = frozenset()
    unscalable: AbstractSet[Key] = frozenset()
    query_errors: Mapping[str, str] = field(default_factory=dict)
    empty_queries: Sequence[str] = ()
    totals: Mapping[str, float] = field(default_factory=dict)
    no_zero: str = ""
    is_keda_known: bool = True
    is_keda_served: bool = True
    no_resources: str = ""
    rule: Manifest | None = None
    unread: str = ""
    no_namespace: str = ""
    inventory: str = DEFAULT_INVENTORY
    foreign_rules: Mapping[str, tuple[Manifest, Sequence[str]]] = field(default_factory=dict)
