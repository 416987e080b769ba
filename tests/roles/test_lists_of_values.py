"""Chart values of a user beside those of the roles: one entry more in a list is no reason to lose the others."""

from __future__ import annotations

from typing import Any

import pytest
from role_values import RoleValues

TOLD = {"kubegpu_cluster": {"components": {}, "context": "test"}, "groups": {}, "hostvars": {}}


def values_of(role: str, **options: Any) -> Any:
    return RoleValues(role, options, TOLD)[f"__{role}_chart['values']"]


TOKEN, OFTEN = "--prometheus-token-file=/etc/token", "--client-qps=50"
MINE = {"seriesQuery": "requests_total", "metricsQuery": "sum(<<.Series>>)"}


def test_a_flag_more_leaves_those_of_the_adapter() -> None:
    """docs/existing-clusters.md says to give the token so. Without the others it asks 5 times a second."""
    usual = values_of("prometheus_adapter")["extraArguments"]
    given = {"extraArguments": [TOKEN, OFTEN]}
    flags = values_of("prometheus_adapter", prometheus_adapter_values=given)["extraArguments"]

    assert flags == [flag for flag in usual if "--client-qps" not in flag] + [TOKEN, OFTEN]


@pytest.mark.parametrize("kind", ["custom", "external"])
def test_a_rule_more_leaves_those_of_the_adapter(kind: str) -> None:
    """Without them no autoscaler has a value."""
    options: dict[str, Any] = {"prometheus_adapter_external_metrics": True}
    usual = values_of("prometheus_adapter", **options)["rules"]
    rules = values_of("prometheus_adapter", **options, prometheus_adapter_values={"rules": {kind: [MINE]}})["rules"]
    assert rules == {**usual, kind: [*usual[kind], MINE]}

    whole = {"rules": {kind: rules[kind]}}  # as one had to write it
    assert values_of("prometheus_adapter", **options, prometheus_adapter_values=whole)["rules"] == rules


@pytest.mark.parametrize("insecure", [True, False])
def test_a_flag_more_leaves_those_of_metrics_server(insecure: bool) -> None:
    """Without the other it trusts no kubelet of kubeadm, and never is ready."""
    flag = "--kubelet-preferred-address-types=InternalIP"
    options = {"metrics_server_kubelet_insecure_tls": insecure, "metrics_server_values": {"args": [flag]}}
    assert values_of("metrics_server", **options)["args"] == ["--kubelet-insecure-tls"] * insecure + [flag]


@pytest.mark.parametrize(
    ("servers", "kubelet", "insecure"),
    [
        (["cp1"], {}, True),
        ([], {}, False),
        (["cp1"], {"serverTLSBootstrap": True}, False),
    ],
    ids=["installed by the inventory", "existing cluster", "certificates that the CA signs"],
)
def test_kubelets_are_trusted_without_a_certificate_only_where_kubeadm_signs_none(
    servers: list[str], kubelet: dict[str, bool], insecure: bool
) -> None:
    told = {**TOLD, "groups": {"kube_control_plane": servers}}
    values = RoleValues("metrics_server", {"kubernetes_kubelet_config": kubelet}, told)[
        "__metrics_server_chart['values']"
    ]
    assert ("--kubelet-insecure-tls" in values["args"]) is insecure


def test_a_variable_and_a_taint_more_leave_those_of_the_operator() -> None:
    mine, taint = {"name": "DCGM_EXPORTER_COLLECTORS", "value": "/etc/x.csv"}, {"key": "team", "operator": "Exists"}
    slower = {"name": "DCGM_EXPORTER_INTERVAL", "value": "5000"}
    usual = values_of("gpu_operator")
    given = {"dcgmExporter": {"env": [mine, slower]}, "daemonsets": {"tolerations": [taint]}}
    values = values_of("gpu_operator", gpu_operator_values=given)

    kept = [row for row in usual["dcgmExporter"]["env"] if row["name"] != slower["name"]]
    assert values["dcgmExporter"]["env"] == [*kept, mine, slower]
    assert values["daemonsets"]["tolerations"] == [*usual["daemonsets"]["tolerations"], taint]
    # Which labels the nodes that the others then land on.
    assert values["node-feature-discovery"]["worker"]["tolerations"] == values["daemonsets"]["tolerations"]


@pytest.mark.parametrize("role", ["prometheus_adapter", "keda", "metrics_server", "gpu_operator"])
@pytest.mark.parametrize("none", [{}, None])
def test_without_values_of_a_user_those_of_the_role_are_all(role: str, none: Any) -> None:
    assert values_of(role, **{f"{role}_values": none}) == RoleValues(role, {}, TOLD)[f"__{role}_values"]
