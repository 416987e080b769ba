#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_autoscaler_info
short_description: Read autoscalers, with the evidence that they work
version_added: 0.1.0
description:
  - Reads HorizontalPodAutoscalers with their targets, their current and desired replicas and their conditions.
  - Reads the metric of each pod in the metrics API and in Prometheus.
  - Computes the reaction time from the configured intervals.
  - With O(verify=true) it waits until each autoscaler and each of O(metrics) is proven to work, as
    M(kubegpu.autoscale.gpu_autoscaler) does, and fails otherwise. A pipeline can apply with C(verify=false) and verify
    later.
  - Changes nothing.
author:
  - kubegpu.autoscale contributors (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.cluster
  - kubegpu.autoscale.reads
  - kubegpu.autoscale.metrics
  - kubegpu.autoscale.prometheus
options:
  namespace:
    description: Namespace to read. The default is the whole cluster.
    type: str
  autoscalers:
    description:
      - Autoscalers to read, including those that M(kubegpu.autoscale.gpu_autoscaler) did not create. It can be the list
        for that module. Only names and namespaces are used.
      - The default is all autoscalers that the module created, and each HorizontalPodAutoscaler that reads a recorded
        metric. With O(metrics), the default is none.
    type: list
    elements: dict
    default: []
  verify:
    description:
      - Wait until each autoscaler is proven to work. If the time is exceeded, the module fails with the first broken
        hop, evidence, cause and fix.
      - It does not wait for an autoscaler whose target has no ready pod.
    type: bool
    default: false
  wait_timeout:
    description:
      - Seconds to wait for that. The reloader of prometheus-operator can miss a changed file, and checks every 180 s.
    type: int
    default: 300
seealso:
  - module: kubegpu.autoscale.gpu_autoscaler
  - module: kubegpu.autoscale.custom_metric_info
"""

EXAMPLES = r"""
- name: Read the autoscalers of a namespace
  kubegpu.autoscale.gpu_autoscaler_info:
    namespace: ml
  register: seen

- name: Show their metrics
  ansible.builtin.debug:
    msg: "{{ item.pod_values }} with {{ item.replicas }} replicas, reacts within {{ item.budget.worst_s }} s"
  loop: "{{ seen.result.autoscalers }}"
  loop_control: {label: "{{ item.name }}"}

- name: Verify an autoscaler
  kubegpu.autoscale.gpu_autoscaler_info:
    autoscalers:
      - {namespace: ml, name: inference}
    verify: true
"""

RETURN = r"""
result:
  description: The autoscalers.
  returned: always
  type: dict
  contains:
    autoscalers:
      description:
        - One entry for each autoscaler, as RV(kubegpu.autoscale.gpu_autoscaler#module:result.autoscalers), without
          C(action).
      type: list
      elements: dict
      contains:
        managed: {description: Whether M(kubegpu.autoscale.gpu_autoscaler) created it., type: bool}
        target: {description: The object that it scales., type: dict}
        min_replicas: {description: Minimum number of replicas., type: int}
        max_replicas: {description: Maximum number of replicas., type: int}
    recorded:
      description: The values of O(metrics), as RV(kubegpu.autoscale.gpu_autoscaler#module:result.recorded).
      returned: with O(metrics)
      type: list
      elements: dict
    behaviors:
      description: The distinct scaling rules as text, as RV(kubegpu.autoscale.gpu_autoscaler#module:result.behaviors).
      type: list
      elements: dict
  sample:
    autoscalers:
      - namespace: ml
        name: inference
        managed: true
        target: {api_version: apps/v1, kind: Deployment, name: inference}
        metric: gpu
        min_replicas: 1
        max_replicas: 8
        behavior: 0
        verified: true
        replicas: 1
        desired_replicas: 1
        pod_values: {inference-5d9c7-x2x4q: 41.5}
duration_s: {description: Run time of the module in seconds., returned: always, type: float}
hop: {description: The first broken hop., returned: failure, type: str}
fix: {description: How to fix it., returned: failure, type: str}
"""

from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.record_metrics import verify_metrics
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.show_autoscalers import show_autoscalers
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import METRICS, PROMETHEUS, VERIFY
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.recorded_metrics import read_metrics
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import read_keys
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule

WHICH = {
    "namespace": {"type": "str"},
    "autoscalers": {"type": "list", "elements": "dict", "default": []},
}
ONLY_IF_ASKED = {**VERIFY, "verify": {"type": "bool", "default": False}}


def main() -> None:
    module = GpuModule(argument_spec={**METRICS, **PROMETHEUS, **WHICH, **ONLY_IF_ASKED})
    params = module.params
    with module.boundary():
        kube, metrics, keys = (
            module.kube_client(),
            read_metrics(params["metrics"] or []),
            read_keys(params["autoscalers"]),
        )
        prometheus = module.prometheus_client(kube)
        deadline = Deadline(params["wait_timeout"]) if params["verify"] else None
        if keys or not metrics:
            module.outcome = show_autoscalers(
                kube, prometheus, namespace=params["namespace"], keys=keys, deadline=deadline
            )
        if metrics:
            verify_metrics(kube, prometheus, metrics, deadline, module.outcome)


if __name__ == "__main__":
    main()
