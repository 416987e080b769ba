"""Pods that share one GPU with NVIDIA's device plugin are distinguished, from their processes to the custom metric."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from faults import EXPORTER, container, second_deployment, time_sliced, with_environment
from live_lab import MONITORING, STACK, WORKLOADS, Lab, Manifest, wait_until, wait_until_healed

SHARED_RULES = Path(__file__).parents[1] / "unit" / "golden" / "shared.rules.yaml"
# As it is read: a smoothed value has a part of earlier ones, and never is 0 again.
SERIES = "namespace_pod:shared:now"
# Milliseconds of each tenth of a second that a pod keeps the GPU busy.
LOADS = {"busy": 60, "quiet": 15}
_KEEP_BUSY = """
import time
from cuda import Gpu
gpu, turn = Gpu(), time.monotonic()
while True:
    gpu.spin({milliseconds})
    turn = max(turn + 0.1, time.monotonic())
    time.sleep(max(0, turn - time.monotonic()))
"""
READS_PODS = f"{EXPORTER}-read-pods"

pytestmark = pytest.mark.slow


def keeping_busy(lab: Lab, name: str, milliseconds: int) -> Manifest:
    found = second_deployment(lab, name)
    its = container(found)
    its.update(command=["python3", "-c", _KEEP_BUSY.format(milliseconds=milliseconds)])
    its["env"] = [*(its.get("env") or ()), {"name": "PYTHONPATH", "value": "/scripts"}]
    for probe in ("readinessProbe", "livenessProbe"):
        its.pop(probe, None)
    return found


def told_apart(daemon_set: Manifest) -> None:
    """As dcgm_exporter_values do it: hostPID, kubernetes.enablePodUID and KUBERNETES_VIRTUAL_GPUS."""
    pod = daemon_set["spec"]["template"]["spec"]
    pod.update(hostPID=True, automountServiceAccountToken=True)
    with_environment(KUBERNETES_VIRTUAL_GPUS="true", DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID="true")(daemon_set)


def without_host_pids(daemon_set: Manifest) -> None:
    daemon_set["spec"]["template"]["spec"]["hostPID"] = False


def rights() -> tuple[Manifest, Manifest]:
    """Those that the chart gives with kubernetes.enablePodUID."""
    rbac = "rbac.authorization.k8s.io"
    role = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": READS_PODS},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}],
    }
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": READS_PODS},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": READS_PODS},
        "subjects": [{"kind": "ServiceAccount", "name": EXPORTER, "namespace": MONITORING}],
    }
    return role, binding


def recorded_rule() -> Manifest:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "shared-gpus", "namespace": MONITORING, "labels": {"release": STACK}},
        "spec": yaml.safe_load(SHARED_RULES.read_text()),
    }


@pytest.fixture(scope="module")
def shared(lab: Lab) -> Iterator[Lab]:
    """A lab where the only GPU that is offered is shared by a busy pod and a quiet one."""
    with ExitStack() as stack:
        # The scheduler counts what the sample's pods hold of the other GPUs, too.
        stack.enter_context(time_sliced(lab, replicas=8, gpu=lab.free_gpu()))
        stack.enter_context(lab.beside(*rights(), recorded_rule()))
        stack.enter_context(lab.changed("DaemonSet", EXPORTER, told_apart))
        stack.enter_context(lab.beside(*(keeping_busy(lab, name, load) for name, load in LOADS.items())))
        yield lab
    wait_until_healed(lab, "the exporter is scraped as before", 120)  # what comes next may ask without a grace


def by_name(values: dict[str, float]) -> dict[str, float]:
    """Of the pods of both workloads, by the workload's name."""
    return {name: value for name in LOADS for pod, value in values.items() if pod.startswith(f"{name}-")}


def test_each_pod_has_what_its_own_processes_take(shared: Lab) -> None:
    found: dict[str, float] = {}
    whole: dict[str, float] = {}
    of_the_gpu = 'max by (pod) (DCGM_FI_DEV_GPU_UTIL{vgpu=""} and on (UUID) DCGM_FI_DEV_GPU_UTIL{vgpu!=""})'

    def are_told_apart() -> bool:
        """The driver takes the GPU's own number and that of a process over times of their own."""
        nonlocal found, whole
        found, whole = by_name(shared.query(SERIES)), shared.query(of_the_gpu)
        is_told = found.keys() == LOADS.keys() and found["busy"] > 2 * found["quiet"] > 0
        return is_told and max(whole.values(), default=0) > max(found.values())

    seen = "the pods are told apart, and the GPU's own line is that of both"
    wait_until(are_told_apart, lambda: f"{seen}: {found}, {whole}", 240)
    repeated = by_name(shared.query("100 * avg by (pod) (DCGM_FI_PROF_GR_ENGINE_ACTIVE)"))
    assert repeated["busy"] == repeated["quiet"], "what DCGM profiles is the GPU's for each of its pods"


def test_it_is_the_custom_metric_of_each_pod(shared: Lab) -> None:
    answer: Manifest = {}

    def gives_both() -> bool:
        nonlocal answer
        try:
            answer = shared.raw(f"/apis/custom.metrics.k8s.io/v1beta1/namespaces/{WORKLOADS}/pods/*/shared")
        except ApiError as refused:  # the adapter has not listed the metric yet
            answer = {"items": [], "refused": refused.message}
        return len(by_name({value["describedObject"]["name"]: 0.0 for value in answer["items"]})) == len(LOADS)

    wait_until(gives_both, lambda: f"the metric shared has both pods: {answer}", 120)


def test_without_the_hosts_process_ids_each_pod_reads_0(shared: Lab) -> None:
    with shared.changed("DaemonSet", EXPORTER, without_host_pids):
        wait_until(lambda: by_name(shared.query(SERIES)) == dict.fromkeys(LOADS, 0.0), "each pod reads 0", 240)
