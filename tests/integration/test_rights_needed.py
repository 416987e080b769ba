"""Every documented right is used, by the API server's audit log."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import PROFILES
from control_plane import ControlPlane, Request, eventually
from guests import APPLY, GUEST, HEARD_S, LOOK, LOOKER, allowed, allowed_in
from keda_name import published
from kubernetes import client
from metric_chain import MONITORING, MetricChain
from module_process import run_module
from test_one_namespace import administrator_writes, roles_of
from test_rights_of_targets import KINDS
from workloads import Workloads

Right = tuple[str, str, str, str]
STACK, ADAPTER = "kube-prometheus-stack-prometheus", "prometheus-adapter"
# For the command that errors about a rule name: kubectl get prometheusrule.
TO_LOOK: Right = ("monitoring.coreos.com", "prometheusrules", "get", "")
TARGETS = {"Deployment": "apps/v1", **KINDS}


def rights_of(role: dict[str, Any]) -> set[Right]:
    """Group, resource, verb, and name of an object or an empty text."""
    return {
        right
        for rule in role["rules"]
        for right in product(rule["apiGroups"], rule["resources"], rule["verbs"], rule.get("resourceNames", [""]))
    }


def grants(right: Right, request: Request) -> bool:
    group, resource, verb, name = right
    return (
        (group, verb) == (request.group, request.verb)
        and resource in ("*", request.resource)
        and name in ("", request.name)
    )


def unused(role: dict[str, Any], requests: set[Request]) -> set[Right]:
    """A server-side apply that makes an object needs the right to create it, too, and is one request: PATCH."""
    applied = {request._replace(verb="create") for request in requests if request.verb == "patch"}
    rights = rights_of(role) - {TO_LOOK}
    return {right for right in rights if not any(grants(right, request) for request in requests | applied)}


def at_port(role: dict[str, Any], kube: client.ApiClient) -> dict[str, Any]:
    """The role for replicas of Prometheus at the port that this machine has for them."""
    port = client.CoreV1Api(kube).read_namespaced_service(STACK, MONITORING).spec.ports[0].target_port
    return json.loads(re.sub(r"(-[01]):9090", rf"\1:{port}", json.dumps(role)))


class User:
    """A user of the API server, who runs modules."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self._plane, self._name = plane, name
        self._kubeconfig = str(plane.kubeconfig_of(name))
        self._begun = len(plane.allowed_requests(name))

    def run(self, module: str, **options: Any) -> dict[str, Any]:
        return run_module(module, {"kubeconfig": self._kubeconfig, **options})

    def requests(self, namespaces: tuple[str, ...] = ()) -> set[Request]:
        made = self._plane.allowed_requests(self._name)[self._begun :]
        return {request for request in made if not namespaces or request.namespace in namespaces}


@contextmanager
def replicas_and_adapter(plane: ControlPlane, kube: client.ApiClient) -> Iterator[None]:
    """Two replicas of Prometheus behind its Service, and an adapter whose rules are in a ConfigMap."""
    core, apps = client.CoreV1Api(kube), client.AppsV1Api(kube)
    labels, own = {"app": "prometheus"}, {"app": ADAPTER}
    names = [f"prometheus-{STACK}-{number}" for number in (0, 1)]
    config = {"name": "config", "configMap": {"name": ADAPTER}}
    container = {
        "name": "main",
        "image": "prometheus-adapter",
        "args": ["--config=/etc/adapter/config.yaml"],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/adapter"}],
    }
    template = {"metadata": {"labels": own}, "spec": {"containers": [container], "volumes": [config]}}
    port = core.read_namespaced_service(STACK, MONITORING).spec.ports[0].target_port
    ready = {"phase": "Running", "podIP": plane.address, "podIPs": [{"ip": plane.address}]}
    ready["conditions"] = [{"type": "Ready", "status": "True"}]
    with ExitStack() as stack:
        for name in names:
            ports = [{"containerPort": port, "name": "web"}]
            containers = [{"name": "prometheus", "image": "prometheus", "ports": ports}]
            pod = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers}}
            core.create_namespaced_pod(MONITORING, pod)
            stack.callback(core.delete_namespaced_pod, name, MONITORING)
            core.patch_namespaced_pod_status(name, MONITORING, {"status": ready})
        core.create_namespaced_config_map(
            MONITORING, {"metadata": {"name": ADAPTER}, "data": {"config.yaml": "rules: []"}}
        )
        stack.callback(core.delete_namespaced_config_map, ADAPTER, MONITORING)
        spec = {"selector": {"matchLabels": own}, "template": template}
        apps.create_namespaced_deployment(MONITORING, {"metadata": {"name": ADAPTER}, "spec": spec})
        stack.callback(apps.delete_namespaced_deployment, ADAPTER, MONITORING)
        for service, selector in ((STACK, labels), (ADAPTER, own)):
            core.patch_namespaced_service(service, MONITORING, {"spec": {"selector": selector}})
            stack.callback(core.patch_namespaced_service, service, MONITORING, {"spec": {"selector": None}})
        yield


def _forget_selector(kube: client.ApiClient, namespace: str, kind: str, version: str, name: str) -> None:
    """A LeaderWorkerSet has none, and a Rollout with workloadRef. The scale subresource says which pods are theirs."""
    group, _, served = version.partition("/")
    if group != "apps":
        body = {"spec": {"selector": None}}
        client.CustomObjectsApi(kube).patch_namespaced_custom_object(
            group, served, namespace, f"{kind.lower()}s", name, body
        )


@pytest.fixture
def work(
    plane: tuple[ControlPlane, client.ApiClient], chain: MetricChain, workloads: Workloads
) -> Iterator[Callable[[User, User], None]]:
    """What a user does who applies, and one who looks: each module, each kind of target, and each thing it looks at."""
    namespace, kube = workloads.namespace, plane[1]
    workloads.node("gpu1", gpus=8)

    def use(applies: User, looks: User) -> None:
        for kind, version in TARGETS.items():
            _use_target(applies, looks, kind, version)
        _use_metrics(applies, looks)

    def _use_target(applies: User, looks: User, kind: str, version: str) -> None:
        name = f"chat-{kind.lower()}"
        with workloads.kind(kind, version):
            if kind == "Deployment":
                workloads.deployment(name, replicas=2)  # one of its pods is missing: events say why
            else:
                workloads.scalable(kind, version, name)
                _forget_selector(kube, namespace, kind, version, name)
            workloads.ready_pod(f"{name}-0", app=name)
            chain.exporter.gpus(namespace, {f"{name}-0": 50})
            target = {"kind": kind, "api_version": version, "name": name}
            wanted = [{"namespace": namespace, "target": target, "max_replicas": 4}]
            assert applies.run("gpu_autoscaler", verify=False, autoscalers=wanted)["changed"] is True
            which = {"namespace": namespace, "name": name}
            applies.run("gpu_autoscaler_watch", seconds=1, **which)
            applies.run("custom_metric_info", namespace=namespace, metric="gpu", target=target)
            looks.run("gpu_doctor", **which)
            assert applies.run("gpu_autoscaler", state="absent", autoscalers=wanted)["changed"] is True

    def _use_metrics(applies: User, looks: User) -> None:
        name, pod = "chat-deployment", "chat-deployment-0"
        claim = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
        body = {"spec": {"template": {"spec": {"resourceClaims": claim}}}}
        client.AppsV1Api(kube).patch_namespaced_deployment(name, namespace, body)
        # The rights of one namespace name the rules of its autoscaler `chat` and of its metric `queue`.
        wanted = [{"namespace": namespace, "name": "chat", "target": {"name": name}, "max_replicas": 4}]
        external = [{**wanted[0], "metric_type": "External"}]
        applies.run("custom_metric_info", namespace=namespace, metric="gpu", name=pod)
        applies.run("gpu_autoscaler", verify=True, wait_timeout=20, autoscalers=wanted)
        looks.run("gpu_doctor", namespace=namespace)
        with chain.api("external.metrics.k8s.io"):
            applies.run("gpu_autoscaler", verify=True, wait_timeout=20, autoscalers=external)
            applies.run("gpu_doctor", namespace=namespace)
            looks.run("gpu_doctor", namespace=namespace)
        for profile, metrics in PROFILES.items():
            aim = {} if metrics.metrics[0].target_value else {"target_value": 5}
            done = applies.run("gpu_autoscaler", verify=False, autoscalers=[{**wanted[0], "metric": profile, **aim}])
            assert done["result"]["rules"][0]["action"] in ("created", "unchanged")
        queue = {"name": "queue", "query": "max by (namespace, pod) (queue_length)"}
        own = [{**wanted[0], "metric": queue, "target_value": 5}]
        assert applies.run("gpu_autoscaler", verify=False, autoscalers=own)["changed"] is True
        gone = applies.run("gpu_autoscaler", state="absent", autoscalers=own)
        assert [rule["action"] for rule in gone["result"]["rules"] if "queue" in rule["name"]] == ["deleted"]
        with workloads.kind("PodMonitor", "monitoring.coreos.com/v1"):
            metric = {"namespace": namespace, "name": "depth", "query": queue["query"]}
            for port in ("metrics", "http"):  # the PodMonitor of the first one is deleted
                scraped = {**metric, "scrape": {"port": port}}
                applies.run("gpu_autoscaler", verify=False, autoscalers=[], metrics=[scraped], inventory_id="one")
            applies.run("gpu_autoscaler", state="absent", autoscalers=[], metrics=[], inventory_id="one")
        with workloads.kind("ScaledObject", "keda.sh/v1alpha1"), published(kube):
            keda = {**wanted[0], "backend": "keda"}
            for backend in ("keda", "adapter", "keda"):
                scaled = [{**keda, "backend": backend}]
                done = applies.run("gpu_autoscaler", verify=False, autoscalers=scaled)
                assert done["changed"] is True, done
            for metric in ("llm", queue):
                scaled = [{**keda, "metric": metric, "target_value": 5}]
                done = applies.run("gpu_autoscaler", verify=False, autoscalers=scaled)
                assert done["changed"] is True, done
            done = applies.run("gpu_autoscaler", state="absent", autoscalers=[keda])
            assert done["changed"] is True, done

    with replicas_and_adapter(*plane):
        yield use


def test_each_right_of_the_cluster_roles_is_used(
    plane: tuple[ControlPlane, client.ApiClient], work: Callable[[User, User], None]
) -> None:
    may_apply, may_look = (at_port(role, plane[1]) for role in (APPLY, LOOK))
    with allowed(plane[1], GUEST, may_apply), allowed(plane[1], LOOKER, may_look):
        applies, looks = User(plane[0], GUEST), User(plane[0], LOOKER)
        work(applies, looks)
        assert unused(may_apply, applies.requests()) == set()
        assert unused(may_look, looks.requests()) == set()


def test_each_right_of_one_namespace_is_used(
    plane: tuple[ControlPlane, client.ApiClient],
    chain: MetricChain,
    workloads: Workloads,
    work: Callable[[User, User], None],
) -> None:
    places = (workloads.namespace, MONITORING)
    roles = [at_port(role, plane[1]) for role in roles_of(workloads.namespace)]
    with ExitStack() as stack:
        chain.exporter.gpus(workloads.namespace, {"chat-deployment-0": 50})
        administrator_writes(*plane, workloads.namespace)
        for role, place in zip(roles, places, strict=True):
            stack.enter_context(allowed_in(plane[1], place, GUEST, role))
        tenant = User(plane[0], GUEST)
        work(tenant, tenant)
        for role, place in zip(roles, places, strict=True):
            assert unused(role, tenant.requests((place,))) == set()


def test_a_right_by_name_reaches_nothing_beside_it(
    plane: tuple[ControlPlane, client.ApiClient], chain: MetricChain
) -> None:
    """Another Service of the same namespace, and another ConfigMap."""
    review = client.AuthorizationV1Api(plane[1]).create_subject_access_review

    def may(user: str, resource: str, name: str, subresource: str = "") -> bool:
        attributes = {"verb": "get", "resource": resource, "subresource": subresource, "name": name}
        spec = {"user": user, "resourceAttributes": {**attributes, "namespace": MONITORING}}
        return review({"spec": spec}).status.allowed

    with allowed(plane[1], GUEST, APPLY), allowed(plane[1], LOOKER, LOOK):
        for user in (GUEST, LOOKER):
            eventually(lambda user=user: may(user, "services", f"{STACK}:9090", "proxy"), "it is allowed", HEARD_S)
            assert may(user, "configmaps", ADAPTER)
            assert not may(user, "services", "grafana:80", "proxy")
            assert not may(user, "pods", "grafana-0:3000", "proxy")
            assert not may(user, "configmaps", "grafana")
            assert not may(user, "secrets", "grafana")
