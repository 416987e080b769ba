"""Clusters set up by well-known recipes: the doctor's report, and their adoption."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from control_plane import ControlPlane, eventually, running
from guests import APPLY, GUEST, LOOK, LOOKER, allowed
from kubernetes import client
from metric_chain import MONITORING, PROOF_S, MetricChain
from module_process import run_module
from scaling_bench.configurations import filled, read_recipes
from workloads import Workloads

Run = Callable[..., dict[str, Any]]
RULES = ("monitoring.coreos.com", "v1", MONITORING, "prometheusrules")
PODS = {"chat-0": 50, "chat-1": 30}
JOINS = "RULE_JOINS_POD_ALONE"

WRITTEN = read_recipes()
ADAPTER_RULES = [WRITTEN.adapter_rules[name] for name in ("chart_default", "pods_over_a_minute")]

NO_PROBE = "WORKLOAD_NO_READINESS_PROBE"
# What is gone from the doctor's findings once the autoscaler is ours.
MENDED = {"METRIC_NOT_LISTED", "HPA_METRIC_OF_ALL_GPUS", "HPA_AT_MAXIMUM"}


@dataclass(frozen=True)
class Recipe:
    """`NS` and `POD` stand for the namespace of the workload and each of its pods.

    series:   what Prometheus has of each pod. target: what the recipe scales, and to how many at most.
    says:     the findings of the doctor.
    replicas: what the recipe makes of its pods, which each have a GPU that is so many percent busy.
    """

    series: str
    target: dict[str, str]
    says: set[str]
    replicas: int = 2
    pods: dict[str, int] = field(default_factory=lambda: PODS)
    most: int = 4

    @property
    def name(self) -> str:
        return self.target["name"]


DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"}
GPU = 'DCGM_FI_DEV_GPU_UTIL{gpu="GPU",UUID="GPU-GPU",container="main",'
RECIPES = {
    "a rule that joins labels of pods": Recipe(
        series=GPU + 'node="gpu1",namespace="NS",pod="POD"} VALUE\nkube_pod_labels{namespace="NS",pod="POD"} 1\n',
        target=DEPLOYMENT,
        says={"RULE_POD_LABELS_MISSING", "METRIC_NOT_LISTED", JOINS, NO_PROBE},
    ),
    "the best-known one": Recipe(
        series='dcgm_gpu_utilization{gpu="GPU",UUID="GPU-GPU",device="nvidia0",Hostname="gpu1",node="gpu1",'
        'container="main",namespace="NS",pod="POD"} VALUE\n'
        'kube_pod_labels{namespace="NS",pod="POD",label_app="cuda-test"} 1\n',
        target={"apiVersion": "apps/v1", "kind": "Deployment", "name": "cuda-test"},
        says={JOINS, "HPA_AT_MAXIMUM", NO_PROBE},
        # A GPU that is 60 % busy is twelve times the target of 5, so the recipe always has its maximum.
        replicas=3,
        pods={"cuda-test-0": 70, "cuda-test-1": 60, "cuda-test-2": 50},
        most=3,
    ),
    "an average over time in the adapter": Recipe(
        series=GPU + 'namespace="gpu-operator",pod="exporter",service="nvidia-dcgm-exporter",'
        'exported_namespace="NS",exported_pod="POD"} VALUE\n',
        target={"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "chat"},
        says={NO_PROBE},
    ),
    "a raw metric of the exporter's Service": Recipe(
        series=GPU + 'namespace="NS",pod="exporter",service="dcgm-exporter",'
        'exported_namespace="NS",exported_pod="POD"} VALUE\n',
        target=DEPLOYMENT,
        says={"HPA_METRIC_OF_ALL_GPUS", NO_PROBE},
        replicas=3,  # 50 and 30 are 80 in all, over 60
    ),
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, client.ApiClient]]:
    """Of its own: the recipes' adapter rules list every series."""
    with running(tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane


@pytest.fixture(scope="module")
def kube(plane: tuple[ControlPlane, client.ApiClient]) -> client.ApiClient:
    return plane[1]


@pytest.fixture(scope="module")
def chain(plane: tuple[ControlPlane, client.ApiClient]) -> Iterator[MetricChain]:
    chain = MetricChain(*plane, adapter_rules=ADAPTER_RULES)
    chain.start()
    yield chain
    chain.stop()


@pytest.fixture
def run(plane: tuple[ControlPlane, client.ApiClient]) -> Iterator[Run]:
    """The doctor has the rights to look that the collection ships, and the other modules those to apply."""

    def run(module: str = "gpu_autoscaler", **options: Any) -> dict[str, Any]:
        unverified = {"verify": False} if module == "gpu_autoscaler" else {}
        kubeconfig = plane[0].kubeconfig_of(LOOKER if module == "gpu_doctor" else GUEST)
        return run_module(module, {"kubeconfig": str(kubeconfig), **unverified, **options})

    with allowed(plane[1], GUEST, APPLY), allowed(plane[1], LOOKER, LOOK):
        yield run


class Site:
    """A namespace set up after a recipe: pods with a GPU each, as many as they need."""

    def __init__(self, name: str, kube: client.ApiClient, chain: MetricChain, workloads: Workloads) -> None:
        self.recipe, self.namespace = (recipe := RECIPES[name]), workloads.namespace
        written = filled(WRITTEN.recipes[name], namespace=self.namespace, name=recipe.name)
        self._objects, self._autoscaling = client.CustomObjectsApi(kube), client.AutoscalingV2Api(kube)
        self._core, self._apps = client.CoreV1Api(kube), client.AppsV1Api(kube)
        if recipe.target["kind"] == "Deployment":
            workloads.deployment(recipe.name, probe=False, replicas=len(recipe.pods))
        else:
            workloads.scalable(
                recipe.target["kind"], recipe.target["apiVersion"], recipe.name, replicas=len(recipe.pods)
            )
        workloads.node("gpu1", gpus=4)
        for pod in recipe.pods:
            workloads.ready_pod(pod, app=recipe.name)
        service = {"metadata": {"name": "dcgm-exporter"}, "spec": {"ports": [{"port": 9400}]}}
        self._core.create_namespaced_service(self.namespace, service)
        chain.exporter.text = "".join(
            recipe.series.replace("NS", self.namespace)
            .replace("POD", pod)
            .replace('"GPU', f'"{gpu}')
            .replace("VALUE", str(value))
            for gpu, (pod, value) in enumerate(recipe.pods.items())
        )
        if rule := written.get("rule"):
            metadata = {"name": recipe.name, "labels": {"release": "kube-prometheus-stack"}}
            body = {"metadata": metadata, "spec": {"groups": [{"name": recipe.name, "rules": [rule]}]}}
            kind = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule"}
            self._objects.create_namespaced_custom_object(*RULES, {**kind, **body})
        spec = {"scaleTargetRef": recipe.target, "minReplicas": 1, "maxReplicas": recipe.most}
        hpa = {"metadata": {"name": recipe.name}, "spec": {**spec, "metrics": [written["metric"]]}}
        self._autoscaling.create_namespaced_horizontal_pod_autoscaler(self.namespace, hpa)

    def replicas(self) -> int:
        if self.recipe.target["kind"] == "Deployment":
            return self._apps.read_namespaced_deployment(self.recipe.name, self.namespace).spec.replicas
        group, version = self.recipe.target["apiVersion"].split("/")
        found = self._objects.get_namespaced_custom_object(group, version, self.namespace, "rollouts", self.recipe.name)
        return found["spec"]["replicas"]

    def foreign(self) -> list[Any]:
        """What is not the HPA's."""
        services = self._core.list_namespaced_service(self.namespace).to_dict()["items"]
        rules = self._objects.list_namespaced_custom_object(*RULES)["items"]
        return services + [rule for rule in rules if not rule["metadata"]["name"].startswith("kubegpu")]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_judged_taken_over_and_left_again(
    name: str, run: Run, kube: client.ApiClient, chain: MetricChain, workloads: Workloads
) -> None:
    recipe = RECIPES[name]
    kind, version = recipe.target["kind"], recipe.target["apiVersion"]
    with workloads.kind(kind, version):
        site = Site(name, kube, chain, workloads)

        def says() -> set[str]:
            report = run("gpu_doctor", namespace=site.namespace, grace=False)["result"]
            assert not [skipped for skipped in report["not_checked"] if "no right" in skipped["reason"]]
            return {finding["id"] for finding in report["findings"]}

        eventually(lambda: (says(), site.replicas()) == (recipe.says, recipe.replicas), "the recipe is judged", PROOF_S)
        foreign = site.foreign()

        wanted = {
            "namespace": site.namespace,
            "target": {"kind": kind, "name": recipe.name},
            "max_replicas": recipe.most,
        }
        assert "adopt: true" in run(autoscalers=[wanted])["msg"]
        wanted["adopt"] = True
        taken = run(verify=True, wait_timeout=PROOF_S, autoscalers=[wanted])
        (entry,) = taken["result"]["autoscalers"]
        assert (entry["verified"], entry["pod_values"]) == (True, recipe.pods)
        eventually(lambda: says() == recipe.says - MENDED, "what is gone and nothing else is mended", PROOF_S)
        assert site.replicas() == recipe.replicas

        assert run(state="absent", autoscalers=[wanted])["changed"] is True
        assert site.foreign() == foreign
        assert site.replicas() == recipe.replicas
