#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_autoscaler_plan
short_description: Show what other settings of an autoscaler would have done with the recorded load
version_added: 0.1.0
description:
  - Replays the load that Prometheus recorded through the algorithm of the HPA controller, with its windows, policies,
    tolerances, bounds, several metrics and the start time of pods.
  - For the current and other settings it returns the replicas over time, GPU-minutes, minutes of overload and changes
    of direction. It recommends the setting with the fewest GPU-minutes within a limit of overload.
  - Explains each decision of the last hour.
  - The load is the mean value of the pods times their number. The replay distributes it over the pods that another
    setting would have had. Saturated GPUs hide additional load. If the demand of a workload is recorded
    (C(namespace_workload:<metric>_demand:sum)), it is used instead.
  - Changes nothing.
author:
  - kubegpu.autoscale contributors (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.cluster
  - kubegpu.autoscale.reads
  - kubegpu.autoscale.prometheus
options:
  namespace:
    description: Namespace to read. The default is the whole cluster.
    type: str
  autoscalers:
    description:
      - Autoscalers to plan, including those that M(kubegpu.autoscale.gpu_autoscaler) did not create. It can be the list
        for that module. Only names and namespaces are used.
      - The default is all autoscalers that the module created.
    type: list
    elements: dict
    default: []
  history:
    description: Seconds of load to replay, as far as Prometheus has samples.
    type: int
    default: 86400
  step:
    description:
      - Seconds between two decisions of the controller in the replay.
      - The default is C(--horizontal-pod-autoscaler-sync-period) of the controller manager's pod, or 15 if the pod is
        not visible. A control plane of the role C(kubernetes) has 5.
    type: int
  recent:
    description:
      - Seconds whose decisions are explained. 0 means none. This requires kube-state-metrics, which shows decisions up
        to one scrape interval late.
    type: int
    default: 3600
  load:
    description:
      - A load to replay instead of the recorded one, a value for each O(step). It is the sum over the pods, in the unit
        of the first metric. For example, 150 percent is one and a half busy GPUs. A demand has the same values.
    type: list
    elements: float
  settings:
    description:
      - Settings to try, each as a change to the current setting.
      - The default is the usual targets, and one more minimum replica.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the setting, except C(today). The default is derived from the changes. Equal names are
          numbered.
        type: str
      target_value:
        description: Target value of the first metric, and of its demand.
        type: float
      min_replicas:
        description: Minimum number of replicas.
        type: int
      max_replicas:
        description: Maximum number of replicas.
        type: int
      pod_start:
        description: Seconds until a new replica provides capacity.
        type: int
      scale_up:
        description: Rules for scaling up instead of the HPA's rules.
        type: dict
        suboptions: &rules
          stabilization_window_seconds:
            description: Stabilization window in seconds. The HPA applies the most conservative recommendation made
              within it.
            type: int
          select_policy:
            description: Whether to use the policy with the largest or the smallest change, or to disable scaling.
            type: str
            choices: [Max, Min, Disabled]
          tolerance:
            description: Tolerated deviation from the target, as a ratio.
            type: float
          policies:
            description: Policies that limit the change per period.
            type: list
            elements: dict
            suboptions:
              type:
                description: Unit of O(settings[].scale_up.policies[].value).
                type: str
                required: true
                choices: [Pods, Percent]
              value:
                description: Maximum change per period.
                type: int
                required: true
              period_seconds:
                description: Length of the period in seconds.
                type: int
                required: true
      scale_down:
        description: Rules for scaling down instead of the HPA's rules.
        type: dict
        suboptions: *rules
  pod_start:
    description:
      - Seconds until a new replica provides capacity and has a value.
      - The default is the dead time in the annotation of the HPA, or 60.
    type: int
  overload:
    description:
      - Value of the first metric per ready pod above which pods are overloaded.
      - The default is 90 for percent, and 1.5 times the current target for other units.
    type: float
  overload_minutes:
    description: Maximum minutes of overload in the replayed time for a setting to be recommended.
    type: float
    default: 15
seealso:
  - module: kubegpu.autoscale.gpu_autoscaler
  - module: kubegpu.autoscale.gpu_autoscaler_info
  - name: The model
    description: The replay and its limits.
    link: https://github.com/kubegpu/autoscale/tree/main/docs/plan.md
"""

EXAMPLES = r"""
- name: Show what other settings would have done with the load of the last day
  kubegpu.autoscale.gpu_autoscaler_plan:
    namespace: ml
  register: planned

- name: Show the tables
  ansible.builtin.debug:
    msg: "{{ planned.result | kubegpu.autoscale.gpu_autoscaler_plan_report }}"

- name: Write a page with plots
  ansible.builtin.copy:
    content: "{{ planned.result | kubegpu.autoscale.gpu_autoscaler_plan_report('html') }}"
    dest: "{{ playbook_dir }}/plan.html"
    mode: "0644"
  delegate_to: localhost

- name: Try custom settings with a custom load
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
      description: One plan for each autoscaler.
      type: list
      elements: dict
      contains:
        namespace: {description: Namespace of the autoscaler., type: str}
        name: {description: Name of the autoscaler., type: str}
        target: {description: Kind and name of its target., type: dict}
        metric: {description: The first metric that is replayed., type: str}
        unit: {description: Unit of its values., type: str}
        demand: {description: Whether the load is the demand instead of the load of the pods., type: bool}
        gpus_per_replica:
          description: GPUs that a replica requests. For a LeaderWorkerSet a replica is a group of pods.
          type: int
        overload: {description: Value above which pods are overloaded., type: float}
        history:
          description: About 120 C(times) with the C(load), summed over the pods, and the C(replicas).
          type: dict
        settings:
          description:
            - The settings, the current one first. Each has C(replicas) at the times of RV(result.plans[].history),
              C(gpu_minutes), C(overload_minutes), C(direction_changes) and C(peak).
          type: list
          elements: dict
        recommended: {description: Name of the recommended setting. None if no setting is within the limit., type: str}
        sentence: {description: Reason for the recommendation., type: str}
        decisions:
          description:
            - Each change of the replicas in the last hour, with C(time_s), C(before), C(after) and a C(sentence).
              C(agrees) is false if the recorded values do not explain it.
          type: list
          elements: dict
        notes: {description: What the numbers do not include., type: list, elements: str}
    not_planned:
      description: Autoscalers without a recorded metric, with the reason.
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
duration_s: {description: Run time of the module in seconds., returned: always, type: float}
hop: {description: The first broken hop., returned: failure, type: str}
fix: {description: How to fix it., returned: failure, type: str}
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
