# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  prometheus:
    description:
      - Where Prometheus is, reached through the API server, and how it finds recording rules.
    type: dict
    suboptions:
      namespace:
        description:
          - Namespace of its service.
        type: str
        default: monitoring
      service:
        description:
          - Name of its service.
        type: str
        default: kube-prometheus-stack-prometheus
      port:
        description:
          - Port of its service.
        type: int
        default: 9090
      rule_namespace:
        description:
          - Namespace for PrometheusRule objects. That of the service if not given.
        type: str
      rule_labels:
        description:
          - Labels that Prometheus selects PrometheusRule objects by.
        type: dict
        default:
          release: kube-prometheus-stack
      evaluation_interval:
        description:
          - Seconds between two evaluations of a recording rule. It is part of the time to react to load.
        type: int
        default: 2
"""
