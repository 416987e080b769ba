#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_cluster_info
short_description: Find what a cluster has of the way from its GPUs to the HPA, and who made it
version_added: 0.1.0
description:
  - Waits until the cluster answers, and looks for the components of the chain, whatever their names and namespaces.
    These are Prometheus and its operator, dcgm-exporter, device plugin or DRA driver, and NVIDIA's GPU operator. It
    also looks for node-feature-discovery, and for the servers of the metrics APIs.
  - Says of each whether this collection made it.
  - A kubeconfig with several contexts is refused if O(context) does not say which one is meant.
author:
  - kubegpu (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.inventory
options:
  wait_timeout:
    description: Seconds until the cluster has to answer. In check mode a cluster may be missing.
    type: int
    default: 60
requirements:
  - kubernetes >= 30.1 (Python)
attributes:
  check_mode:
    support: full
    description: It changes nothing in any mode.
  diff_mode:
    support: none
    description: There is nothing to show.
"""

EXAMPLES = r"""
- name: Look at the cluster
  kubegpu.autoscale.gpu_cluster_info:
    kubeconfig: ~/.kube/config
    context: gpus-in-europe
  register: cluster

- name: Name the Prometheus that is there
  ansible.builtin.debug:
    msg: "{{ cluster.result.components.prometheus | map(attribute='name') }}"
"""

RETURN = r"""
result:
  description: The components that were found.
  returned: success
  type: dict
  contains:
    answers: {description: "Whether the cluster answers; V(false) in check mode alone.", type: bool}
    context: {description: "Name of the context; empty if no kubeconfig was read.", type: str}
    server: {description: Address of the API server., type: str}
    components:
      description:
        - C(prometheus), C(prometheus_operator), C(gpu_operator), C(exporter), C(host_engine), C(device_plugin),
          C(dra_driver) and C(node_feature_discovery) are lists.
        - C(metrics_apis) has the server of each API by its group.
        - A host engine is a DCGM that exporters connect to.
        - Each has C(owned), whether this collection made it for O(inventory_id).
        - C(release) is namespace and name of its Helm release.
        - A component that runs on nodes with GPUs has C(origin), one of C(kubegpu), C(gpu-operator), C(gke), C(helm)
          and C(manifest).
        - A Prometheus has the service and port that reach it, C(scheme) and C(path_prefix). It also has labels by which
          it selects PrometheusRules and monitors. The namespaces that it takes them from are V(none) for all.
      type: dict
    sees_releases:
      description: Whether Helm's records of releases could be read; V(false) for who may not list Secrets.
      type: bool
    serves_monitors:
      description: Whether the cluster has the kind ServiceMonitor; V(true) as well where that could not be read.
      type: bool
    not_looked_at:
      description: Each kind that there was no right to read, with that right. Any other error ends the module.
      type: dict
  sample:
    answers: true
    context: gpus-in-europe
    server: https://192.0.2.10:6443
    sees_releases: true
    serves_monitors: true
    not_looked_at: {}
    components:
      prometheus:
        - kind: Prometheus
          name: observability/k8s
          owned: false
          release: observability/prom
          namespace: observability
          service: prometheus-k8s
          port: 9090
          scheme: http
          path_prefix: ""
          rule_labels: {role: alert-rules}
          rule_namespaces: [observability]
          monitor_labels: {}
          monitor_namespaces: ~
          scrape_interval: 30.0
          reads_rules: true
      prometheus_operator:
        - {kind: Deployment, name: observability/prometheus-operator, owned: false, release: observability/prom}
      gpu_operator:
        - {kind: Deployment, name: gpu-operator/gpu-operator, owned: false, release: gpu-operator/gpu-operator}
      exporter:
        - {kind: DaemonSet, name: gpu-operator/nvidia-dcgm-exporter, owned: false, release: "", origin: gpu-operator}
      host_engine: []
      device_plugin: []
      dra_driver: []
      node_feature_discovery: []
      metrics_apis:
        custom.metrics.k8s.io: {service: observability/prometheus-adapter, owned: false, release: "", is_adapter: true}
duration_s:
  description: Seconds the module took.
  returned: always
  type: float
"""

from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.look_around import look_around
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.outcome import Outcome
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import INVENTORY
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kubeconfig import place_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule

ARGUMENTS: dict[str, Any] = {"wait_timeout": {"type": "int", "default": 60}, **INVENTORY}


def main() -> None:
    module = GpuModule(ARGUMENTS)
    with module.boundary():
        inventory = module.inventory()
        context, server = place_of(module.params)
        place = {"context": context, "server": server}
        try:
            wait_s = 0 if module.check_mode else module.params["wait_timeout"]
            outcome = look_around(module.kube_client, server, inventory, Deadline(wait_s))
        except HopError:
            if not module.check_mode:
                raise
            nothing = {"answers": False, "components": {}, "sees_releases": False, "not_looked_at": {}}
            module.outcome = Outcome(result={**place, **nothing})
        else:
            module.outcome = Outcome(result={**place, "answers": True, **outcome.result})


if __name__ == "__main__":
    main()
