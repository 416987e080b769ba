#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_autoscaler_info
short_description: Read autoscalers back, with the evidence that they work
version_added: 0.2.0
description:
  - Reads HorizontalPodAutoscalers with their targets, their current and desired replicas and their conditions.
  - For each pod it reads the metric in the metrics API and in Prometheus.
  - The time to react follows from the intervals that are really configured.
  - With O(verify=true) it waits until each of them is proven to work, as M(kubegpu.autoscale.gpu_autoscaler) does, and
    fails otherwise. A pipeline that applies with C(verify=false) proves it so later.
  - Changes nothing.
author:
  - kubegpu (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.prometheus
options:
  namespace:
    description:
      - Namespace to look in. The whole cluster if not given.
    type: str
  autoscalers:
    description:
      - Those to read, also ones that M(kubegpu.autoscale.gpu_autoscaler) has not made. It may be the list that was
        given to that module; only names and namespaces count.
      - All that the module has made, if not given.
    type: list
    elements: dict
    default: []
  verify:
    description:
      - Wait until each autoscaler is proven to work. If the proof is not there in time, the module fails and names the
        first broken hop. Evidence, cause and fix are in the message.
      - An autoscaler whose target has no ready pod is not waited for.
    type: bool
    default: false
  wait_timeout:
    description:
      - Seconds to wait for that. The reloader of prometheus-operator may miss a changed file, and looks anew every 180.
    type: int
    default: 300
requirements:
  - kubernetes >= 30.1 (Python)
attributes:
  check_mode:
    support: full
    description: Nothing is changed in any mode.
  diff_mode:
    support: none
    description: There is nothing to show.
seealso:
  - module: kubegpu.autoscale.gpu_autoscaler
  - module: kubegpu.autoscale.custom_metric_info
"""

EXAMPLES = r"""
- name: Read all autoscalers of a namespace
  kubegpu.autoscale.gpu_autoscaler_info:
    namespace: ml
  register: seen

- name: Show what each of them follows
  ansible.builtin.debug:
    msg: "{{ item['values'] }} with {{ item.replicas }} replicas, reacts within {{ item.budget.worst_s }} s"
  loop: "{{ seen.result.autoscalers }}"
  loop_control: {label: "{{ item.name }}"}

- name: Prove that one works
  kubegpu.autoscale.gpu_autoscaler_info:
    autoscalers:
      - {namespace: ml, name: inference}
    verify: true
"""

RETURN = r"""
result:
  description: The autoscalers as they are.
  returned: always
  type: dict
  contains:
    autoscalers:
      description: One entry for each.
      type: list
      elements: dict
      contains:
        namespace: {description: Its namespace., type: str}
        name: {description: Its name., type: str}
        managed: {description: Whether M(kubegpu.autoscale.gpu_autoscaler) has made it., type: bool}
        target: {description: The object that it scales., type: dict}
        metric: {description: The profile or metric that it scales on., type: str}
        min_replicas: {description: Fewest replicas., type: int}
        max_replicas: {description: Most replicas., type: int}
        behavior: {description: Place of its scaling rules in RV(result.behaviors)., type: int}
        verified: {description: Whether each hop is proven., type: bool}
        replicas: {description: Replicas that the target is to have., type: int}
        desired_replicas: {description: Replicas that the HPA wants., type: int}
        ready_pods: {description: Names of the target's ready pods., type: list, elements: str}
        dead_times:
          description:
            - Seconds by ready pod, from its scheduling until it was ready and its value could be seen. It is null for a
              pod that was restarted. What makes pods start faster makes these smaller.
          type: dict
        values: {description: The leading metric by ready pod., type: dict}
        metrics: {description: The evidence for each metric., type: list, elements: dict}
        revisions:
          description: The pods of an Argo Rollout's V(stable) version and of its V(canary) or V(preview).
          type: dict
        demand:
          description:
            - With a demand, whether the HPA follows it (C(in_force)) or what the GPUs do, and the C(percent) of a GPU.
              Then the requests offered a second, and the GPU seconds of a request. These are
              C(learned) now, C(held) from before, the C(prior), or C(none).
          type: dict
        conditions: {description: The conditions of the HPA., type: list, elements: dict}
        budget: {description: The time to react in seconds and what it consists of., type: dict}
    behaviors:
      description:
        - The scaling rules in words, each once. They follow from C(dead_time_s), the seconds until a new pod is ready
          and seen in the metric. It is C(measured) on the pods, or assumed. Directions in C(given) are the user's own.
          With a C(demand) the way up does not follow from it.
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
  description: Seconds the module took.
  returned: always
  type: float
hop:
  description: The first broken hop.
  returned: failure
  type: str
fix:
  description: How to mend it.
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
