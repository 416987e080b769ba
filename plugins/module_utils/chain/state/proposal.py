# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a change asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass, field

from ...autoscaling.spec import Autoscaler
from ...marks import DEFAULT_INVENTORY
from ..objects import Key, Manifest


@dataclass(frozen=True)
class Proposal:
    """What is asked for, and what has to be known of the cluster before it is done.

    hpas:         that there are, by namespace and name. managers: who else manages those that are asked for.
    scaled_objects: that exist, by namespace and name; those of other owners too.
    is_keda_known, is_keda_served: whether ScaledObjects can be read, and whether that kind exists.
    rules:        our PrometheusRules by name; None if that kind is not served.
    unserved:     autoscalers whose target's kind is not served; unscalable: whose target has no scale subresource.
    query_errors: the fault of a user's own query, by metric. empty_queries: metrics whose query gives nothing now.
    totals:       values at the moment of users' metrics of a workload, by metric.
    no_zero:      why HPAs of this cluster do not scale to zero; empty if they do, or if none should.
    rule:         where a managed rule would be, and its labels; None if that is not known.
    unread:       why HPAs of other namespaces are not known; empty if they are.
    no_resources: why there is no CPU and memory of pods; empty if it is served or not requested.
    no_namespace: the namespace of the rules, if it does not exist.
    inventory:    the id of the inventory that it is asked for.
    foreign_rules: rules that would have to change, and that another inventory made; by name.
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
    foreign_rules: Mapping[str, Manifest] = field(default_factory=dict)
