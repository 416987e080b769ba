#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: namespace
short_description: Make a namespace, and remove it once nothing is left in it
version_added: 0.1.0
description:
  - Makes a namespace and marks it with the label C(app.kubernetes.io/managed-by=kubegpu.autoscale). One that is there
    is left as it is.
  - Removes a namespace with that label as soon as nothing of any kind is in it. Objects do not count that belong to
    another object or are being deleted. Nor do those that the control plane makes in every namespace.
author:
  - kubegpu (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.inventory
options:
  state:
    description: Whether the namespace is to be there.
    type: str
    choices: [present, absent]
    default: present
  name:
    description: Name of the namespace.
    type: str
    required: true
  wait_timeout:
    description: Seconds to wait until it is gone.
    type: int
    default: 120
requirements:
  - kubernetes >= 30.1 (Python)
attributes:
  check_mode:
    support: full
    description: The API server judges every change in a dry run.
  diff_mode:
    support: none
    description: A namespace is there or it is not.
"""

EXAMPLES = r"""
- name: Make a namespace
  kubegpu.autoscale.namespace:
    name: monitoring

- name: Remove it, if this module made it and nothing is in it
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
      description: V(created), V(unchanged), V(deleted), or V(kept) for one that others made or use.
      type: str
    holds: {description: Objects in a namespace of ours that was kept., type: list, elements: str}
  sample:
    name: monitoring
    action: kept
    holds: [ConfigMap dashboards, Deployment grafana]
duration_s:
  description: Seconds the module took.
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
