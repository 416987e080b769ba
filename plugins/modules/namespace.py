#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: namespace
short_description: Create a namespace, and delete it when it is empty
version_added: 0.1.0
description:
  - Creates a namespace with the label C(app.kubernetes.io/managed-by=kubegpu.autoscale). An existing namespace is not
    changed.
  - Deletes a namespace with that label if it is empty. Objects do not count if another object owns them, if they are
    being deleted, or if the control plane creates them in every namespace.
author:
  - kubegpu (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.inventory
options:
  state:
    description: Whether the namespace exists.
    type: str
    choices: [present, absent]
    default: present
  name:
    description: Name of the namespace.
    type: str
    required: true
  wait_timeout:
    description: Seconds to wait until it is deleted.
    type: int
    default: 120
requirements:
  - kubernetes >= 30.1 (Python)
attributes:
  check_mode:
    support: full
    description: The API server validates every change in a dry run.
  diff_mode:
    support: none
    description: The result shows whether the namespace was created or deleted.
"""

EXAMPLES = r"""
- name: Create a namespace
  kubegpu.autoscale.namespace:
    name: monitoring

- name: Delete it, if this module created it and it is empty
  kubegpu.autoscale.namespace:
    name: monitoring
    state: absent
"""

RETURN = r"""
result:
  description: The action on the namespace.
  returned: success
  type: dict
  contains:
    name: {description: Name of the namespace., type: str}
    action:
      description: V(created), V(unchanged), V(deleted), or V(kept) for a namespace that was created otherwise or is not
        empty.
      type: str
    holds: {description: Objects in a managed namespace that was kept., type: list, elements: str}
  sample:
    name: monitoring
    action: kept
    holds: [ConfigMap dashboards, Deployment grafana]
duration_s:
  description: Run time of the module in seconds.
  returned: always
  type: float
"""

from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.namespaces import (
    make_namespace,
    remove_namespace,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import INVENTORY
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule

ARGUMENTS: dict[str, Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "name": {"type": "str", "required": True},
    "wait_timeout": {"type": "int", "default": 120},
    **INVENTORY,
}


def main() -> None:
    module = GpuModule(ARGUMENTS)
    with module.boundary():
        kube, name = module.kube_client(), module.params["name"]
        if module.params["state"] == "present":
            module.outcome = make_namespace(kube, name, module.inventory())
        else:
            deadline = Deadline(module.params["wait_timeout"])
            module.outcome = remove_namespace(kube, name, module.inventory(), deadline)


if __name__ == "__main__":
    main()
