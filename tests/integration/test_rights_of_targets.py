"""Whatever is scaled is read with the rights that the collection ships, one's own kind with those of a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import yaml
from collection import ROOT
from control_plane import ControlPlane
from guests import APPLY, GUEST, LOOK, LOOKER, allowed
from kubernetes import client
from module_process import run_module
from workloads import Workloads

KINDS = {
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "Rollout": "argoproj.io/v1alpha1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
}
OF_ONES_OWN = ("Fleet", "example.com/v1")


def of_the_page() -> dict[str, Any]:
    """The ClusterRole for a custom kind."""
    text = (ROOT / "docs" / "existing-clusters.md").read_text()
    [written] = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", text, re.DOTALL)
    return yaml.safe_load(written)


class Users:
    """Who may apply, and who may look."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def apply(self, **options: Any) -> dict[str, Any]:
        known = {"kubeconfig": str(self._plane.kubeconfig_of(GUEST)), "verify": False}
        return run_module("gpu_autoscaler", {**known, **options})

    def look(self, namespace: str) -> list[str]:
        """What the doctor has no permission to. Without pods and exporter it has much else to say."""
        known = {"kubeconfig": str(self._plane.kubeconfig_of(LOOKER)), "namespace": namespace}
        report = run_module("gpu_doctor", known)["result"]
        return [skipped["reason"] for skipped in report["not_checked"] if "no right" in skipped["reason"]]


@pytest.fixture
def users(plane: tuple[ControlPlane, client.ApiClient]) -> Iterator[Users]:
    with allowed(plane[1], GUEST, APPLY), allowed(plane[1], LOOKER, LOOK):
        yield Users(plane[0])


@pytest.mark.parametrize("kind", KINDS)
def test_the_kinds_that_are_known_are_read_with_the_documented_rights(
    users: Users, workloads: Workloads, kind: str
) -> None:
    with workloads.kind(kind, KINDS[kind]):
        workloads.scalable(kind, KINDS[kind], "chat")
        wanted = {"namespace": workloads.namespace, "target": {"kind": kind, "name": "chat"}, "max_replicas": 4}
        assert users.apply(autoscalers=[wanted])["changed"] is True
        assert users.apply(autoscalers=[wanted])["changed"] is False
        assert users.look(workloads.namespace) == []


def test_a_kind_of_ones_own_needs_the_rule_of_the_page(
    users: Users, kube: client.ApiClient, workloads: Workloads
) -> None:
    kind, version = OF_ONES_OWN
    with workloads.kind(kind, version), ExitStack() as stack:
        workloads.scalable(kind, version, "chat")
        target = {"kind": kind, "api_version": version, "name": "chat"}
        wanted = {"namespace": workloads.namespace, "target": target, "max_replicas": 4}
        refused = users.apply(autoscalers=[wanted])
        assert f"list fleets of apiGroup 'example.com' in namespace {workloads.namespace}" in refused["msg"]

        role = of_the_page()
        stack.enter_context(allowed(kube, GUEST, role))
        assert users.apply(autoscalers=[wanted])["changed"] is True
        assert f"no right to list fleets of apiGroup 'example.com' in namespace {workloads.namespace}" in users.look(
            workloads.namespace
        )
        other = {**role, "metadata": {"name": "another"}}
        stack.enter_context(allowed(kube, LOOKER, other))
        assert users.look(workloads.namespace) == []
