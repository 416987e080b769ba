#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_hours_info
short_description: Read GPU hours and idle GPU hours by week, namespace and workload
version_added: 0.1.0
description:
  - Queries Prometheus for the GPU hours that the role P(kubegpu.autoscale.gpu_alerts#role) records once per minute.
  - A pod holds its GPUs from when it is scheduled until it ends. A share of a GPU and a MIG instance count as their
    part of the GPU.
  - Busy is the part of that time in which the GPU worked, and idle is the rest. Time without samples of an exporter is
    neither.
  - Minutes without recorded data are not counted. RV(result.weeks[].recorded_hours) shows how much of a week is
    recorded. If Prometheus has several replicas, the replica with the most data of a week is used for it.
  - Changes nothing.
author:
  - kubegpu (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.prometheus
options:
  weeks:
    description:
      - Number of weeks, including the current one. A week begins on Monday at 0:00 UTC.
      - Prometheus keeps them for its retention time. The module warns if it has less.
    type: int
    default: 4
  namespaces:
    description:
      - Namespaces of the workloads. The default is all. The totals of the cluster always cover the whole cluster.
    type: list
    elements: str
    default: []
requirements:
  - kubernetes >= 30.1 (Python)
attributes:
  check_mode:
    support: full
    description: The module changes nothing.
  diff_mode:
    support: none
    description: The module changes nothing, so it returns no diff.
seealso:
  - module: kubegpu.autoscale.gpu_autoscaler_plan
  - name: GPU hours
    description: What is counted, and the required retention time of Prometheus.
    link: https://github.com/kubegpu/autoscale/tree/main/docs/monitoring.md
"""

EXAMPLES = r"""
- name: Read the GPU hours of the last four weeks
  kubegpu.autoscale.gpu_hours_info:
  register: hours

- name: Show the table
  ansible.builtin.debug:
    msg: "{{ hours.result | kubegpu.autoscale.gpu_hours_report }}"

- name: Show the workloads that did not use more than half of their GPU hours
  ansible.builtin.debug:
    msg: "{{ hours.result.workloads | rejectattr('idle_share', 'none') | selectattr('idle_share', 'gt', 0.5) }}"
"""

RETURN = r"""
result:
  description: The GPU hours.
  returned: success
  type: dict
  contains:
    recorded_since: {description: "Start of the data in these weeks, with a precision of ten minutes.", type: str}
    weeks:
      description: The weeks, oldest first.
      type: list
      elements: dict
      contains:
        start: {description: Start of the week (Monday) in UTC., type: str}
        end: {description: "End of the week, or time of the query for the current week, in UTC.", type: str}
        recorded_hours: {description: Hours of the week that are recorded., type: float}
        offered_hours: {description: GPU hours that the nodes offered., type: float}
        free_hours: {description: GPU hours that nodes offered and no pod requested., type: float}
        gpu_hours: {description: GPU hours that pods held., type: float}
        busy_hours: {description: Part of the GPU hours in which the GPUs worked., type: float}
        idle_hours: {description: Part of the GPU hours in which they did not., type: float}
        unknown_hours: {description: Part of the GPU hours without samples of an exporter., type: float}
        idle_share: {description: "Idle hours divided by busy and idle hours, 0 to 1. None without such hours.", type:
          float}
        workloads:
          description: The same for each C(namespace) and C(workload), sorted by GPU hours.
          type: list
          elements: dict
    workloads:
      description: The same over all weeks.
      type: list
      elements: dict
  sample:
    recorded_since: "2026-11-16T00:00:00Z"
    weeks:
      - start: "2026-11-16T00:00:00Z"
        end: "2026-11-23T00:00:00Z"
        recorded_hours: 168.0
        offered_hours: 1344.0
        free_hours: 600.0
        gpu_hours: 744.0
        busy_hours: 310.5
        idle_hours: 430.5
        unknown_hours: 3.0
        idle_share: 0.581
        workloads: &workloads
          - namespace: ml
            workload: inference
            gpu_hours: 576.0
            busy_hours: 288.0
            idle_hours: 285.0
            unknown_hours: 3.0
            idle_share: 0.4974
          - namespace: research
            workload: notebook
            gpu_hours: 168.0
            busy_hours: 22.5
            idle_hours: 145.5
            unknown_hours: 0.0
            idle_share: 0.8661
    workloads: *workloads
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

from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.gpu_hours import read_hours
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import HOURS, PROMETHEUS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.prometheus_replicas import read_replicas
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule


def main() -> None:
    module = GpuModule(argument_spec={**PROMETHEUS, **HOURS})
    with module.boundary():
        kube, params = module.kube_client(), module.params
        prometheus = module.prometheus_client(kube)
        replicas = read_replicas(kube, prometheus)
        module.outcome = read_hours(prometheus, replicas, weeks=params["weeks"], namespaces=params["namespaces"])


if __name__ == "__main__":
    main()
