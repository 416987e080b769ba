#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: custom_metric_info
short_description: Ask the metric APIs as the HorizontalPodAutoscaler controller does
version_added: 0.2.0
description:
  - Gives the values that a HorizontalPodAutoscaler would act on, from C(custom.metrics.k8s.io) or
    C(external.metrics.k8s.io). It asks for the version and the paths that the controller asks for.
  - Without O(until) it looks once. A missing API, metric or value is an answer and not a failure. RV(result.items) is
    empty then, and RV(result.hop), RV(result.seen) and RV(result.fix) say what is missing.
  - With O(until) it looks until the condition holds. It waits while an adapter restarts, or has not listed a new metric
    yet. When the time is over the module fails, with the last answer and the first broken hop.
  - It fails at once if a right is missing, which it names. It also fails if the API objects to the question, to a
    selector for instance.
  - It needs the right to read the metric. O(target) also needs C(get) on the scale subresource and C(list) on pods.
    If it may read APIServices as well, it can say who serves the API, and why that is not available.
author:
  - kubegpu (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
options:
  api:
    description:
      - V(custom) has metrics of the cluster's objects, such as pods.
      - V(external) has metrics that belong to no object, such as the length of a queue. KEDA serves its metrics there.
    type: str
    choices: [custom, external]
    default: custom
  metric:
    description:
      - Name of the metric. That of a profile of M(kubegpu.autoscale.gpu_autoscaler), V(gpu) for instance, is the name
        of its metric as well.
      - An external metric is asked for in lower case, as by the controller.
    type: str
    required: true
  namespace:
    description:
      - Namespace of the objects, or of the external metric.
      - Left out for objects outside of namespaces, such as nodes.
    type: str
  resource:
    description:
      - Kind of the objects, in plural and with its group, if it has one, behind a dot, as in V(deployments.apps).
      - V(namespaces) asks for a metric of a namespace itself, which O(name) names.
    type: str
    default: pods
  name:
    description:
      - One object, or V(*) for all that O(label_selectors) select.
    type: str
    default: '*'
  label_selectors:
    description:
      - Labels of the objects, of which all have to match.
      - For O(api=external), where there are no objects, the same as O(metric_label_selectors).
    type: list
    elements: str
    default: []
  metric_label_selectors:
    description:
      - Labels of the metric's series, of which all have to match. It is what a HorizontalPodAutoscaler has in
        C(metric.selector).
    type: list
    elements: str
    default: []
  target:
    description:
      - Asks for the pods of a workload by the selector in its scale subresource. A HorizontalPodAutoscaler on it asks
        in the same way. Needs O(namespace).
      - RV(result.missing) then has its ready pods without a value.
    type: dict
    suboptions:
      kind:
        description:
          - Kind of the workload, any with a scale subresource.
        type: str
        default: Deployment
      name:
        description:
          - Name of the workload.
        type: str
        required: true
      api_version:
        description:
          - Where the kind is served.
          - Known for V(Deployment), V(StatefulSet), V(ReplicaSet), V(Rollout) and V(LeaderWorkerSet).
        type: str
  until:
    description:
      - JMESPath expression to wait for. It sees the module's own result, so its paths begin with C(result). The same
        expression works with P(community.general.json_query#filter) on the registered variable.
      - It holds when it gives anything but false, null and what is empty. To JMESPath the number 0 is not empty.
      - A literal stands in backticks, and a comparison with what is not there is null. So
        V(max(result.items[].value\) < `90`) does not hold as long as there is no value.
      - V(!) binds closer than a dot. Write V(!(result.missing\)), or V(length(result.missing\) == `0`).
      - An expression that is no JMESPath is refused before anything is asked.
    type: str
  wait_timeout:
    description:
      - Seconds to wait for O(until). A look that has begun is finished.
    type: int
    default: 60
  wait_sleep:
    description:
      - Seconds between two looks while waiting for O(until).
    type: int
    default: 2
requirements:
  - kubernetes >= 30.1 (Python)
  - jmespath (Python), for O(until)
attributes:
  check_mode:
    support: partial
    description: Can run in check mode and return what it would return otherwise.
    details:
      - It changes nothing in any mode. In check mode it looks once, and warns if O(until) does not hold yet. Objects
        that an earlier task would have made are not there.
  diff_mode:
    support: none
    description: There is nothing to show.
seealso:
  - module: kubegpu.autoscale.gpu_autoscaler
  - name: JMESPath
    description: The language of O(until).
    link: https://jmespath.org
"""

EXAMPLES = r"""
- name: Ask for the GPU load of each pod of a Deployment, as its HorizontalPodAutoscaler does
  kubegpu.autoscale.custom_metric_info:
    metric: gpu
    namespace: ml
    target: {name: inference}
  register: gpu

# To Jinja, result.items is a method of every dictionary. The brackets mean the key.
- name: Show it
  ansible.builtin.debug:
    msg: "{{ gpu.result['items'] | items2dict(key_name='name', value_name='value') }}"

- name: Say what is missing, if anything is
  ansible.builtin.debug:
    msg: "{{ gpu.result.hop }}: {{ gpu.result.seen }}. {{ gpu.result.fix }}"
  when: gpu.result.hop is not none

- name: Wait until each ready pod has a value
  kubegpu.autoscale.custom_metric_info:
    metric: gpu
    namespace: ml
    target: {kind: Deployment, name: inference}
    until: result.items && length(result.missing) == `0`

- name: Wait up to five minutes until every pod is below 90 percent
  kubegpu.autoscale.custom_metric_info:
    metric: gpu
    namespace: ml
    target: {name: inference}
    until: length(result.missing) == `0` && max(result.items[].value) < `90`
    wait_timeout: 300

- name: Ask by labels
  kubegpu.autoscale.custom_metric_info:
    metric: gpu
    namespace: ml
    label_selectors:
      - app = inference
      - track notin (canary)

- name: Ask for a metric of the namespace itself
  kubegpu.autoscale.custom_metric_info:
    metric: gpu
    resource: namespaces
    name: ml

- name: Ask for a metric of all nodes
  kubegpu.autoscale.custom_metric_info:
    metric: node_load
    resource: nodes

- name: See whether KEDA has the length of a queue
  kubegpu.autoscale.custom_metric_info:
    api: external
    metric: s0-rabbitmq-jobs
    namespace: ml
    metric_label_selectors:
      - scaledobject.keda.sh/name = inference
"""

RETURN = r"""
result:
  description: The last answer. Empty if nothing was asked.
  returned: always
  type: dict
  contains:
    api: {description: 'V(custom) or V(external).', type: str}
    metric: {description: Name of the metric., type: str}
    namespace: {description: The namespace that was asked for; null if none was., type: str}
    items:
      description:
        - The values. In Jinja write C(answer.result['items']), as C(answer.result.items) is a method of the dictionary.
      type: list
      elements: dict
      contains:
        kind: {description: Kind of the object; empty for an external metric., type: str}
        namespace: {description: Its namespace; empty if it is in none., type: str}
        name: {description: Its name; empty for an external metric., type: str}
        value: {description: The value as a number; 19.6 where the API says C(19600m)., type: float}
        timestamp: {description: Time of the value; from prometheus-adapter that of the question., type: str}
        labels: {description: Labels of an external metric's series., type: dict}
    listed:
      description:
        - Whether the API lists the metric. KEDA lists none of those that it serves.
      type: bool
    missing:
      description: Ready pods of O(target) that have no value. Empty without O(target).
      type: list
      elements: str
    hop:
      description:
        - The first broken hop, null if all that was asked for has a value.
        - V(workload), V(metrics_api), V(metric) or V(API server).
      type: str
    seen: {description: Evidence at that hop; null if no hop is broken., type: str}
    fix: {description: How to mend it; null if no hop is broken., type: str}
  sample:
    api: custom
    metric: gpu
    namespace: ml
    items:
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
duration_s:
  description: Seconds the module took.
  returned: always
  type: float
hop:
  description:
    - The first broken hop, as in RV(result.hop), or V(condition) if only O(until) does not hold.
    - V(query) or V(until) if options contradict each other or O(until) is no JMESPath.
  returned: failure
  type: str
  sample: condition
fix:
  description: How to mend it.
  returned: failure
  type: str
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
