"""What CNCF's AI conformance requires, on the lab: the assertions of its suite, and the evidence of our playbook.

Sources: kubernetes-sigs/ai-conformance, KAR-0049, KAR-0057, KAR-0059 and KAR-0061. docs/conformance.md has the results
of the original.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from kubernetes.client import CoreV1Api
from live_lab import SAMPLE, STACK, WORKLOADS, Lab, Manifest, wait_until
from test_unrequested_gpus import isolation_open

CHECKOUT = Path(__file__).parents[2]
NAMESPACE = "ai-conformance"
NAME, GAUGE = "gauge", "ai_conformance_queue_depth"
LABELS = {"ai-conformance.kubernetes.io/test": "kar-0057"}
# The suite allows 12 minutes for the metric, and 5 for each decision.
SEEN_S, DECIDED_S, STABLE_S = 120, 180, 30
GAUGE_SERVER = f"""
import http.server, urllib.parse
value = 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global value
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/set":
            value = float(url.query)
        text = "{{}}" if url.path == "/set" else f"# TYPE {GAUGE} gauge\\n{GAUGE} {{value}}\\n"
        self.send_response(200)
        self.send_header("Content-Type", "application/json" if url.path == "/set" else "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
http.server.ThreadingHTTPServer(("", 8000), Handler).serve_forever()
"""
PROBE = "import os; print(sorted(name for name in os.listdir('/dev') if name.startswith('nvidia')))"

pytestmark = pytest.mark.slow


def ran(lab: Lab, playbook: str, **variables: Any) -> subprocess.CompletedProcess[str]:
    """A playbook of the collection, as its users run it."""
    done = subprocess.run(
        ["ansible-playbook", "-i", lab.inventory, f"playbooks/{playbook}.yml", "--extra-vars", json.dumps(variables)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
    )
    print(done.stdout, done.stderr)  # pytest shows it when the test fails
    return done


def named(kind: str, name: str, **content: Any) -> Manifest:
    version = {"Deployment": "apps/v1", "HorizontalPodAutoscaler": "autoscaling/v2"}.get(kind, "v1")
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **content}


def container(lab: Lab, name: str, code: str, gpus: int, **content: Any) -> Manifest:
    image = lab.get("Deployment", SAMPLE, WORKLOADS)["spec"]["template"]["spec"]["containers"][0]["image"]
    limits = {"resources": {"limits": {"nvidia.com/gpu": gpus}}} if gpus else {}
    return {"name": name, "image": image, "command": ["python3", "-u", "-c", code], **limits, **content}


@pytest.fixture(scope="module", autouse=True)
def namespace(lab: Lab) -> Iterator[None]:
    """Removed first, too: a killed run leaves it."""
    lab.delete("Namespace", NAMESPACE, None)
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    with lab.beside(manifest):
        yield


@pytest.fixture(scope="module")
def gauges(lab: Lab) -> Iterator[None]:
    """Pods with a GPU each that report a gauge, and an HPA that this collection has not written."""
    serving = container(
        lab, NAME, GAUGE_SERVER, 1, ports=[{"name": "metrics", "containerPort": 8000}],
        readinessProbe={"tcpSocket": {"port": "metrics"}, "periodSeconds": 1},
    )  # fmt: skip
    pods = {"metadata": {"labels": LABELS}, "spec": {"terminationGracePeriodSeconds": 0, "containers": [serving]}}
    deployment = named("Deployment", NAME, spec={"replicas": 1, "selector": {"matchLabels": LABELS}, "template": pods})
    metric = {"metric": {"name": GAUGE}, "target": {"type": "AverageValue", "averageValue": "50"}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME},
        "minReplicas": 1,
        "maxReplicas": 2,
        "metrics": [{"type": "Pods", "pods": metric}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 15}},
    }
    with lab.beside(deployment, named("HorizontalPodAutoscaler", NAME, spec=spec)):
        wait_until(lambda: ready(lab) == 1, "a pod with a GPU is ready", DECIDED_S)
        yield


def pods(lab: Lab) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in lab.find("Pod", NAMESPACE, label_selector=",".join(f"{key}={LABELS[key]}" for key in LABELS))
        if "deletionTimestamp" not in pod["metadata"]
    ]


def ready(lab: Lab) -> int:
    status = lab.get("Deployment", NAME, NAMESPACE)["status"]
    return status.get("readyReplicas", 0) if status.get("replicas", 0) == status.get("readyReplicas") else 0


def set_gauge(lab: Lab, pod: str, value: int) -> None:
    lab.raw(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}:8000/proxy/set?{value}")


def served(lab: Lab) -> Mapping[str, str]:
    """Values by pod at the path that the suite queries; empty if the metric is unknown."""
    try:
        answer = lab.raw(f"/apis/custom.metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/pods/*/{GAUGE}")
    except ApiError as err:
        if err.status != HTTPStatus.NOT_FOUND:
            raise
        return {}
    return {item["describedObject"]["name"]: item["value"] for item in answer["items"]}


def serves(lab: Lab, value: int) -> bool:
    """Whether each pod has this value. A pod that the HPA adds meanwhile starts with 0, so it is set every time."""
    for pod in pods(lab):
        with suppress(ApiError):  # it starts or ends
            set_gauge(lab, pod, value)
    values = served(lab)
    return set(values) == set(pods(lab)) and set(values.values()) == {str(value)}


def test_an_existing_hpa_scales_pods_with_gpus_up_and_down(lab: Lab, gauges: None) -> None:
    [first] = pods(lab)
    set_gauge(lab, first, 100)
    time.sleep(10)  # longer than any period between scrape and metrics API
    assert served(lab) == {}, "without the entry nothing serves the gauge"
    entry = {"namespace": NAMESPACE, "name": GAUGE, "scrape": {"port": "metrics", "labels": LABELS}}
    assert ran(lab, "autoscaling", gpu_autoscaling_metrics=[entry]).returncode == 0
    try:
        wait_until(lambda: serves(lab, 100), lambda: f"100 is served: {served(lab)}", SEEN_S)
        wait_until(lambda: ready(lab) == 2, "two pods are ready", DECIDED_S)
        wait_until(lambda: serves(lab, 0), lambda: f"0 is served: {served(lab)}", SEEN_S)
        wait_until(lambda: len(pods(lab)) == 1, "one pod is left", DECIDED_S)
        stable_until = time.monotonic() + STABLE_S
        while time.monotonic() < stable_until:
            assert len(pods(lab)) == 1
            time.sleep(2)
    finally:
        assert ran(lab, "autoscaling").returncode == 0
    assert served(lab), "it stays while an HPA reads it"


@pytest.mark.parametrize(
    "gpus", [[1], [0], [1, 0]], ids=["requested", "not requested", "requested by another container"]
)
def test_containers_see_the_gpus_that_they_request(lab: Lab, gpus: list[int]) -> None:
    probes = [container(lab, f"probe-{number}", PROBE, number_of) for number, number_of in enumerate(gpus)]
    with lab.beside(named("Pod", "probe", spec={"restartPolicy": "Never", "containers": probes})):
        wait_until(
            lambda: lab.get("Pod", "probe", NAMESPACE)["status"].get("phase") == "Succeeded", "the probe ended", 120
        )
        read = CoreV1Api(lab.api).read_namespaced_pod_log
        seen = [read("probe", NAMESPACE, container=probe["name"]).strip() for probe in probes]
    assert [text != "[]" for text in seen] == [bool(number) for number in gpus], seen


def test_each_gpu_has_performance_metrics(lab: Lab) -> None:
    offered = {
        node["metadata"]["name"]: int(node["status"]["allocatable"].get("nvidia.com/gpu", "0"))
        for node in lab.find("Node", label_selector="nvidia.com/gpu.present=true")
    }
    for field in ("GPU_UTIL", "FB_USED", "GPU_TEMP", "POWER_USAGE"):
        found = lab.query(f"count by (hostname) (count by (hostname, UUID) (DCGM_FI_DEV_{field}))", by="hostname")
        assert found == offered, field


def test_a_service_is_scraped(lab: Lab) -> None:
    """The sample's requests, by a PodMonitor."""
    selector = {"app.kubernetes.io/name": SAMPLE}
    spec = {"selector": {"matchLabels": selector}, "podMetricsEndpoints": [{"port": "http", "interval": "2s"}]}
    metadata = {"name": "conformance", "namespace": WORKLOADS, "labels": {"release": STACK}}
    monitor = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "metadata": metadata, "spec": spec}
    rates = "sum by (pod) (rate(sample_requests_total[30s])) > 0"
    with lab.beside(monitor), lab.under_load(0.3):
        wait_until(lambda: lab.query(rates), "rates of its requests", SEEN_S)


def evidence(lab: Lab, folder: Path, *, passes: bool) -> tuple[dict[str, str], dict[str, str]]:
    """The status of each requirement, and the outcome of its test case, as the playbook writes them."""
    done = ran(lab, "conformance", gpu_proof_conformance_dir=str(folder))
    assert (done.returncode == 0) == passes
    product = yaml.safe_load((folder / "PRODUCT.yaml").read_text())
    entries = [entry for section in product["spec"].values() for entry in section]
    cases = ElementTree.parse(folder / "junit.xml").iter("testcase")
    return (
        {entry["id"]: entry["status"] for entry in entries},
        {case.attrib["name"]: case[0].tag for case in cases},
    )


SHOWN = ("accelerator_metrics", "ai_service_metrics", "pod_autoscaling", "secure_accelerator_access")


def test_the_playbook_writes_evidence_of_what_it_saw(lab: Lab, tmp_path: Path) -> None:
    statuses, cases = evidence(lab, tmp_path, passes=True)
    assert [name for name, status in sorted(statuses.items()) if status == "Implemented"] == [*SHOWN]
    assert {cases[name] for name in SHOWN} == {"system-out"}
    assert statuses["cluster_autoscaling"] == "N/A"


def test_the_playbook_fails_a_cluster_whose_gpus_anybody_sees(lab: Lab, tmp_path: Path) -> None:
    with isolation_open(lab):
        statuses, cases = evidence(lab, tmp_path, passes=False)
    assert statuses["secure_accelerator_access"] != "Implemented"
    assert cases["secure_accelerator_access"] == "failure"
