#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_autoscaler
short_description: Scale Kubernetes workloads on the load of their GPUs
version_added: 0.1.0
description:
  - Makes the recording rule of each metric, shared by all autoscalers that use it, and a HorizontalPodAutoscaler for
    each workload, then proves that the metric reaches it.
  - Objects are written by server-side apply with strict field validation. A field that somebody else manages is not
    taken over, and the manager is named.
  - Nothing is changed if there is reason to refuse, which is a target that does not exist or has no scale
    subresource, a second HorizontalPodAutoscaler on the same target, one of the same name that was not made by this
    module, a query that Prometheus does not accept, no Prometheus, or a custom.metrics.k8s.io that is not served by
    prometheus-adapter.
  - In check mode what an earlier task may still bring, such as Prometheus or the target, is only warned of.
author:
  - kubegpu (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.autoscalers
  - kubegpu.autoscale.prometheus
  - kubegpu.autoscale.verify
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
  - kubernetes >= 24.2.0 (Python)
attributes:
  check_mode:
    support: full
    description: The API server judges every change in a dry run.
  diff_mode:
    support: full
    description: Shows each object before and after.
seealso:
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

- name: Remove one, and its recording rule if nothing else uses it
  kubegpu.autoscale.gpu_autoscaler:
    state: absent
    autoscalers:
      - {namespace: ml, name: chat}
"""

RETURN = r"""
result:
  description: What there is now.
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
        metric: {description: The metric it scales on. Not for one that was not there to be removed., type: str}
        action: {description: 'V(created), V(changed), V(deleted) or V(unchanged).', type: str}
        replicas: {description: Replicas of the target when it was verified., type: int}
        values: {description: The metric by ready pod when it was verified., type: dict}
    rules:
      description: One entry for each PrometheusRule that was looked at, with the same keys but the last two.
      type: list
      elements: dict
  sample:
    autoscalers:
      - namespace: ml
        name: inference
        metric: gpu
        action: created
        replicas: 1
        values: {inference-5d9c7-x2x4q: 41.5}
    rules:
      - {namespace: monitoring, name: kubegpu-gpu, metric: gpu, action: created}
diff:
  description: Before and after of each object that changes, without what the server keeps for itself.
  returned: always
  type: list
  elements: dict
warnings:
  description: What makes scaling worse, and what is missing but may still come in check mode.
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
  sample: exporter -> Prometheus
fix:
  description: What mends it.
  returned: failure
  type: str
"""

from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import AUTOSCALERS, PROMETHEUS, VERIFY
from ansible_collections.kubegpu.autoscale.plugins.module_utils.domain import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.flows import (
    Deadline,
    PrometheusAdapter,
    reconcile,
    remove,
    verify,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule

STATE = {"state": {"type": "str", "choices": ["present", "absent"], "default": "present"}}


def main() -> None:
    module = GpuModule(argument_spec={**AUTOSCALERS, **PROMETHEUS, **VERIFY, **STATE})
    params = module.params
    with module.boundary():
        if params["state"] == "absent":
            kube = module.kube_client()
            module.outcome = remove(kube, PrometheusAdapter(kube), params["autoscalers"], module.rule_options())
            return
        autoscalers = [Autoscaler.from_params(each) for each in params["autoscalers"]]
        kube = module.kube_client()
        prometheus, backend = module.prometheus_client(kube), PrometheusAdapter(kube)
        outcome = module.outcome = reconcile(kube, prometheus, backend, autoscalers, module.rule_options())
        if params["verify"] and not module.check_mode and not outcome.errors:
            verify(kube, prometheus, backend, autoscalers, Deadline(params["wait_timeout"]), outcome)


if __name__ == "__main__":
    main()
