#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_autoscaler
short_description: Scale Kubernetes workloads on the load of their GPUs
version_added: 0.1.0
description:
  - Creates a HorizontalPodAutoscaler for each workload, and the recording rules of its metrics, which all autoscalers
    share. Then it proves that the metric reaches each HorizontalPodAutoscaler.
  - With O(metrics_backend=keda) it creates a ScaledObject, from which KEDA creates the HorizontalPodAutoscaler.
  - All checks run before making changes. If a check fails, nothing is written, and all problems are reported together.
author:
  - kubegpu.autoscale contributors (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.cluster
  - kubegpu.autoscale.autoscalers
  - kubegpu.autoscale.metrics
  - kubegpu.autoscale.prometheus
  - kubegpu.autoscale.verify
  - kubegpu.autoscale.inventory
options:
  state:
    description:
      - V(present) creates or changes the autoscalers.
      - V(absent) deletes autoscalers that this module created, and recording rules that no autoscaler uses anymore. It
        only needs O(autoscalers[].name) and O(autoscalers[].namespace). If O(metrics) is set, to any list, it deletes
        all metrics of the inventory. With O(inventory_id=default) it deletes those of the list and no other.
    type: str
    choices: [present, absent]
    default: present
  divide_gpus:
    description:
      - Lowers O(autoscalers[].max_replicas) to numbers for which the nodes have enough GPUs, even if all autoscalers
        are at their maximum at the same time.
      - Each autoscaler gets its O(autoscalers[].min_replicas), at least 1. The remaining GPUs go to the autoscalers
        with the highest O(autoscalers[].priority), up to their O(autoscalers[].max_replicas), and in turns among equal
        ones.
      - It divides the GPUs of all nodes, cordoned ones included, among O(autoscalers). Pods of other workloads and
        other HorizontalPodAutoscalers are not counted.
      - The module fails if the minima do not fit, if it cannot list the nodes, or if nodes are added on demand.
      - L(Several models,https://github.com/kubegpu/autoscale/blob/main/docs/several-models.md) compares it with other
        ways to share GPUs.
    type: bool
    default: false
  shared_rules_only:
    description:
      - Writes the recording rules of O(autoscalers) that all namespaces share, and nothing else. The targets need not
        exist.
      - For administrators of teams with the rights of one namespace, which may read these rules and not write them
        (L(rights-namespace.yml,https://github.com/kubegpu/autoscale/blob/main/docs/rights-namespace.yml)).
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: The API server validates every change in a dry run. Missing components that an earlier task may
      install, such as Prometheus, cause a warning.
  diff_mode:
    support: full
    description: Shows each object before and after.
notes:
  - The checks reject a target that does not exist, has no scale subresource, or has another HorizontalPodAutoscaler
    or ScaledObject. They reject a query that Prometheus rejects, or that does not return one series for each pod.
    They fail if a component, an API or the namespace of the recording rules is missing.
  - It does not change objects that it did not create, unless O(autoscalers[].adopt) is set. The error names their
    field manager.
  - Recording rules are written before the HorizontalPodAutoscalers that use them. If a rule is rejected, its
    HorizontalPodAutoscalers are not changed. After any other failure the module continues with the other objects,
    reports each failure, and fails. The next run applies the rest.
  - The module lists each kind once, and applies only objects that differ, with server-side apply and strict field
    validation. A run over 1,000 autoscalers without changes takes about a second.
  - Reads HorizontalPodAutoscalers and nodes of the whole cluster, and the targets and pods of the autoscalers'
    namespaces. It also reads APIServices, ScaledObjects of KEDA, PrometheusRules in the rules' namespace, and
    Prometheus. It writes HorizontalPodAutoscalers, ScaledObjects, PrometheusRules and PodMonitors only.
    L(This ClusterRole,https://github.com/kubegpu/autoscale/blob/main/docs/rights.yml) has these permissions.
seealso:
  - module: kubegpu.autoscale.gpu_autoscaler_info
    description: Reads autoscalers, and verifies those that were applied with C(verify=false).
  - plugin: kubegpu.autoscale.gpu_autoscaler_manifests
    plugin_type: filter
    description: Returns the same objects as a list of manifests, without a cluster.
  - module: kubegpu.autoscale.gpu_doctor
    description: Explains why an autoscaler does not scale.
  - name: The role gpu_autoscaling
    description: Applies the autoscalers of an inventory with this module.
    link: https://github.com/kubegpu/autoscale/blob/main/roles/gpu_autoscaling/README.md
"""

EXAMPLES = r"""
- name: Keep the GPUs of an inference service at 60 percent
  kubegpu.autoscale.gpu_autoscaler:
    autoscalers:
      - namespace: ml
        target: {kind: Deployment, name: inference}
        max_replicas: 8

- name: Scale two workloads, one with a custom metric and slower scale-down
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

- name: Scale a model server by its queue and its KV cache, and verify it in a later task
  kubegpu.autoscale.gpu_autoscaler:
    autoscalers:
      - namespace: ml
        target: {name: inference}
        metric: llm
        target_values: {llm_requests_waiting: 3, llm_kv_cache: 75}
        max_replicas: 8
    verify: false

- name: Scale on a GPU metric and on the requests per second of an ingress
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

- name: Scale to the replicas that the requests need in one decision
  kubegpu.autoscale.gpu_autoscaler:
    autoscalers:
      - namespace: ml
        target: {name: inference}
        max_replicas: 8
        demand: {source: istio, name: inference, prior_gpu_seconds: 0.05}
    verify: false

- name: Scale two workloads with KEDA, and one with prometheus-adapter
  kubegpu.autoscale.gpu_autoscaler:
    metrics_backend: keda
    autoscalers:
      - {namespace: ml, target: {name: inference}, max_replicas: 8}
      - {namespace: ml, target: {name: embed}, max_replicas: 4}
      - {namespace: ml, target: {name: rank}, max_replicas: 4, backend: adapter}

- name: Adopt a ScaledObject that another client created
  kubegpu.autoscale.gpu_autoscaler:
    metrics_backend: keda
    autoscalers:
      - {namespace: ml, name: chat, target: {name: chat}, max_replicas: 8, adopt: true}

- name: Share all GPUs between two models, and serve the first one first
  kubegpu.autoscale.gpu_autoscaler:
    divide_gpus: true
    autoscalers:
      - {namespace: ml, target: {name: inference}, min_replicas: 2, max_replicas: 8, priority: 10}
      - {namespace: ml, target: {name: embed}, max_replicas: 8}

- name: Serve the gauge of a model server to an existing HorizontalPodAutoscaler
  kubegpu.autoscale.gpu_autoscaler:
    autoscalers: []
    metrics:
      - {namespace: ml, name: queue_depth, scrape: {port: metrics}}

- name: Delete an autoscaler, and its recording rule if nothing else uses it
  kubegpu.autoscale.gpu_autoscaler:
    state: absent
    autoscalers:
      - {namespace: ml, name: chat}
"""

RETURN = r"""
result:
  description: The objects after the run.
  returned: always
  type: dict
  contains:
    autoscalers:
      description: One entry for each of O(autoscalers).
      type: list
      elements: dict
      contains:
        namespace: {description: Namespace of the HorizontalPodAutoscaler., type: str}
        name: {description: Name of the HorizontalPodAutoscaler., type: str}
        metric: {description: Profile or metric that it scales on. Empty if it did not exist., type: str}
        action:
          description: 'V(created), V(changed), V(deleted), V(unchanged) or V(failed).'
          type: str
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
        pod_values: {description: Value of the leading metric for each ready pod., type: dict}
        metrics:
          description:
            - For each metric, whether the metrics API lists it, and its value for each pod there and in Prometheus.
              C(age_s) is the age of the oldest of these samples in seconds.
          type: list
          elements: dict
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
        budget:
          description:
            - Worst-case and average seconds from a load change to the decision, and the periods that they consist of.
              The source of each period is V(configured), V(seen) or V(assumed). C(kept) shows whether the samples are
              as fresh as these periods imply.
          type: dict
    behaviors:
      description:
        - The distinct scaling rules as text. C(dead_time_s) is the seconds until a new pod is ready and visible in
          the metric, which is C(measured) on the pods, set by the user or assumed. Scaling up depends on it, except
          with a C(demand). Directions in C(given) were set by the user.
      type: list
      elements: dict
    shares:
      description:
        - With O(divide_gpus), the maximum that each autoscaler got (C(max_replicas)), and the one that it C(wanted).
          Its C(summary) is both as text.
      returned: with O(divide_gpus=true)
      type: list
      elements: dict
    rules:
      description: One entry for each PrometheusRule that was compared, with the first four keys.
      type: list
      elements: dict
    metrics:
      description:
        - The C(kind), C(namespace), C(name) and C(action) of each PrometheusRule and PodMonitor of O(metrics).
      returned: with O(metrics)
      type: list
      elements: dict
    recorded:
      description:
        - For each of O(metrics) its C(pod_values) in custom.metrics.k8s.io, and whether it is C(verified).
        - C(missing) has the pods whose value is not recorded in Prometheus or not served. C(disagreeing) has those
          whose value is not that of Prometheus.
        - C(loaded) shows whether Prometheus has the current rule. C(unscraped) has the pods that it does not scrape by
          the PodMonitor of the entry.
      returned: with O(verify=true)
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
        pod_values: {inference-5d9c7-x2x4q: 41.5}
        metrics:
          - metric: gpu
            type: Pods
            target_value: 60.0
            listed: true
            pod_values: {inference-5d9c7-x2x4q: 41.5}
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
        scale_up: the larger of 2 pods in 30 s or 67 percent in 30 s at once
        scale_down: the smaller of 1 pods in 60 s or 25 percent in 60 s after 300 s
    rules:
      - {namespace: monitoring, name: kubegpu-gpu, metric: gpu, action: created}
diff:
  description: Each changed object before and after, without fields that the API server manages.
  returned: with C(--diff)
  type: list
  elements: dict
warnings:
  description: Settings that make scaling worse, and in check mode missing components that may still be installed.
  returned: when there are any
  type: list
  elements: str
duration_s: {description: Run time of the module in seconds., returned: always, type: float}
hop:
  description: The first broken hop.
  returned: failure
  type: str
  sample: scrape
fix: {description: How to fix it., returned: failure, type: str}
"""

from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.reconcile import narrow_rules, reconcile, remove
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.record_metrics import (
    check_metrics,
    record_metrics,
    verify_metrics,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.verify import verify
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import (
    AUTOSCALERS,
    INVENTORY,
    METRICS,
    PROMETHEUS,
    VERIFY,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.recorded_metrics import read_metrics
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import read_specs
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule

STATE = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "divide_gpus": {"type": "bool", "default": False},
    "shared_rules_only": {"type": "bool", "default": False},
}


def main() -> None:
    module = GpuModule(argument_spec={**AUTOSCALERS, **METRICS, **PROMETHEUS, **VERIFY, **INVENTORY, **STATE})
    params = module.params
    with module.boundary():
        if params["state"] == "absent":
            metrics = read_metrics(params["metrics"] or [])
            kube = module.kube_client()
            outcome = module.outcome = remove(kube, params["autoscalers"], module.rule_options())
            if params["metrics"] is not None:
                record_metrics(kube, metrics, module.rule_options(), outcome, is_removal=True)
            return
        autoscalers = read_specs(params["autoscalers"], params["metrics_backend"])
        metrics = read_metrics(params["metrics"] or [], autoscalers)
        kube = module.kube_client()
        prometheus = module.prometheus_client(kube)
        rules = module.rule_options()
        how = {"divides_gpus": params["divide_gpus"], "shared_rules_only": params["shared_rules_only"]}
        warnings = check_metrics(kube, prometheus, metrics, rules)
        outcome = module.outcome = reconcile(kube, prometheus, autoscalers, rules, **how)
        outcome.warnings += warnings
        if params["metrics"] is not None and not params["shared_rules_only"]:
            record_metrics(kube, metrics, rules, outcome)
        if params["verify"] and not params["shared_rules_only"] and not module.check_mode and not outcome.errors:
            verify(kube, prometheus, autoscalers, Deadline(params["wait_timeout"]), outcome)
            verify_metrics(kube, prometheus, metrics, Deadline(params["wait_timeout"]), outcome)
            if not outcome.errors:
                narrow_rules(kube, prometheus, autoscalers, rules, outcome)


if __name__ == "__main__":
    main()
