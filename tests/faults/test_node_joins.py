"""A GPU server joins while pods wait for GPUs: they run there, and scaling continues without a run of Ansible.

Driver, container runtime and pod network are on it already, as on a node of a cloud's group.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from live_lab import MONITORING, PLUGIN, SAMPLE, WORKLOADS, Lab, Manifest, ids, wait_until, words

JOINS = "gpu2"
KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
# What the template of a group of nodes gives each of them, as docs/clusters/node-groups.md asks for.
LABELS = "KUBELET_EXTRA_ARGS=--node-labels=nvidia.com/gpu.present=true\n"
# GPU-seconds a second. At the sample's target of 60 % it takes five pods. The first server has GPUs for two. These are
# full, and pods that wait count as 0, so the HPA asks for three or four.
LOAD, WANTED, BEFORE = 2.75, 5, 2
TOO_FEW = "WORKLOAD_MAXIMUM_OVER_GPUS"

pytestmark = pytest.mark.slow


def pods(lab: Lab) -> list[Manifest]:
    found = lab.find("Pod", WORKLOADS, label_selector=f"app.kubernetes.io/name={SAMPLE}")
    return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]


def ready(lab: Lab) -> list[Manifest]:
    def is_ready(pod: Manifest) -> bool:
        conditions = pod["status"].get("conditions") or ()
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    return [pod for pod in pods(lab) if is_ready(pod)]


def is_there(lab: Lab) -> bool:
    return JOINS in {node["metadata"]["name"] for node in lab.find("Node")}


def join(lab: Lab) -> None:
    """As its guide says, on the server itself."""
    command = lab.control_plane.check_output("kubeadm token create --print-join-command")
    lab.server(JOINS).check_output(f"{command} --ignore-preflight-errors all")


def leave(lab: Lab) -> None:
    on_control_plane = lab.control_plane.check_output
    on_control_plane(f"{KUBECTL} drain {JOINS} --ignore-daemonsets --delete-emptydir-data --force --timeout 180s")
    lab.server(JOINS).check_output("kubeadm reset --force")
    on_control_plane(f"{KUBECTL} delete node {JOINS}")


@pytest.fixture(scope="module")
def smaller(lab: Lab) -> Iterator[Lab]:
    """A lab whose second GPU server has left the cluster."""
    if JOINS not in lab.control_plane.ansible.get_variables()["groups"]["all"]:
        pytest.skip(f"no server {JOINS}: make lab-up SIZE=pool site")
    server = lab.server(JOINS)
    before = server.check_output("cat /etc/default/kubelet 2>/dev/null || true")
    try:
        leave(lab)
        server.check_output("printf %s >/etc/default/kubelet", LABELS)
        wait_until(lambda: findings(lab) == {TOO_FEW} and lab.is_up_to_date(), "the rest is settled", 420)
        yield lab
    finally:
        if not is_there(lab):
            join(lab)
        server.check_output("printf %s >/etc/default/kubelet", before)


def findings(lab: Lab) -> set[str]:
    return ids(lab.examine(grace=False))


def test_pods_that_wait_for_gpus_run_on_a_node_that_joins(smaller: Lab) -> None:
    with smaller.under_load(LOAD):
        wait_until(
            lambda: len(pods(smaller)) > len(ready(smaller)) == BEFORE,
            lambda: f"{BEFORE} pods run, others wait: {len(ready(smaller))} of {len(pods(smaller))}",
            180,
        )
        waits = smaller.examine(grace=False)
        join(smaller)
        wait_until(lambda: len(ready(smaller)) == WANTED, lambda: f"{WANTED} pods run: {len(ready(smaller))}", 180)
        wait_until(lambda: measured(smaller) == names(ready(smaller)), "each of them has its metric", 120)
        wait_until(lambda: not findings(smaller), lambda: f"the doctor is silent: {findings(smaller)}", 240)

    [pending] = [found for found in waits["findings"] if found["id"] == "WORKLOAD_PODS_PENDING"]
    assert "Insufficient nvidia.com/gpu" in pending["seen"][0]
    assert pending["cause"] == "no node that the pods can use has enough free GPUs for a pod"
    assert ids(waits) == {"WORKLOAD_PODS_PENDING", TOO_FEW}, words(waits)
    of_ours = {
        pod["metadata"]["labels"]["app.kubernetes.io/name"]
        for namespace in (PLUGIN, MONITORING)
        for pod in smaller.find("Pod", namespace, field_selector=f"spec.nodeName={JOINS}")
    }
    assert {PLUGIN, "dcgm-exporter"} <= of_ours


def names(found: list[Manifest]) -> set[str]:
    return {pod["metadata"]["name"] for pod in found}


def measured(lab: Lab) -> set[str]:
    """Pods whose value the HPA can read."""
    answer = lab.raw(f"/apis/custom.metrics.k8s.io/v1beta1/namespaces/{WORKLOADS}/pods/*/gpu")
    return {value["describedObject"]["name"] for value in answer["items"]}
