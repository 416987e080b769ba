"""From an exporter to custom.metrics.k8s.io: real Prometheus and prometheus-adapter beside the control plane.

The stand-ins are the exporter, which serves the text that a test sets, and the operator's part of loading rules.
"""

from __future__ import annotations

import json
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml
from collection import ROOT
from control_plane import ControlPlane, eventually, free_port
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from programs import program
from urllib3.exceptions import HTTPError

MONITORING = "monitoring"
STARTUP_S = 300
# Scrape, evaluation and the adapter's relist take a few seconds in this chain, and many on a busy machine.
PROOF_S = 120
RELOAD_S = 30  # for one request; the next one tries again

# What metrics-server would say of the pods: the adapter can serve metrics.k8s.io as well.
USAGE = {
    "containerQuery": "sum by (<<.GroupBy>>) (container_usage{<<.LabelMatchers>>})",
    "nodeQuery": "sum by (<<.GroupBy>>) (node_usage{<<.LabelMatchers>>})",
    "resources": {"overrides": {name: {"resource": name} for name in ("namespace", "pod", "node")}},
    "containerLabel": "container",
}
ADAPTER_VALUES = yaml.safe_load((ROOT / "roles" / "prometheus_adapter" / "vars" / "main.yml").read_text())


def have_namespace(core: client.CoreV1Api, name: str) -> None:
    """Create it, unless another test of the session did."""
    try:
        core.create_namespace({"metadata": {"name": name}})
    except ApiException as err:
        if err.status != 409:
            raise


class Exporter:
    """Serves `text` as /metrics, and what `counters` gives at that moment."""

    def __init__(self) -> None:
        self.text = ""
        self.counters: Callable[[], str] = str
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = (exporter.text + exporter.counters()).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: object) -> None:
                """Scrapes are not worth a line."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def gpus(self, namespace: str, utilisation: dict[str, float]) -> None:
        """One GPU for each pod, as dcgm-exporter reports it."""
        self.text = "".join(
            f'DCGM_FI_DEV_GPU_UTIL{{gpu="{number}",UUID="GPU-{number}",namespace="{namespace}",pod="{pod}",'
            f'container="main"}} {percent}\n'
            for number, (pod, percent) in enumerate(utilisation.items())
        )

    def stop(self) -> None:
        self._server.shutdown()


class RuleLoader:
    """The operator's part, and its reloader's: rules with the selected label become Prometheus' rule file.

    What Prometheus has not taken is offered again: one refused or lost request must not end the loading of all rules.
    """

    def __init__(self, path: Path, kube: client.ApiClient, prometheus_port: int) -> None:
        self._path = path
        self._path.write_text("groups: []")
        self._objects = client.CustomObjectsApi(kube)
        self._reload = f"http://127.0.0.1:{prometheus_port}/-/reload"
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _follow(self) -> None:
        loaded = self._path.read_text()
        while not self._stopped.wait(0.2):
            with suppress(OSError, ApiException, HTTPError):
                rules = json.dumps({"groups": self._groups()})
                if rules != loaded:
                    self._path.write_text(rules)
                    request = urllib.request.Request(self._reload, method="POST")
                    urllib.request.urlopen(request, timeout=RELOAD_S).close()
                    loaded = rules

    def _groups(self) -> list[dict[str, Any]]:
        try:
            found = self._objects.list_namespaced_custom_object(
                "monitoring.coreos.com",
                "v1",
                MONITORING,
                "prometheusrules",
                label_selector="release=kube-prometheus-stack",
                _request_timeout=RELOAD_S,
            )
        except ApiException as error:
            if error.status == HTTPStatus.NOT_FOUND:  # the kind is not served
                return []
            raise
        return [group for rule in found["items"] for group in rule["spec"]["groups"]]


class MetricChain:
    """interval_s: between two scrapes, and two evaluations of rules that have no interval of their own.

    adapter_rules: more than the role's.
    """

    def __init__(
        self,
        plane: ControlPlane,
        kube: client.ApiClient,
        *,
        interval_s: int = 1,
        adapter_rules: Sequence[dict[str, Any]] = (),
    ) -> None:
        self._adapter_rules = adapter_rules
        self.exporter = Exporter()
        self._plane = plane
        self._kube = kube
        self._interval = f"{interval_s}s"
        self.port, self._adapter = free_port(), free_port()
        self._rules = RuleLoader(plane.work / "rules.yml", kube, self.port)

    def scrape_configs(self) -> list[dict[str, Any]]:
        """Of Prometheus."""
        targets = [{"targets": [f"127.0.0.1:{self.exporter.port}"]}]
        # A recorded series has no job, and the adapter serves no other. Some tests scrape their values in its place.
        as_recorded = {
            "source_labels": ["__name__"],
            "regex": "(namespace_.+|gpu|external):.+",
            "target_label": "job",
            "replacement": "",
        }
        scraped = {"job_name": "dcgm-exporter", "honor_labels": True, "static_configs": targets}
        return [{**scraped, "metric_relabel_configs": [as_recorded]}]

    def external_labels(self) -> dict[str, str]:
        """Labels that Prometheus adds to what others read from it."""
        return {}

    def external_rules(self) -> list[dict[str, Any]]:
        """Of the adapter."""
        return [
            *ADAPTER_VALUES["__prometheus_adapter_external_rules"],
            *ADAPTER_VALUES["__prometheus_adapter_fleet_rules"],
        ]

    def adapter_flags(self) -> Sequence[str]:
        """How long the adapter lives with what it knows; seconds, for tests."""
        return "--metrics-relist-interval=2s", "--metrics-max-age=20s", "--lister-kubeconfig=kubeconfig"

    def start(self) -> None:
        plane = self._plane
        _write(plane, "prometheus.yml", {
            "global": {"scrape_interval": self._interval, "evaluation_interval": self._interval}
            | {"external_labels": self.external_labels()},
            "rule_files": ["rules.yml", "alerts.yml"],
            "scrape_configs": self.scrape_configs(),
        })  # fmt: skip
        rules = {
            "rules": [*ADAPTER_VALUES["__prometheus_adapter_rules"], *self._adapter_rules],
            "externalRules": self.external_rules(),
            "resourceRules": {"cpu": USAGE, "memory": USAGE, "window": "1s"},
        }
        _write(plane, "adapter.yml", rules)
        plane.run(
            "prometheus", program("prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=tsdb",
            f"--web.listen-address=0.0.0.0:{self.port}", "--web.enable-lifecycle",
        )  # fmt: skip
        plane.run(
            "prometheus-adapter", program("prometheus-adapter"), f"--secure-port={self._adapter}",
            "--cert-dir=adapter", f"--prometheus-url=http://127.0.0.1:{self.port}", "--config=adapter.yml",
            *self.adapter_flags(),
            "--authentication-kubeconfig=kubeconfig", "--authorization-kubeconfig=kubeconfig",
        )  # fmt: skip
        self._publish()
        eventually(self._ready, "Prometheus is ready", STARTUP_S)
        self._rules.start()

    def stop(self) -> None:
        self._rules.stop()
        self.exporter.stop()

    def series(self) -> str:
        """What Prometheus has of the exporter's series now, as text to look into."""
        return self.answer('{job="dcgm-exporter"}')

    def answer(self, promql: str) -> str:
        """What Prometheus says to a query now, as text."""
        query = urllib.parse.urlencode({"query": promql})
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?{query}") as answer:
            return answer.read().decode()

    def records(self, series: str) -> bool:
        """Whether Prometheus has loaded a rule that makes it."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/rules") as answer:
            return f'"name":"{series}"' in answer.read().decode()

    @contextmanager
    def adapter_away(self) -> Iterator[None]:
        """The adapter has no endpoint, and the API server has noticed; at the end it has noticed the return."""
        slices, services = client.DiscoveryV1Api(self._kube), client.ApiregistrationV1Api(self._kube)
        found = slices.read_namespaced_endpoint_slice("adapter", MONITORING)
        found.metadata.resource_version = None

        def is_available() -> bool:
            return _is_available(services.read_api_service("v1beta1.custom.metrics.k8s.io"))

        slices.delete_namespaced_endpoint_slice("adapter", MONITORING)
        try:
            eventually(lambda: not is_available(), "the adapter is missed", PROOF_S)
            yield
        finally:
            slices.create_namespaced_endpoint_slice(MONITORING, found)
            eventually(is_available, "the adapter is back", PROOF_S)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready") as answer:
                return answer.status == 200
        except OSError:
            return False

    def _publish(self) -> None:
        """Make both reachable through the API server, under the names that the charts give them."""
        core = client.CoreV1Api(self._kube)
        have_namespace(core, MONITORING)
        pod = {
            "metadata": {"name": "prometheus-0", "namespace": MONITORING},
            "spec": {"containers": [{"name": "prometheus", "image": "prometheus"}]},
        }
        core.create_namespaced_pod(MONITORING, pod)
        # The API server forwards to addresses of pods only.
        status = {"phase": "Running", "podIP": self._plane.address, "podIPs": [{"ip": self._plane.address}]}
        core.patch_namespaced_pod_status("prometheus-0", MONITORING, {"status": status})
        self._service("kube-prometheus-stack-prometheus", 9090, self.port)
        # The service proxy forwards to pods only.
        reference = {"kind": "Pod", "name": "prometheus-0", "namespace": MONITORING}
        self._slice("prometheus", "kube-prometheus-stack-prometheus", self.port, targetRef=reference)
        self._service("prometheus-adapter", 443, self._adapter)
        self._slice("adapter", "prometheus-adapter", self._adapter)
        self._publish_api("custom.metrics.k8s.io")

    @contextmanager
    def api(self, name: str) -> Iterator[None]:
        """Another API of the adapter: external.metrics.k8s.io or metrics.k8s.io."""
        services = client.ApiregistrationV1Api(self._kube)
        self._publish_api(name)
        try:
            eventually(lambda: _is_available(services.read_api_service(f"v1beta1.{name}")), f"{name} is there", PROOF_S)
            yield
        finally:
            services.delete_api_service(f"v1beta1.{name}")

    def _publish_api(self, group: str) -> None:
        client.ApiregistrationV1Api(self._kube).create_api_service(
            {
                "metadata": {"name": f"v1beta1.{group}"},
                "spec": {
                    "group": group, "version": "v1beta1", "groupPriorityMinimum": 100,
                    "versionPriority": 100, "insecureSkipTLSVerify": True,
                    "service": {"name": "prometheus-adapter", "namespace": MONITORING},
                },
            }
        )  # fmt: skip

    def _slice(self, name: str, service: str, port: int, **more: Any) -> None:
        """The endpoints of a Service, which no controller creates here."""
        endpoint = {"addresses": [self._plane.address], "conditions": {"ready": True}, **more}
        client.DiscoveryV1Api(self._kube).create_namespaced_endpoint_slice(
            MONITORING,
            {
                "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
                "addressType": "IPv4",
                "endpoints": [endpoint],
                "ports": [{"port": port, "protocol": "TCP"}],
            },
        )

    def _service(self, name: str, port: int, target: int) -> None:
        service = {"metadata": {"name": name}, "spec": {"ports": [{"port": port, "targetPort": target}]}}
        client.CoreV1Api(self._kube).create_namespaced_service(MONITORING, service)


def _is_available(service: client.V1APIService) -> bool:
    conditions = service.status.conditions or [] if service.status else []
    return any(condition.type == "Available" and condition.status == "True" for condition in conditions)


def _write(plane: ControlPlane, name: str, content: object) -> None:
    (plane.work / name).write_text(yaml.safe_dump(content))
