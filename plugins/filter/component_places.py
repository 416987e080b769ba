# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.defaults import EVALUATION_INTERVAL_S
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.places import Cluster, Wanted, place
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.prometheus import Choice, full_name

DOCUMENTATION = r"""
name: component_places
short_description: Decide which components an inventory installs in a cluster
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Compares what P(kubegpu.autoscale.gpu_cluster_info#module) found with what the inventory wants of each chart role.
    The result says what each role does, why one has to fail before it changes anything, and which Prometheus is meant.
positional: _input, wanted, prometheus, interval
options:
  _input:
    description: RV(kubegpu.autoscale.gpu_cluster_info#module:result). Empty if the cluster is not known.
    type: dict
    required: true
  wanted:
    description:
      - C(state), C(namespace), C(release) and C(adopt) by role; C(needed) for a role that O(ignore:state=auto) installs
        only on demand. Of dcgm_exporter also C(host_engine), of prometheus_adapter C(external_metrics).
    type: dict
    required: true
  prometheus:
    description: What the inventory says of Prometheus, as C(kubegpu_prometheus).
    type: dict
    default: {}
  interval:
    description: Seconds between two scrapes, by the size of the fleet. By default those of a small one.
    type: int
"""

EXAMPLES = r"""
- name: Show whether the exporter is installed
  ansible.builtin.debug:
    msg: "{{ (cluster.result | kubegpu.autoscale.component_places(wanted)).roles.dcgm_exporter.state }}"
"""

RETURN = r"""
_value:
  description:
    - C(roles), by name with C(state), C(refused) and C(warning); and C(prometheus), with its C(address), C(options) and
      C(url), C(public_url), C(is_ours), C(has_monitors), C(full_name), and the errors C(several) and C(missing).
  type: dict
"""


def component_places(
    cluster: Mapping[str, Any],
    wanted: Mapping[str, Mapping[str, Any]],
    prometheus: Mapping[str, Any] | None = None,
    interval: int = EVALUATION_INTERVAL_S,
) -> dict[str, Any]:
    seen = _cluster(cluster, wanted)
    choice = Choice(seen, prometheus or {}, cluster.get("serves_monitors", True))
    return {
        "roles": {role: place(role, seen) for role in wanted},
        "prometheus": {
            "address": choice.address(),
            "options": choice.options(int(interval)),
            "url": choice.url(),
            "public_url": choice.public_url(),
            "is_ours": choice.is_ours(),
            "has_monitors": choice.has_monitors(),
            "full_name": full_name(seen.wanted["prometheus_stack"].release),
            "several": choice.several(),
            "missing": choice.missing(),
        },
    }


def _cluster(cluster: Mapping[str, Any], wanted: Mapping[str, Mapping[str, Any]]) -> Cluster:
    return Cluster(
        context=cluster.get("context", ""),
        components=cluster.get("components") or {},
        unread=cluster.get("not_looked_at") or {},
        wanted={role: _wanted(row) for role, row in wanted.items()},
        host_engine=bool(wanted["dcgm_exporter"].get("host_engine")),
        external_metrics=boolean(wanted["prometheus_adapter"].get("external_metrics", False)),
    )


def _wanted(row: Mapping[str, Any]) -> Wanted:
    names = {key: str(row[key]) for key in ("state", "namespace", "release") if row.get(key)}
    return Wanted(**names, adopt=boolean(row.get("adopt", False)), needed=boolean(row.get("needed", True)))


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"component_places": component_places}
