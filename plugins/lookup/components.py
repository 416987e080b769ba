# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

DOCUMENTATION = r"""
name: components
short_description: Decide which components to install
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Reads the variables of an inventory that configure the chart roles, and the fact C(kubegpu_cluster), in which the
    roles store the result of P(kubegpu.autoscale.gpu_cluster_info#module).
  - An undefined variable has the default of its role, so that plays without the role make the same decisions.
options:
  _terms:
    description:
      - V(wanted) returns the options of each chart role that decide whether it installs its component.
      - V(places) returns what each role does, or the error with which it has to fail before a change.
      - V(prometheus) returns the Prometheus that the inventory uses.
      - V(fleet) returns the settings that depend on the number of GPU nodes and autoscalers.
      - V(hpa_sync_period) returns the default of C(kubernetes_hpa_sync_period) for a fleet of this size.
      - V(has_one_node) returns whether the inventory has only one node that takes pods. A PodDisruptionBudget would
        block its drain.
      - V(runtime_class) returns the RuntimeClass of pods that need a GPU.
      - V(operator_roles) returns the server roles that the GPU operator replaces.
    type: list
    elements: str
    choices: [wanted, places, prometheus, fleet, hpa_sync_period, has_one_node, runtime_class, operator_roles]
    required: true
"""

EXAMPLES = r"""
- name: Show whether the exporter is installed
  ansible.builtin.debug:
    msg: "{{ lookup('kubegpu.autoscale.components', 'places').dcgm_exporter.state }}"
"""

RETURN = r"""
_raw:
  description:
    - V(wanted) has C(state), C(namespace), C(release) and C(adopt) by role, and also C(needed) for roles that C(auto)
      installs only if they are needed.
    - V(places) has C(state), C(refused) and C(warning) by role.
    - V(prometheus) has C(address), C(options), C(url), C(public_url), C(is_ours), C(has_monitors), C(full_name), and
      the errors C(several) and C(missing).
    - V(fleet) has C(workers) of the HPA controller, C(requests) per second, and C(memory_mib) and C(millicores) that
      Prometheus requests. Its periods are in seconds, C(interval) of scrapes and rule evaluations, C(sync) of HPAs, and
      C(relist) of the adapter. C(rollout) is how many seconds to wait for one pod on each node.
    - V(hpa_sync_period) is a number of seconds.
    - V(has_one_node) is a boolean.
    - V(runtime_class) is a name, empty if NVIDIA's runtime is the default of the nodes.
    - V(operator_roles) is a list of names.
  type: list
  elements: raw
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.lookup import LookupBase
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.decisions import BOOLEANS, PARTS


class LookupModule(LookupBase):
    """Returns one part of the decisions for each term."""

    def run(self, terms: list[Any], variables: Mapping[str, Any] | None = None, **kwargs: Any) -> list[Any]:
        unknown = [str(term) for term in terms if term not in PARTS]
        if unknown:
            raise AnsibleLookupError(
                f"components: unknown part {', '.join(unknown)}. Next: name one or more of {', '.join(PARTS)}."
            )
        return [self._decided(term, variables or {}) for term in terms]

    def _decided(self, part: str, variables: Mapping[str, Any]) -> Any:
        given = {name: variables[name] for name in PARTS[part].reads if name in variables}
        values = dict(self._templar.template(given))
        values |= {name: boolean(values[name]) for name in BOOLEANS if values.get(name, "") != ""}
        try:
            return PARTS[part].decide(values)
        except ValueError as err:
            raise AnsibleLookupError(str(err)) from err
