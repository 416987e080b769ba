"""Role gpu_autoscaling as a user runs it: by ansible-playbook, from the collection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.recorded_metrics import read_metrics
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import labels as labels_of
from control_plane import ControlPlane
from kubernetes import client
from metric_chain import MetricChain
from playbook import changed, local, run_playbook
from prometheus_rules import GROUP, rules
from workloads import Workloads

PART_OF = "app.kubernetes.io/part-of"
PAUSE = {"containers": [{"name": "pause", "image": "registry.k8s.io/pause"}]}

PLAY = local({"ansible.builtin.import_role": {"name": "kubegpu.autoscale.gpu_autoscaling"}})


def play(tmp_path: Path, kubeconfig: Path, *flags: str, **options: Any) -> str:
    variables = {"kubegpu_kubeconfig": str(kubeconfig), "gpu_autoscaling_verify": False, **options}
    done = run_playbook(tmp_path, PLAY, variables, *flags)
    assert done.returncode == 0
    return done.stdout


@pytest.fixture
def autoscalers(workloads: Workloads) -> list[dict[str, Any]]:
    workloads.deployment("chat")
    return [{"namespace": workloads.namespace, "target": {"name": "chat"}, "max_replicas": 2}]


def test_present_and_absent_each_change_once(
    tmp_path: Path,
    plane: tuple[ControlPlane, client.ApiClient],
    workloads: Workloads,
    autoscalers: list[dict[str, Any]],
) -> None:
    kubeconfig = plane[0].kubeconfig
    hpas = client.AutoscalingV2Api(plane[1]).list_namespaced_horizontal_pod_autoscaler
    options = {"gpu_autoscaling_autoscalers": autoscalers}
    assert changed(play(tmp_path, kubeconfig, **options)) == 1
    assert [hpa.metadata.name for hpa in hpas(workloads.namespace).items] == ["chat"]
    assert changed(play(tmp_path, kubeconfig, **options)) == 0
    assert changed(play(tmp_path, kubeconfig, gpu_autoscaling_state="absent", **options)) == 1
    assert changed(play(tmp_path, kubeconfig, gpu_autoscaling_state="absent", **options)) == 0
    assert hpas(workloads.namespace).items == []


def test_gpus_are_divided_and_the_shares_are_reported(
    tmp_path: Path,
    plane: tuple[ControlPlane, client.ApiClient],
    workloads: Workloads,
    autoscalers: list[dict[str, Any]],
) -> None:
    workloads.node("gpu1", gpus=4)
    workloads.deployment("embed")
    [chat], namespace = autoscalers, workloads.namespace
    both = [{**chat, "max_replicas": 4, "priority": 1}, {**chat, "target": {"name": "embed"}, "max_replicas": 4}]
    options = {"gpu_autoscaling_autoscalers": both, "gpu_autoscaling_divide_gpus": True}
    printed = play(tmp_path, plane[0].kubeconfig, **options)
    assert f"{namespace}/chat: at most 3 of 4 replicas, priority 1" in printed
    assert f"{namespace}/embed: at most 1 of 4 replicas, priority 0" in printed
    hpas = client.AutoscalingV2Api(plane[1]).list_namespaced_horizontal_pod_autoscaler
    assert {hpa.metadata.name: hpa.spec.max_replicas for hpa in hpas(namespace).items} == {"chat": 3, "embed": 1}
    assert changed(play(tmp_path, plane[0].kubeconfig, **options)) == 0

    workloads.node("gpu2", gpus=4)
    assert changed(play(tmp_path, plane[0].kubeconfig, "--check", **options)) == 1
    play(tmp_path, plane[0].kubeconfig, **options)
    assert {hpa.metadata.name: hpa.spec.max_replicas for hpa in hpas(namespace).items} == {"chat": 4, "embed": 4}


def test_an_autoscaler_whose_row_is_gone_is_removed_by_its_name(
    tmp_path: Path,
    plane: tuple[ControlPlane, client.ApiClient],
    workloads: Workloads,
    autoscalers: list[dict[str, Any]],
) -> None:
    kubeconfig = plane[0].kubeconfig
    workloads.deployment("embed")
    both = [*autoscalers, {**autoscalers[0], "target": {"name": "embed"}}]
    play(tmp_path, kubeconfig, gpu_autoscaling_autoscalers=both)
    hpas = client.AutoscalingV2Api(plane[1]).list_namespaced_horizontal_pod_autoscaler
    play(tmp_path, kubeconfig, gpu_autoscaling_autoscalers=autoscalers)
    assert [hpa.metadata.name for hpa in hpas(workloads.namespace).items] == ["chat", "embed"]
    gone = [{"namespace": workloads.namespace, "name": "embed"}]
    assert changed(play(tmp_path, kubeconfig, gpu_autoscaling_state="absent", gpu_autoscaling_autoscalers=gone)) == 1
    assert [hpa.metadata.name for hpa in hpas(workloads.namespace).items] == ["chat"]


def test_a_target_that_is_still_to_come_is_named_and_the_others_are_made(
    tmp_path: Path,
    plane: tuple[ControlPlane, client.ApiClient],
    workloads: Workloads,
    autoscalers: list[dict[str, Any]],
) -> None:
    later = {"namespace": "still-to-come", "target": {"kind": "StatefulSet", "name": "train"}, "max_replicas": 2}
    output = play(tmp_path, plane[0].kubeconfig, gpu_autoscaling_autoscalers=[*autoscalers, later])
    assert "StatefulSet still-to-come/train does not exist" in output
    hpas = client.AutoscalingV2Api(plane[1]).list_namespaced_horizontal_pod_autoscaler
    assert [hpa.metadata.name for hpa in hpas(workloads.namespace).items] == ["chat"]


def test_an_autoscaler_whose_target_is_gone_is_not_proven(
    tmp_path: Path,
    plane: tuple[ControlPlane, client.ApiClient],
    workloads: Workloads,
    autoscalers: list[dict[str, Any]],
) -> None:
    """One that is still to come is nothing to prove, and one whose workload somebody has deleted is broken.

    Alone, the playbook verify fails if it has proven nothing. In the playbook site, workloads come after it.
    """
    kubeconfig, later = plane[0].kubeconfig, {**autoscalers[0], "target": {"name": "later"}}
    play(tmp_path, kubeconfig, gpu_autoscaling_autoscalers=autoscalers)
    variables = {"kubegpu_kubeconfig": str(kubeconfig), "gpu_autoscaling_wait_timeout": 1}
    coming = {**variables, "gpu_autoscaling_autoscalers": [later]}
    alone = run_playbook(tmp_path, "kubegpu.autoscale.verify", coming)
    assert alone.returncode == 2
    assert "controller -> proof: nothing was proven." in alone.stdout
    in_site = run_playbook(tmp_path, "kubegpu.autoscale.verify", {**coming, "kubegpu_proof_required": False})
    assert in_site.returncode == 0
    client.AppsV1Api(plane[1]).delete_namespaced_deployment("chat", workloads.namespace)
    both = {**variables, "gpu_autoscaling_autoscalers": [*autoscalers, later]}
    gone = run_playbook(tmp_path, "kubegpu.autoscale.verify", both)
    assert gone.returncode == 2
    assert f"autoscaler {workloads.namespace}/chat" in gone.stdout


def test_check_mode_without_a_cluster_says_what_would_be_made(tmp_path: Path) -> None:
    options = {
        "gpu_autoscaling_autoscalers": [{"target": {"name": "chat"}, "max_replicas": "{{ gpus | int }}"}],
        "gpus": "{{ counted | default(2) }}",
    }
    output = play(tmp_path, tmp_path / "none", "--check", **options)
    assert "HorizontalPodAutoscaler" in output
    assert "maxReplicas: 2" in output or '"maxReplicas": 2' in output
    assert changed(output) == 1


def test_images_are_pulled_ahead_where_the_pods_may_run(
    tmp_path: Path,
    plane: tuple[ControlPlane, client.ApiClient],
    workloads: Workloads,
    autoscalers: list[dict[str, Any]],
) -> None:
    kubeconfig, apps = plane[0].kubeconfig, client.AppsV1Api(plane[1])
    template = {
        "nodeSelector": {"pool": "gpu"},
        "imagePullSecrets": [{"name": "registry"}],
        "tolerations": [{"key": "team", "operator": "Exists"}],
    }
    patch = {"spec": {"template": {"spec": template}}}
    (container,) = apps.patch_namespaced_deployment("chat", workloads.namespace, patch).spec.template.spec.containers
    options = {"gpu_autoscaling_autoscalers": autoscalers, "gpu_autoscaling_images_state": "present"}
    # Of another inventory: they are of the same part, in the same namespace as well.
    others, labels = f"{workloads.namespace}-others", labels_of("staging")
    ours = {"label_selector": "kubegpu.autoscale/inventory!=staging"}
    core = client.CoreV1Api(plane[1])
    core.create_namespace({"metadata": {"name": others}})
    puller = {"metadata": {"name": "kubegpu-images-chat", "labels": labels | {PART_OF: "autoscaling-images"}}}
    selected = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": PAUSE}}
    for namespace in (others, workloads.namespace):
        apps.create_namespaced_daemon_set(namespace, puller | {"spec": selected})
    assert changed(play(tmp_path, kubeconfig, **options)) == 2
    (made,) = apps.list_namespaced_daemon_set(workloads.namespace, **ours).items
    pod = made.spec.template.spec
    assert [volume.image.reference for volume in pod.volumes] == [container.image]
    assert [mount.name for mount in pod.containers[0].volume_mounts] == [pod.volumes[0].name]
    assert pod.containers[0].image.startswith("registry.k8s.io/pause:")
    assert (pod.node_selector, pod.image_pull_secrets[0].name) == ({"pool": "gpu"}, "registry")
    assert [toleration.key for toleration in pod.tolerations] == ["team", "nvidia.com/gpu"]
    assert pod.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    assert changed(play(tmp_path, kubeconfig, **options)) == 0
    assert changed(play(tmp_path, kubeconfig, **options | {"gpu_autoscaling_images_state": "ignored"})) == 0
    assert len(apps.list_namespaced_daemon_set(workloads.namespace, **ours).items) == 1
    assert changed(play(tmp_path, kubeconfig, gpu_autoscaling_state="absent", **options)) == 2
    for namespace in (others, workloads.namespace):
        assert [left.metadata.name for left in apps.list_namespaced_daemon_set(namespace).items] == [
            "kubegpu-images-chat"
        ]


def test_a_metric_without_an_autoscaler_goes_with_its_entry(
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], workloads: Workloads
) -> None:
    kubeconfig = plane[0].kubeconfig
    metrics = [{"namespace": workloads.namespace, "name": "queue_depth"}]
    made = play(tmp_path, kubeconfig, gpu_autoscaling_verify=True, gpu_autoscaling_metrics=metrics)
    assert changed(made) == 1
    proof = made.partition("Prove that the recorded metrics reach the metrics API")[2]
    assert proof.partition("\n")[2].startswith("ok: [localhost]")
    assert changed(play(tmp_path, kubeconfig, gpu_autoscaling_metrics=metrics)) == 0
    assert len(rules(plane[1])) == 1
    assert changed(play(tmp_path, kubeconfig, gpu_autoscaling_metrics=metrics, gpu_autoscaling_state="absent")) == 1
    assert rules(plane[1]) == []


def test_without_an_inventory_another_run_keeps_recorded_metrics(
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], workloads: Workloads
) -> None:
    """All runs without an inventory have one ID. The list of an inventory is complete."""
    kubeconfig = plane[0].kubeconfig
    queue, users = ({"namespace": workloads.namespace, "name": name} for name in ("queue", "users"))

    def left(metrics: list[dict[str, str]], **options: str) -> list[str]:
        play(tmp_path, kubeconfig, gpu_autoscaling_metrics=metrics, **options)
        return sorted(rule["metadata"]["name"].rpartition(".")[2] for rule in rules(plane[1]))

    team = [left([queue]), left([]), left([users]), left([], gpu_autoscaling_state="absent")]
    assert team == [["queue"], ["queue"], ["queue", "users"], ["queue", "users"]]
    assert left([users], gpu_autoscaling_state="absent") == ["queue"]
    assert left([queue], gpu_autoscaling_state="absent") == []
    prod = {"kubegpu_inventory_id": "prod"}
    assert [left([queue], **prod), left([users], **prod), left([], **prod)] == [["queue"], ["users"], []]


def test_a_metric_alone_is_created_and_proven_by_the_playbooks(
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], workloads: Workloads, chain: MetricChain
) -> None:
    workloads.deployment("chat", gpus=0)
    workloads.ready_pod("chat-0", app="chat")
    metric = {"namespace": workloads.namespace, "name": "queue_depth", "scrape": {"port": "metrics"}}
    options = {"kubegpu_kubeconfig": str(plane[0].kubeconfig), "kubegpu_proof": False}
    pod, job = f'namespace="{workloads.namespace}",pod="chat-0"', read_metrics([metric])[0].job
    chain.exporter.text = f'queue_depth{{{pod}}} 1\nup{{job="{job}",{pod}}} 1\n'
    with workloads.kind("PodMonitor", f"{GROUP}/v1"):
        for playbook in ("autoscaling", "verify"):
            done = run_playbook(
                tmp_path, f"kubegpu.autoscale.{playbook}", {**options, "gpu_autoscaling_metrics": [metric]}
            )
            assert done.returncode == 0
    chain.exporter.text = ""
