#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: objects
short_description: Apply all objects of a part, and delete its other objects
version_added: 0.1.0
description:
  - Applies all objects of a part, for example dashboards, with the labels
    C(app.kubernetes.io/managed-by=kubegpu.autoscale), C(app.kubernetes.io/part-of) and C(kubegpu.autoscale/inventory).
  - Lists each kind once, compares, and applies only objects that differ, with server-side apply and strict
    field validation. Objects with the labels of the part that are not in O(objects) are deleted.
  - The module fails before making changes if an object of the same name exists without the labels, or with the label of
    another inventory.
author:
  - kubegpu (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.inventory
options:
  part_of:
    description: Name of the part.
    type: str
    required: true
  kinds:
    description: All kinds of the part, including kinds that it had before.
    type: list
    elements: dict
    required: true
    suboptions:
      api_version:
        description: Group and version of the kind.
        type: str
        default: v1
      kind:
        description: Kind of the objects. It must be namespaced.
        type: str
        required: true
  objects:
    description: The objects of the part, of O(kinds), each with name and namespace. An empty list deletes all.
    type: list
    elements: dict
    default: []
  namespaces:
    description:
      - Namespaces of the part in addition to those of O(objects). Objects in other namespaces are neither listed nor
        deleted, because they can belong to another owner. An empty list adds none.
      - By default the part consists of all objects with its labels in the whole cluster.
    type: list
    elements: str
requirements:
  - kubernetes >= 30.1 (Python)
attributes:
  check_mode:
    support: full
    description: The API server validates every change in a dry run.
  diff_mode:
    support: full
    description: Shows each object before and after.
"""

EXAMPLES = r"""
- name: Apply a dashboard, and delete all others of the part
  kubegpu.autoscale.objects:
    part_of: my-dashboards
    kinds: [{kind: ConfigMap}]
    objects:
      - apiVersion: v1
        kind: ConfigMap
        metadata: {name: my-dashboard, namespace: monitoring, labels: {grafana_dashboard: "1"}}
        data:
          my-dashboard.json: "{{ lookup('ansible.builtin.file', 'my-dashboard.json') }}"

- name: Delete all dashboards of the part
  kubegpu.autoscale.objects:
    part_of: my-dashboards
    kinds: [{kind: ConfigMap}]

- name: Delete the dashboards of one team
  kubegpu.autoscale.objects:
    part_of: my-dashboards
    kinds: [{kind: ConfigMap}]
    namespaces: [search]
"""

RETURN = r"""
result:
  description: The action on each object.
  returned: always
  type: dict
  contains:
    objects:
      description: Kind, namespace, name, and V(created), V(changed), V(deleted), V(unchanged) or V(failed).
      type: list
      elements: dict
  sample:
    objects: [{kind: ConfigMap, namespace: monitoring, name: my-dashboard, action: created}]
diff:
  description: Each changed object before and after, without fields that the API server manages.
  returned: with C(--diff)
  type: list
  elements: dict
duration_s:
  description: Run time of the module in seconds.
  returned: always
  type: float
"""

from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.objects import make_objects
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import INVENTORY
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule

ARGUMENTS: dict[str, Any] = {
    "part_of": {"type": "str", "required": True},
    "kinds": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {"api_version": {"type": "str", "default": "v1"}, "kind": {"type": "str", "required": True}},
    },
    "objects": {"type": "list", "elements": "dict", "default": []},
    "namespaces": {"type": "list", "elements": "str"},
    **INVENTORY,
}


def main() -> None:
    module = GpuModule(ARGUMENTS)
    params = module.params
    with module.boundary():
        module.outcome = make_objects(
            module.kube_client(),
            params["part_of"],
            params["kinds"],
            params["objects"],
            module.inventory(),
            namespaces=params["namespaces"],
        )


if __name__ == "__main__":
    main()
