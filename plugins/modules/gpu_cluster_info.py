#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_cluster_info
short_description: Detect the components of a cluster from its GPUs to the HPA, and who manages them
version_added: 0.1.0
description:
  - Waits until the cluster answers, and detects the components of the chain, independent of their names and namespaces.
    These are Prometheus and its operator, dcgm-exporter, device plugin or DRA driver, NVIDIA's GPU operator,
    node-feature-discovery, and the servers of the metrics APIs.
  - Reports for each component whether this collection manages it.
  - Fails if the kubeconfig has several contexts and O(context) is not set.
author:
  - kubegpu.autoscale contributors (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.cluster
  - kubegpu.autoscale.reads
  - kubegpu.autoscale.inventory
options:
  wait_timeout:
    description: Seconds to wait until the cluster answers. In check mode the cluster can be missing.
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Detect the components of the cluster
  kubegpu.autoscale.gpu_cluster_info:
    kubeconfig: ~/.kube/config
    context: gpus-in-europe
  register: cluster

- name: Show the name of its Prometheus
  ansible.builtin.debug:
    msg: "{{ cluster.result.components.prometheus | map(attribute='name') }}"
"""

RETURN = r"""
result:
  description: The detected components.
  returned: success
  type: dict
  contains:
    answers: {description: "Whether the cluster answers. V(false) is possible only in check mode.", type: bool}
    context: {description: "Name of the context. Empty if no kubeconfig was read.", type: str}
    server: {description: Address of the API server., type: str}
    components:
      description:
        - C(prometheus), C(prometheus_operator), C(gpu_operator), C(exporter), C(host_engine), C(device_plugin),
          C(dra_driver) and C(node_feature_discovery) are lists.
        - C(metrics_apis) has the server of each API, by API group.
        - A host engine is a DCGM service that exporters connect to.
        - C(owned) shows whether this collection manages the component for O(inventory_id).
        - C(release) is the namespace and name of its Helm release.
        - A component that runs on nodes with GPUs has C(origin), one of C(kubegpu), C(gpu-operator), C(gke), C(helm),
          C(manifest) and C(node). The last one is a device plugin that is part of the node's image. Of a DaemonSet,
          C(depends_on_variable) is whether it gets or gives GPUs by the environment of an unprivileged container, and
          C(is_rolled_out) whether all of its pods are from after its last change.
        - A Prometheus has its service and port, C(scheme) and C(path_prefix), and the labels and namespaces by which it
          selects PrometheusRules and monitors. V(none) means all namespaces.
      type: dict
    sees_releases:
      description: Whether Helm's release records could be read. V(false) without permission to list Secrets.
      type: bool
    serves_monitors:
      description: Whether the cluster serves the kind ServiceMonitor. Also V(true) if that could not be determined.
      type: bool
    runtime_classes:
      description: Names of the RuntimeClasses. Null without permission to list them.
      type: list
      elements: str
    not_looked_at:
      description: Each kind that could not be read, with the missing permission. Any other error fails the module.
      type: dict
  sample:
    answers: true
    context: gpus-in-europe
    server: https://192.0.2.10:6443
    sees_releases: true
    serves_monitors: true
    runtime_classes: [nvidia]
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
        - kind: DaemonSet
          name: gpu-operator/nvidia-dcgm-exporter
          owned: false
          release: ""
          origin: gpu-operator
          depends_on_variable: false
          is_rolled_out: true
      host_engine: []
      device_plugin: []
      dra_driver: []
      node_feature_discovery: []
      metrics_apis:
        custom.metrics.k8s.io: {service: observability/prometheus-adapter, owned: false, release: "", is_adapter: true}
duration_s: {description: Run time of the module in seconds., returned: always, type: float}
"""

from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.outcome import Outcome
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.survey_cluster import survey_cluster
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import INVENTORY
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kubeconfig import place_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.no_answer import LastingFailure
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
            outcome = survey_cluster(module.kube_client, server, inventory, Deadline(wait_s))
        except HopError as err:
            if not module.check_mode or isinstance(err, LastingFailure):
                raise
            nothing = {"answers": False, "components": {}, "sees_releases": False, "not_looked_at": {}}
            module.outcome = Outcome(result={**place, **nothing})
        else:
            module.outcome = Outcome(result={**place, "answers": True, **outcome.result})


if __name__ == "__main__":
    main()
