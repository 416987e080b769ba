# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Sources of request counts by outcome: a row for each proxy with known counters."""

from __future__ import annotations

from dataclasses import dataclass
from string import Template

from .promql import literal, quoted

# Traefik's name of a Service and its port: of an Ingress, an HTTPRoute, and an IngressRoute of that name.
# Prometheus parses a rule's text at each evaluation, and an expression such as [^-@] costs 5 ms each time.
_TRAEFIK = "$in_namespace-$named-([a-z0-9]+@kubernetes(crd)?|http-[a-z0-9]+@kubernetesgateway)"
# Outcomes of requests that need GPU time: they got it, or there was too little. More pods would not help a client's
# error or a crash (500), but if counted, they would request pods. Requests that time out (504) or are cancelled
# (`aborted`) had reached a pod. GPU time without counted requests would increase the cost of others. Dynamo rejects
# with 529.
_SERVED = ("2..", "504")
_REJECTED = ("429", "502", "503", "529")
# gRPC rejects with HTTP's 200: exhausted, unavailable. Source: grpc.io/docs/guides/status-codes.
_REFUSED_BY_GRPC = "8|14"


@dataclass(frozen=True)
class RequestCounter:
    """How one kind of proxy counts requests. All count a request at its answer, Envoy at the headers of the answer.

    rows:   selectors, one for each way of scraping, with the place of the input's labels. `$namespace` and `$name`
            identify the workload, as strings; `$in_namespace` and `$named` are the same inside a regular expression.
            `$codes` is one of HTTP codes.
    named:  kind of the object named `$name`.
    scrape: what Prometheus must scrape.
    grpc:    label with the gRPC code, if there is one.
    aborted: code of a request whose client disconnected before the answer; empty if such requests are not counted.
    dots:    whether a name with a dot is counted under the same series as one without.
    """

    rows: tuple[str, ...]
    named: str
    scrape: str
    grpc: str = ""
    aborted: str = "499"
    dots: bool = True

    def offered(self, namespace: str, name: str) -> tuple[str, ...]:
        return self._selectors(namespace, name, (*_SERVED, *_REJECTED))

    def served(self, namespace: str, name: str) -> tuple[str, ...]:
        taken = f',{self.grpc}!~"{_REFUSED_BY_GRPC}"}}' if self.grpc else "}"
        return tuple(row[:-1] + taken for row in self._selectors(namespace, name, _SERVED))

    def _selectors(self, namespace: str, name: str, counted: tuple[str, ...]) -> tuple[str, ...]:
        codes = "|".join(filter(None, (*counted, self.aborted)))
        names = {
            "namespace": quoted(namespace),
            "name": quoted(name),
            # A part of a pattern that is already quoted.
            "in_namespace": quoted(literal(namespace))[1:-1],
            "named": quoted(literal(name))[1:-1],
        }
        return tuple(Template(row).substitute(names, codes=codes) for row in self.rows)


COUNTERS: dict[str, RequestCounter] = {
    "istio": RequestCounter(
        # The proxies of the callers also count requests that reach no pod, of which they know only the Service.
        (
            'istio_requests_total{reporter="source",destination_service_namespace=$namespace,'
            'destination_service_name=$name,response_code=~"$codes",<istio>}',
        ),
        named="Service",
        scrape="the proxies of the callers, gateways among them",
        # Source: istio.io/latest/docs/reference/config/metrics, label "gRPC Response Status".
        grpc="grpc_response_status",
        aborted="0",
    ),
    "envoy_gateway": RequestCounter(
        (
            'envoy_cluster_upstream_rq{envoy_cluster_name=~"httproute/$in_namespace/$named/rule/.+",'
            'envoy_response_code=~"$codes",<envoy_gateway>}',
        ),
        named="HTTPRoute",
        scrape="the proxies of Envoy Gateway, port 19001, path /stats/prometheus",
        aborted="",
        # Envoy treats the text after the first dot of a cluster's name as part of the series' name.
        dots=False,
    ),
    "ingress_nginx": RequestCounter(
        (
            'nginx_ingress_controller_requests{exported_namespace=$namespace,ingress=$name,status=~"$codes",'
            "<ingress_nginx>}",
            # honorLabels: true, or a job without target labels.
            'nginx_ingress_controller_requests{exported_namespace="",namespace=$namespace,ingress=$name,'
            'status=~"$codes",<ingress_nginx>}',
        ),
        named="Ingress",
        scrape="the controller, which its chart does with controller.metrics.enabled and a ServiceMonitor",
    ),
    "traefik": RequestCounter(
        (
            # Its chart's ServiceMonitor: the target has its own label `service`.
            f'traefik_service_requests_total{{exported_service=~"{_TRAEFIK}",code=~"$codes",<traefik>}}',
            # A PodMonitor, honorLabels: true, or a job without target labels.
            f'traefik_service_requests_total{{exported_service="",service=~"{_TRAEFIK}",code=~"$codes",<traefik>}}',
        ),
        named="Service that an Ingress or HTTPRoute names, or an IngressRoute",
        scrape="Traefik, with labels of services, as is its default",
    ),
}
