"""The examples of the documentation, run as they stand on a cluster that has what they name."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.recorded_metrics import read_metrics
from chart_site import operator_crds
from cluster_dump import as_written
from collection import ROOT
from control_plane import ControlPlane, eventually
from keda_name import published
from kubernetes import client
from metric_chain import MONITORING, PROOF_S, MetricChain
from module_process import run_module
from playbook import changed, local, run_playbook
from readme import README, Home, blocks
from served_kinds import SERVED_S, is_served
from workloads import Workloads

# In the order in which a reader meets them: what the first makes the others read.
ON_A_CLUSTER = ("gpu_autoscaler", "gpu_autoscaler_info", "gpu_autoscaler_plan", "custom_metric_info", "gpu_doctor")

# Pods, named as their controllers name them, with their workloads.
PODS = {"inference-6d5f8-x7k2p": "inference", "embed-7c9b4-zz8w5": "embed", "chat-0": "chat"}


def examples(module: str) -> list[dict[str, Any]]:
    return yaml.safe_load(import_module(f"ansible_collections.kubegpu.autoscale.plugins.modules.{module}").EXAMPLES)


def _options(task: dict[str, Any]) -> dict[str, Any]:
    [options] = [value for key, value in task.items() if key.startswith("kubegpu.autoscale.")]
    return options


@pytest.fixture
def ml(kube: client.ApiClient, crd: None, chain: MetricChain) -> Workloads:
    """Namespace ml with the workloads that the examples name: each has a ready pod with a GPU, a queue and CPU time."""
    ml = Workloads(kube, namespace="ml")
    ml.node("gpu1", gpus=32)
    for name in ("inference", "embed"):
        ml.deployment(name)
    ml.scalable("StatefulSet", "apps/v1", "chat")
    for pod, name in PODS.items():
        ml.ready_pod(pod, app=name)
    chain.exporter.gpus("ml", dict.fromkeys(PODS, 50))
    chain.exporter.text += "".join(f'vllm:num_requests_waiting{{namespace="ml",pod="{pod}"}} 2\n' for pod in PODS)
    chain.exporter.text += "".join(f'queue_depth{{namespace="ml",pod="{pod}"}} 2\n' for pod in PODS)
    given = [metric for task in examples("gpu_autoscaler") for metric in _options(task).get("metrics", ())]
    jobs = {metric.job for metric in read_metrics(given) if metric.scrape}
    chain.exporter.text += "".join(f'up{{job="{job}",namespace="ml",pod="{pod}"}} 1\n' for job in jobs for pod in PODS)
    chain.exporter.text += 'nginx_ingress_controller_requests{exported_namespace="ml",ingress="inference"} 7\n'
    chain.exporter.text += "".join(
        f'container_usage{{namespace="ml",pod="{pod}",container="main"}} 0.5\n' for pod in PODS
    )
    with chain.api("metrics.k8s.io"):
        yield ml
    ml.remove()
    client.CoreV1Api(kube).delete_collection_namespaced_pod("ml")
    apps = client.AppsV1Api(kube)
    apps.delete_collection_namespaced_deployment("ml")
    apps.delete_collection_namespaced_stateful_set("ml")


@pytest.fixture
def of_site(plane: tuple[ControlPlane, client.ApiClient], kube: client.ApiClient, ml: Workloads) -> Iterator[None]:
    """What the playbook site of another inventory leaves: a Prometheus that selects each rule, a rule and an HPA."""
    core, name = client.CoreV1Api(kube), "kube-prometheus-stack-prometheus"
    labels = {"app.kubernetes.io/name": "prometheus", "operator.prometheus.io/name": name}
    core.patch_namespaced_service(name, MONITORING, {"spec": {"selector": labels}})
    with ml.kind("Prometheuse", "monitoring.coreos.com/v1"):
        made = {"apiVersion": "monitoring.coreos.com/v1", "kind": "Prometheuse", "metadata": {"name": name}}
        client.CustomObjectsApi(kube).create_namespaced_custom_object(
            "monitoring.coreos.com", "v1", MONITORING, "prometheuses", {**made, "spec": {"ruleSelector": {}}}
        )
        autoscaler = {"namespace": "ml", "target": {"name": "embed"}, "max_replicas": 2}
        options = {
            "kubeconfig": str(plane[0].kubeconfig),
            "inventory_id": "lab",
            "prometheus": {"rule_labels": {"release": "kube-prometheus-stack"}, "evaluation_interval": 1},
        }
        run_module("gpu_autoscaler", {**options, "autoscalers": [autoscaler], "verify": False})
        yield
    core.patch_namespaced_service(name, MONITORING, {"spec": {"selector": None}})


def test_the_block_of_the_readme_for_a_cluster(
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], ml: Workloads, of_site: None
) -> None:
    """As it stands, which changes nothing, beside another inventory. Then without the flags of check mode, from two
    folders, and with the option that removes it: all as the page says. Nothing is left."""
    home = Home(tmp_path)
    (tmp_path / ".kube").mkdir()
    shutil.copy(plane[0].kubeconfig, tmp_path / ".kube" / "config")
    *_, block = blocks("You have a cluster", "sh")
    before = scalers_and_rules(plane[0])
    assert len(before) == 2

    shown = home.paste(block)
    assert shown.returncode == 0
    assert re.search(r'^\+ +"maxReplicas": 8', shown.stdout, re.MULTILINE)
    assert scalers_and_rules(plane[0]) == before

    last, flags = block[block.index("ansible-playbook ") :], " --check --diff"
    assert flags in last
    [removal] = re.findall(r"to remove it again with `(.+?)` instead", README)
    made = home.paste(f". ~/kubegpu/bin/activate\n{last.replace(flags, '')}")
    assert (made.returncode, changed(made.stdout)) == (0, 1)
    [hpa] = (
        client.AutoscalingV2Api(plane[1])
        .list_namespaced_horizontal_pod_autoscaler("ml", field_selector="metadata.name=inference")
        .items
    )
    assert (hpa.metadata.name, hpa.spec.max_replicas) == ("inference", 8)

    elsewhere = "mkdir -p elsewhere && cd elsewhere\n. ~/kubegpu/bin/activate\n"
    again = home.paste(elsewhere + last.replace(flags, ""))
    assert (again.returncode, changed(again.stdout)) == (0, 0)
    removed = home.paste(elsewhere + last.replace(flags, f" {removal}"))
    assert (removed.returncode, changed(removed.stdout)) == (0, 1)
    assert scalers_and_rules(plane[0]) == before


def scalers_and_rules(plane: ControlPlane) -> dict[str, Any]:
    """HPAs and rules of all namespaces, as they were written."""
    paths = ("/apis/autoscaling/v2/horizontalpodautoscalers", "/apis/monitoring.coreos.com/v1/prometheusrules")
    found = [item for path in paths for item in plane.get(path)["items"]]
    return as_written({f"{item['metadata']['namespace']}/{item['metadata']['name']}": item for item in found})


def test_the_page_on_vllm(
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], crd: None, chain: MetricChain
) -> None:
    """But for the charts of Prometheus and adapter, which run here already, and for the load tests.

    The pod reports what vLLM 0.32 did with 16 requests in flight: two replicas at the page's eight each.
    """
    kube = plane[1]
    page = (ROOT / "docs" / "vllm.md").read_text()
    install, commands = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    manifest, scale, drain = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    [definition] = [found for found in operator_crds() if found["spec"]["names"]["kind"] == "PodMonitor"]
    client.ApiextensionsV1Api(kube).create_custom_resource_definition(definition)
    eventually(lambda: is_served(kube, "monitoring.coreos.com", "PodMonitor"), "PodMonitor is served", SERVED_S)
    ml = Workloads(kube, namespace="ml")
    ml.node("gpu1", gpus=4)
    ml.deployment("chat")
    part = yaml.safe_load(drain)
    part["spec"]["template"]["spec"]["containers"][0]["image"] = "vllm/vllm-openai"
    client.AppsV1Api(kube).patch_namespaced_deployment("chat", "ml", part, field_validation="Strict")
    ml.ready_pod("chat-0", app="chat")
    recorded = (ROOT / "tests" / "rules" / "recorded" / "vllm-0.32-saturated.prom").read_text()
    of_pod = 'namespace="ml",pod="chat-0"'
    text = re.sub(r"^(vllm:\w+\{)", rf"\1{of_pod},", recorded, flags=re.MULTILINE)
    chain.exporter.text = f"{text}up{{{of_pod}}} 1\n"  # a PodMonitor gives the target these labels
    monitor = yaml.safe_load(manifest)
    client.CustomObjectsApi(kube).create_namespaced_custom_object(
        "monitoring.coreos.com", "v1", "ml", "podmonitors", monitor, field_validation="Strict"
    )

    home = Home(tmp_path)
    (tmp_path / ".kube").mkdir()
    shutil.copy(plane[0].kubeconfig, tmp_path / ".kube" / "config")
    (tmp_path / "scale.yml").write_text(scale)
    *lines, charts = install.splitlines()
    apply, *load_tests = commands.splitlines()
    assert "kubegpu.autoscale.monitoring" in charts
    assert all("kubegpu.autoscale.loadtest" in command for command in load_tests)
    done = home.paste("\n".join([*lines, apply]))
    assert done.returncode == 0

    def desired() -> bool:
        [hpa] = client.AutoscalingV2Api(kube).list_namespaced_horizontal_pod_autoscaler("ml").items
        return hpa.metadata.name == "chat" and hpa.status.desired_replicas == 2

    eventually(desired, "the HPA wants two replicas", PROOF_S)
    ml.remove()
    client.CoreV1Api(kube).delete_collection_namespaced_pod("ml")
    client.AppsV1Api(kube).delete_collection_namespaced_deployment("ml")
    client.ApiextensionsV1Api(kube).delete_custom_resource_definition(definition["metadata"]["name"])


def test_the_examples_run(tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], ml: Workloads) -> None:
    tasks = [task for module in ON_A_CLUSTER for task in examples(module) if not _uses_keda(task)]
    with ml.kind("PodMonitor", "monitoring.coreos.com/v1"):
        run(tmp_path, tasks, kubeconfig=plane[0].kubeconfig)


def test_the_examples_for_keda_run(tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], ml: Workloads) -> None:
    """In check mode, since no operator makes the HPAs here."""
    ml.deployment("rank")
    tasks = [task for module in ON_A_CLUSTER for task in examples(module) if _uses_keda(task)]
    with ml.kind("ScaledObject", "keda.sh/v1alpha1"), published(plane[1]):
        output = run(tmp_path, tasks, "--check", "--diff", kubeconfig=plane[0].kubeconfig)
    assert re.findall(r"after: ScaledObject (\S+)", output) == ["ml/inference", "ml/embed", "ml/chat"]


def _uses_keda(task: dict[str, Any]) -> bool:
    return "keda" in json.dumps(task)


def test_the_examples_run_on_a_node(tmp_path: Path) -> None:
    """In check mode, since one installs a driver and one reboots. The last one reads files beside the playbook."""
    gpu = tmp_path / "support-case" / "sys" / "bus" / "pci" / "devices" / "0000:01:00.0"
    gpu.mkdir(parents=True)
    for name, value in {"vendor": "0x10de", "device": "0x27b8", "class": "0x030200"}.items():
        (gpu / name).write_text(f"{value}\n")

    # Otherwise the GPUs and the driver of this machine decide which of the examples run.
    (root := tmp_path / "no-gpu").mkdir()
    output = run(tmp_path, examples("gpu_facts"), "--check", "-v", root=root)

    _, _, last = output.rpartition("TASK [")
    assert "ok: [localhost" in last
    assert "0000:01:00.0" in last


def run(folder: Path, tasks: list[dict[str, Any]], *flags: str, **defaults: Path) -> str:
    options = {name: str(value) for name, value in defaults.items()}
    modules = ("group/kubegpu.autoscale.all",) if "kubeconfig" in options else ("kubegpu.autoscale.gpu_facts",)
    play = local(*tasks, module_defaults=dict.fromkeys(modules, options))
    done = run_playbook(folder, play, {}, *flags)
    assert done.returncode == 0
    assert done.stdout.count("TASK [") == len(tasks)
    return done.stdout


def test_an_api_server_takes_the_ingress_of_the_page_on_eks(kube: client.ApiClient) -> None:
    page = (ROOT / "docs" / "clusters" / "eks.md").read_text()
    blocks = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    [ingress] = [block for block in blocks if block.get("kind") == "Ingress"]
    del ingress["metadata"]["namespace"]
    client.NetworkingV1Api(kube).create_namespaced_ingress("default", ingress, dry_run="All", field_validation="Strict")
