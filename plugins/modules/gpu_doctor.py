#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_doctor
short_description: Find out where autoscaling on GPU metrics is broken
version_added: 0.1.0
description:
  - Checks the chain from the GPU to the autoscaler, for a cluster or for one autoscaler.
  - The hops are GPU nodes, device plugin, node labels, dcgm-exporter, Prometheus targets, metric labels, recording
    rules, metrics API, the value of each pod, HorizontalPodAutoscaler and workload.
  - A finding is a fault with its evidence, start time, cause and fix. Its effects on later hops are listed as its
    consequences.
  - A recent condition that can resolve by itself, as during a start or a rolling update, is not a finding.
  - It detects components by their images and labels. Therefore it also checks clusters that were installed otherwise,
    for example with the GPU operator or by a cloud provider.
  - With O(servers) the report also has findings about the servers of an inventory. A fault of a server is the cause of
    its effects in the cluster. If the server's node works, the fault is a warning.
  - Changes nothing. It needs the permissions in docs/doctor/rights.yml, which are all C(get) and C(list). If one is
    missing, it continues and reports the skipped checks in RV(result.not_checked).
author:
  - kubegpu.autoscale contributors (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.cluster
  - kubegpu.autoscale.reads
  - kubegpu.autoscale.prometheus
options:
  namespace:
    description: Namespace whose autoscalers are checked. The default is all.
    type: str
  name:
    description:
      - Name of a single autoscaler (a HorizontalPodAutoscaler) to check. It does not have to use GPU metrics.
      - By default the module checks autoscalers that M(kubegpu.autoscale.gpu_autoscaler) created, whose pods request
        GPUs, or whose metric has a GPU in its name.
    type: str
  node_facts:
    description: The facts of M(kubegpu.autoscale.gpu_facts) for each node. Without them drivers are not checked.
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
    description: Servers of the inventory, as the role P(kubegpu.autoscale.gpu_doctor#role) examines them.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name in the inventory.
        type: str
        required: true
      node:
        description: Name of the server's node, which does not have to exist.
        type: str
        required: true
      unreachable:
        description: Why Ansible could not connect to the server. Empty if it could.
        type: str
        default: ""
      failed:
        description: Why the examination of the server failed. Empty if it was completed.
        type: str
        default: ""
      hops:
        description: The hops that were examined, for example V(driver) and V(runtime).
        type: list
        elements: str
        default: []
      findings:
        description: Findings of M(kubegpu.autoscale.plan) about the server.
        type: list
        elements: dict
        default: []
        suboptions:
          id:
            description: Name of the finding.
            type: str
            required: true
          hop:
            description: Hop of the finding.
            type: str
            required: true
          severity:
            description: Severity while the server's node does not work.
            type: str
            required: true
            choices: [error, warning]
          seen:
            description: The evidence.
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
            description: Whether an error of the same server can explain it.
            type: bool
            default: false
          explained_by:
            description: Hops whose errors can explain it. Empty means all.
            type: list
            elements: str
            default: []
  no_cluster:
    description:
      - Why the cluster cannot be used. In this case no request is sent, and the report covers only O(servers).
      - If the kubeconfig does not exist, this is a warning, because the cluster may not exist yet. Otherwise it is an
        error.
    type: str
  history:
    description:
      - Seconds of history of metric and replicas for each autoscaler, as far as Prometheus has samples. 0 means none.
    type: int
    default: 900
  grace:
    description:
      - Ignore conditions that are more recent than their grace period.
      - With V(false) every condition is a finding immediately, for a cluster that has settled.
    type: bool
    default: true
  fail_on:
    description:
      - Severity of findings that fail the task. RV(result) is complete in any case.
      - V(error) also fails if no hop could be checked, and V(warning) if some hops could not be checked.
      - By default no finding fails the task. Set V(error) to stop a pipeline.
    type: str
    choices: [error, warning, never]
    default: never
seealso:
  - module: kubegpu.autoscale.gpu_autoscaler
  - module: kubegpu.autoscale.gpu_autoscaler_info
  - module: kubegpu.autoscale.gpu_facts
  - name: The findings
    description: Each finding, its cause and its fix.
    link: https://github.com/kubegpu/autoscale/tree/main/docs/doctor
"""

EXAMPLES = r"""
- name: Check the whole cluster
  kubegpu.autoscale.gpu_doctor:
  register: doctor

- name: Show the findings
  ansible.builtin.debug:
    msg: "{{ item.id }}: {{ item.object }}: {{ item.cause }}. {{ item.fix }}"
  loop: "{{ doctor.result.findings }}"
  loop_control: {label: "{{ item.id }}"}

- name: Stop a pipeline if an autoscaler is broken
  kubegpu.autoscale.gpu_doctor:
    namespace: ml
    name: inference
    fail_on: error

- name: Check the drivers, too
  kubegpu.autoscale.gpu_doctor:
    node_facts:
      - {node: gpu1, facts: {driver_problem: "", reboot_required: false}}
"""

RETURN = r"""
result:
  description: >-
    The report. Its format is
    L(report.schema.json,https://github.com/kubegpu/autoscale/blob/main/docs/doctor/report.schema.json).
  returned: always, but not if the API server does not answer
  type: dict
  contains:
    schema: {description: Name and version of the report's schema., type: str}
    generated_at: {description: Time of the report., type: str}
    duration_s: {description: Run time of the checks in seconds., type: float}
    servers: {description: "Servers of the inventory, and whether they were examined.", type: list, elements: dict}
    cluster:
      description: Whether a cluster was reached, its context, address of the API server, version and number of nodes.
      type: dict
    scope: {description: Which autoscalers were checked., type: dict}
    verdict:
      description:
        - V(ok), V(warning) or V(broken) if all hops were checked.
        - V(partial) if no error was found, and some hops could not be checked or have nothing to check.
        - V(unknown) if no hop could be checked.
      type: str
    unchecked_hops:
      description: Hops that were not checked, or only by some of their checks.
      type: list
      elements: str
    hops: {description: "The chain from left to right, with the status of each hop.", type: list, elements: dict}
    findings: {description: "The findings, errors first.", type: list, elements: dict}
    not_checked: {description: "Skipped checks with the reason.", type: list, elements: dict}
    autoscalers: {description: The checked autoscalers., type: list, elements: dict}
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
