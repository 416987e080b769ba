"""Options of the monitoring stack that are rejected: open doors, full volumes, receivers and dashboards."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.receivers import (
    alertmanager_values,
    receiver_faults,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.stack import open_doors
from collection import ROOT
from planned import plan_of

BLOCKS = [
    yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/access.md").read_text(), re.S)
]
PAGE = [block for block in BLOCKS if "prometheus_stack_values" in block]
NODE_PORT, INGRESS, TRAEFIK, GATEWAY = (example["prometheus_stack_values"] for example in PAGE)


def refused(chart_values: dict[str, Any] | None = None, **options: Any) -> list[str]:
    found: list[str] = plan_of("prometheus_stack", {"chart_values": chart_values or {}}, **{"storage": {}} | options)[
        "refused"
    ]
    return found


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


@pytest.mark.parametrize(
    ("size", "retention_size", "expected"),
    [
        ("20Gi", "8GB", False),
        ("5Gi", "8GB", True),
        ("8G", "8GB", True),
        ("8Gi", "8GB", True),
        (5368709120, "8GB", True),
        ("5Gi", "4GB", False),
        ("5Gi", "4500MB", False),
        ("1Ti", "1TB", True),
        ("5Gi", "", False),
        ("as much as there is", "8GB", False),
    ],
)
def test_a_volume_has_to_be_larger_than_what_is_kept(size: Any, retention_size: str, expected: bool) -> None:
    storage = {"resources": {"requests": {"storage": size}}}
    faults = refused(storage=storage, retention_size=retention_size)
    assert any("the volume has" in fault for fault in faults) is expected


@pytest.mark.parametrize("storage", [{}, {"storageClassName": "fast"}])
def test_a_volume_without_a_size_is_not_compared(storage: dict[str, Any]) -> None:
    assert refused(storage=storage, retention_size="8GB") == []


@pytest.mark.parametrize(("without_login", "has_own_values"), [(True, True), (False, False)])
def test_an_open_door_passes_if_it_is_allowed_or_not_of_the_inventory(
    without_login: bool, has_own_values: bool
) -> None:
    values = {"prometheus": {"service": {"type": "NodePort"}}}
    own_values = values if has_own_values else {}
    assert refused(values, values=own_values, without_login=without_login) == []


def test_an_open_door_is_rejected() -> None:
    values = {"prometheus": {"service": {"type": "NodePort"}}}
    [fault] = refused(values, values=values)
    assert "prometheus.service.type is NodePort. Everyone who reaches it can read all metrics" in fault


SECRET = {"name": "pager", "key": "url"}


@pytest.mark.parametrize(
    ("receivers", "said"),
    [
        ([{"name": "a", "type": "webhook"}], "a (webhook) has no secret"),
        ([{"name": "a", "type": "mail", "to": "x", "from": "y"}], "a (mail) has no smarthost"),
        ([{"name": "a", "type": "webhook", "secret": SECRET}] * 2, "two receivers are called a"),
        ([{"name": "null", "type": "webhook", "secret": SECRET}], "the name null is reserved"),
    ],
)
def test_a_receiver_that_alertmanager_would_reject_is_named(receivers: list[Any], said: str) -> None:
    assert [fault for fault in receiver_faults(receivers) if fault.startswith(said)]
    assert said in refused(receivers=receivers)[0]


def test_receivers_read_their_secrets_from_files() -> None:
    mail = {"name": "team", "type": "mail", "to": "a@x", "from": "b@x", "smarthost": "x:587", "secret": SECRET}
    slack = {"name": "chat", "type": "slack", "channel": "#gpus", "secret": SECRET, "severities": "info, warning"}
    webhook = {"name": "pager", "type": "webhook", "secret": SECRET}
    file = "/etc/alertmanager/secrets/pager/url"
    made = alertmanager_values([mail, slack, webhook])

    assert made["alertmanagerSpec"] == {"secrets": ["pager"]}
    nobody, by_mail, by_slack, by_webhook = made["config"]["receivers"]
    assert nobody == {"name": "null"}
    assert by_mail["email_configs"][0]["auth_password_file"] == file
    assert by_mail["email_configs"][0]["auth_username"] == "b@x"
    assert (by_slack["slack_configs"][0]["api_url_file"], by_slack["slack_configs"][0]["channel"]) == (file, "#gpus")
    assert by_webhook["webhook_configs"][0]["url_file"] == file
    matchers = [route["matchers"] for route in made["config"]["route"]["routes"]]
    assert matchers == [[f'severity =~ "{one}"'] for one in ("critical|warning", "info|warning", "critical|warning")]


def test_without_a_receiver_the_chart_s_values_stay() -> None:
    assert alertmanager_values([]) == {}
