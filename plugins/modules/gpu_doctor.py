#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_doctor
short_description: Find out where autoscaling on GPU metrics is broken
version_added: 0.3.0
description:
  - Walks the chain from the GPU to the autoscaler, for a cluster or for one autoscaler.
  - The first hops are GPU nodes, device plugin, node labels, dcgm-exporter, Prometheus' targets, and labels. The others
    are recording rules, metrics API, the value of each pod, HorizontalPodAutoscaler and workload.
  - A finding names a fault, with the evidence, since when, the cause and the fix. Its effects further down the chain
    are listed as its consequences.
  - A young condition is no finding if it passes by itself, as in a start or a rolling update.
  - It finds components by their images and labels. So it also judges clusters that others have made, those of the GPU
    operator and of clouds for instance.
  - With O(servers) the report also has what was found on the servers of an inventory. A fault of a server is the cause
    of what it breaks in the cluster. Where its node works, it is a warning.
  - Changes nothing. It needs the rights of docs/doctor/rights.yml, all of them C(get) and C(list). Without one of them
    it says in RV(result.not_checked) what it could not look at and goes on.
author:
  - kubegpu (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.prometheus
options:
  namespace:
    description:
      - Namespace whose autoscalers are looked at. All if not given.
    type: str
  name:
    description:
      - Name of the one autoscaler, a HorizontalPodAutoscaler, to look at. It may be one that is not about GPUs.
      - Without it the doctor looks at those that M(kubegpu.autoscale.gpu_autoscaler) has made. It also looks at those
        whose pods ask for GPUs, or whose metric is called after GPUs.
    type: str
  node_facts:
    description:
      - The facts of M(kubegpu.autoscale.gpu_facts) by node. Without it drivers are not looked at.
    type: list
    elements: dict
    default: []
    suboptions:
      node:
        description: Name of the node in the cluster.
        type: str
        required: true
      facts:
        description:
          - The fact C(gpu_facts). In it C(expected_gpus) is the number of GPUs that the server should have, and
            C(fabric) the state of its NVLink fabric by GPU.
        type: dict
        required: true
  servers:
    description:
      - Servers of the inventory, as the filter P(kubegpu.autoscale.examined_servers#filter) returns them.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name in the inventory.
        type: str
        required: true
      node:
        description: Name that the server has, or would have, as a node.
        type: str
        required: true
      unreachable:
        description: Why Ansible could not connect to it. Empty if it could.
        type: str
        default: ""
      failed:
        description: Why it could not be examined to the end. Empty if it was.
        type: str
        default: ""
      hops:
        description: The hops that were examined, V(driver) and V(runtime) for instance.
        type: list
        elements: str
        default: []
      findings:
        description: What M(kubegpu.autoscale.node_plan) found there.
        type: list
        elements: dict
        default: []
        suboptions:
          id:
            description: Name of the finding.
            type: str
            required: true
          hop:
            description: Its hop.
            type: str
            required: true
          severity:
            description: Its severity while the node of the server does not work.
            type: str
            required: true
            choices: [error, warning]
          seen:
            description: What was seen.
            type: str
            required: true
          cause:
            description: The cause.
            type: str
            required: true
          fix:
            description: The next step.
            type: str
            required: true
          is_consequence:
            description: Whether an error of the same server may explain it.
            type: bool
            default: false
          explained_by:
            description: Hops whose errors may explain it. All if empty.
            type: list
            elements: str
            default: []
  no_cluster:
    description:
      - Why the cluster cannot be used. Then no request is sent, and the report is about O(servers) alone.
      - If the kubeconfig does not exist, it is a warning, because the cluster may not exist yet. Else it is an error.
    type: str
  history:
    description:
      - Seconds of metric and replicas to add for each autoscaler, as far as Prometheus has them. 0 for none.
    type: int
    default: 900
  grace:
    description:
      - Leave out what is younger than its grace period.
      - With V(false) everything counts at once, for a cluster that has had its time.
    type: bool
    default: true
  fail_on:
    description:
      - Which findings fail the task. RV(result) is complete then too.
      - V(error) fails as well if no hop could be checked, and V(warning) if some could not.
      - By default none does, a report is what one asks for. A pipeline that is to stop sets V(error).
    type: str
    choices: [error, warning, never]
    default: never
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
  - module: kubegpu.autoscale.gpu_facts
  - name: The findings
    description: Each finding, its cause and its fix.
    link: https://github.com/kubegpu/autoscale/tree/main/docs/doctor
"""

EXAMPLES = r"""
- name: Look at the whole cluster
  kubegpu.autoscale.gpu_doctor:
  register: doctor

- name: Show what is broken first
  ansible.builtin.debug:
    msg: "{{ item.id }}: {{ item.object }}: {{ item.cause }}. {{ item.fix }}"
  loop: "{{ doctor.result.findings }}"
  loop_control: {label: "{{ item.id }}"}

- name: Stop a pipeline if one autoscaler is broken
  kubegpu.autoscale.gpu_doctor:
    namespace: ml
    name: inference
    fail_on: error

- name: Look at the drivers too
  kubegpu.autoscale.gpu_doctor:
    node_facts:
      - {node: gpu1, facts: {driver_problem: "", reboot_required: false}}
"""

RETURN = r"""
result:
  description: The report, as C(docs/doctor/report.schema.json) defines it.
  returned: always, but not if the API server does not answer
  type: dict
  contains:
    schema: {description: Name and version of the report's schema., type: str}
    generated_at: {description: When it was made., type: str}
    duration_s: {description: How long it took., type: float}
    servers: {description: "Servers of the inventory, and whether they were examined.", type: list, elements: dict}
    cluster:
      description:
        - Whether a cluster was reached, its context, address of the API server, version and number of nodes.
      type: dict
    scope: {description: The autoscalers that were looked at., type: dict}
    verdict:
      description:
        - V(ok), V(warning) or V(broken) where all hops were checked.
        - V(partial) if no error was found, and some hops could not be checked or have nothing to check.
        - V(unknown) if no hop could be checked.
      type: str
    unchecked_hops:
      description: The hops that were not checked, or not by all checks.
      type: list
      elements: str
    hops: {description: "The chain from left to right, with the status of each hop.", type: list, elements: dict}
    findings: {description: "The faults, errors first.", type: list, elements: dict}
    not_checked: {description: "Checks that could not be made, and why.", type: list, elements: dict}
    autoscalers: {description: Those that were looked at., type: list, elements: dict}
  sample:
    schema: kubegpu.autoscale/doctor/v1
    generated_at: "2026-11-20T10:00:00+00:00"
    duration_s: 1.9
    cluster:
      reached: true
      context: gpus
      server: https://192.0.2.10:6443
      server_version: v1.36.3
      nodes: 3
      gpu_nodes: 2
    scope: {namespace: null, name: null}
    servers: []
    verdict: broken
    unchecked_hops: []
    hops:
      - {id: rule, title: Recording rules, status: broken, summary: "its labels are none"}
    findings:
      - id: RULE_NOT_SELECTED
        hop: rule
        severity: error
        object: PrometheusRule monitoring/kubegpu-gpu
        servers: []
        seen: ["its labels are none; ruleSelector of Prometheus monitoring/k8s is release=kube-prometheus-stack"]
        since: null
        cause: >-
          no Prometheus object selects the PrometheusRule: ruleSelector of Prometheus monitoring/k8s is
          release=kube-prometheus-stack
        fix: set prometheus.rule_labels and prometheus.rule_namespace as ruleSelector and ruleNamespaceSelector ask for
        doc: docs/doctor/rule.md#rule_not_selected
        consequences: ["Metric of each pod: autoscaler ml/inference: custom.metrics.k8s.io does not list gpu"]
        grace_s: 0
    not_checked: []
    autoscalers: []
"""

from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.examine import examine, examine_servers
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import DOCTOR, PROMETHEUS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.cluster import Place, Scope
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.servers import NoCluster, server_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kubeconfig import names_no_file, place_known
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule


def main() -> None:
    module = GpuModule(argument_spec={**PROMETHEUS, **DOCTOR})
    params = module.params
    with module.boundary():
        servers = [server_of(given) for given in params["servers"]]
        looked_at: dict[str, Any] = {
            "scope": Scope(params["namespace"], params["name"]),
            "facts": {entry["node"]: entry["facts"] for entry in params["node_facts"]},
            "fail_on": params["fail_on"],
            "place": Place(*place_known(params)),
        }
        if params["no_cluster"]:
            gap = NoCluster(params["no_cluster"], is_missing=names_no_file(params))
            module.outcome = examine_servers(servers, gap, **looked_at)
        else:
            kube = module.kube_client()
            module.outcome = examine(
                kube,
                module.prometheus_client(kube),
                history_s=params["history"],
                grace=params["grace"],
                servers=servers,
                **looked_at,
            )


if __name__ == "__main__":
    main()
