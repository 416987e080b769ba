# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  prometheus:
    description:
      - Where Prometheus is, and how it finds recording rules.
      - Without O(prometheus.url) it is queried through the API server's service proxy. This requires the permission to
        get C(services/proxy), and that the control plane reaches the pod's port, 9090 by default.
    type: dict
    suboptions:
      namespace:
        description: Namespace of the Prometheus service.
        type: str
        default: monitoring
      service:
        description: Name of the Prometheus service.
        type: str
        default: kube-prometheus-stack-prometheus
      port:
        description: Port of the Prometheus service.
        type: int
        default: 9090
      scheme:
        description: Scheme of the Prometheus service.
        type: str
        choices: [http, https]
        default: http
      path_prefix:
        description: Path before C(/api/v1), as C(routePrefix) of the Prometheus object sets it.
        type: str
        default: ""
      url:
        description:
          - URL of Prometheus, or of a server with the same query API, as seen from the controller, including the path
            prefix.
          - It can contain a login, C(https://user:password@host), which no output shows.
          - It replaces O(prometheus.service), O(prometheus.port), O(prometheus.scheme) and O(prometheus.path_prefix).
        type: str
      ca_cert:
        description: File with the CA certificates for O(prometheus.url), instead of the system's certificates.
        type: path
      bearer_token:
        description:
          - Bearer token for O(prometheus.url).
          - The module does not send the token or the login to another host. It fails on such a redirect.
        type: str
      plain_http:
        description:
          - Whether the token, or the login in O(prometheus.url), can be sent over unencrypted HTTP.
          - It is not needed for loopback addresses and names that end in C(.svc) or C(.cluster.local).
        type: bool
        default: false
      rule_namespace:
        description: Namespace for PrometheusRule objects. The default is the namespace of the service.
        type: str
      rule_labels:
        description: Labels by which Prometheus selects PrometheusRule and PodMonitor objects.
        type: dict
        default:
          release: kube-prometheus-stack
      evaluation_interval:
        description:
          - Seconds between two evaluations of a recording rule. It is part of the reaction time.
          - GPU values are smoothed, and their rule is evaluated twice as often, but at most once per second. Therefore
            1 is not faster for GPUs than 2.
        type: int
        default: 2
      selectors:
        description:
          - Labels of the scrape targets that the recording rules use, by input. The inputs are C(exporter),
            C(kube_state_metrics), C(model_servers), and the sources of requests C(istio), C(envoy_gateway),
            C(ingress_nginx) and C(traefik). A label has a value, or a list of values.
          - The default for an input is the job and the cluster label of the only targets that report it. A rule keeps
            them when other targets appear. The module fails if several jobs or clusters report an input.
          - Model servers may be scraped by any job. Their rows count for the pod whose target Prometheus scraped.
          - V({}) uses every target of an input.
        type: dict
"""
