# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import manifests
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.recorded_metrics import (
    PART,
    metric_objects,
    read_metrics,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.rule_options import (
    rule_options,
    url_without_login,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import (
    ADAPTER,
    Autoscaler,
    read_specs,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.checks.preflight import (
    one_name_each,
    one_query_each,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.cluster import State
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.proposal import Proposal
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError, first_of_all
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.plain import plain
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import DEFAULT_INVENTORY, marked
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.objects import Manifest


def gpu_autoscaler_manifests(
    specs: Sequence[Mapping[str, Any]],
    rule_namespace: str | None = None,
    rule_labels: Mapping[str, str] | None = None,
    evaluation_interval: int | None = None,
    selectors: Mapping[str, Any] | None = None,
    inventory_id: str = DEFAULT_INVENTORY,
    metrics_backend: str = ADAPTER,
    prometheus: Mapping[str, Any] | None = None,
    metrics: Sequence[Mapping[str, Any]] | None = None,
) -> list[Manifest]:
    """The objects that gpu_autoscaler would create: PrometheusRules, then an HPA or ScaledObject per autoscaler.

    Then those of `metrics`.

    Raises: AnsibleFilterError if the module would reject the options.
    """
    given = {
        "rule_namespace": rule_namespace,
        "rule_labels": rule_labels,
        "evaluation_interval": evaluation_interval,
        "selectors": selectors,
        "prometheus_url": url_without_login(plain(prometheus or {})),
    }
    try:
        rules = rule_options(plain(given), inventory=inventory_id)
        autoscalers = read_specs(plain(specs), plain(metrics_backend))
        _refuse_contradictions(autoscalers)
        recorded = metric_objects(read_metrics(plain(metrics or []), autoscalers), rules)
        return [*manifests(autoscalers, rules), *(marked(found, inventory_id, PART) for found in recorded)]
    except HopError as err:
        raise AnsibleFilterError(str(err)) from err


def _refuse_contradictions(autoscalers: Sequence[Autoscaler]) -> None:
    """The module's checks before a change that need no cluster."""
    state = State(0.0, proposal=Proposal(autoscalers))
    found = [result.error() for check in (one_name_each, one_query_each) for result in check.judge(state)]
    if found:
        raise first_of_all(found)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_autoscaler_manifests": gpu_autoscaler_manifests}
