"""A user with only the rights of docs/rights-namespace.yml: Roles in two namespaces, and no ClusterRole."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import (
    all_rules,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions, is_shared
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import PROFILES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import read_specs
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import MANAGER, SELECTORS_ANNOTATION
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import labels as labels_of
from collection import ROOT
from control_plane import ControlPlane, eventually
from every_spec import every_spec
from guests import GUEST, allowed_in
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from metric_chain import MONITORING, PROOF_S, MetricChain
from module_process import run_module
from playbook import run_playbook
from workloads import Workloads

RIGHTS = (ROOT / "docs" / "rights-namespace.yml").read_text()
ROLES = yaml.safe_load(RIGHTS)["items"]
PROFILE_RULE = ("prometheusrules", "kubegpu-gpu")
# What a load test makes, besides.
LOAD = {
    "metadata": {"name": "kubegpu-loadtest"},
    "rules": [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "create", "patch", "delete"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "create", "patch", "delete"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    ],
}


def roles_of(namespace: str) -> list[dict[str, Any]]:
    """The page is written for a namespace `ml`, whose name is part of those of its rules."""
    return yaml.safe_load(re.sub(r"(kubegpu[.-])ml\.", rf"\g<1>{namespace}.", RIGHTS))["items"]


def rules_of_others() -> list[dict[str, Any]]:
    """Rules that other namespaces read: those of every profile and backend, and those of another team."""
    specs = read_specs([spec for _title, spec in every_spec("other-team")])
    return [dict(rule) for rule in all_rules(specs, RuleOptions())]


def administrator_writes(plane: ControlPlane, kube: client.ApiClient, namespace: str) -> dict[str, Any]:
    """The rules that all namespaces share, once Prometheus has scraped the exporter, whose job they name."""
    wanted = {"autoscalers": [spec for _title, spec in every_spec(namespace)], "shared_rules_only": True}
    api, done = client.CustomObjectsApi(kube), {}

    def is_limited() -> bool:
        done.update(run_module("gpu_autoscaler", {"kubeconfig": str(plane.kubeconfig), **wanted}))
        rule = api.get_namespaced_custom_object("monitoring.coreos.com", "v1", MONITORING, *PROFILE_RULE)
        return SELECTORS_ANNOTATION in rule["metadata"].get("annotations", {})

    eventually(is_limited, "the shared rules name the exporter's job", PROOF_S)
    assert "failed" not in done, done
    return done


class Tenant:
    def __init__(self, plane: ControlPlane, kube: client.ApiClient, namespace: str) -> None:
        self.plane, self.kubeconfig, self.namespace = plane, str(plane.kubeconfig_of(GUEST)), namespace
        self._rbac = client.RbacAuthorizationV1Api(kube)

    def run(self, module: str, **options: Any) -> dict[str, Any]:
        done = run_module(module, {"kubeconfig": self.kubeconfig, **options})
        return {**done, "warnings": [warning["event"]["msg"] for warning in done.get("warnings", [])]}

    def may_not(self, resource: str) -> None:
        """Takes a right in the namespace away. The authorizer hears of it a moment later."""
        rules = deepcopy(ROLES[0]["rules"])
        for rule in rules:
            rule["resources"] = [plural for plural in rule["resources"] if plural != resource]
        left = [rule for rule in rules if rule["resources"]]
        self._rbac.patch_namespaced_role(ROLES[0]["metadata"]["name"], self.namespace, {"rules": left})


@pytest.fixture
def tenant(plane: tuple[ControlPlane, client.ApiClient], chain: MetricChain, workloads: Workloads) -> Iterator[Tenant]:
    """Its workload has two pods that hold a GPU each."""
    workloads.deployment("chat", replicas=2)
    workloads.node("gpu1", gpus=4)
    for pod in ("chat-0", "chat-1"):
        workloads.ready_pod(pod, app="chat")
    chain.exporter.gpus(workloads.namespace, {"chat-0": 50, "chat-1": 50})
    with ExitStack() as stack:
        administrator_writes(*plane, workloads.namespace)
        for role, namespace in zip(roles_of(workloads.namespace), (workloads.namespace, MONITORING), strict=True):
            stack.enter_context(allowed_in(plane[1], namespace, GUEST, role))
        yield Tenant(*plane, workloads.namespace)


def test_an_autoscaler_is_made_proven_judged_and_removed(tenant: Tenant) -> None:
    wanted = {"namespace": tenant.namespace, "target": {"name": "chat"}, "max_replicas": 4}
    made = tenant.run("gpu_autoscaler", verify=True, wait_timeout=PROOF_S, autoscalers=[wanted])
    assert made["changed"] is True
    assert made["result"]["autoscalers"][0]["verified"] is True
    [warning] = [text for text in made["warnings"] if "no right to" in text]
    for plural in ("horizontalpodautoscalers", "nodes", "prometheuses", "apiservices"):
        assert f"list {plural} of" in warning or f"get {plural} of" in warning
    again = tenant.run("gpu_autoscaler", verify=True, wait_timeout=PROOF_S, autoscalers=[wanted])
    assert again["changed"] is False

    for asked in ({"namespace": tenant.namespace}, {"autoscalers": [wanted]}):
        seen = tenant.run("gpu_autoscaler_info", verify=True, wait_timeout=PROOF_S, **asked)
        assert [entry["verified"] for entry in seen["result"]["autoscalers"]] == [True]

    report = tenant.run("gpu_doctor", namespace=tenant.namespace, grace=False)["result"]
    assert [(entry["name"], entry["verified"]) for entry in report["autoscalers"]] == [("chat", True)]
    assert (report["verdict"], [finding["id"] for finding in report["findings"]]) == ("partial", ["RIGHTS_MISSING"])
    reasons = "; ".join(skipped["reason"] for skipped in report["not_checked"])
    assert f"in namespace {tenant.namespace}" not in reasons
    assert "no right to list nodes of apiGroup '' at the cluster scope" in reasons

    removed = tenant.run("gpu_autoscaler", state="absent", autoscalers=[wanted])
    assert removed["changed"] is True
    [warning] = removed["warnings"]
    assert re.search("an HPA elsewhere may use PrometheusRule kubegpu-.*, which stays", warning)


def test_a_team_writes_the_rules_of_its_namespace_alone(tenant: Tenant, kube: client.ApiClient) -> None:
    """Of a metric of its own, whose rule goes with its last user, and of no other team."""
    api = client.CustomObjectsApi(kube)
    place = ("monitoring.coreos.com", "v1", MONITORING, "prometheusrules")
    name = f"kubegpu.{tenant.namespace}.queue"

    def names() -> list[str]:
        return [rule["metadata"]["name"] for rule in api.list_namespaced_custom_object(*place)["items"]]

    metric = {"name": "queue", "query": "max by (namespace, pod) (queue_length)"}
    wanted = {"namespace": tenant.namespace, "target": {"name": "chat"}, "max_replicas": 4}
    own = {**wanted, "metric": metric, "target_value": 5}
    assert tenant.run("gpu_autoscaler", verify=False, autoscalers=[own])["result"]["rules"][0]["name"] == name
    assert name in names()

    guest = client.CustomObjectsApi(config.new_client_from_config(tenant.kubeconfig))
    others = rules_of_others()
    assert {profile.replace("_", "-") for profile in PROFILES} <= {
        rule["metadata"]["name"].removeprefix("kubegpu-") for rule in others if is_shared(rule)
    }
    for rule in [*others, {**others[0], "metadata": {**others[0]["metadata"], "name": "kubegpu-alerts-chain"}}]:
        other = rule["metadata"]["name"]
        body = {**rule, "metadata": {**rule["metadata"], "namespace": MONITORING}}
        attempts = {
            "create": lambda body=body: guest.create_namespaced_custom_object(*place, body),
            "update": lambda body=body, other=other: guest.replace_namespaced_custom_object(*place, other, body),
            "patch": lambda other=other: guest.patch_namespaced_custom_object(*place, other, {"spec": {"groups": []}}),
            "apply": lambda body=body, other=other: guest.patch_namespaced_custom_object(
                *place, other, body, field_manager=MANAGER, _content_type="application/apply-patch+yaml"
            ),
            "delete": lambda other=other: guest.delete_namespaced_custom_object(*place, other),
        }
        for attempt in attempts.values():
            with pytest.raises(ApiException) as refused:
                attempt()
            assert refused.value.status == 403

    removed = tenant.run("gpu_autoscaler", state="absent", autoscalers=[own])
    assert [entry["action"] for entry in removed["result"]["rules"]] == ["deleted"]
    assert name not in names()


def test_a_team_without_a_shared_rule_is_told_who_writes_it(tenant: Tenant, kube: client.ApiClient) -> None:
    api, place = client.CustomObjectsApi(kube), ("monitoring.coreos.com", "v1", MONITORING, "prometheusrules")
    wanted = {"namespace": tenant.namespace, "target": {"name": "chat"}, "max_replicas": 4}
    api.delete_namespaced_custom_object(*place, "kubegpu-gpu")
    for seen in ("does not exist", "differs from what these autoscalers need"):
        failed = tenant.run("gpu_autoscaler", verify=False, autoscalers=[wanted])
        assert failed["failed"]
        assert f"kubegpu-gpu serves the autoscalers of all namespaces and {seen}, and user {GUEST}" in failed["msg"]
        assert "-e gpu_autoscaling_shared_rules_only=true" in failed["fix"]
        assert [entry["action"] for entry in failed["result"]["autoscalers"]] == ["failed"]
        administrator_writes(tenant.plane, kube, tenant.namespace)
        made = tenant.run("gpu_autoscaler", verify=False, autoscalers=[wanted])
        assert [entry["action"] for entry in made["result"]["rules"]] == ["unchanged"]
        assert tenant.run("gpu_autoscaler", state="absent", autoscalers=[wanted])["changed"] is True
        api.patch_namespaced_custom_object(*place, "kubegpu-gpu", {"spec": {"groups": []}})


def test_an_administrator_writes_shared_rules_and_nothing_else(tenant: Tenant, kube: client.ApiClient) -> None:
    again = administrator_writes(tenant.plane, kube, tenant.namespace)
    assert again["changed"] is False
    assert {entry["name"] for entry in again["result"]["rules"]} == {
        rule["metadata"]["name"] for rule in rules_of_others() if is_shared(rule)
    }
    autoscaling = client.AutoscalingV2Api(kube)
    assert autoscaling.list_namespaced_horizontal_pod_autoscaler(tenant.namespace).items == []


def test_the_playbooks_go_through(tmp_path: Path, tenant: Tenant) -> None:
    wanted = {"namespace": tenant.namespace, "target": {"name": "chat"}, "max_replicas": 4}
    variables = {"kubegpu_kubeconfig": tenant.kubeconfig, "gpu_autoscaling_autoscalers": [wanted]}
    assert run_playbook(tmp_path, "kubegpu.autoscale.autoscaling", variables).returncode == 0
    variables |= {"gpu_doctor_namespace": tenant.namespace, "gpu_doctor_report_dir": str(tmp_path / "report")}
    assert run_playbook(tmp_path, "kubegpu.autoscale.doctor", variables).returncode == 0

    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert [(entry["name"], entry["verified"]) for entry in report["autoscalers"]] == [("chat", True)]
    assert (report["verdict"], [finding["id"] for finding in report["findings"]]) == ("partial", ["RIGHTS_MISSING"])


def test_a_load_test_needs_no_right_elsewhere_and_leaves_that_of_others(
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], tenant: Tenant
) -> None:
    """No kubelet runs its pod: it ends there, and clears up."""
    kubeconfig, kube = plane[0].kubeconfig_of(GUEST), plane[1]
    core, batch, others = client.CoreV1Api(kube), client.BatchV1Api(kube), f"{tenant.namespace}-others"
    core.create_namespace({"metadata": {"name": others}})
    marks = {**labels_of("default"), "app.kubernetes.io/part-of": "loadtest-chat"}
    pod = {"restartPolicy": "Never", "containers": [{"name": "load", "image": "locust"}]}
    job = {"metadata": {"name": "loadtest-chat", "labels": marks}, "spec": {"template": {"spec": pod}}}
    batch.create_namespaced_job(others, job)
    wanted = {"namespace": tenant.namespace, "target": {"name": "chat"}, "max_replicas": 4}
    assert tenant.run("gpu_autoscaler", verify=False, autoscalers=[wanted])["changed"] is True

    load = {"namespace": tenant.namespace, "name": "chat", "url": "http://chat:8000/", "high": 40, "start_timeout": 1}
    variables = {"kubegpu_kubeconfig": str(kubeconfig), **{f"gpu_loadtest_{name}": load[name] for name in load}}
    with allowed_in(kube, tenant.namespace, GUEST, LOAD):
        done = run_playbook(tmp_path, "kubegpu.autoscale.loadtest", variables)
    assert f"{tenant.namespace}/loadtest-chat: the load did not start" in done.stdout
    assert batch.list_namespaced_job(tenant.namespace).items == []
    assert core.list_namespaced_secret(tenant.namespace).items == []
    assert len(batch.list_namespaced_job(others).items) == 1


@pytest.mark.parametrize(
    ("resource", "right"),
    [
        ("deployments", "list deployments of apiGroup 'apps' in namespace {}"),
        ("horizontalpodautoscalers", "list horizontalpodautoscalers of apiGroup 'autoscaling' in namespace {}"),
    ],
)
def test_a_right_that_is_needed_is_named(tenant: Tenant, resource: str, right: str) -> None:
    wanted = {"namespace": tenant.namespace, "target": {"name": "chat"}, "max_replicas": 4}
    tenant.may_not(resource)

    def refused() -> bool:
        done = tenant.run("gpu_autoscaler", verify=False, autoscalers=[wanted])
        return f"has no permission to {right.format(tenant.namespace)}" in str(done.get("msg"))

    eventually(refused, "the right is named", 20)
