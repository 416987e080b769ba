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
  - With O(verify=true) it waits until each autoscaler is proven to work, as M(kubegpu.autoscale.gpu_autoscaler) does,
    and fails otherwise. A pipeline can apply with C(verify=false) and verify later.
  - Changes nothing.
author:
  - kubegpu.autoscale contributors (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.cluster
  - kubegpu.autoscale.cluster.reads
  - kubegpu.autoscale.prometheus
options:
  namespace:
    description:
      - Namespace to read. The default is the whole cluster.
    type: str
  autoscalers:
    description:
      - Autoscalers to read, including those that M(kubegpu.autoscale.gpu_autoscaler) did not create. It can be the list
        for that module. Only names and namespaces are used.
      - The default is all autoscalers that the module created.
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
    msg: "{{ item['values'] }} with {{ item.replicas }} replicas, reacts within {{ item.budget.worst_s }} s"
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
      description: One entry for each autoscaler.
      type: list
      elements: dict
      contains:
        namespace: {description: Namespace of the autoscaler., type: str}
        name: {description: Name of the autoscaler., type: str}
        managed: {description: Whether M(kubegpu.autoscale.gpu_autoscaler) created it., type: bool}
        target: {description: The object that it scales., type: dict}
        metric: {description: The profile or metric that it scales on., type: str}
        min_replicas: {description: Minimum number of replicas., type: int}
        max_replicas: {description: Maximum number of replicas., type: int}
        behavior: {description: Index of its scaling rules in RV(result.behaviors)., type: int}
        verified: {description: Whether each hop is proven., type: bool}
        replicas: {description: Replicas of the target's C(spec)., type: int}
        desired_replicas: {description: Replicas that the HPA wants., type: int}
        ready_pods: {description: Names of the target's ready pods., type: list, elements: str}
        dead_times:
          description:
            - Seconds for each ready pod, from its scheduling until it was ready and its value was visible. It is null
              for a restarted pod. Everything that makes pods start faster reduces it.
          type: dict
        values: {description: Value of the leading metric for each ready pod., type: dict}
        metrics: {description: The evidence for each metric., type: list, elements: dict}
        revisions:
          description: Pods of an Argo Rollout's V(stable) version and of its V(canary) or V(preview).
          type: dict
        demand:
          description:
            - With a demand, whether the HPA follows it (C(in_force)) or the load of the GPUs, and the C(percent) of a
              GPU. Also the offered requests per second, and the GPU seconds of a request, which are currently
              C(learned), C(held) from earlier, the C(prior), or C(none).
          type: dict
        conditions: {description: The conditions of the HPA., type: list, elements: dict}
        budget: {description: The reaction time in seconds and its parts., type: dict}
    behaviors:
      description:
        - The distinct scaling rules as text. They are computed from C(dead_time_s), the seconds until a new pod is
          ready and visible in the metric, which is C(measured) on the pods or assumed. Directions in C(given) were set
          by the user. With a C(demand), scaling up does not depend on it.
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
        ready_pods: [inference-5d9c7-x2x4q]
        dead_times: {inference-5d9c7-x2x4q: 16.0}
        values: {inference-5d9c7-x2x4q: 41.5}
        metrics:
          - metric: gpu
            type: Pods
            target_value: 60.0
            listed: true
            values: {inference-5d9c7-x2x4q: 41.5}
            prometheus: {inference-5d9c7-x2x4q: 41.5}
            age_s: 1.2
        conditions:
          - type: ScalingActive
            status: "True"
            reason: ValidMetricFound
            message: the HPA was able to successfully calculate a replica count from pods metric gpu
        budget:
          collect_s: 1.0
          scrape_s: 2.0
          evaluate_s: 2.0
          sync_s: 5.0
          worst_s: 10.0
          mean_s: 5.0
          sources: {collect: configured, scrape: seen, evaluate: configured, sync: configured}
          seen_age_s: 1.2
          kept: true
    behaviors:
      - dead_time_s: 30
        measured: true
        demand: false
        given: []
        scale_up: the larger of 2 pods in 30 s or 50 percent in 30 s at once
        scale_down: the smaller of 1 pods in 60 s or 25 percent in 60 s after 300 s
duration_s:
  description: Run time of the module in seconds.
  returned: always
  type: float
hop:
  description: The first broken hop.
  returned: failure
  type: str
fix:
  description: How to fix it.
  returned: failure
  type: str
"""

from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.show_autoscalers import show_autoscalers
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import PROMETHEUS, VERIFY
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import read_keys
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule

WHICH = {
    "namespace": {"type": "str"},
    "autoscalers": {"type": "list", "elements": "dict", "default": []},
}
ONLY_IF_ASKED = {**VERIFY, "verify": {"type": "bool", "default": False}}


def main() -> None:
    module = GpuModule(argument_spec={**PROMETHEUS, **WHICH, **ONLY_IF_ASKED})
    params = module.params
    with module.boundary():
        kube = module.kube_client()
        module.outcome = show_autoscalers(
            kube,
            module.prometheus_client(kube),
            namespace=params["namespace"],
            keys=read_keys(params["autoscalers"]),
            deadline=Deadline(params["wait_timeout"]) if params["verify"] else None,
        )


if __name__ == "__main__":
    main()
