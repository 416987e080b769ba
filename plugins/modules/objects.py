#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

DOCUMENTATION = r"""
module: objects
short_description: Apply and delete objects that this collection manages
description:
  - Applies all objects of a part, the CRDs of a chart or a namespace, or deletes them.
  - The objects of a part, for example dashboards, get the labels
    C(app.kubernetes.io/managed-by=kubegpu.autoscale), C(app.kubernetes.io/part-of) and C(kubegpu.autoscale/inventory).
  - Lists each kind once, compares, and applies only objects that differ, with server-side apply and strict
    field validation. Objects with the labels of the part that are not in O(objects) are deleted.
  - The module fails before making changes if an object of the same name exists without the labels, or with the label of
    another inventory.
author: kubegpu (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.inventory
  - kubegpu.autoscale.private
options:
  part_of:
    description: Name of the part. Requires O(kinds).
    type: str
  kinds:
    description: All kinds of the part, including kinds that it had before.
    type: list
    elements: dict
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
  chart:
    description:
      - Folder of an unpacked chart, on the machine that runs the module. Every CustomResourceDefinition in it and its
        sub-charts is applied server-side. Helm itself installs CRDs once, and never changes or removes them.
      - An existing CRD that is not managed by this inventory is not changed.
    type: path
  crd_group:
    description:
      - API group of CRDs that this module installed, to be deleted. A CRD is kept, with a warning, while objects of
        its kind exist that are third-party or of another inventory.
    type: str
  namespace:
    description:
      - Namespace that exists, or does not. An existing namespace is not changed.
      - Only a managed namespace that is empty is deleted. Objects do not count if another object owns them, if they
        are being deleted, or if the control plane creates them in every namespace.
    type: str
  state:
    description: Whether O(namespace) exists.
    type: str
    choices: [present, absent]
    default: present
requirements:
  - kubernetes >= 30.1 (Python)
  - PyYAML
attributes:
  check_mode:
    support: full
    description: The API server validates every change in a dry run.
  diff_mode:
    support: full
    description: Shows each object of a part before and after. A CRD can have almost a megabyte of text.
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

- name: Delete the dashboards of one team
  kubegpu.autoscale.objects:
    part_of: my-dashboards
    kinds: [{kind: ConfigMap}]
    namespaces: [search]

- name: Delete the CRDs of a chart
  kubegpu.autoscale.objects:
    crd_group: monitoring.coreos.com

- name: Delete a namespace, if this module created it and it is empty
  kubegpu.autoscale.objects:
    namespace: monitoring
    state: absent
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
    crds:
      description: Name and action of each CRD, V(kept) if it was installed otherwise or is in use.
      type: list
      elements: dict
    name: {description: Name of the namespace., type: str}
    action: {description: "The same for the namespace, V(kept) if it was created otherwise or is not empty.", type: str}
    holds: {description: Objects in a managed namespace that was kept., type: list, elements: str}
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

from pathlib import Path
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.crds import apply_crds, read_crds, remove_crds
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.namespaces import (
    make_namespace,
    remove_namespace,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.objects import make_objects
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.outcome import Outcome
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import INVENTORY
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.hops import Hop
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule

ARGUMENTS: dict[str, Any] = {
    "part_of": {"type": "str"},
    "kinds": {
        "type": "list",
        "elements": "dict",
        "options": {"api_version": {"type": "str", "default": "v1"}, "kind": {"type": "str", "required": True}},
    },
    "objects": {"type": "list", "elements": "dict", "default": []},
    "namespaces": {"type": "list", "elements": "str"},
    "chart": {"type": "path"},
    "crd_group": {"type": "str"},
    "namespace": {"type": "str"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    **INVENTORY,
}
SUBJECTS = [["part_of", "chart", "crd_group", "namespace"]]
CRDS_TIMEOUT_S = 60
NAMESPACE_TIMEOUT_S = 120


def change(kube: KubeClient, params: dict[str, Any], inventory: str) -> Outcome:
    [subject] = [name for name in SUBJECTS[0] if params[name] is not None]
    if not params[subject]:
        raise HopError(Hop.SPEC, seen=f"{subject} is empty. Nothing was changed", fix=f"set {subject} to a name")
    if params["part_of"]:
        wanted = (params["part_of"], params["kinds"], params["objects"], inventory)
        return make_objects(kube, *wanted, namespaces=params["namespaces"])
    if params["chart"]:
        return apply_crds(kube, read_crds(Path(params["chart"])), inventory, Deadline(CRDS_TIMEOUT_S))
    if params["crd_group"]:
        return remove_crds(kube, params["crd_group"], inventory, Deadline(CRDS_TIMEOUT_S))
    if params["state"] == "present":
        return make_namespace(kube, params["namespace"], inventory)
    return remove_namespace(kube, params["namespace"], inventory, Deadline(NAMESPACE_TIMEOUT_S))


def main() -> None:
    module = GpuModule(
        ARGUMENTS, required_one_of=SUBJECTS, mutually_exclusive=SUBJECTS, required_by={"part_of": ["kinds"]}
    )
    with module.boundary():
        inventory = module.inventory()
        module.outcome = change(module.kube_client(), module.params, inventory)


if __name__ == "__main__":
    main()
