"""KEDA's operator and its server of external.metrics.k8s.io, compiled from its own module, as processes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import manifests
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.objects import Manifest
from control_plane import ControlPlane, eventually, free_port, running
from kubernetes import client
from owned_chain import StatesChain
from programs import FOLDER, program
from prometheus_rules import GROUP, PLURAL, VERSION, serve_kind

# `make test` does not compile it: `make test-keda` does, and takes minutes for some tests.
IN_FULL = bool(os.environ.get("KEDA"))
COMPILED = IN_FULL or (FOLDER / "keda-operator").exists()
needs_keda = pytest.mark.skipif(not COMPILED, reason="`make test-keda` compiles it")
takes_minutes = pytest.mark.skipif(not IN_FULL, reason="`make test-keda` takes minutes")

NAMESPACE = "keda"
SCALED_OBJECTS = ("keda.sh", "v1alpha1", "scaledobjects")
OPERATOR, METRICS_SERVER = "keda-operator", "keda-adapter"
SERVICE = "keda-operator-metrics-apiserver"
API = "v1beta1.external.metrics.k8s.io"
# The rights of KEDA's own ClusterRole and Role, and no others.
USER = "looker"
STARTUP_S = 300
# KEDA's processes trust each other by a CA of their own.
_KEYS = (
    "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.crt "
    "-subj /CN=KEDA -days 2",
    "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout tls.key -out tls.csr -subj /CN=keda-operator",
    "x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out tls.crt -days 2 -extfile names",
)


class Rig(NamedTuple):
    """A control plane whose autoscalers prometheus-adapter and KEDA serve."""

    plane: ControlPlane
    kube: client.ApiClient
    chain: StatesChain

    @property
    def access(self) -> dict[str, Any]:
        """Options of a module. KEDA, which is no pod here, cannot resolve the Service of Prometheus."""
        return {"kubeconfig": str(self.plane.kubeconfig), "prometheus": {"url": self._prometheus}}

    @property
    def _prometheus(self) -> str:
        return f"http://127.0.0.1:{self.chain.port}"

    def made_for(self, *autoscalers: Autoscaler) -> list[Manifest]:
        """The rules, then what scales."""
        rules = RuleOptions(evaluation_interval_s=1, prometheus_url=self._prometheus)
        return manifests(autoscalers, rules)

    def create(self, wanted: Manifest) -> None:
        namespace = wanted["metadata"]["namespace"]
        if wanted["kind"] == "ScaledObject":
            create_scaled_object(self.kube, wanted)
        elif wanted["kind"] == "HorizontalPodAutoscaler":
            hpas = client.AutoscalingV2Api(self.kube)
            hpas.create_namespaced_horizontal_pod_autoscaler(namespace, wanted)
        else:
            objects = client.CustomObjectsApi(self.kube)
            objects.create_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, wanted)


@contextmanager
def beside_the_adapter(
    work: Path, *controllers: str, sync_s: int = 1, states_s: int = 1, gates: str = ""
) -> Iterator[Rig]:
    """states_s: between two scrapes of kube-state-metrics."""
    with running(work, *controllers, sync_s=sync_s, gates=gates) as (plane, kube):
        chain = StatesChain(plane, kube, states_s=states_s)
        serve_kind(kube)
        chain.start()
        try:
            start(plane, kube)
            yield Rig(plane, kube, chain)
        finally:
            chain.stop()


def start(plane: ControlPlane, kube: client.ApiClient) -> None:
    """Create its kinds and its rights, and start its processes; return once external.metrics.k8s.io answers."""
    files = program(OPERATOR).resolve().parent
    client.CoreV1Api(kube).create_namespace({"metadata": {"name": NAMESPACE}})
    kinds = client.ApiextensionsV1Api(kube)
    for path in sorted((files / "crds").glob("*.yaml")):
        kinds.create_custom_resource_definition(yaml.safe_load(path.read_text()), _preload_content=False)
    _grant(kube, list(yaml.safe_load_all((files / "rbac" / "role.yaml").read_text())))
    _publish(plane, kube, _run(plane))
    eventually(lambda: is_available(kube), f"KEDA serves {API}", STARTUP_S)


def is_available(kube: client.ApiClient) -> bool:
    """Whether the API server forwards requests for external metrics."""
    status = client.ApiregistrationV1Api(kube).read_api_service(API).status
    return any((row.type, row.status) == ("Available", "True") for row in (status and status.conditions) or ())


def create_scaled_object(kube: client.ApiClient, wanted: Manifest) -> None:
    group, version, plural = SCALED_OBJECTS
    namespace = wanted["metadata"]["namespace"]
    client.CustomObjectsApi(kube).create_namespaced_custom_object(group, version, namespace, plural, wanted)


def scaled_object(kube: client.ApiClient, namespace: str, name: str) -> Manifest:
    group, version, plural = SCALED_OBJECTS
    return client.CustomObjectsApi(kube).get_namespaced_custom_object(group, version, namespace, plural, name)


def _grant(kube: client.ApiClient, roles: list[dict[str, Any]]) -> None:
    rights = client.RbacAuthorizationV1Api(kube)
    user = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
    for role in roles:
        name = role["metadata"]["name"]
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role["kind"], "name": name}
        binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [user]}
        if role["kind"] == "ClusterRole":
            rights.create_cluster_role(role)
            rights.create_cluster_role_binding(binding)
        else:
            rights.create_namespaced_role(NAMESPACE, role)
            rights.create_namespaced_role_binding(NAMESPACE, binding)


def _run(plane: ControlPlane) -> int:
    """Start both processes. Returns the port of the metrics server."""
    certificates = plane.work / "keda"
    certificates.mkdir()
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n"
    (certificates / "names").write_text(names)
    for command in _KEYS:
        subprocess.run(["openssl", *command.split()], cwd=certificates, check=True, capture_output=True)
    operator, port = free_port(), free_port()
    environment = [
        "env", f"KUBECONFIG={plane.kubeconfig_of(USER)}", "WATCH_NAMESPACE=", f"POD_NAMESPACE={NAMESPACE}",
        "POD_NAME=keda-operator-0", f"KEDA_CLUSTER_OBJECT_NAMESPACE={NAMESPACE}",
    ]  # fmt: skip
    plane.run(
        OPERATOR, *environment, program(OPERATOR), "--leader-elect", "--zap-log-level=info", "--zap-encoder=console",
        f"--metrics-bind-address=127.0.0.1:{free_port()}", f"--health-probe-bind-address=127.0.0.1:{free_port()}",
        f"--metrics-service-bind-address=127.0.0.1:{operator}", f"--cert-dir={certificates}",
        "--enable-cert-rotation=false", "--kube-api-qps=200", "--kube-api-burst=300",
    )  # fmt: skip
    plane.run(
        METRICS_SERVER, *environment, program(METRICS_SERVER), f"--secure-port={port}",
        f"--cert-dir={certificates}", f"--tls-cert-file={certificates}/tls.crt",
        f"--tls-private-key-file={certificates}/tls.key", f"--metrics-service-address=127.0.0.1:{operator}",
        f"--port={free_port()}", "--kube-api-qps=200", "--kube-api-burst=300",
        "--authentication-kubeconfig=kubeconfig", "--authorization-kubeconfig=kubeconfig",
        "--lister-kubeconfig=kubeconfig",
    )  # fmt: skip
    return port


def _publish(plane: ControlPlane, kube: client.ApiClient, port: int) -> None:
    """Register the metrics server under the names of KEDA's chart."""
    service = {"metadata": {"name": SERVICE}, "spec": {"ports": [{"port": 443, "targetPort": port}]}}
    client.CoreV1Api(kube).create_namespaced_service(NAMESPACE, service)
    client.DiscoveryV1Api(kube).create_namespaced_endpoint_slice(
        NAMESPACE,
        {
            "metadata": {"name": SERVICE, "labels": {"kubernetes.io/service-name": SERVICE}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [plane.address], "conditions": {"ready": True}}],
            "ports": [{"port": port, "protocol": "TCP"}],
        },
    )
    client.ApiregistrationV1Api(kube).create_api_service(
        {
            "metadata": {"name": API},
            "spec": {
                "group": "external.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100,
                "versionPriority": 100, "insecureSkipTLSVerify": True,
                "service": {"name": SERVICE, "namespace": NAMESPACE},
            },
        }
    )  # fmt: skip
