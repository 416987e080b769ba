#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: objects
short_description: Make all objects of one part match, and remove what it has besides
version_added: 0.1.0
description:
  - Takes all objects of a part, dashboards for instance, and marks each with the labels
    C(app.kubernetes.io/managed-by=kubegpu.autoscale), C(app.kubernetes.io/part-of) and C(kubegpu.autoscale/inventory).
  - Lists each kind once, compares, and sends only objects that differ, by server-side apply with strict field
    validation. What carries the labels of the part and is not in O(objects) is removed.
  - An object of the same name without the labels belongs to somebody else. One with the label of another inventory
    belongs to that one. The module fails before it changes anything.
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
    description: All kinds that the part has, or had before.
    type: list
    elements: dict
    required: true
    suboptions:
      api_version:
        description: Group and version of the kind.
        type: str
        default: v1
      kind:
        description: Kind of the objects. They are in a namespace.
        type: str
        required: true
  objects:
    description: The objects as they are to be, of O(kinds), each with name and namespace. An empty list removes all.
    type: list
    elements: dict
    default: []
  namespaces:
    description:
      - Where the part is, beside the namespaces of O(objects). Its objects in other namespaces stay, for those of
        another owner may have its name. No other namespace is listed. An empty list adds none.
      - Without it, the part is all that carries its labels in the whole cluster.
    type: list
    elements: str
requirements:
  - kubernetes >= 30.1 (Python)
attributes:
  check_mode:
    support: full
    description: The API server judges every change in a dry run.
  diff_mode:
    support: full
    description: Shows each object before and after.
"""

EXAMPLES = r"""
- name: Have one dashboard, and no other one of ours
  kubegpu.autoscale.objects:
    part_of: my-dashboards
    kinds: [{kind: ConfigMap}]
    objects:
      - apiVersion: v1
        kind: ConfigMap
        metadata: {name: my-dashboard, namespace: monitoring, labels: {grafana_dashboard: "1"}}
        data:
          my-dashboard.json: "{{ lookup('ansible.builtin.file', 'my-dashboard.json') }}"

- name: Remove them all
  kubegpu.autoscale.objects:
    part_of: my-dashboards
    kinds: [{kind: ConfigMap}]

- name: Remove those of one team
  kubegpu.autoscale.objects:
    part_of: my-dashboards
    kinds: [{kind: ConfigMap}]
    namespaces: [search]
"""

RETURN = r"""
result:
  description: What became of each object.
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
  description: Before and after of each object that changes, without the fields that the server keeps for itself.
  returned: with C(--diff)
  type: list
  elements: dict
duration_s:
  description: Seconds the module took.
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
