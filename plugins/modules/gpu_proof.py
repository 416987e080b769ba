#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_proof
short_description: Prove that GPUs compute and that workloads scale on them
version_added: 0.1.0
description:
  - Runs a CUDA program on the GPUs of each node as pods get them. It initializes CUDA, allocates memory, runs a kernel,
    and compares the result.
  - Then scales a temporary workload. The module creates an autoscaler for it, waits for the value of its pod in
    Prometheus and in the metrics API, keeps its GPU busy, and waits for the decision of the HorizontalPodAutoscaler.
  - Records what was proven in the ConfigMap C(kube-system/kubegpu-proof), with what the proof rests on, for example the
    boot of the node, the driver, the container toolkit, the device plugin, the exporter and the metrics backend. It is
    proven again if one of these has changed, or was known then and is unknown now.
  - Fails if nodes with GPUs exist and none of them is proven, for example because all GPUs are in use.
  - Everything else is removed at the end, and by the next run if a run was killed.
  - Its pods never preempt another pod, and every other pod may preempt them. GPUs that are in use stay unproven until
    a run in which they are free.
  - With one free GPU the decision is a dry one. The HorizontalPodAutoscaler wants a second replica, and its maximum of
    one keeps it from being created.
author:
  - kubegpu.autoscale contributors (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.cluster
  - kubegpu.autoscale.prometheus
  - kubegpu.autoscale.inventory
options:
  state:
    description:
      - V(present) proves what is new or has changed.
      - V(absent) removes the record, and the leftover objects of a killed run.
    type: str
    choices: [present, absent]
    default: present
  namespace:
    description:
      - Namespace that exists while the proof runs. The module fails before making changes if a namespace with this name
        exists that no proof of this inventory created.
    type: str
    default: kubegpu-proof
  image:
    description: Image with Python 3.11 or later and glibc. Required with O(state=present).
    type: str
  scripts:
    description:
      - Programs of the pods by file name, C(cuda.py), C(cuda_proof.py) and C(sample_service.py). The role
        P(kubegpu.autoscale.gpu_proof#role) contains them. Required with O(state=present).
    type: dict
    default: {}
  runtime_class:
    description: RuntimeClass that gives a pod its GPU. Leave it empty if NVIDIA's runtime is the default on the nodes.
    type: str
    default: nvidia
  tolerations:
    description: Taints that the temporary workload tolerates. Pods of the CUDA program tolerate all taints.
    type: list
    elements: dict
    default: []
  node_selector:
    description: Labels of the nodes to prove. Empty for all nodes.
    type: dict
    default: {}
  nodes:
    description: Names of the nodes to prove. Empty for all nodes.
    type: list
    elements: str
    default: []
  servers:
    description:
      - What is known of the servers. With this the module compares the number of GPUs, checks the NVLink fabric, and
        notices another driver.
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
          - The fact C(gpu_facts). In it C(expected_gpus) is the number of GPUs that the server should have, by default
            as many as its PCI bus shows, and C(fabric) the state of its NVLink fabric by GPU. C(uuids), C(toolkit) and
            C(toolkit_config) are the UUIDs of its GPUs, and release and configuration digest of its container toolkit.
        type: dict
        required: true
  chain:
    description: Whether to scale a temporary workload.
    type: bool
    default: true
  metrics_backend:
    description:
      - Backend that serves the metric of the temporary workload, as in the module
        M(kubegpu.autoscale.gpu_autoscaler).
    type: str
    choices: [adapter, keda]
    default: adapter
  conformance:
    description:
      - Also proves what CNCF's AI conformance requires of metrics, for the playbook C(kubegpu.autoscale.conformance).
        Prometheus must scrape the temporary workload by a PodMonitor.
      - It does not fail if it is not proven. RV(result.chain.metrics) has the evidence.
    type: bool
    default: false
  repeat:
    description: Prove everything again, even what is recorded.
    type: bool
    default: false
  unrequested_gpus:
    description:
      - Whether it is an error that a pod without a GPU request sees GPUs. With V(allow) it is a warning. With V(auto)
        it is an error in a cluster that this collection created.
    type: str
    choices: [auto, deny, allow]
    default: auto
  wait_timeout:
    description: Seconds to wait for the pods of the CUDA program, for a pod of the workload, and for its value.
    type: int
    default: 300
attributes:
  check_mode:
    support: full
    description: Returns what would be proven. Nothing is created.
  diff_mode:
    support: none
    description: Shows no diff.
notes:
  - Of GPUs that are shared or split by MIG one device of each node is proven, and no workload scales on them.
  - A node with fewer GPUs than were proven before, or than its capacity counts, fails, unless C(expected_gpus) confirms
    the number. That holds for a node that offers no GPU any more, too.
  - Besides the rights of L(this ClusterRole,https://github.com/kubegpu/autoscale/blob/main/docs/rights.yml), it reads
    DaemonSets, Deployments and pods of all namespaces. It creates and deletes its namespace with what is in it, a
    PriorityClass, and in kube-system a ConfigMap and a Lease.
seealso:
  - module: kubegpu.autoscale.gpu_doctor
    description: Checks each hop of a cluster without creating a workload.
"""

EXAMPLES = r"""
- name: Prove new and changed nodes
  kubegpu.autoscale.gpu_proof:
    kubeconfig: "{{ kubegpu_kubeconfig }}"
    image: docker.io/library/python:3.11-slim
    scripts:
      cuda.py: "{{ lookup('ansible.builtin.file', 'cuda.py', rstrip=false) }}"
      cuda_proof.py: "{{ lookup('ansible.builtin.file', 'cuda_proof.py', rstrip=false) }}"
      sample_service.py: "{{ lookup('ansible.builtin.file', 'sample_service.py', rstrip=false) }}"
    tolerations:
      - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
  register: proof

- name: Remove the record
  kubegpu.autoscale.gpu_proof:
    kubeconfig: "{{ kubegpu_kubeconfig }}"
    state: absent
"""

RETURN = r"""
result:
  description: What was proven, now or before.
  returned: always
  type: dict
  contains:
    generated_at: {description: When this run has proven something. Empty if it has not., type: str}
    seconds: {description: Seconds that it took., type: float}
    proven_now: {description: Whether this run has proven something., type: bool}
    nodes:
      description: One entry for each node with GPUs.
      type: list
      elements: dict
      contains:
        node: {description: Name of the node., type: str}
        status:
          description:
            - V(proven) by this run, V(kept) from a run before, V(due) in check mode, V(waiting) if no GPU is free for
              instance, or V(failed).
          type: str
        reason: {description: "Why it had to be proven, when it was proven, or why it was not.", type: str}
        text: {description: What is still to be proven of it. Empty if nothing is., type: str}
        gpus: {description: Number of GPUs that have computed., type: int}
        pods: {description: Number of pods with GPUs that ran side by side in this run., type: int}
        of: {description: Number of GPUs that the node offers., type: int}
        unrequested:
          description:
            - Whether an unprivileged pod that requests no GPU, and sets C(NVIDIA_VISIBLE_DEVICES=all), saw any,
              V(denied) or V(visible). Empty if that is not known.
          type: str
        is_shared: {description: Whether they are shared or split by MIG., type: bool}
        seconds: {description: Seconds that the program took., type: float}
        wall: {description: Seconds until the last pod had ended., type: float}
    gpu_nodes:
      description: Names of all nodes with GPUs, also of those that O(nodes) and O(node_selector) leave out.
      type: list
      elements: str
    adds_nodes: {description: 'Whether nodes may be added on demand, by their labels and IDs.', type: bool}
    chain:
      description: The temporary workload.
      type: dict
      contains:
        status: {description: 'As of a node, or V(off).', type: str}
        reason: {description: As of a node., type: str}
        hops:
          description: Seconds of each hop, in order. Each one counts from when the one before it worked.
          type: list
          elements: dict
        decision:
          description:
            - Replicas V(before) and V(after), the V(value) that the HorizontalPodAutoscaler saw, and its
              V(target_value). Seconds from the load step to the decision, the V(budget_s) in which it has to come, and
              V(driver_s), which NVIDIA's utilisation adds. V(late) shows whether it took longer. V(down_s) has the
              seconds from the end of the load until it wanted one replica, or null if that took more than 20 s. With
              O(conformance=true) V(ready) has the number of ready pods after the load step, and V(left) the number of
              pods after the load. Both are 0 otherwise, and with a dry decision.
          type: dict
        metrics:
          description:
            - With O(conformance=true) the names of the V(series) of the exporter, with the number of GPUs that have
              each by node, and the requests that the workload V(served) by Prometheus. V(unscraped) explains why it
              has none.
          type: dict
  sample:
    generated_at: "2026-11-26T17:00:00+00:00"
    seconds: 31.4
    proven_now: true
    nodes:
      - node: gpu1
        status: proven
        reason: new
        text: ""
        gpus: 8
        pods: 2
        of: 8
        unrequested: denied
        is_shared: false
        seconds: 2.1
        wall: 4.4
    gpu_nodes: [gpu1]
    adds_nodes: false
    chain:
      status: proven
      reason: new
      hops:
        - {hop: pod, title: A pod is ready with a GPU, seconds: 2.0}
      decision:
        {before: 1, after: 2, dry: false, value: 100.0, target_value: 50, seconds: 6.1, down_s: 7.2, ready: 0, left: 0}
      metrics: {}
warnings:
  description: What could not be removed.
  returned: when there are any
  type: list
  elements: str
duration_s: {description: Run time of the module in seconds., returned: always, type: float}
hop:
  description: The first broken hop.
  returned: failure
  type: str
  sample: node
fix: {description: How to fix it., returned: failure, type: str}
"""

from socket import gethostname
from uuid import uuid4

from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.prove import Cluster, Request, clear, prove
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import INVENTORY, PROMETHEUS, PROOF
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof.manifests import Options
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof.nodes import GpuServer
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule


def request(module: GpuModule) -> Request:
    params = module.params
    options = Options(
        inventory=module.inventory(),
        namespace=params["namespace"],
        image=params["image"] or "",
        scripts=params["scripts"],
        runtime_class=params["runtime_class"],
        tolerations=params["tolerations"],
        timeout_s=params["wait_timeout"],
        backend=params["metrics_backend"],
        conformance=params["conformance"],
    )
    return Request(
        options,
        servers=[GpuServer.of(server) for server in params["servers"]],
        selector={key: str(value) for key, value in params["node_selector"].items()},
        nodes=params["nodes"],
        chain=params["chain"],
        repeat=params["repeat"],
        unrequested=params["unrequested_gpus"],
        holder=f"inventory {options.inventory} on {gethostname()} ({uuid4().hex[:8]})",
    )


def main() -> None:
    module = GpuModule(
        argument_spec={**PROOF, **PROMETHEUS, **INVENTORY}, required_if=[("state", "present", ("image", "scripts"))]
    )
    with module.boundary():
        kube = module.kube_client()
        cluster = Cluster(kube, module.prometheus_client(kube), module.rule_options())
        act = clear if module.params["state"] == "absent" else prove
        module.outcome = act(cluster, request(module))


if __name__ == "__main__":
    main()
