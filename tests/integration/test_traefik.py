"""Traefik in front of a workload: it serves documented values, and counts what a demand reads.

It is a process beside the API server, and so are the servers. Pods are objects only.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.request_counters import COUNTERS
from chart_site import operator_crds
from charts_check import releases, render
from collection import ROOT
from control_plane import ControlPlane, eventually, free_port, running, token_of
from kubernetes import client
from metric_chain import MONITORING, MetricChain
from model_servers import DEMO, metric, model_server
from playbook import run_playbook
from programs import FOLDER, program
from prometheus_rules import serve_kind
from workloads import Workloads

Run = Callable[..., dict[str, Any]]
Object = dict[str, Any]

SETTLE_S = 120
# A cost is learned from a minute of requests.
LEARN_S = 150
COST_MS = 40
PROVIDERS = ("kubernetesingress", "kubernetesingressnginx", "kubernetesgateway", "kubernetescrd")
CLASSES = {"traefik": "traefik.io/ingress-controller", "nginx": "k8s.io/ingress-nginx"}
PROMETHEUS = "prometheus.example.com"
USER, PASSWORD = "operator", "not a secret"
CODES = (200, 200, 200, 429, 503, 504, 500, 404)
OFFERED, SERVED = 6, 3
COUNTER = "traefik_service_requests_total{"
RECORDED = ROOT / "tests" / "rules" / "traefik.prom"

# `make test` does not compile it: its own target does.
COMPILED = (FOLDER / "traefik").exists() or bool(os.environ.get("TRAEFIK"))
pytestmark = pytest.mark.skipif(not COMPILED, reason="`make test-traefik` compiles it")


class Traefik:
    """With an entry point for HTTP, one for TLS and one for metrics."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.web, self.secure, self.metrics = free_port(), free_port(), free_port()

    def start(self) -> None:
        cluster = json.loads(self._plane.kubeconfig.read_text())["clusters"][0]["cluster"]
        reached = {
            "endpoint": cluster["server"],
            "token": token_of("admin"),
            "certauthfilepath": cluster["certificate-authority"],
        }
        ports = {"web": self.web, "websecure": self.secure, "metrics": self.metrics}
        self._plane.run(
            "traefik", program("traefik"), "--global.checknewversion=false", "--log.level=INFO",
            *(f"--entrypoints.{name}.address=:{port}" for name, port in ports.items()),
            # The entry points of who says none, as its chart has them.
            "--entrypoints.web.asdefault=true", "--entrypoints.websecure.asdefault=true",
            *(f"--providers.{name}.{key}={value}" for name in PROVIDERS for key, value in reached.items()),
            # The first is the chart's default, the second what an Ingress' path of type Prefix means.
            "--providers.kubernetesingress.allowemptyservices=true",
            "--providers.kubernetesingress.strictprefixmatching=true",
            "--metrics.prometheus=true", "--metrics.prometheus.entrypoint=metrics",
            "--metrics.prometheus.addserviceslabels=true",
        )  # fmt: skip
        eventually(lambda: self.text() != "", "Traefik answers", SETTLE_S)

    def text(self) -> str:
        """What it says to Prometheus."""
        with suppress(urllib3.exceptions.HTTPError):
            return urllib3.request("GET", f"http://127.0.0.1:{self.metrics}/metrics", retries=False).data.decode()
        return ""

    def said(self) -> str:
        """Its log."""
        return (self._plane.work / "traefik.log").read_text()

    def ask(self, host: str, path: str = "/") -> int:
        """The status of an answer, without TLS."""
        address = f"http://127.0.0.1:{self.web}{path}"
        return urllib3.request("GET", address, headers={"Host": host}, retries=False).status

    def ask_by_tls(self, host: str, path: str = "/", login: str = "") -> int:
        """As `ask`. Raises if the certificate is not the one that was made for the host."""
        trusted = self._plane.work / f"{host}.crt"
        with urllib3.HTTPSConnectionPool(
            "127.0.0.1", self.secure, server_hostname=host, assert_hostname=host, ca_certs=str(trusted), retries=False
        ) as pool:
            headers = {"Host": host, **(urllib3.make_headers(basic_auth=login) if login else {})}
            return pool.request("GET", path, headers=headers).status


class ProxiedChain(MetricChain):
    """Prometheus scrapes Traefik, too. Labels of the target go before its own, as with its chart's ServiceMonitor."""

    def __init__(self, plane: ControlPlane, kube: client.ApiClient, traefik: Traefik) -> None:
        super().__init__(plane, kube)
        self._traefik = traefik

    def scrape_configs(self) -> list[Object]:
        labels = {"namespace": "traefik", "service": "traefik-metrics", "pod": "traefik-5b8d7c9f4-x2k4p"}
        target = {"targets": [f"127.0.0.1:{self._traefik.metrics}"], "labels": labels}
        return [*super().scrape_configs(), {"job_name": "traefik-metrics", "static_configs": [target]}]

    def number(self, promql: str) -> float:
        """The only value of an answer; 0 if there is none."""
        found = json.loads(self.answer(promql))["data"]["result"]
        return float(found[0]["value"][1]) if found else 0.0


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, client.ApiClient]]:
    """Of its own: with the kinds that Traefik and the demonstration's chart have."""
    with running(tmp_path_factory.mktemp("control-plane")) as (plane, kube):
        serve_kind(kube)
        monitors = [crd for crd in operator_crds() if crd["spec"]["names"]["kind"] == "PodMonitor"]
        kinds = program("traefik").resolve().parent
        files = [*(kinds / "crds").glob("*_*s.yaml"), kinds / "own-crds" / "kubernetes-crd-definition-v1.yml"]
        definitions = [manifest for file in files for manifest in yaml.safe_load_all(file.read_text()) if manifest]
        apply(plane, *monitors, *definitions)
        names = [f"crd/{crd['metadata']['name']}" for crd in definitions]
        kubectl(plane, "wait", "--for=condition=Established", *names)
        apply(plane, *map(ingress_class, CLASSES))
        yield plane, kube


@pytest.fixture(scope="module")
def kube(plane: tuple[ControlPlane, client.ApiClient]) -> client.ApiClient:
    return plane[1]


@pytest.fixture(scope="module")
def traefik(plane: tuple[ControlPlane, client.ApiClient]) -> Traefik:
    traefik = Traefik(plane[0])
    traefik.start()
    return traefik


@pytest.fixture(scope="module")
def chain(plane: tuple[ControlPlane, client.ApiClient], traefik: Traefik) -> Iterator[ProxiedChain]:
    chain = ProxiedChain(*plane, traefik)
    chain.start()
    apply(plane[0], endpoints(plane[0], MONITORING, "kube-prometheus-stack-prometheus", chain.port))
    yield chain
    chain.stop()


@pytest.fixture(scope="module")
def gateway(plane: tuple[ControlPlane, client.ApiClient], traefik: Traefik) -> None:
    """The one that docs/access.md names, for all namespaces."""
    certificate(plane[0], "gateways", "public", PROMETHEUS)
    listeners = [
        {"name": "http", "protocol": "HTTP", "port": traefik.web},
        {
            "name": "https",
            "protocol": "HTTPS",
            "port": traefik.secure,
            "tls": {"mode": "Terminate", "certificateRefs": [{"name": "public"}]},
        },
    ]
    everybody = {"allowedRoutes": {"namespaces": {"from": "All"}}}
    kind = "gateway.networking.k8s.io/v1"
    apply(
        plane[0],
        {
            "apiVersion": kind,
            "kind": "GatewayClass",
            "metadata": {"name": "traefik"},
            "spec": {"controllerName": "traefik.io/gateway-controller"},
        },
        {
            "apiVersion": kind,
            "kind": "Gateway",
            "metadata": {"name": "public", "namespace": "gateways"},
            "spec": {"gatewayClassName": "traefik", "listeners": [{**row, **everybody} for row in listeners]},
        },
    )


def kubectl(plane: ControlPlane, *words: str, given: str = "") -> str:
    argv = [str(program("kubectl")), f"--kubeconfig={plane.kubeconfig}", *words]
    return subprocess.run(argv, input=given, text=True, check=True, stdout=subprocess.PIPE).stdout


def apply(plane: ControlPlane, *manifests: Object) -> None:
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
    kubectl(plane, "apply", "--server-side", "--force-conflicts", "--filename=-", given=items)


def ingress_class(name: str) -> Object:
    spec = {"controller": CLASSES[name]}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": name}, "spec": spec}


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def service(namespace: str, name: str, number: int = 80, port_name: str = "http") -> Object:
    ports = [{"name": port_name, "port": number, "targetPort": port_name}]
    place = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Service", "metadata": place, "spec": {"ports": ports}}


def endpoints(
    plane: ControlPlane, namespace: str, name: str, port: int, port_name: str = "", ready: bool = True
) -> Object:
    """What the cluster knows of the processes behind a Service."""
    place = {"name": f"{name}-1", "namespace": namespace, "labels": {"kubernetes.io/service-name": name}}
    conditions = {"ready": ready, "serving": ready, "terminating": False}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": place,
        "addressType": "IPv4",
        "endpoints": [{"addresses": [plane.address], "conditions": conditions}],
        "ports": [{"name": port_name, "port": port, "protocol": "TCP"}],
    }


def ingress(namespace: str, name: str, host: str, to: str, port: Object) -> Object:
    path = {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": to, "port": port}}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"ingressClassName": "traefik", "rules": [{"host": host, "http": {"paths": [path]}}]},
    }


def certificate(plane: ControlPlane, namespace_name: str, name: str, host: str) -> None:
    """A Secret with one that only this test trusts."""
    files = [plane.work / f"{host}.{part}" for part in ("key", "crt")]
    if not files[0].exists():
        words = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={host} -addext subjectAltName=DNS:{host}"
        subprocess.run(
            ["openssl", *words.split(), "-keyout", files[0], "-out", files[1]], check=True, capture_output=True
        )
    data = dict(
        zip(("tls.key", "tls.crt"), (base64.b64encode(file.read_bytes()).decode() for file in files), strict=True)
    )
    place = {"name": name, "namespace": namespace_name}
    secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": place, "data": data}
    apply(plane, namespace(namespace_name), secret)


def page_blocks() -> list[Object]:
    texts = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "access.md").read_text(), re.DOTALL)
    return [block for text in texts for block in yaml.safe_load_all(text)]


def page_values(way: str, said: str) -> Object:
    """The values of the page whose Prometheus has this way in, with these words in it."""
    [values] = [
        block
        for block in page_blocks()
        if said in json.dumps(block.get("prometheus_stack_values", {}).get("prometheus", {}).get(way, {}))
    ]
    return values


def page_object(kind: str) -> Object:
    [found] = [block for block in page_blocks() if block.get("kind") == kind]
    return found


def way_in(values: Object, kind: str) -> Object:
    """What the lab's chart makes of the values that the role gives it; charts-check compares it with the original."""
    release = releases({"page": {"prometheus_stack_alertmanager": False, **values, "prometheus_stack_grafana": False}})
    release = release["page"]["kube-prometheus-stack"]
    release["values"]["prometheusOperator"] = {"admissionWebhooks": {"enabled": False}, "tls": {"enabled": False}}
    chart = ROOT / "lab" / "charts" / "kube-prometheus-stack"
    made = render(str(program("helm")), chart, release, switched_on=False)
    [found] = [manifest for key, manifest in made.items() if key.kind == kind]
    return found


def login(plane: ControlPlane) -> str:
    """The Secret of the page: of htpasswd's lines."""
    words = ["openssl", "passwd", "-apr1", PASSWORD]
    line = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    (plane.work / "auth").write_text(f"{USER}:{line}")
    secret = ["generic", "prometheus-login", f"--from-file={plane.work}/auth", "--dry-run=client", "--output=json"]
    apply(plane, json.loads(kubectl(plane, "--namespace", MONITORING, "create", "secret", *secret)))
    return f"{USER}:{PASSWORD}"


@contextmanager
def answering() -> Iterator[int]:
    """The port of a server that answers /code/N with N."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(int(self.path.rpartition("/")[2]))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("0.0.0.0", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def load(traefik: Traefik, host: str, path: str, per_s: float, answers: Counter[int]) -> Iterator[None]:
    """Sends this many requests a second, independent of the responses; `answers` counts by status."""
    clients, over, counting = 16, threading.Event(), threading.Lock()

    def ask(first_s: float) -> None:
        due = first_s
        while not over.wait(max(0.0, due - time.monotonic())):
            due += clients / per_s
            status = traefik.ask(host, path)
            with counting:
                answers[status] += 1

    began = time.monotonic()
    threads = [threading.Thread(target=ask, args=(began + number / per_s,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def total(selectors: tuple[str, ...]) -> str:
    return f"sum({' or '.join(selectors)})"


def test_a_demand_is_made_of_what_traefik_counts(
    run: Run,
    plane: tuple[ControlPlane, client.ApiClient],
    kube: client.ApiClient,
    chain: ProxiedChain,
    traefik: Traefik,
    tmp_path: Path,
) -> None:
    """The demonstration's model by its Ingress: learned from what is served, and grown by what is refused."""
    variables = yaml.safe_load((DEMO / "vars.yml").read_text())
    wanted = {"namespace": "models", "target": {"name": "models-small"}, "max_replicas": 8}
    variables |= {
        "gpu_autoscaling_autoscalers": [{**wanted, "demand": {"source": "traefik"}}],
        "models_values": {"ingress": {"enabled": True, "className": "traefik", "host": "models.example"}},
        "kubegpu_kubeconfig": str(plane[0].kubeconfig),
        "kubegpu_helm_binary": str(program("helm")),
        "gpu_autoscaling_verify": False,
        "gpu_autoscaling_wait": False,
    }
    workloads = Workloads(kube, "beside")
    workloads.node("gpu1", gpus=8)
    done = run_playbook(tmp_path, str(DEMO / "deploy.yml"), variables)
    assert done.returncode == 0
    [(host, path)] = re.findall(r"http://(models\.example)(/\S*small\S*?)\"", done.stdout)

    workloads.namespace, pod = "models", "models-small-6d5f8c7b9-x7k2p"
    workloads.ready_pod(pod, app="models")
    labels = {"labels": {"app.kubernetes.io/name": "models-small"}}
    client.CoreV1Api(kube).patch_namespaced_pod(pod, "models", {"metadata": labels})
    client.AppsV1Api(kube).patch_namespaced_deployment_status("models-small", "models", {"status": {"replicas": 1}})

    port, over = free_port(), threading.Event()
    apply(plane[0], endpoints(plane[0], "models", "models-small", port, "http"))

    def follow() -> None:
        """The GPU is as busy as the server says."""
        then, had = time.monotonic(), 0.0
        while not over.wait(1):
            now, busy_s = time.monotonic(), metric(port, "model_gpu_seconds_total")
            chain.exporter.gpus("models", {pod: round(min(100, 100 * (busy_s - had) / (now - then)))})
            then, had = now, busy_s

    def demand() -> Object:
        return run("gpu_autoscaler_info", namespace="models")["result"]["autoscalers"][0]["demand"]

    def desired() -> int:
        hpa = client.AutoscalingV2Api(kube).read_namespaced_horizontal_pod_autoscaler("models-small", "models")
        return hpa.status.desired_replicas or 0

    counter, answers = COUNTERS["traefik"], Counter[int]()
    with model_server(tmp_path, "small", port, f"--milliseconds={COST_MS}", "--queue=2") as server:
        following = threading.Thread(target=follow)
        following.start()
        try:
            eventually(lambda: traefik.ask(host, path) == 200, "Traefik knows the model", SETTLE_S)
            answers[200] += 1
            assert traefik.ask(host, "/v2/models/none/infer") == 404
            with load(traefik, host, path, per_s=12, answers=answers):
                eventually(lambda: demand()["cost_source"] == "learned", "what a request costs is learned", LEARN_S)
                learned = demand()
                assert 0.8 * COST_MS < 1000 * learned["gpu_seconds_per_request"] < 1.2 * COST_MS
                assert 10 < learned["requests_per_s"] < 14
                assert (learned["in_force"], desired()) == (True, 1)
            # One GPU serves 25 a second. 68 a second cost 2.7 GPUs: five pods at 60 %. A full GPU alone asks for two.
            with load(traefik, host, path, per_s=68, answers=answers):
                eventually(lambda: desired() == 5, "the HPA wants five", SETTLE_S)
                assert 55 < demand()["requests_per_s"] < 80
            assert set(answers) == {200, 503}
            assert answers[503] > answers[200] / 4
        finally:
            over.set()
            following.join()
        server.kill()
        server.wait()
        answers[traefik.ask(host, path)] += 1
    assert answers[502] == 1

    def counts() -> tuple[float, float]:
        sums = (counter.offered("models", "models-small"), counter.served("models", "models-small"))
        return chain.number(total(sums[0])), chain.number(total(sums[1]))

    eventually(lambda: counts() == (answers.total(), answers[200]), f"Prometheus has {answers}", 20)


def gateway_route(name: str, host: str, to: str) -> Object:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {
            "parentRefs": [{"name": "public", "namespace": "gateways", "sectionName": "http"}],
            "hostnames": [host],
            "rules": [{"backendRefs": [{"name": to, "port": 80}]}],
        },
    }


def own_route(name: str, host: str, to: str) -> Object:
    rule = {"kind": "Rule", "match": f"Host(`{host}`)", "services": [{"name": to, "port": 80}]}
    place = {"name": name, "namespace": "ml"}
    spec = {"entryPoints": ["web"], "routes": [rule]}
    return {"apiVersion": "traefik.io/v1alpha1", "kind": "IngressRoute", "metadata": place, "spec": spec}


def test_each_way_to_a_service_is_counted_and_no_other_service(
    plane: tuple[ControlPlane, client.ApiClient], chain: ProxiedChain, traefik: Traefik, gateway: None
) -> None:
    counter = COUNTERS["traefik"]
    hosts = {
        "number.example": ingress("ml", "by-number", "number.example", "chat", {"number": 80}),
        "name.example": ingress("ml", "by-name", "name.example", "chat", {"name": "http"}),
        "route.example": gateway_route("by-route", "route.example", "chat"),
        "own.example": own_route("chat", "own.example", "chat"),
    }
    others = {
        "large.example": ingress("ml", "large", "large.example", "chat-large", {"number": 80}),
        "large-route.example": gateway_route("large", "large-route.example", "chat-large"),
    }
    with answering() as port:
        behind = [
            made
            for name in ("chat", "chat-large")
            for made in (service("ml", name), endpoints(plane[0], "ml", name, port, "http"))
        ]
        apply(plane[0], namespace("ml"), *behind, *hosts.values(), *others.values())
        for host in (*hosts, *others):
            eventually(lambda host=host: traefik.ask(host, "/code/418") == 418, f"{host} is served", SETTLE_S)
            assert [traefik.ask(host, f"/code/{code}") for code in CODES] == list(CODES)

        def counts() -> tuple[float, float]:
            return tuple(chain.number(total(ask("ml", "chat"))) for ask in (counter.offered, counter.served))

        asked = len(hosts)
        eventually(lambda: counts() == (asked * OFFERED, asked * SERVED), "Prometheus has them", 20)

        counted = counters(traefik)
        # What rules are tested with: tests/rules/test_demand_rules.py.
        assert counted == RECORDED.read_text().splitlines(), "\n".join(counted)

        # Without a pod that is ready Traefik answers itself, and counts it for no Service.
        apply(plane[0], endpoints(plane[0], "ml", "chat", port, "http", ready=False))
        eventually(lambda: traefik.ask("number.example", "/code/418") == 503, "no pod is ready", SETTLE_S)
        [refused] = [line for line in counters(traefik) if "ml-chat-80@" in line and 'code="503"' in line]
        assert refused.endswith(" 1")


def counters(traefik: Traefik) -> list[str]:
    return [line for line in traefik.text().splitlines() if line.startswith(COUNTER) and 'service="ml-' in line]


@pytest.mark.parametrize(
    ("way", "kind", "said"),
    [
        ("ingress", "Ingress", "traefik.ingress.kubernetes.io"),
        ("ingress", "Ingress", "nginx.ingress.kubernetes.io"),
        ("route", "HTTPRoute", "traefik.io"),
    ],
    ids=["ingress", "annotations-of-ingress-nginx", "route"],
)
def test_prometheus_behind_a_login_is_served_with_it_alone(
    way: str,
    kind: str,
    said: str,
    plane: tuple[ControlPlane, client.ApiClient],
    chain: ProxiedChain,
    traefik: Traefik,
    gateway: None,
) -> None:
    """As docs/access.md writes it, through the role's values."""
    right, path = login(plane[0]), "/api/v1/query?query=up"
    certificate(plane[0], MONITORING, "prometheus-tls", PROMETHEUS)
    apply(plane[0], page_object("Middleware"))
    made = way_in(page_values(way, said), kind)
    apply(plane[0], made)
    try:
        eventually(lambda: traefik.ask_by_tls(PROMETHEUS, path, right) == 200, "it is served", SETTLE_S)
        assert traefik.ask_by_tls(PROMETHEUS, path) == 401
        assert traefik.ask_by_tls(PROMETHEUS, path, f"{USER}:guessed") == 401
        assert traefik.ask(PROMETHEUS, path) in (301, 302, 307, 308, 404)
        if kind == "HTTPRoute":
            assert conditions(plane[0], MONITORING, made["metadata"]["name"]) == {
                "Accepted": True,
                "ResolvedRefs": True,
            }
    finally:
        kubectl(plane[0], "--namespace", MONITORING, "delete", kind, made["metadata"]["name"])
        eventually(lambda: unreachable(traefik, path), "it is gone", SETTLE_S)


@pytest.mark.parametrize(
    ("case", "status"),
    [("no Middleware", 404), ("a filter of another gateway", 500), ("annotations of another controller", 200)],
)
def test_what_comes_of_a_login_that_traefik_does_not_know(
    case: str,
    status: int,
    plane: tuple[ControlPlane, client.ApiClient],
    chain: ProxiedChain,
    traefik: Traefik,
    gateway: None,
) -> None:
    """Access is denied, except with annotations that it ignores: the role rejects these."""
    right = login(plane[0])
    certificate(plane[0], MONITORING, "prometheus-tls", PROMETHEUS)
    kubectl(plane[0], "--namespace", MONITORING, "delete", "middleware", "login", "--ignore-not-found")
    if case == "a filter of another gateway":
        made = way_in(page_values("route", "traefik.io"), "HTTPRoute")
        [unknown] = made["spec"]["rules"][0]["filters"]
        unknown["extensionRef"] |= {"group": "gateway.nginx.org", "kind": "AuthenticationFilter"}
    else:
        made = way_in(page_values("ingress", f"{'nginx' if 'annotations' in case else 'traefik'}.ingress"), "Ingress")
        made["spec"]["ingressClassName"] = "traefik"
    apply(plane[0], made)
    try:
        if status == 200:  # without TLS as well
            eventually(lambda: traefik.ask(PROMETHEUS, "/-/healthy") == 200, "everybody gets in", SETTLE_S)
            return
        if status == 404:
            eventually(lambda: "monitoring-login@kubernetescrd" in traefik.said(), "Traefik misses it", SETTLE_S)
        else:
            eventually(lambda: traefik.ask_by_tls(PROMETHEUS, "/-/healthy") == status, f"it answers {status}", SETTLE_S)
        assert traefik.ask_by_tls(PROMETHEUS, "/-/healthy", right) == status
    finally:
        kubectl(plane[0], "--namespace", MONITORING, "delete", made["kind"], made["metadata"]["name"])
        eventually(lambda: unreachable(traefik, "/-/healthy"), "it is gone", SETTLE_S)


def unreachable(traefik: Traefik, path: str) -> bool:
    """Without the certificate's host, or without a route."""
    with suppress(urllib3.exceptions.SSLError):
        return traefik.ask_by_tls(PROMETHEUS, path) == 404
    return True


def conditions(plane: ControlPlane, namespace: str, name: str) -> dict[str, bool]:
    """The gateway's status of a route."""
    text = kubectl(plane, "--namespace", namespace, "get", "httproute", name, "--output=json")
    parents = json.loads(text).get("status", {}).get("parents", [])
    return {row["type"]: row["status"] == "True" for parent in parents for row in parent["conditions"]}
