"""The end of site.yml's output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from control_plane import ControlPlane
from kubernetes import client
from playbook import local, run_playbook
from workloads import Workloads


def said(tmp_path: Path, plane: ControlPlane, **options: Any) -> str:
    common = "kubegpu.autoscale._common"
    tasks = [
        {
            "ansible.builtin.include_role": {"name": common, "tasks_from": "cluster"},
            "vars": {"_common_cluster_state": "present"},
        },
        {"ansible.builtin.include_role": {"name": common, "tasks_from": "summary"}},
    ]
    (tmp_path / "hosts.yml").write_text("all: {}\n")
    variables = {"kubegpu_kubeconfig": str(plane.kubeconfig), **options}
    done = run_playbook(tmp_path, local(*tasks), variables, inventory="hosts.yml")
    assert done.returncode == 0
    return " ".join(done.stdout.split())


def test_the_summary_says_what_there_is_where_and_what_comes_next(
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], workloads: Workloads
) -> None:
    core, autoscaling = client.CoreV1Api(plane[1]), client.AutoscalingV2Api(plane[1])
    core.create_node({"metadata": {"name": "gpu-a", "labels": {"nvidia.com/gpu.present": "true"}}})
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"}
    marked = {"name": "chat", "labels": {"app.kubernetes.io/managed-by": "kubegpu.autoscale"}}
    try:
        core.patch_node_status(
            "gpu-a",
            {
                "status": {
                    "allocatable": {"nvidia.com/gpu": "4"},
                    "capacity": {"nvidia.com/gpu": "4"},
                    "addresses": [{"type": "InternalIP", "address": "192.0.2.4"}],
                }
            },
        )
        empty = said(tmp_path, plane[0])
        autoscaling.create_namespaced_horizontal_pod_autoscaler(
            workloads.namespace, {"metadata": marked, "spec": {"scaleTargetRef": target, "maxReplicas": 2}}
        )
        full = said(
            tmp_path,
            plane[0],
            prometheus_stack_grafana=True,
            prometheus_stack_receivers=[{"name": "on-call", "type": "slack"}],
        )
        reached = said(
            tmp_path,
            plane[0],
            prometheus_stack_grafana=True,
            prometheus_stack_values={
                "grafana": {"service": {"type": "NodePort", "nodePort": 30300}},
                "prometheus": {"ingress": {"enabled": True, "hosts": ["prometheus.example.com"], "tls": [{}]}},
            },
        )
    finally:
        core.delete_node("gpu-a")

    assert "GPUs: 4 on gpu-a" in empty
    assert "Autoscalers: none. Next: describe one in gpu_autoscaling_autoscalers" in empty
    assert "Alerts are sent to no receiver" in empty
    assert "port-forward service/kube-prometheus-stack-prometheus 9090:9090" in empty
    assert f"Autoscalers: {workloads.namespace}/chat" in full
    assert "Alerts are sent to on-call" in full
    assert "port-forward service/kube-prometheus-stack-grafana 3000:80" in full
    assert f"export KUBECONFIG={plane[0].kubeconfig}" in full
    assert "Prometheus: https://prometheus.example.com; alerts are at /alerts" in reached
    assert "Grafana: http://192.0.2.4:30300, user admin; the password: kubectl" in reached
