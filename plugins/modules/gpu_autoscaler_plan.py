#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_autoscaler_plan
short_description: Say what other settings of an autoscaler would have done on the recorded load
version_added: 0.3.0
description:
  - Replays the load that Prometheus has recorded through the arithmetic of the HPA controller. That has its windows,
    policies, tolerances, bounds, several metrics and the time that a pod takes to start.
  - For today's setting and for others it gives the replicas over time, GPU-minutes, minutes of overload and changes of
    direction. It recommends the one with the fewest GPU-minutes whose overload keeps a bound.
  - Explains each decision of the last hour in a sentence.
  - The load is the mean value of the pods times their number. It is kept, and spread over the pods that another setting
    would have had. GPUs that are full hide how much more was asked for. Where the demand of a workload is recorded
    (C(namespace_workload:<metric>_demand:sum)), it is used.
  - Changes nothing. C(docs/plan.md) has the model and its limits.
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
      - Those to plan, also ones that M(kubegpu.autoscale.gpu_autoscaler) has not made. It may be the list that was
        given to that module; only names and namespaces count.
      - All that the module has made, if not given.
    type: list
    elements: dict
    default: []
  history:
    description:
      - Seconds of load to replay, as far as Prometheus has them.
    type: int
    default: 86400
  step:
    description:
      - Seconds between two looks of the controller in the replay.
      - Without it C(--horizontal-pod-autoscaler-sync-period) counts, as the pod of the controller manager has it. It is
        15 where that cannot be seen. A control plane of the role C(kubernetes) has 5.
    type: int
  recent:
    description:
      - Seconds whose decisions are explained. 0 for none. It takes kube-state-metrics, which shows them up to a scrape
        late.
    type: int
    default: 3600
  load:
    description:
      - A load to replay in place of the recorded one, a value for each O(step). It is the sum over the pods, in the
        unit of the first metric. 150 percent are one and a half GPUs at work. A demand is taken to be the same.
    type: list
    elements: float
  settings:
    description:
      - Settings to try, each as a change of today's.
      - Without it the usual targets are tried, and one replica more at least.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: What to call it, not C(today). Made of the changes if not given. Equal names are numbered.
        type: str
      target_value:
        description: Target of the first metric, and of its demand.
        type: float
      min_replicas:
        description: Fewest replicas.
        type: int
      max_replicas:
        description: Most replicas.
        type: int
      pod_start:
        description: Seconds until a replica that is wanted is capacity.
        type: int
      scale_up:
        description: Rules for scaling up, in place of those of the HPA.
        type: dict
        suboptions: &rules
          stabilization_window_seconds:
            description: The most cautious recommendation of this window counts.
            type: int
          select_policy:
            description: Whether the policy decides that allows most or least, or none is allowed.
            type: str
            choices: [Max, Min, Disabled]
          tolerance:
            description: Half-width of the dead band around the target, no unit.
            type: float
          policies:
            description: How much may change in which time.
            type: list
            elements: dict
            suboptions:
              type:
                description: What O(settings[].scale_up.policies[].value) counts.
                type: str
                required: true
                choices: [Pods, Percent]
              value:
                description: At most so many.
                type: int
                required: true
              period_seconds:
                description: Seconds in which.
                type: int
                required: true
      scale_down:
        description: Rules for scaling down, in place of those of the HPA.
        type: dict
        suboptions: *rules
  pod_start:
    description:
      - Seconds until a replica that is wanted is capacity and has a value.
      - Without it the dead time counts that the HPA's own rules were computed with, or 60.
    type: int
  overload:
    description:
      - Value of the first metric for each ready pod from which on pods are overloaded.
      - Without it 90 for percent, and one and a half times today's target for other units.
    type: float
  overload_minutes:
    description:
      - A setting with more minutes of overload in the replayed time is not recommended.
    type: float
    default: 15
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
  - module: kubegpu.autoscale.gpu_autoscaler_info
  - name: The model
    description: What is replayed, and what it cannot tell.
    link: https://github.com/kubegpu/autoscale/tree/main/docs/plan.md
"""

EXAMPLES = r"""
- name: See what other settings would have done on the load of the last day
  kubegpu.autoscale.gpu_autoscaler_plan:
    namespace: ml
  register: planned

- name: Show the tables
  ansible.builtin.debug:
    msg: "{{ planned.result | kubegpu.autoscale.gpu_autoscaler_plan_report }}"

- name: Write the page with the plots
  ansible.builtin.copy:
    content: "{{ planned.result | kubegpu.autoscale.gpu_autoscaler_plan_report('html') }}"
    dest: "{{ playbook_dir }}/plan.html"
    mode: "0644"
  delegate_to: localhost

- name: Try settings of one's own on a load of one's own
  kubegpu.autoscale.gpu_autoscaler_plan:
    autoscalers:
      - {namespace: ml, name: inference}
    step: 15
    load: "{{ [40] * 20 + [300] * 40 + [60] * 60 }}"
    settings:
      - {target_value: 50}
      - {target_value: 50, min_replicas: 2}
      - name: fast
        scale_up:
          policies: [{type: Pods, value: 8, period_seconds: 15}]
"""

RETURN = r"""
result:
  description: The plans.
  returned: success
  type: dict
  contains:
    plans:
      description: One for each autoscaler.
      type: list
      elements: dict
      contains:
        namespace: {description: Its namespace., type: str}
        name: {description: Its name., type: str}
        target: {description: Kind and name of what it scales., type: dict}
        metric: {description: The first metric that is replayed., type: str}
        unit: {description: What its values count., type: str}
        demand: {description: Whether the load is what was asked for and not only what the pods did., type: bool}
        gpus_per_replica:
          description: GPUs that one replica asks for. Of a LeaderWorkerSet that is a group of pods.
          type: int
        overload: {description: Value from which on pods are overloaded., type: float}
        history:
          description: At some 120 C(times) the C(load), summed over the pods, and the C(replicas) that there were.
          type: dict
        settings:
          description:
            - Today's setting first. Each has C(replicas) at the times of RV(result.plans[].history),
              C(gpu_minutes), C(overload_minutes), C(direction_changes) and C(peak).
          type: list
          elements: dict
        recommended: {description: Name of a setting; none if no setting keeps the bound., type: str}
        sentence: {description: Why., type: str}
        decisions:
          description:
            - Each change of the replicas in the last hour, with C(time_s), C(before), C(after) and a C(sentence).
              C(agrees) is false if what was recorded does not explain it.
          type: list
          elements: dict
        notes: {description: What the numbers leave out., type: list, elements: str}
    not_planned:
      description: Autoscalers without a recorded metric, and why.
      type: list
      elements: dict
  sample:
    plans:
      - namespace: ml
        name: inference
        target: {kind: Deployment, name: inference}
        metric: gpu
        unit: percent
        demand: false
        gpus_per_replica: 1
        overload: 90.0
        history: {step_s: 15, times: [1795000000.0], load: [186.2], replicas: [2]}
        settings:
          - name: today
            target_value: 60.0
            min_replicas: 1
            max_replicas: 8
            pod_start_s: 30
            gpu_minutes: 4210.0
            overload_minutes: 31.5
            direction_changes: 6
            peak: 7
            replicas: [2]
        recommended: target 50
        sentence: >-
          take target 50: 11.25 minutes of overload and 4,702 GPU-minutes, within 15 minutes; today has 31.5 minutes of
          overload and 4,210 GPU-minutes
        decisions:
          - time_s: 1795000000.0
            before: 2
            after: 3
            sentence: "wanted 4: 2 pods at 93 % against 60 %, limited to 3 by 1 pod in 15 s"
            agrees: true
        notes: []
    not_planned: []
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

from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.plan_autoscalers import PlanOptions, make_plans
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import PLAN, PROMETHEUS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import read_keys
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule


def main() -> None:
    module = GpuModule(argument_spec={**PROMETHEUS, **PLAN})
    params = module.params
    with module.boundary():
        kube = module.kube_client()
        module.outcome = make_plans(
            kube,
            module.prometheus_client(kube),
            namespace=params["namespace"],
            keys=read_keys(params["autoscalers"]),
            options=PlanOptions.from_params(params),
        )


if __name__ == "__main__":
    main()
