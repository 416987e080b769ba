#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_autoscaler
short_description: Scale Kubernetes workloads on the load of their GPUs
version_added: 0.1.0
description:
  - Makes a HorizontalPodAutoscaler for each workload, and the recording rules of its metrics, which all autoscalers
    share. Then it proves that the metric reaches each of them.
  - It takes a list. The module lists each kind once, compares, and sends only objects that differ, by server-side apply
    with strict field validation. A run over 1,000 autoscalers that finds nothing to do takes about a second.
  - All checks run before anything is changed. If one fails, nothing is written, and all problems are reported together.
  - The module refuses a target that does not exist or has no scale subresource.
  - It refuses a target that already has a HorizontalPodAutoscaler or a KEDA ScaledObject. It also refuses a
    HorizontalPodAutoscaler of the same name that it has not made.
  - It refuses a query that Prometheus does not accept, or that does not give one series a pod.
  - It refuses CPU and memory in O(autoscalers[].extra_metrics) where nobody serves C(metrics.k8s.io).
  - It refuses to work without Prometheus, or without a metrics API that is served by prometheus-adapter.
  - It refuses a namespace of its recording rules that is not there.
  - The module does not take over an object that somebody else has made, unless O(autoscalers[].adopt) says so. The
    manager is named.
  - Recording rules are written before the HorizontalPodAutoscalers that read them. One whose rule is refused stays as
    it is.
  - Any other failure does not stop the other objects. Each failure is named, and the task fails. The next run does the
    rest.
  - In check mode the module only warns of things that an earlier task may still bring, such as Prometheus.
author:
  - kubegpu (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.autoscalers
  - kubegpu.autoscale.prometheus
  - kubegpu.autoscale.verify
  - kubegpu.autoscale.inventory
options:
  state:
    description:
      - V(present) makes the autoscalers match.
      - V(absent) removes those of them that this module has made, and each recording rule with its last user. It needs
        no more than O(autoscalers[].name) and O(autoscalers[].namespace).
    type: str
    choices: [present, absent]
    default: present
requirements:
  - kubernetes >= 30.1 (Python)
attributes:
  check_mode:
    support: full
    description: The API server judges every change in a dry run.
  diff_mode:
    support: full
    description: Shows each object before and after.
notes:
  - Reads HorizontalPodAutoscalers and nodes of the whole cluster, and the targets and pods of the autoscalers'
    namespaces. It also reads APIServices, ScaledObjects of KEDA, PrometheusRules in the rules' namespace, and
    Prometheus. It writes HorizontalPodAutoscalers and PrometheusRules only. C(docs/rights.yml) has a ClusterRole with
    these rights.
seealso:
  - module: kubegpu.autoscale.gpu_autoscaler_info
    description: Reads them back, and proves later what was applied with C(verify=false).
  - plugin: kubegpu.autoscale.gpu_autoscaler_manifests
    plugin_type: filter
    description: The same objects as a list of manifests, without a cluster.
"""

EXAMPLES = r"""
- name: Keep the GPUs of an inference service at 60 percent
  kubegpu.autoscale.gpu_autoscaler:
    autoscalers:
      - namespace: ml
        target: {kind: Deployment, name: inference}
        max_replicas: 8

- name: Two workloads, one with a metric of its own and a slower way down
  kubegpu.autoscale.gpu_autoscaler:
    autoscalers:
      - name: chat
        namespace: ml
        target: {kind: StatefulSet, name: chat}
        metric:
          name: chat_queue
          query: max by (namespace, pod) (vllm:num_requests_waiting)
        target_value: 5
        min_replicas: 2
        max_replicas: 6
        scale_down: {stabilization_window_seconds: 600}
      - namespace: ml
        target: {name: embed}
        metric: gpu_util
        target_value: 70
        max_replicas: 4
        extra_metrics:
          - type: Resource
            resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}

- name: A model server, by its queue and its KV cache, applied now and proven by a later task
  kubegpu.autoscale.gpu_autoscaler:
    autoscalers:
      - namespace: ml
        target: {name: inference}
        metric: llm
        target_values: {llm_requests_waiting: 3, llm_kv_cache: 75}
        max_replicas: 8
    verify: false

- name: A GPU metric beside the requests per second of its ingress
  kubegpu.autoscale.gpu_autoscaler:
    autoscalers:
      - namespace: ml
        target: {name: inference}
        metric: gpu
        max_replicas: 8
        extra_metrics:
          - metric:
              name: ingress_requests
              query: rate(nginx_ingress_controller_requests{exported_namespace="ml", ingress="inference"}[1m])
              per: workload
            target_value: 50
    verify: false

- name: One that goes to all the replicas which its requests need, in one decision
  kubegpu.autoscale.gpu_autoscaler:
    autoscalers:
      - namespace: ml
        target: {name: inference}
        max_replicas: 8
        demand: {source: istio, name: inference, prior_gpu_seconds: 0.05}
    verify: false

- name: Remove one, and its recording rule if nothing else uses it
  kubegpu.autoscale.gpu_autoscaler:
    state: absent
    autoscalers:
      - {namespace: ml, name: chat}
"""

RETURN = r"""
result:
  description: The objects as they are now.
  returned: always
  type: dict
  contains:
    autoscalers:
      description: One entry for each of O(autoscalers).
      type: list
      elements: dict
      contains:
        namespace: {description: Namespace of the HorizontalPodAutoscaler., type: str}
        name: {description: Its name., type: str}
        metric: {description: The profile or metric that it scales on. Empty if it was not there., type: str}
        action:
          description: 'V(created), V(changed), V(deleted), V(unchanged) or V(failed).'
          type: str
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
        metrics:
          description:
            - The evidence for each metric. Whether the metrics API lists it, and its value by pod there and in
              Prometheus. C(age_s) is the age of the oldest of these samples in seconds.
          type: list
          elements: dict
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
        budget:
          description:
            - Seconds from a change of load to the decision, at worst and on average, and the periods behind them. The
              source of each period is V(configured), V(seen) or V(assumed). C(kept) says whether the samples are as
              fresh as that promises.
          type: dict
    behaviors:
      description:
        - The scaling rules in words, each once. They follow from C(dead_time_s), the seconds until a new pod is ready
          and seen in the metric. It is C(measured) on the pods, or assumed. Directions in C(given) are the user's own.
          With a C(demand) the way up does not follow from it.
      type: list
      elements: dict
    rules:
      description: One entry for each PrometheusRule that was looked at, with the first four keys.
      type: list
      elements: dict
  sample:
    autoscalers:
      - namespace: ml
        name: inference
        metric: gpu
        action: created
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
          - {type: ScalingActive, status: "True", reason: ValidMetricFound, message: the HPA was able to compute}
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
    rules:
      - {namespace: monitoring, name: kubegpu-gpu, metric: gpu, action: created}
diff:
  description: Before and after of each object that changes, without the fields that the server keeps for itself.
  returned: with C(--diff)
  type: list
  elements: dict
warnings:
  description: Settings that make scaling worse, and in check mode things that are missing but may still come.
  returned: when there are any
  type: list
  elements: str
duration_s:
  description: Seconds the module took.
  returned: always
  type: float
hop:
  description: The first broken hop.
  returned: failure
  type: str
  sample: scrape
fix:
  description: How to mend it.
  returned: failure
  type: str
"""

from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.reconcile import narrow_rules, reconcile, remove
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.verify import verify
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import (
    AUTOSCALERS,
    INVENTORY,
    PROMETHEUS,
    VERIFY,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import read_specs
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule

STATE = {"state": {"type": "str", "choices": ["present", "absent"], "default": "present"}}


def main() -> None:
    module = GpuModule(argument_spec={**AUTOSCALERS, **PROMETHEUS, **VERIFY, **INVENTORY, **STATE})
    params = module.params
    with module.boundary():
        if params["state"] == "absent":
            kube = module.kube_client()
            module.outcome = remove(kube, params["autoscalers"], module.rule_options())
            return
        autoscalers = read_specs(params["autoscalers"])
        kube = module.kube_client()
        prometheus = module.prometheus_client(kube)
        rules = module.rule_options()
        outcome = module.outcome = reconcile(kube, prometheus, autoscalers, rules)
        if params["verify"] and not module.check_mode and not outcome.errors:
            verify(kube, prometheus, autoscalers, Deadline(params["wait_timeout"]), outcome)
            if not outcome.errors:
                narrow_rules(kube, prometheus, autoscalers, rules, outcome)


if __name__ == "__main__":
    main()
