# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  prometheus:
    description:
      - Where Prometheus is, and how it finds recording rules.
      - Without O(prometheus.url) it is asked through the API server's service proxy. That needs the right to get
        C(services/proxy), and the control plane has to reach the pod's port, 9090 by default.
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
      scheme:
        description:
          - How the service is asked.
        type: str
        choices: [http, https]
        default: http
      path_prefix:
        description:
          - Path before C(/api/v1), as C(routePrefix) of the Prometheus object sets it.
        type: str
        default: ""
      url:
        description:
          - Address of Prometheus, or of what answers its queries, as this controller reaches it, path prefix included.
          - It may have a login, C(https://user:password@host). No output shows the login.
          - It replaces O(prometheus.service), O(prometheus.port), O(prometheus.scheme) and O(prometheus.path_prefix).
        type: str
      ca_cert:
        description:
          - File with the certificates to trust for O(prometheus.url), in place of the system's.
        type: path
      bearer_token:
        description:
          - Token to log in with at O(prometheus.url).
          - A redirect to another host gets neither the token nor the login, and fails the module.
        type: str
      plain_http:
        description:
          - Whether the token, or the login in O(prometheus.url), may be sent by unencrypted HTTP.
          - Loopback addresses and names that end in C(.svc) or C(.cluster.local) need no permission.
        type: bool
        default: false
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
          - What GPUs do is smoothed. Its rule is evaluated twice as often, at most each second.
          - So 1 is no sooner for GPUs than 2.
        type: int
        default: 2
      exporter_labels:
        description:
          - Labels of the scrape targets that recording rules believe about GPUs.
          - By default the job of the only target that reports GPUs. A rule keeps it when other jobs appear.
          - Add the cluster's external label if Prometheus has the series of several clusters.
          - V({}) believes every target.
        type: dict
"""
