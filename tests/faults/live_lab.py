"""The lab that is broken: its objects, its servers, its Prometheus, and the doctor that looks at it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from datetime import UTC, datetime
from functools import cached_property
from itertools import cycle
from pathlib import Path
from typing import Any

import testinfra
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.health_report import health_report
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.cluster import Scope
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import PrometheusClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.transport import connect
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.doctor_reader import DoctorReader
from kubernetes.client import ApiClient, AppsV1Api, CoreV1Api
from kubernetes.client.exceptions import ApiException
from kubernetes.config import new_client_from_config
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError
from testinfra.host import Host

from lab.load.cluster import LabCluster

Manifest = dict[str, Any]
Change = Callable[[Manifest], None]
Report = dict[str, Any]

MONITORING = "monitoring"
STACK = "kube-prometheus-stack"
WORKLOADS = "gpu-workload"
SAMPLE = "sample"
PLUGIN = "nvidia-device-plugin"
# Looks in a row that have to be alike. So a passing state is not taken for the last one.
STEADY = 3

# One request a line of its first argument, one answer each.
_ASK_DRIVER = """
import socket, sys
driver = socket.socket(socket.AF_UNIX)
driver.connect("/run/nvidia-persistenced/socket")
for request in sys.argv[1].splitlines():
    driver.sendall(request.encode() + b"\\n")
    print(driver.recv(99).decode().strip())
"""

# Plural names belong to their group here, since some kinds have a name in two.
_GROUPS = {
    "APIService": "apiregistration.k8s.io/v1",
    "ClusterRole": "rbac.authorization.k8s.io/v1",
    "ClusterRoleBinding": "rbac.authorization.k8s.io/v1",
    "DaemonSet": "apps/v1",
    "Deployment": "apps/v1",
    "HorizontalPodAutoscaler": "autoscaling/v2",
    "PodMonitor": "monitoring.coreos.com/v1",
    "Prometheus": "monitoring.coreos.com/v1",
    "PrometheusRule": "monitoring.coreos.com/v1",
    "StatefulSet": "apps/v1",
    "ValidatingWebhookConfiguration": "admissionregistration.k8s.io/v1",
    "ServiceMonitor": "monitoring.coreos.com/v1",
}
# How the status of each kind of workload counts its pods that are as they should be.
_POD_COUNTS = {
    "DaemonSet": ("updatedNumberScheduled", "numberReady"),
    "Deployment": ("updatedReplicas", "readyReplicas", "replicas"),
    "StatefulSet": ("updatedReplicas", "readyReplicas", "replicas"),
}
_OF_THE_SERVER = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "ownerReferences")


class Lab:
    """inventory: of the lab, with `.kubegpu/kubeconfig` beside it."""

    def __init__(self, inventory: Path) -> None:
        self.inventory = inventory
        folder = inventory if inventory.is_dir() else inventory.parent
        self.kubeconfig = folder / ".kubegpu" / "kubeconfig"
        self._kube = KubeClient(connect({"kubeconfig": str(self.kubeconfig)}))
        self.api: ApiClient = new_client_from_config(str(self.kubeconfig))
        self._objects = DynamicClient(self.api)
        self._prometheus = PrometheusClient(
            self._kube.get_raw, namespace=MONITORING, service=f"{STACK}-prometheus", port=9090
        )

    # ---- looking

    def examine(self, *, grace: bool) -> Report:
        return self.examine_twice()[not grace]

    def examine_twice(self) -> tuple[Report, Report]:
        """One look at the cluster, judged with grace and without."""
        look = DoctorReader(
            self._kube, self._prometheus, scope=Scope(None, None), facts={self.gpu_node: self.facts}, history_s=0
        )
        state = look.state()
        return health_report(state, grace=True), health_report(state, grace=False)

    def query(self, text: str, by: str = "pod") -> dict[str, float]:
        """The values of a query, by a label."""
        return {series.labels.get(by, ""): series.values[-1] for series in self._prometheus.query(text)}

    def raw(self, path: str) -> Manifest:
        """The answer of the API server, or of what it hands the path on to."""
        answer: Manifest = self._kube.get_raw(path)
        return answer

    def get(self, kind: str, name: str, namespace: str | None = None) -> Manifest:
        return self._resource(kind).get(name=name, namespace=namespace).to_dict()

    def find(self, kind: str, namespace: str | None = None, **options: Any) -> list[Manifest]:
        return self._resource(kind).get(namespace=namespace, **options).to_dict()["items"]

    # ---- the servers

    @cached_property
    def gpu_node(self) -> str:
        """The first one, where there are several."""
        return min(node["metadata"]["name"] for node in self.find("Node", label_selector="nvidia.com/gpu.present=true"))

    @cached_property
    def control_plane(self) -> Host:
        [node] = self.find("Node", label_selector="node-role.kubernetes.io/control-plane")
        return self.server(node["metadata"]["name"])

    @cached_property
    def gpu_server(self) -> Host:
        return self.server(self.gpu_node)

    def server(self, name: str) -> Host:
        return testinfra.get_host(f"ansible://{name}", ansible_inventory=str(self.inventory))

    def gpus(self) -> dict[int, str]:
        """UUIDs by index."""
        return {int(labels["gpu"]): labels["UUID"] for labels in self._readings()}

    def allocatable(self) -> str:
        """How many GPUs, or slices of them, the GPU node offers."""
        found: str = self.get("Node", self.gpu_node)["status"]["allocatable"].get("nvidia.com/gpu", "0")
        return found

    def free_gpu(self) -> int:
        """Index of a GPU that no pod holds. Which ones are held is chance."""
        return next(int(labels["gpu"]) for labels in self._readings() if "pod" not in labels)

    def _readings(self) -> list[Mapping[str, str]]:
        """There is none for a moment where a scrape of the exporter was lost."""
        found: list[Mapping[str, str]] = []

        def is_there() -> bool:
            found[:] = [series.labels for series in self._prometheus.query("DCGM_FI_DEV_GPU_UTIL")]
            return bool(found)

        wait_until(is_there, "Prometheus has values of the exporter", 120)
        return found

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """What gpu_facts finds on the GPU server, read once."""
        return self.gpu_server.ansible("kubegpu.autoscale.gpu_facts", check=False)["ansible_facts"]["gpu_facts"]

    @contextmanager
    def on_gpu_server(self, breaking: str, mending: str) -> Iterator[None]:
        """Commands that change what gpu_facts finds there."""
        try:
            self.gpu_server.check_output(breaking)
            vars(self).pop("facts", None)
            yield
        finally:
            self.gpu_server.check_output(mending)
            vars(self).pop("facts", None)

    def driver(self, *requests: str) -> None:
        """Ask the stand-in for the GPUs' driver to act up, see lab/gpu/driver.h."""
        answers = self.gpu_server.check_output("python3 -c %s %s", _ASK_DRIVER, "\n".join(requests)).split("\n")
        assert answers == ["ok"] * len(requests), answers

    def gpus_fail(self, *gpus: int) -> None:
        """Xid errors that take GPUs out of use, raised until the device plugin has heard them.

        It hears none that came before it listened, and does not say when it begins to.
        """
        uuids = self.gpus()
        errors = cycle((79, 48))  # fallen off the bus, double bit ECC: an event is what differs from the one before

        def are_heard() -> bool:
            error = next(errors)
            self.driver(*(f"set {gpu} xid {error}" for gpu in gpus))
            heard = "".join(map(self._log, self.find("Pod", PLUGIN)))
            return all(f"on Device={uuids[gpu]}" in heard for gpu in gpus)

        wait_until(are_heard, f"the device plugin hears of Xid errors on the GPUs {gpus}", 120)

    def _log(self, pod: Manifest) -> str:
        """Empty for a pod that has not begun."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        try:
            return CoreV1Api(self.api).read_namespaced_pod_log(name, namespace)
        except ApiException as error:
            if error.status in (400, 404):
                return ""
            raise

    # ---- breaking: each of these restores when its block ends

    @contextmanager
    def changed(self, kind: str, name: str, change: Change, namespace: str | None = MONITORING) -> Iterator[None]:
        """An object that is another for a while."""
        before = self.get(kind, name, namespace)
        try:
            self._edit(kind, name, namespace, change)
            yield
        finally:
            self._restore(kind, before)

    @contextmanager
    def applied(self, kind: str, name: str, namespace: str, fields: Manifest, manager: str) -> Iterator[None]:
        """Fields that another manager applies, and owns from then on."""
        identity = {"apiVersion": _GROUPS[kind], "kind": kind, "metadata": {"name": name, "namespace": namespace}}

        def apply(body: Manifest) -> None:
            self._resource(kind).server_side_apply(body=body, field_manager=manager, force_conflicts=True)

        try:
            apply({**identity, **fields})
            yield
        finally:
            apply(identity)

    @contextmanager
    def scaled(self, name: str, namespace: str, replicas: int) -> Iterator[None]:
        """Scales like `kubectl scale`: only the client that scales owns the number."""
        before = self.get("Deployment", name, namespace)["spec"]["replicas"]
        scale = AppsV1Api(self.api).patch_namespaced_deployment_scale
        try:
            scale(name, namespace, {"spec": {"replicas": replicas}})
            yield
        finally:
            scale(name, namespace, {"spec": {"replicas": before}})

    @contextmanager
    def without(self, kind: str, name: str, namespace: str | None = MONITORING) -> Iterator[None]:
        before = self.get(kind, name, namespace)
        try:
            self.delete(kind, name, namespace)
            yield
        finally:
            self._restore(kind, before)

    @contextmanager
    def beside(self, *manifests: Manifest) -> Iterator[None]:
        """Objects that are there for a while."""
        with ExitStack() as stack:
            for manifest in manifests:
                metadata = manifest["metadata"]
                stack.callback(self.delete, manifest["kind"], metadata["name"], metadata.get("namespace"))
                self._resource(manifest["kind"]).create(body=manifest, namespace=metadata.get("namespace"))
            yield

    @contextmanager
    def offering(self, resource: str, amount: int) -> Iterator[None]:
        """The GPU node has an extended resource that no device plugin looks after."""
        paths = [f"/status/{kind}/{resource.replace('/', '~1')}" for kind in ("capacity", "allocatable")]
        self._patch_status([{"op": "add", "path": path, "value": str(amount)} for path in paths])
        try:
            yield
        finally:
            self._patch_status([{"op": "remove", "path": path} for path in paths])

    def _patch_status(self, steps: list[Manifest]) -> None:
        CoreV1Api(self.api).patch_node_status(self.gpu_node, steps)

    @contextmanager
    def under_load(self, gpus: float) -> Iterator[None]:
        """The sample is asked for so many GPU-seconds a second."""
        cluster = LabCluster(self.kubeconfig, WORKLOADS, SAMPLE)
        try:
            cluster.demand(gpus)
            yield
        finally:
            cluster.demand(0)

    def restart(self, kind: str, name: str, namespace: str | None = MONITORING) -> None:
        """As `kubectl rollout restart` does it."""

        def renew(workload: Manifest) -> None:
            template = workload["spec"]["template"]["metadata"]
            template["annotations"] = {
                **(template.get("annotations") or {}),
                "kubectl.kubernetes.io/restartedAt": datetime.now(UTC).isoformat(),
            }

        self._edit(kind, name, namespace, renew)

    def end_pod(self, name: str, namespace: str = MONITORING) -> None:
        """Its owner makes another one, which may have the same name."""
        self._resource("Pod").delete(name=name, namespace=namespace)

    def is_rolled_out(self, kind: str, name: str, namespace: str | None = MONITORING) -> bool:
        return _is_rolled_out(kind, self.get(kind, name, namespace))

    def is_up_to_date(self) -> bool:
        """No workload is on its way to another state, and each GPU is seen once.

        Prometheus gives a series for 5 minutes after its last scrape, and for so long the HPA acts on it.
        """
        return all(_is_rolled_out(kind, workload) for kind in _POD_COUNTS for workload in self.find(kind)) and not list(
            self._prometheus.query("count by (UUID) (DCGM_FI_DEV_GPU_UTIL) > 1")
        )

    def _resource(self, kind: str) -> Any:
        return self._objects.resources.get(api_version=_GROUPS.get(kind, "v1"), kind=kind)

    def _edit(self, kind: str, name: str, namespace: str | None, change: Change) -> None:
        for _attempt in range(20):  # controllers write the status of what they see at the same time
            manifest = self.get(kind, name, namespace)
            change(manifest)
            try:
                self._resource(kind).replace(body=manifest, name=name, namespace=namespace)
            except ConflictError:
                continue
            return
        raise AssertionError(f"{kind} {name} is written by others all the time")

    def delete(self, kind: str, name: str, namespace: str | None) -> None:
        try:
            self._resource(kind).delete(name=name, namespace=namespace)
        except NotFoundError:
            return
        wait_until(lambda: not self._exists(kind, name, namespace), f"{kind} {name} is gone", 120)

    def _exists(self, kind: str, name: str, namespace: str | None) -> bool:
        try:
            self.get(kind, name, namespace)
        except NotFoundError:
            return False
        return True

    def _restore(self, kind: str, before: Manifest) -> None:
        metadata = before["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace")
        if not self._exists(kind, name, namespace):
            fresh = {key: value for key, value in before.items() if key != "status"}
            fresh["metadata"] = {key: value for key, value in metadata.items() if key not in _OF_THE_SERVER}
            self._resource(kind).create(body=fresh, namespace=namespace)
            return

        def put_back(manifest: Manifest) -> None:
            for part in {*before, *manifest} - {"metadata", "status"}:
                manifest[part] = deepcopy(before.get(part))
            for part in ("labels", "annotations"):
                manifest["metadata"][part] = metadata.get(part)

        self._edit(kind, name, namespace, put_back)


def wait_until_healed(lab: Lab, what: str, within_s: float) -> None:
    """Nothing is found and nothing on its way: what controllers have yet to take up is not seen by the doctor."""
    last: Report = {"findings": []}
    quiet = 0

    def is_healed() -> bool:
        nonlocal last, quiet
        last = lab.examine(grace=False)
        quiet = quiet + 1 if not ids(last) and lab.is_up_to_date() else 0
        return quiet >= STEADY

    wait_until(is_healed, lambda: f"{what}; found {words(last)}, settled: {lab.is_up_to_date()}", within_s)


def _is_rolled_out(kind: str, workload: Manifest) -> bool:
    """All its pods are new and ready and no old one is left."""
    status = workload.get("status") or {}
    wanted = status.get("desiredNumberScheduled", workload["spec"].get("replicas"))
    return status.get("observedGeneration") == workload["metadata"]["generation"] and all(
        status.get(count, 0) == wanted for count in _POD_COUNTS[kind]
    )


def wait_until(is_so: Callable[[], Any], what: str | Callable[[], str], within_s: float, every_s: float = 1) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:.0f} s: {what if isinstance(what, str) else what()}")
        time.sleep(every_s)


def ids(found: Report) -> set[str]:
    return {finding["id"] for finding in found["findings"]}


def words(report: Report) -> str:
    return json.dumps([{key: finding[key] for key in ("id", "object", "seen")} for finding in report["findings"]])
