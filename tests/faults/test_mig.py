"""A pod gets an instance of a GPU from NVIDIA's device plugin. What the instance does is the pod's custom metric."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from faults import EXPORTER, container
from live_lab import MONITORING, STACK, WORKLOADS, Lab, Manifest, wait_until
from test_shared_gpus import keeping_busy

ROOT = Path(__file__).parents[2]
MIG_RULES = ROOT / "tests" / "unit" / "golden" / "mig.rules.yaml"
SERIES = "namespace_pod:mig:avg"
RESOURCE = "nvidia.com/mig-1g.10gb"
POD = "on-an-instance"
# Milliseconds of each tenth of a second.
BUSY_MS = 60

pytestmark = pytest.mark.slow


def served(lab: Lab, strategy: str) -> None:
    """The playbook as sharing.md has it: the CDI specification knows the instances, and the plugin offers them."""
    options = {"nvidia_device_plugin_values": {"migStrategy": strategy}}
    playbooks = [ROOT / "playbooks" / name for name in ("nodes.yml", "gpu.yml")]
    tags = "nvidia_container_toolkit,nvidia_device_plugin"
    done = subprocess.run(
        ["ansible-playbook", "-i", lab.inventory, *playbooks, "--tags", tags, "--extra-vars", json.dumps(options)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # It looks for instances at its start alone, as upstream's.
    lab.restart("DaemonSet", EXPORTER)
    wait_until(lambda: lab.is_rolled_out("DaemonSet", EXPORTER), "the exporter is back", 120)


@contextmanager
def split(lab: Lab, gpu: int, *profiles: str) -> Iterator[None]:
    """As an administrator does it, without the operator's manager."""
    smi = lab.gpu_server.check_output
    try:
        smi("nvidia-smi -i %s -mig 1", str(gpu))
        smi("nvidia-smi mig -i %s -cgi %s -C", str(gpu), ",".join(profiles))
        yield
    finally:
        wait_until(lambda: is_whole_again(lab, gpu), f"nobody uses an instance of GPU {gpu} any more", 120)


def is_whole_again(lab: Lab, gpu: int) -> bool:
    """An instance that a pod still uses stays, and MIG mode with it."""
    steps = ("mig -i %s -dci", "mig -i %s -dgi", "-i %s -mig 0")
    return [lab.gpu_server.run(f"nvidia-smi {step}", str(gpu)).rc for step in steps][-1] == 0


def recorded_rule() -> Manifest:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "mig", "namespace": MONITORING, "labels": {"release": STACK}},
        "spec": yaml.safe_load(MIG_RULES.read_text()),
    }


def offered(lab: Lab) -> dict[str, str]:
    found: Manifest = lab.get("Node", lab.gpu_node)["status"]["allocatable"]
    return {name: amount for name, amount in found.items() if name.startswith("nvidia.com/") and amount != "0"}


def forgotten(lab: Lab) -> None:
    """The kubelet counts devices for 5 minutes after their plugin has gone, and so they are unhealthy."""

    def is_forgotten() -> bool:
        capacity: Manifest = lab.get("Node", lab.gpu_node)["status"]["capacity"]
        return capacity.get(RESOURCE, "0") == "0"

    wait_until(is_forgotten, f"the kubelet has forgotten {RESOURCE}", 420, every_s=5)


def on_an_instance(lab: Lab) -> Manifest:
    found = keeping_busy(lab, POD, BUSY_MS)
    container(found)["resources"] = {"limits": {RESOURCE: 1}}
    return found


@pytest.fixture(scope="module")
def instances(lab: Lab) -> Iterator[Lab]:
    """A lab where one GPU is two instances, and a busy pod has one of them."""
    if not all(gpu["mig_capable"] for gpu in lab.facts["gpus"]):
        pytest.skip("the lab's GPUs cannot be split: LAB_GPU_MODEL=H100 make lab-up site")
    whole = int(lab.allocatable())
    with ExitStack() as stack:
        stack.callback(forgotten, lab)
        stack.callback(served, lab, "none")
        stack.enter_context(split(lab, lab.free_gpu(), "1g.10gb", "1g.10gb"))
        served(lab, "mixed")
        wanted = {"nvidia.com/gpu": str(whole - 1), RESOURCE: "2"}
        wait_until(lambda: offered(lab) == wanted, lambda: f"the node offers {wanted}: {offered(lab)}", 120)
        stack.enter_context(lab.beside(recorded_rule(), on_an_instance(lab)))
        wait_until(lambda: lab.is_rolled_out("Deployment", POD, WORKLOADS), "the pod runs", 120)
        yield lab


def test_the_pod_sees_one_instance(instances: Lab) -> None:
    kubectl = "kubectl --kubeconfig /etc/kubernetes/admin.conf --namespace %s exec deployment/%s -- nvidia-smi -L"
    listed = instances.control_plane.check_output(kubectl, WORKLOADS, POD).splitlines()
    assert [line.split()[:2] for line in listed] == [["GPU", "0:"], ["MIG", "1g.10gb"]]


def test_its_work_is_its_custom_metric(instances: Lab) -> None:
    found: dict[str, float] = {}

    def is_measured() -> bool:
        nonlocal found
        found = instances.query(SERIES)
        return [pod.startswith(f"{POD}-") for pod in found] == [True] and abs(sum(found.values()) - BUSY_MS) < 15

    wait_until(is_measured, lambda: f"{SERIES} has the pod alone, at {BUSY_MS}: {found}", 240)
    path = f"/apis/custom.metrics.k8s.io/v1beta1/namespaces/{WORKLOADS}/pods/*/mig"
    wait_until(lambda: given(instances, path) == list(found), f"the adapter has it of {list(found)}", 120)


def given(lab: Lab, path: str) -> list[str]:
    """Pods that a metrics API has a value of."""
    try:
        return [value["describedObject"]["name"] for value in lab.raw(path)["items"]]
    except ApiError as err:
        if not err.is_not_found:  # of none yet
            raise
        return []


def test_nobody_knows_the_utilisation_of_an_instance(instances: Lab) -> None:
    of_instances = '{GPU_I_PROFILE="1g.10gb"}'
    active = instances.query(f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{of_instances}", by="GPU_I_ID")
    assert len(active) == 2
    assert not instances.query(f"DCGM_FI_DEV_GPU_UTIL{of_instances}")
