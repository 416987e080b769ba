"""Nothing that asks nobody for a login is opened to the outside by the chart's values, unless somebody says so."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.stack import open_doors
from charts_check import releases
from collection import ROOT
from playbook import local, run_playbook

BLOCKS = [
    yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/access.md").read_text(), re.S)
]
PAGE = [block for block in BLOCKS if "prometheus_stack_values" in block]
NODE_PORT, INGRESS, TRAEFIK, GATEWAY = (example["prometheus_stack_values"] for example in PAGE)


FOR_ANOTHER = deepcopy(INGRESS)
FOR_ANOTHER["prometheus"]["ingress"]["ingressClassName"] = "traefik"


def without(values: dict[str, Any], *path: str) -> dict[str, Any]:
    """The values of Prometheus without one of them."""
    values = deepcopy(values)
    inner = values["prometheus"]
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return values


@pytest.mark.parametrize(
    "values", [{}, NODE_PORT, INGRESS, TRAEFIK, GATEWAY], ids=["none", "port", "ingress", "traefik", "gateway"]
)
def test_what_the_page_shows_is_taken(values: dict[str, Any]) -> None:
    assert open_doors(values) == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"prometheus": {"service": {"type": "NodePort"}}}, "prometheus.service.type is NodePort"),
        ({"alertmanager": {"service": {"type": "LoadBalancer"}}}, "alertmanager.service.type is LoadBalancer"),
        (
            {"prometheus": {"servicePerReplica": {"enabled": True, "type": "NodePort"}}},
            "prometheus.servicePerReplica.type is NodePort",
        ),
        (
            {"prometheus": {"thanosServiceExternal": {"enabled": True}}},
            "prometheus.thanosServiceExternal.type is LoadBalancer",
        ),
        (
            {"prometheus": {"thanosIngress": {"enabled": True}}},
            "prometheus.thanosIngress has no annotation that asks for a login",
        ),
        ({"alertmanager": {"service": {"externalIPs": ["192.0.2.7"]}}}, "alertmanager.service has externalIPs"),
        (
            {"prometheus": {"prometheusSpec": {"hostNetwork": True}}},
            "prometheus.prometheusSpec.hostNetwork is true",
        ),
        (without(INGRESS, "ingress", "annotations"), "prometheus.ingress has no annotation that asks for a login"),
        (FOR_ANOTHER, "prometheus.ingress has no annotation that asks for a login"),
        (without(GATEWAY, "route", "main", "filters"), "prometheus.route.main has no filter that asks for a login"),
        (
            {"prometheus": {"route": {"other": {"enabled": True, "filters": [{"type": "URLRewrite"}]}}}},
            "prometheus.route.other has no filter that asks for a login",
        ),
    ],
)
def test_a_way_in_without_a_login_is_found(values: dict[str, Any], said: str) -> None:
    assert open_doors(values) == [said]


@pytest.mark.parametrize("name", ["servicePerReplica", "thanosService", "thanosServiceExternal"])
def test_a_service_that_is_off_is_no_way_in(name: str) -> None:
    assert open_doors({"prometheus": {name: {"type": "LoadBalancer", "externalIPs": ["192.0.2.7"]}}}) == []


def test_it_is_refused_before_the_cluster_is_reached_and_can_be_allowed(tmp_path: Path) -> None:
    role = {"ansible.builtin.include_role": {"name": "kubegpu.autoscale.prometheus_stack", "tasks_from": "preflight"}}
    open_to_all = {"prometheus_stack_values": {"prometheus": {"service": {"type": "NodePort"}}}}
    reached = {"kubegpu_cluster_ready": True, "kubegpu_cluster": {"context": "test", "components": {}}}

    refused = run_playbook(tmp_path, local(role), open_to_all)
    allowed = run_playbook(tmp_path, local(role), open_to_all | reached | {"prometheus_stack_without_login": True})

    said = " ".join(refused.stdout.split())
    assert (
        "prometheus_stack_values: prometheus.service.type is NodePort. Everyone who reaches it can read all metrics"
        in said
    )
    assert "Nothing was changed. Next: put a login in front" in said
    assert allowed.returncode == 0


def test_the_chart_gets_what_the_page_says() -> None:
    made = releases({"page": PAGE[1]})["page"]["kube-prometheus-stack"]["values"]

    assert made["grafana"]["ingress"]["hosts"] == ["grafana.example.com"]
    assert made["grafana"]["admin"]["existingSecret"] == "kubegpu-grafana-admin"
    assert made["prometheus"]["prometheusSpec"]["externalUrl"] == "https://prometheus.example.com"
