#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: custom_metric_info
short_description: Query the metrics APIs as the HorizontalPodAutoscaler controller does
version_added: 0.1.0
description:
  - Returns the values that a HorizontalPodAutoscaler would use, from C(custom.metrics.k8s.io) or
    C(external.metrics.k8s.io). It uses the API version and the paths of the controller.
  - Without O(until) it queries once. A missing API, metric or value is not a failure. RV(result.samples) is then empty,
    and RV(result.hop), RV(result.seen) and RV(result.fix) explain what is missing.
  - With O(until) it queries until the condition is true, also while an adapter restarts or has not listed a new metric
    yet. After O(wait_timeout) the module fails with the last response and the first broken hop.
  - It fails immediately if a permission is missing, which it names, or if the API rejects the request, for example
    because of a selector.
  - It needs permission to read the metric. O(target) also needs C(get) on the scale subresource and C(list) on pods.
    With permission to read APIServices, it also reports which server provides the API, and why it is unavailable.
author:
  - kubegpu.autoscale contributors (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.cluster
options:
  api:
    description:
      - V(custom) serves metrics of Kubernetes objects, such as pods.
      - V(external) serves metrics without an object, such as the length of a queue. KEDA uses this API.
    type: str
    choices: [custom, external]
    default: custom
  metric:
    description:
      - Name of the metric. A profile of M(kubegpu.autoscale.gpu_autoscaler), for example V(gpu), has the same name as
        its metric.
      - The name of an external metric is converted to lower case, as in the controller.
    type: str
    required: true
  namespace:
    description:
      - Namespace of the objects, or of the external metric.
      - Omit it for cluster-scoped objects, such as nodes.
    type: str
  resource:
    description:
      - Resource of the objects as plural, with its group after a dot if it has one, as in V(deployments.apps).
      - V(namespaces) queries a metric of the namespace O(name) itself.
    type: str
    default: pods
  name:
    description: Name of an object, or V(*) for all objects that O(label_selectors) select.
    type: str
    default: '*'
  label_selectors:
    description:
      - Label selectors for the objects, all of which must match.
      - For O(api=external), which has no objects, it is the same as O(metric_label_selectors).
    type: list
    elements: str
    default: []
  metric_label_selectors:
    description:
      - Label selectors for the metric's series, all of which must match. A HorizontalPodAutoscaler has them in
        C(metric.selector).
    type: list
    elements: str
    default: []
  target:
    description:
      - Queries the pods of a workload by the selector in its scale subresource, as a HorizontalPodAutoscaler does.
        Requires O(namespace).
      - RV(result.missing) then lists its ready pods without a value.
    type: dict
    suboptions:
      kind:
        description: Kind of the workload, which must have a scale subresource.
        type: str
        default: Deployment
      name:
        description: Name of the workload.
        type: str
        required: true
      api_version:
        description:
          - API version of the kind.
          - It is optional for V(Deployment), V(StatefulSet), V(ReplicaSet), V(Rollout) and V(LeaderWorkerSet).
        type: str
  until:
    description:
      - JMESPath expression to wait for. Its input is the module's result, so paths begin with C(result). The same
        expression works with P(community.general.json_query#filter) on the registered variable.
      - The condition is true unless the expression returns false, null or an empty value. The number 0 is not empty.
      - Put literals in backticks. A comparison with a missing value is null, so V(max(result.samples[].value\) < `90`)
        is not true without values.
      - V(!) binds tighter than a dot. Write V(!(result.missing\)), or V(length(result.missing\) == `0`).
      - An invalid expression fails before the first query.
    type: str
  wait_timeout:
    description: Seconds to wait for O(until). A running query is completed.
    type: int
    default: 60
  wait_sleep:
    description: Seconds between two queries while waiting for O(until).
    type: int
    default: 2
requirements:
  - jmespath (Python), for O(until)
attributes:
  check_mode:
    support: partial
    description: Runs in check mode, and returns the same as otherwise.
    details:
      - The module changes nothing. In check mode it queries once, and warns if O(until) is not true yet, because
        objects of earlier tasks do not exist.
  diff_mode:
    support: none
    description: The module changes nothing, so it returns no diff.
seealso:
  - module: kubegpu.autoscale.gpu_autoscaler
  - name: JMESPath
    description: The language of O(until).
    link: https://jmespath.org
"""

EXAMPLES = r"""
- name: Read the GPU load of each pod of a Deployment, as its HorizontalPodAutoscaler does
  kubegpu.autoscale.custom_metric_info:
    metric: gpu
    namespace: ml
    target: {name: inference}
  register: gpu

- name: Show the values
  ansible.builtin.debug:
    msg: "{{ gpu.result.samples | items2dict(key_name='name', value_name='value') }}"

- name: Show what is missing
  ansible.builtin.debug:
    msg: "{{ gpu.result.hop }}: {{ gpu.result.seen }}. {{ gpu.result.fix }}"
  when: gpu.result.hop is not none

- name: Wait until each ready pod has a value
  kubegpu.autoscale.custom_metric_info:
    metric: gpu
    namespace: ml
    target: {kind: Deployment, name: inference}
    until: result.samples && length(result.missing) == `0`

- name: Wait up to five minutes until every pod is below 90 percent
  kubegpu.autoscale.custom_metric_info:
    metric: gpu
    namespace: ml
    target: {name: inference}
    until: length(result.missing) == `0` && max(result.samples[].value) < `90`
    wait_timeout: 300

- name: Select pods by labels
  kubegpu.autoscale.custom_metric_info:
    metric: gpu
    namespace: ml
    label_selectors:
      - app = inference
      - track notin (canary)

- name: Read a metric of the namespace itself
  kubegpu.autoscale.custom_metric_info:
    metric: gpu
    resource: namespaces
    name: ml

- name: Read a metric of all nodes
  kubegpu.autoscale.custom_metric_info:
    metric: node_load
    resource: nodes

- name: Read the length of a queue from KEDA
  kubegpu.autoscale.custom_metric_info:
    api: external
    metric: s0-rabbitmq-jobs
    namespace: ml
    metric_label_selectors:
      - scaledobject.keda.sh/name = inference
"""

RETURN = r"""
result:
  description: The last response. Empty if nothing was queried.
  returned: always
  type: dict
  contains:
    api: {description: 'V(custom) or V(external).', type: str}
    metric: {description: Name of the metric., type: str}
    namespace: {description: "Namespace of the query, or null.", type: str}
    samples:
      description: The values with their objects.
      type: list
      elements: dict
      contains:
        kind: {description: Kind of the object. Empty for an external metric., type: str}
        namespace: {description: Namespace of the object. Empty for a cluster-scoped object., type: str}
        name: {description: Name of the object. Empty for an external metric., type: str}
        value: {description: "The value as a number, for example 19.6 for C(19600m) in the API.", type: float}
        timestamp: {description: Time of the value. With prometheus-adapter it is the time of the query., type: str}
        labels: {description: Labels of the series of an external metric., type: dict}
    listed:
      description: Whether the API lists the metric. KEDA does not list its metrics.
      type: bool
    missing:
      description: Ready pods of O(target) without a value. Empty without O(target).
      type: list
      elements: str
    hop:
      description:
        - The first broken hop. Null if all queried objects have a value.
        - V(workload), V(metrics_api), V(metric) or V(API server).
      type: str
    seen: {description: Evidence at that hop. Null if no hop is broken., type: str}
    fix: {description: How to fix it. Null if no hop is broken., type: str}
  sample:
    api: custom
    metric: gpu
    namespace: ml
    samples:
      - kind: Pod
        namespace: ml
        name: inference-5d9c7-x2x4q
        value: 41.5
        timestamp: '2026-01-01T12:00:00Z'
        labels: {}
    listed: true
    missing: []
    hop: null
    seen: null
    fix: null
duration_s: {description: Run time of the module in seconds., returned: always, type: float}
hop:
  description:
    - The first broken hop, as in RV(result.hop), or V(condition) if only O(until) is not true.
    - V(query) or V(until) if options are contradictory or O(until) is not valid JMESPath.
  returned: failure
  type: str
  sample: condition
fix: {description: How to fix it., returned: failure, type: str}
"""

from importlib.util import find_spec
from typing import Any

from ansible.module_utils.basic import missing_required_lib
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.condition import Condition
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.metric_query import MetricQuery
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.outcome import Outcome
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.read_metric import (
    metric_condition,
    read_metric,
    read_metric_until,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule

ARGUMENTS: dict[str, Any] = {
    "api": {"type": "str", "choices": ["custom", "external"], "default": "custom"},
    "metric": {"type": "str", "required": True},
    "namespace": {"type": "str"},
    "resource": {"type": "str", "default": "pods"},
    "name": {"type": "str", "default": "*"},
    "label_selectors": {"type": "list", "elements": "str", "default": []},
    "metric_label_selectors": {"type": "list", "elements": "str", "default": []},
    "target": {
        "type": "dict",
        "options": {
            "kind": {"type": "str", "default": "Deployment"},
            "name": {"type": "str", "required": True},
            "api_version": {"type": "str"},
        },
    },
    "until": {"type": "str"},
    "wait_timeout": {"type": "int", "default": 60},
    "wait_sleep": {"type": "int", "default": 2},
}
RULES: dict[str, Any] = {
    "mutually_exclusive": [("target", "name"), ("target", "label_selectors")],
    "required_by": {"target": "namespace"},
    "required_if": [("api", "external", ["namespace"])],
}


def condition(until: str) -> Condition:
    if find_spec("jmespath") is None:
        raise HopError("until", seen=missing_required_lib("jmespath", reason="for until"), fix="pip install jmespath")
    return metric_condition(until)


def main() -> None:
    module = GpuModule(ARGUMENTS, **RULES)
    params = module.params
    with module.boundary():
        query = MetricQuery.from_params(params)
        if params["until"] is None:
            result, _broken = read_metric(module.kube_client(), query)
            module.outcome = Outcome(result=result)
            return
        awaited = condition(params["until"])
        deadline = Deadline(0 if module.check_mode else params["wait_timeout"])
        result, broken = read_metric_until(module.kube_client(), query, awaited, deadline, poll_s=params["wait_sleep"])
        module.outcome = Outcome(result=result)
        if broken and not module.check_mode:
            raise broken
        module.outcome.warnings += [str(broken)] if broken else []


if __name__ == "__main__":
    main()
