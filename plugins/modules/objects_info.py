#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

DOCUMENTATION = r"""
module: objects_info
short_description: Read several kinds of objects at once, and wait until they are ready
description:
  - Reads several kinds of objects in one call, like M(kubernetes.core.k8s_info).
  - Can wait until objects are ready. A Deployment and a StatefulSet are ready when all their replicas are updated and
    available. A DaemonSet is ready when each of its nodes has an updated and ready pod. A Job is ready when it has
    succeeded. Any other object is ready when its condition V(Available) or V(Ready) is true for its generation.
author: kubegpu (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.private
  - kubegpu.autoscale.reads
options:
  objects:
    description: Objects to read. A missing object, and a kind that is not served, result in an empty list.
    type: list
    elements: dict
    required: true
    suboptions:
      api_version:
        description: Group and version of the kind.
        type: str
        default: v1
      kind:
        description: Kind of the objects.
        type: str
        required: true
      namespace:
        description: Namespace to read. The default is all namespaces.
        type: str
      name:
        description: Name of a single object to read.
        type: str
      label_selectors:
        description: Labels of the objects, each as C(name=value).
        type: list
        elements: str
        default: []
      wait:
        description: Wait until at least one object exists and all are ready.
        type: bool
        default: false
  wait_timeout:
    description: Seconds to wait until all objects are ready.
    type: int
    default: 120
requirements:
  - kubernetes >= 30.1 (Python)
"""

EXAMPLES = r"""
- name: Wait until the exporter and Prometheus are ready
  kubegpu.autoscale.objects_info:
    objects:
      - {api_version: apps/v1, kind: DaemonSet, namespace: monitoring, name: dcgm-exporter, wait: true}
      - {api_version: monitoring.coreos.com/v1, kind: Prometheus, namespace: monitoring, wait: true}
      - {kind: Node, label_selectors: [nvidia.com/gpu.present=true]}
    wait_timeout: 300
  register: seen
"""

RETURN = r"""
result:
  description: The objects. Also returned if the module fails.
  returned: always
  type: dict
  contains:
    objects: {description: A list of objects for each entry of O(objects)., type: list, elements: list}
    not_ready: {description: "Objects that are not ready, with the reason.", type: list, elements: str}
  sample:
    objects: [[], [], [{kind: Node, metadata: {name: gpu1}}]]
    not_ready: [Deployment monitoring/prometheus-adapter has 1 of 2 replicas available]
"""

from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.ready_objects import read_objects
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule

ARGUMENTS: dict[str, Any] = {
    "objects": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "api_version": {"type": "str", "default": "v1"},
            "kind": {"type": "str", "required": True},
            "namespace": {"type": "str"},
            "name": {"type": "str"},
            "label_selectors": {"type": "list", "elements": "str", "default": []},
            "wait": {"type": "bool", "default": False},
        },
    },
    "wait_timeout": {"type": "int", "default": 120},
}


def main() -> None:
    module = GpuModule(ARGUMENTS)
    wait_s = module.params["wait_timeout"]
    with module.boundary():
        read_objects(module.kube_client, module.params["objects"], wait_s, Deadline(wait_s), module.outcome)


if __name__ == "__main__":
    main()
