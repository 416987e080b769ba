"""Module custom_metric_info against real prometheus-adapters behind a real API server."""

from __future__ import annotations

import re
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from control_plane import ControlPlane, eventually, free_port, token_of
from kubernetes import client
from metric_chain import ADAPTER_VALUES, MONITORING, MetricChain
from programs import program
from workloads import Workloads

Ask = Callable[..., dict[str, Any]]

# Long enough for scrape and relist in this chain.
LISTED_S = 120
# Long enough for several readings; a broken part does not repair itself.
FAILURE_S = 3

VALUES = "result.samples && length(result.missing) == `0`"


@pytest.fixture
def ask(run: Callable[..., dict[str, Any]]) -> Ask:
    def ask(**options: Any) -> dict[str, Any]:
        return run("custom_metric_info", **{"metric": "gpu", "wait_sleep": 1, **options})

    return ask


@pytest.fixture
def workloads(kube: client.ApiClient, chain: MetricChain, request: pytest.FixtureRequest) -> Iterator[Workloads]:
    """A namespace of its own for one test; recorded series come from the exporter, so that no rule is needed."""
    workloads = Workloads(kube, namespace=re.sub("[^a-z0-9]+", "-", request.node.name.lower())[5:60].strip("-"))
    yield workloads
    chain.exporter.text = ""
    workloads.remove()


@pytest.fixture
def record(chain: MetricChain, workloads: Workloads) -> Callable[..., None]:
    """Sets what is recorded of each pod."""

    def record(metric: str = "gpu", **values: float) -> None:
        chain.exporter.text = "".join(
            f'namespace_pod:{metric}:avg{{namespace="{workloads.namespace}",pod="{pod.replace("_", "-")}"}} {value}\n'
            for pod, value in values.items()
        )

    return record


@pytest.fixture
def background() -> Iterator[Callable[..., Future[dict[str, Any]]]]:
    with ThreadPoolExecutor() as pool:
        yield pool.submit


@pytest.fixture
def outage(kube: client.ApiClient) -> Iterator[Callable[[], None]]:
    """The adapter has no endpoint until what this gives is called, or the test is over."""
    slices = client.DiscoveryV1Api(kube)
    found = slices.read_namespaced_endpoint_slice("adapter", MONITORING)
    found.metadata.resource_version = None
    slices.delete_namespaced_endpoint_slice("adapter", MONITORING)

    def end() -> None:
        if not slices.list_namespaced_endpoint_slice(MONITORING, field_selector="metadata.name=adapter").items:
            slices.create_namespaced_endpoint_slice(MONITORING, found)

    eventually(lambda: not _is_available(kube, "v1beta1.custom.metrics.k8s.io"), "the adapter is missed", LISTED_S)
    yield end
    end()
    eventually(lambda: _is_available(kube, "v1beta1.custom.metrics.k8s.io"), "the adapter is back", LISTED_S)


def _is_available(kube: client.ApiClient, name: str) -> bool:
    conditions = client.ApiregistrationV1Api(kube).read_api_service(name).status.conditions or ()
    return any(condition.type == "Available" and condition.status == "True" for condition in conditions)


def prometheus_port(kube: client.ApiClient) -> int:
    service = client.CoreV1Api(kube).read_namespaced_service("kube-prometheus-stack-prometheus", MONITORING)
    return service.spec.ports[0].target_port


def queries(kube: client.ApiClient) -> int:
    """How often Prometheus was asked: once for each question to the adapter."""
    with urllib.request.urlopen(f"http://127.0.0.1:{prometheus_port(kube)}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    counts = [line for line in lines if re.match(r'prometheus_http_requests_total\{.*handler="/api/v1/query"', line)]
    return sum(int(line.rpartition(" ")[2]) for line in counts)


def looks_at_apiservices(control_plane: ControlPlane, kube: client.ApiClient) -> int:
    """How often one was read: once for each look that finds the API away."""
    credential = {"Authorization": f"Bearer {token_of('admin')}"}
    request = urllib.request.Request(f"{kube.configuration.host}/metrics", headers=credential)
    trusted = ssl.create_default_context(cafile=str(control_plane.work / "certs" / "apiserver.crt"))
    with urllib.request.urlopen(request, context=trusted) as answer:
        lines = answer.read().decode().splitlines()
    counts = [line for line in lines if re.match(r'apiserver_request_total\{.*"apiservices".*verb="GET"', line)]
    return sum(int(line.rpartition(" ")[2]) for line in counts)


def by_name(result: dict[str, Any]) -> dict[str, float]:
    return {item["name"]: item["value"] for item in result["result"]["samples"]}


def test_the_values_of_a_target_and_of_nothing_else(
    ask: Ask, workloads: Workloads, record: Callable[..., None]
) -> None:
    workloads.deployment("chat")
    for pod, app in (("chat-0", "chat"), ("chat-1", "chat"), ("embed-0", "embed")):
        workloads.ready_pod(pod, app=app)
    record(chat_0=41.5, chat_1=0, embed_0=77)
    target = {"namespace": workloads.namespace, "target": {"name": "chat"}}
    result = ask(**target, until=f"{VALUES} && result.listed", wait_timeout=LISTED_S)
    assert not result.get("failed")
    assert result["changed"] is False
    assert by_name(result) == {"chat-0": 41.5, "chat-1": 0}
    [first, _second] = result["result"]["samples"]
    assert (first["kind"], first["namespace"], first["labels"]) == ("Pod", workloads.namespace, {})
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", first["timestamp"])
    assert {key: result["result"][key] for key in ("api", "metric", "namespace", "listed", "missing", "hop")} == {
        "api": "custom",
        "metric": "gpu",
        "namespace": workloads.namespace,
        "listed": True,
        "missing": [],
        "hop": None,
    }
    assert by_name(ask(check=True, **target)) == by_name(result)


def test_pods_by_label_by_name_and_all(ask: Ask, workloads: Workloads, record: Callable[..., None]) -> None:
    for pod, app in (("chat-0", "chat"), ("embed-0", "embed"), ("embed-1", "embed")):
        workloads.ready_pod(pod, app=app)
    record(chat_0=1, embed_0=2, embed_1=3)
    here = {"namespace": workloads.namespace}
    assert by_name(ask(**here, until="length(result.samples) == `3`", wait_timeout=LISTED_S)).keys() == {
        "chat-0",
        "embed-0",
        "embed-1",
    }
    assert by_name(ask(**here, label_selectors=["app in (embed, x)"])) == {"embed-0": 2, "embed-1": 3}
    assert by_name(ask(**here, label_selectors=["app = embed", "app notin (embed)"])) == {}
    assert by_name(ask(**here, name="embed-1")) == {"embed-1": 3}


def test_a_metric_of_a_namespace(ask: Ask, workloads: Workloads, record: Callable[..., None]) -> None:
    record(chat_0=12.5)
    result = ask(resource="namespaces", name=workloads.namespace, until="result.samples", wait_timeout=LISTED_S)
    assert by_name(result) == {workloads.namespace: 12.5}
    assert result["result"]["samples"][0]["kind"] == "Namespace"
    assert result["result"]["namespace"] is None
    assert by_name(ask(resource="namespaces", namespace=workloads.namespace)) == by_name(result)


# What is not there: an answer for one look, a failure with the same hop for a wait.


def broken(ask: Ask, **options: Any) -> dict[str, Any]:
    """The result of one look, after a wait for values has failed at the same hop."""
    look = ask(**options)
    assert not look.get("failed")
    wait = ask(**options, until="result.samples", wait_timeout=FAILURE_S)
    assert wait["failed"]
    assert (wait["hop"], wait["fix"]) == (look["result"]["hop"], look["result"]["fix"])
    assert wait["msg"].startswith(f"{wait['hop']}: ")
    assert without_others(wait["result"]) == without_others(look["result"])
    return look["result"]


def without_others(result: dict[str, Any]) -> dict[str, Any]:
    """What the adapter lists, and how much, changes with what earlier tests have left."""
    seen = re.sub(r"\d+ metrics", "some metrics", result["seen"] or "")
    return {**result, "seen": seen, "listed": None}


def test_an_api_that_nobody_serves(ask: Ask, workloads: Workloads) -> None:
    result = broken(ask, api="external", metric="queue", namespace=workloads.namespace)
    assert result["hop"] == "metrics_api"
    assert result["seen"] == "APIService v1beta1.external.metrics.k8s.io: not found"
    assert (result["samples"], result["listed"]) == ([], False)


def test_an_adapter_that_is_down(ask: Ask, workloads: Workloads, outage: Callable[[], None]) -> None:
    result = broken(ask, namespace=workloads.namespace)
    assert result["hop"] == "metrics_api"
    assert "v1beta1.custom.metrics.k8s.io: not Available: EndpointsNotFound" in result["seen"]
    assert "the pods of prometheus-adapter" in result["fix"]


def test_an_adapter_that_comes_back_while_waiting(
    ask: Ask,
    plane: tuple[ControlPlane, client.ApiClient],
    workloads: Workloads,
    record: Callable[..., None],
    outage: Callable[[], None],
    background: Callable[..., Future[dict[str, Any]]],
) -> None:
    workloads.ready_pod("chat-0", app="chat")
    record(chat_0=5)
    before = looks_at_apiservices(*plane)
    waiting = background(ask, namespace=workloads.namespace, until="result.samples", wait_timeout=2 * LISTED_S)
    eventually(lambda: looks_at_apiservices(*plane) > before, "it has looked once", LISTED_S)
    assert not waiting.done()
    outage()
    result = waiting.result()
    assert not result.get("failed")
    assert by_name(result) == {"chat-0": 5}


def test_a_metric_that_is_not_listed(ask: Ask, workloads: Workloads, record: Callable[..., None]) -> None:
    workloads.ready_pod("chat-0", app="chat")
    record(metric="queue", chat_0=5)
    here = {"namespace": workloads.namespace}
    ask(**here, metric="queue", until="result.listed", wait_timeout=LISTED_S)
    result = broken(ask, **here, metric="gpus")
    assert result["hop"] == "metric"
    assert re.search(r"prometheus-adapter lists \d+ metrics, no gpus for pods", result["seen"])
    result = broken(ask, **here, metric="queue", resource="services")
    assert ", but namespaces/queue, pods/queue" in result["seen"]


def test_a_target_that_is_not_there(ask: Ask, workloads: Workloads) -> None:
    result = broken(ask, namespace=workloads.namespace, target={"kind": "StatefulSet", "name": "chat"})
    assert result["hop"] == "workload"
    assert result["seen"] == f"StatefulSet {workloads.namespace}/chat: not found"


def test_pods_that_are_not_there(ask: Ask, workloads: Workloads, record: Callable[..., None]) -> None:
    workloads.deployment("chat")
    record(embed_0=5)
    here = {"namespace": workloads.namespace}
    ask(**here, until="result.listed", wait_timeout=LISTED_S)
    assert "/chat: 0 of 0 pods are ready" in broken(ask, **here, target={"name": "chat"})["seen"]
    result = broken(ask, **here, label_selectors=["app=chat"])
    assert result["hop"] == "workload"
    assert result["seen"] == f"Pod {workloads.namespace}/app=chat: not found"


def test_ready_pods_without_a_value(ask: Ask, workloads: Workloads, record: Callable[..., None]) -> None:
    workloads.deployment("chat")
    workloads.ready_pod("chat-0", app="chat")
    workloads.ready_pod("chat-1", app="chat")
    record(chat_0=5)
    target = {"namespace": workloads.namespace, "target": {"name": "chat"}}
    ask(**target, until="result.samples", wait_timeout=LISTED_S)
    result = ask(**target, until=VALUES, wait_timeout=FAILURE_S)
    assert result["failed"]
    assert result["hop"] == "metric"
    assert "no gpu for chat-1" in result["msg"]
    assert (by_name(result), result["result"]["missing"]) == ({"chat-0": 5}, ["chat-1"])


# The condition.


def test_a_value_that_falls_while_waiting(
    ask: Ask,
    kube: client.ApiClient,
    workloads: Workloads,
    record: Callable[..., None],
    background: Callable[..., Future[dict[str, Any]]],
) -> None:
    workloads.deployment("chat")
    workloads.ready_pod("chat-0", app="chat")
    workloads.ready_pod("chat-1", app="chat")
    record(chat_0=95, chat_1=20)
    target = {"namespace": workloads.namespace, "target": {"name": "chat"}}
    ask(**target, until=f"{VALUES} && max(result.samples[].value) == `95`", wait_timeout=LISTED_S)
    before = queries(kube)
    waiting = background(ask, **target, until="max(result.samples[].value) < `90`", wait_timeout=2 * LISTED_S)
    eventually(lambda: queries(kube) > before, "it has looked once", LISTED_S)
    assert not waiting.done()
    record(chat_0=60, chat_1=20)
    result = waiting.result()
    assert not result.get("failed")
    assert by_name(result) == {"chat-0": 60, "chat-1": 20}


def test_when_the_time_is_over_the_condition_and_the_last_values_are_named(
    ask: Ask, workloads: Workloads, record: Callable[..., None]
) -> None:
    workloads.deployment("chat")
    workloads.ready_pod("chat-0", app="chat")
    record(chat_0=95)
    target = {"namespace": workloads.namespace, "target": {"name": "chat"}}
    ask(**target, until=VALUES, wait_timeout=LISTED_S)
    result = ask(**target, until="max(result.samples[].value) < `90`", wait_timeout=FAILURE_S)
    assert result["failed"]
    assert result["hop"] == "condition"
    assert "max(result.samples[].value) < `90` gives false; last values: chat-0 95" in result["msg"]
    assert by_name(result) == {"chat-0": 95}
    assert result["result"]["hop"] is None


def test_check_mode_does_not_wait_for_what_nothing_has_made(
    ask: Ask, plane: tuple[ControlPlane, client.ApiClient], chain: MetricChain
) -> None:
    before = looks_at_apiservices(*plane)
    result = ask(check=True, api="external", namespace="ml", until="result.samples", wait_timeout=FAILURE_S)
    assert looks_at_apiservices(*plane) == before + 1
    assert not result.get("failed")
    assert result["result"]["hop"] == "metrics_api"
    [warning] = result["warnings"]
    assert "APIService v1beta1.external.metrics.k8s.io: not found" in warning


def test_what_is_wrong_with_the_question_is_said_before_anything_is_asked(ask: Ask, tmp_path: Path) -> None:
    for options, hop in (
        ({"until": "result.samples["}, "until"),
        ({"until": "nonsense(result)"}, "until"),
        ({"name": "chat-0", "label_selectors": ["app=chat"]}, "query"),
    ):
        result = ask(namespace="ml", kubeconfig=str(tmp_path / "none"), **options)
        assert result["failed"]
        assert result["hop"] == hop
        assert result["result"] == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"namespace": "ml", "target": {"name": "a"}, "name": "b"}, "mutually exclusive: target|name"),
        ({"namespace": "ml", "target": {"name": "a"}, "label_selectors": ["a=b"]}, "mutually exclusive"),
        ({"target": {"name": "a"}}, "missing parameter(s) required by 'target': namespace"),
        ({"api": "external"}, "api is external but all of the following are missing: namespace"),
    ],
)
def test_options_that_do_not_go_together(ask: Ask, options: dict[str, Any], message: str) -> None:
    result = ask(**options)
    assert result["failed"]
    assert message in result["msg"]


def test_a_selector_that_the_api_does_not_accept(ask: Ask, workloads: Workloads, record: Callable[..., None]) -> None:
    result = ask(namespace=workloads.namespace, label_selectors=["app==("], until="result.samples", wait_timeout=60)
    assert result["failed"]
    assert result["hop"] == "API server"
    assert "unable to parse requirement" in result["msg"]


# What other adapters serve: objects outside of namespaces, external metrics, a newer version.


@pytest.fixture(scope="module")
def second_adapter(plane: tuple[ControlPlane, client.ApiClient], chain: MetricChain) -> Iterator[None]:
    """Serves metrics of nodes and external ones, and custom.metrics.k8s.io as v1beta2, which discovery then prefers."""
    control_plane, kube = plane
    port = free_port()
    of_nodes = {
        "seriesQuery": 'node_load{node!=""}',
        "resources": {"overrides": {"node": {"resource": "node"}}},
        "metricsQuery": "max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
    }
    of_queues = {
        "seriesQuery": '{__name__=~"^(queue_length|Jobs_waiting)$"}',
        "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
        "metricsQuery": "max(<<.Series>>{<<.LabelMatchers>>}) by (queue)",
    }
    role = ADAPTER_VALUES["__prometheus_adapter_rules"]
    rules = {"rules": [*role, of_nodes], "externalRules": [of_queues]}
    (control_plane.work / "second.yml").write_text(yaml.safe_dump(rules))
    control_plane.run(
        "second-adapter", program("prometheus-adapter"), f"--secure-port={port}", "--cert-dir=second",
        f"--prometheus-url=http://127.0.0.1:{prometheus_port(kube)}", "--config=second.yml",
        "--metrics-relist-interval=2s", "--metrics-max-age=20s", "--lister-kubeconfig=kubeconfig",
        "--authentication-kubeconfig=kubeconfig", "--authorization-kubeconfig=kubeconfig",
    )  # fmt: skip
    service = {"metadata": {"name": "second"}, "spec": {"ports": [{"port": 443, "targetPort": port}]}}
    client.CoreV1Api(kube).create_namespaced_service(MONITORING, service)
    endpoints = {
        "metadata": {"name": "second", "labels": {"kubernetes.io/service-name": "second"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [control_plane.address], "conditions": {"ready": True}}],
        "ports": [{"port": port, "protocol": "TCP"}],
    }
    client.DiscoveryV1Api(kube).create_namespaced_endpoint_slice(MONITORING, endpoints)
    names = ["v1beta2.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"]
    apis = client.ApiregistrationV1Api(kube)
    for name in names:
        version, _, group = name.partition(".")
        spec = {
            "group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 200,
            "insecureSkipTLSVerify": True, "service": {"name": "second", "namespace": MONITORING},
        }  # fmt: skip
        apis.create_api_service({"metadata": {"name": name}, "spec": spec})
    eventually(lambda: all(_is_available(kube, name) for name in names), "the second adapter serves", LISTED_S)
    yield
    for name in names:
        apis.delete_api_service(name)
    eventually(lambda: "external.metrics.k8s.io" not in _groups(kube), "the second adapter is gone", LISTED_S)


def _groups(kube: client.ApiClient) -> set[str]:
    return {group.name for group in client.ApisApi(kube).get_api_versions().groups}


def test_a_metric_of_nodes(ask: Ask, chain: MetricChain, workloads: Workloads, second_adapter: None) -> None:
    workloads.node("gpu1", gpus=4)
    workloads.node("gpu2", gpus=4)
    chain.exporter.text = 'node_load{node="gpu1"} 3\nnode_load{node="gpu2"} 2e3\n'
    nodes = {"metric": "node_load", "resource": "nodes"}
    result = ask(**nodes, until="length(result.samples) == `2`", wait_timeout=LISTED_S)
    assert by_name(result) == {"gpu1": 3, "gpu2": 2000}
    assert result["result"]["samples"][0]["namespace"] == ""
    assert by_name(ask(**nodes, name="gpu2")) == {"gpu2": 2000}
    assert ask(**nodes, name="gpu3")["result"]["hop"] == "metric"


def test_an_external_metric(ask: Ask, chain: MetricChain, workloads: Workloads, second_adapter: None) -> None:
    external_metrics(chain, workloads, 'queue_length queue="a" 7', 'queue_length queue="b" 8')
    external = {"api": "external", "metric": "queue_length", "namespace": workloads.namespace}
    result = ask(**external, until="length(result.samples) == `2`", wait_timeout=LISTED_S)
    assert not result.get("failed")
    assert {item["labels"]["queue"]: item["value"] for item in result["result"]["samples"]} == {"a": 7, "b": 8}
    for option in ("metric_label_selectors", "label_selectors"):
        [item] = ask(**external, **{option: ["queue = b"]})["result"]["samples"]
        assert (item["value"], item["name"], item["kind"]) == (8, "", "")
    result = broken(ask, **external, metric_label_selectors=["queue=c"])
    assert result["hop"] == "metric"
    assert "no queue_length for any series in namespace" in result["seen"]


def test_an_external_metric_in_upper_case_is_out_of_reach_as_for_an_hpa(
    ask: Ask, kube: client.ApiClient, chain: MetricChain, workloads: Workloads, second_adapter: None
) -> None:
    external_metrics(chain, workloads, 'Jobs_waiting queue="a" 7')
    external = {"api": "external", "metric": "Jobs_waiting", "namespace": workloads.namespace}
    ask(**external, until="result.listed", wait_timeout=LISTED_S)
    result = broken(ask, **external)
    assert result["hop"] == "metric"
    assert "HPAs query it in lower case, as jobs_waiting" in result["seen"]
    workloads.deployment("chat")
    workloads.ready_pod("chat-0", app="chat")
    metric = {"metric": {"name": "Jobs_waiting"}, "target": {"type": "AverageValue", "averageValue": "1"}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
        "maxReplicas": 2,
        "metrics": [{"type": "External", "external": metric}],
    }
    hpas = client.AutoscalingV2Api(kube)
    hpas.create_namespaced_horizontal_pod_autoscaler(workloads.namespace, {"metadata": {"name": "chat"}, "spec": spec})

    def conditions() -> str:
        hpa = hpas.read_namespaced_horizontal_pod_autoscaler("chat", workloads.namespace)
        return " ".join(
            condition.message for condition in hpa.status.conditions or () if condition.type == "ScalingActive"
        )

    eventually(lambda: "could not find the metric jobs_waiting" in conditions(), "the HPA says the same", LISTED_S)


def external_metrics(chain: MetricChain, workloads: Workloads, *series: str) -> None:
    """Each as `name labels value`."""
    parts = [sample.split() for sample in series]
    chain.exporter.text = "".join(
        f'{name}{{namespace="{workloads.namespace}",{labels}}} {value}\n' for name, labels, value in parts
    )
