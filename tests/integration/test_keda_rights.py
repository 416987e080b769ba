"""KEDA itself with the rights, flags and certificates of the release that the role keda installs, and no others."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keda
import pytest
from chart_site import Site
from control_plane import ControlPlane, eventually, free_port, running
from keda import METRICS_SERVER, NAMESPACE, OPERATOR, SERVICE, needs_keda
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from module_process import run_module
from owned_chain import StatesChain
from programs import program
from prometheus_rules import serve_kind
from shared_load import BY_KEDA, CONTROLLERS, Nodes, deploy, replicas_of

pytestmark = needs_keda

SCALED_S, PROOF_S = 180, 180
SECRET, PARTS = "kedaorg-certs", ("ca.crt", "tls.crt", "tls.key")
# In percent of one GPU, for two replicas and for five.
LOW, HIGH = 110, 290


class Cluster(NamedTuple):
    plane: ControlPlane
    kube: client.ApiClient
    chain: StatesChain
    nodes: Nodes

    def run(self, module: str, **options: Any) -> dict[str, Any]:
        access = {
            "kubeconfig": str(self.plane.kubeconfig),
            "prometheus": {"url": f"http://127.0.0.1:{self.chain.port}"},
        }
        result = run_module(module, {**access, **options})
        assert "failed" not in result, result
        return result

    def logs(self) -> str:
        return "".join((self.plane.work / f"{name}.log").read_text() for name in (OPERATOR, METRICS_SERVER))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("rights"), *CONTROLLERS) as (plane, kube):
        site = Site(tmp_path_factory.mktemp("site"), plane, kube)
        done = site.bring("keda", keda_state="present")
        assert done.returncode == 0, done.stdout
        site.stop()
        chain = StatesChain(plane, kube)
        serve_kind(kube)
        chain.start()
        deploy(kube, BY_KEDA)
        nodes = Nodes(kube, chain.exporter, [BY_KEDA], starts_s=2)
        nodes.load = LOW
        try:
            Pods(plane, kube).start()
            yield Cluster(plane, kube, chain, nodes)
        finally:
            nodes.stop()
            chain.stop()


class Pods:
    """The kubelet's part for the two Deployments of the release: their containers as processes."""

    def __init__(self, plane: ControlPlane, kube: client.ApiClient) -> None:
        self._plane, self._kube, self._core = plane, kube, client.CoreV1Api(kube)
        self._certificates = plane.work / "certificates"
        self._certificates.mkdir()
        self._grpc, self._https = free_port(), free_port()

    def start(self) -> None:
        """Return once the API server forwards requests, by the CA that the operator writes into the APIService."""
        self._run(
            OPERATOR, OPERATOR,
            f"--metrics-service-bind-address=127.0.0.1:{self._grpc}",
            f"--health-probe-bind-address=127.0.0.1:{free_port()}",
        )  # fmt: skip
        eventually(self._mounted, f"Secret {SECRET} has certificates", keda.STARTUP_S)
        self._run(
            METRICS_SERVER, SERVICE,
            f"--metrics-service-address=127.0.0.1:{self._grpc}",
            # The certificate has the names of the Service, and no address.
            f"--metrics-service-grpc-authority=keda-operator.{NAMESPACE}.svc",
            f"--port={free_port()}",
            f"--secure-port={self._https}",
            # Else it takes what a kubelet mounts.
            *(
                f"--{what}-kubeconfig=kubeconfig-keda-metrics-server"
                for what in ("lister", "authentication", "authorization")
            ),
        )  # fmt: skip
        self._publish()
        eventually(self._serves, f"KEDA serves {keda.API}", keda.STARTUP_S)

    def _run(self, name: str, deployment: str, *replaced: str) -> None:
        """The container of a Deployment, where ports and addresses of this machine replace those of a pod."""
        pod = client.AppsV1Api(self._kube).read_namespaced_deployment(deployment, NAMESPACE).spec.template.spec
        [container] = pod.containers
        fields = {"metadata.namespace": NAMESPACE, "metadata.name": f"{deployment}-0"}
        known = {
            one.name: one.value
            if one.value is not None or not one.value_from
            else fields[one.value_from.field_ref.field_path]
            for one in container.env
        }
        taken = {flag.partition("=")[0] for flag in replaced}
        mounted = [flag.replace("=/certs", f"={self._certificates}") for flag in container.args]
        kept = [flag for flag in mounted if flag.partition("=")[0] not in taken]
        self._plane.run(
            name, "env", f"KUBECONFIG={self._kubeconfig(pod.service_account_name)}",
            f"KEDA_CLUSTER_OBJECT_NAMESPACE={NAMESPACE}",  # else read from a file that the kubelet mounts
            *(f"{key}={value or ''}" for key, value in known.items()), program(name), *kept, *replaced,
        )  # fmt: skip

    def _kubeconfig(self, account: str) -> Path:
        body = {"spec": {"audiences": ["https://kubernetes"], "expirationSeconds": 7200}}
        token = self._core.create_namespaced_service_account_token(account, NAMESPACE, body).status.token
        settings = json.loads(self._plane.kubeconfig.read_text())
        settings["users"] = [{"name": "admin", "user": {"token": token}}]
        path = self._plane.work / f"kubeconfig-{account}"
        path.write_text(json.dumps(settings))
        return path

    def _mounted(self) -> bool:
        """Copy the Secret to where the containers mount it. The operator ends once it has changed it."""
        try:
            data = self._core.read_namespaced_secret(SECRET, NAMESPACE).data or {}
        except ApiException:
            data = {}
        for part in PARTS:
            path, wanted = self._certificates / part, base64.b64decode(data.get(part, ""))
            if wanted and (not path.exists() or path.read_bytes() != wanted):
                path.write_bytes(wanted)
        if not self._plane.runs(OPERATOR):
            self._plane.again(OPERATOR)
        return data.keys() >= set(PARTS)

    def _publish(self) -> None:
        slices = client.DiscoveryV1Api(self._kube)
        slices.create_namespaced_endpoint_slice(
            NAMESPACE,
            {
                "metadata": {"name": SERVICE, "labels": {"kubernetes.io/service-name": SERVICE}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": [self._plane.address], "conditions": {"ready": True}}],
                "ports": [{"name": "https", "port": self._https, "protocol": "TCP"}],
            },
        )

    def _serves(self) -> bool:
        self._mounted()
        if not self._plane.runs(METRICS_SERVER):
            self._plane.again(METRICS_SERVER)
        return keda.is_available(self._kube)


def test_the_operator_signs_its_own_api_service(cluster: Cluster) -> None:
    spec = client.ApiregistrationV1Api(cluster.kube).read_api_service(keda.API).spec
    assert spec.ca_bundle
    assert not spec.insecure_skip_tls_verify


def test_it_scales_and_sleeps_without_another_right(cluster: Cluster) -> None:
    scales = {
        "namespace": BY_KEDA,
        "target": {"name": "chat"},
        "max_replicas": 12,
        "dead_time_seconds": 15,
        "backend": "keda",
    }
    done = cluster.run("gpu_autoscaler", autoscalers=[scales], wait_timeout=PROOF_S)
    assert [entry["verified"] for entry in done["result"]["autoscalers"]] == [True]
    cluster.nodes.load = HIGH
    eventually(lambda: replicas_of(cluster.kube, BY_KEDA) == 5, "it scales up", SCALED_S)

    deploy(cluster.kube, BY_KEDA, "sleeper", replicas=1)
    sleeps = {
        **scales,
        "target": {"name": "sleeper"},
        "min_replicas": 0,
        "metric": {"name": "queue", "query": "sum(nothing) or vector(0)", "per": "workload"},
        "target_value": 5,
        "scale_down": {
            "stabilization_window_seconds": 0,
            "policies": [{"type": "Percent", "value": 100, "period_seconds": 15}],
        },
    }
    cluster.run("gpu_autoscaler", autoscalers=[sleeps], verify=False)
    eventually(lambda: replicas_of(cluster.kube, BY_KEDA, "sleeper") == 0, "it sleeps", SCALED_S)
    cluster.run("gpu_autoscaler", autoscalers=[scales, sleeps], state="absent")
    group, version, plural = keda.SCALED_OBJECTS
    objects = client.CustomObjectsApi(cluster.kube)
    eventually(
        lambda: not objects.list_namespaced_custom_object(group, version, BY_KEDA, plural)["items"],
        "KEDA lets the deleted ScaledObjects go",
        SCALED_S,
    )
    assert "forbidden" not in cluster.logs().lower()
