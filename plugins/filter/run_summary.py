# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.run_summary import Run, lines

DOCUMENTATION = r"""
name: run_summary
short_description: Summarize a run
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the last lines of a run, which list the components of the cluster, the addresses of Prometheus and Grafana,
    and the next steps.
options:
  _input:
    description:
      - C(context) and C(server) of the cluster, the path of the C(kubeconfig), the command up to the C(playbook), the
        GPU C(nodes), the C(autoscalers), and the address of C(prometheus). Also C(stack_values), C(release),
        C(grafana_secret) and C(receivers) of the monitoring stack, the line of the C(proof), and the servers that were
        C(left_out).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the summary
  ansible.builtin.debug:
    msg: "{{ run | kubegpu.autoscale.run_summary }}"
  vars:
    run:
      context: gpu
      server: https://192.0.2.1:6443
      kubeconfig: my-servers/.kubegpu/kubeconfig
      playbook: ansible-playbook -i my-servers kubegpu.autoscale
      nodes: []
      autoscalers: []
      prometheus:
        namespace: monitoring
        service: prometheus-operated
        port: 9090
        path_prefix: ""
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
"""


def run_summary(run: Mapping[str, Any]) -> list[str]:
    return lines(Run(**run))


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"run_summary": run_summary}
