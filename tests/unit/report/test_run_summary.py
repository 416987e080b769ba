"""The last words of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.run_summary import Run, lines, outside_address

PROMETHEUS = {"namespace": "monitoring", "service": "stack-prometheus", "port": 9090, "path_prefix": "/prom"}
RUN = Run(
    context="gpu",
    server="https://192.0.2.1:6443",
    kubeconfig="x/.kubegpu/kubeconfig",
    playbook="ansible-playbook -i x kubegpu.autoscale",
    nodes=[],
    autoscalers=[],
    prometheus=PROMETHEUS,
)


def node(name: str, address: str = "192.0.2.4", **allocatable: str) -> dict[str, Any]:
    status = {"allocatable": allocatable, "addresses": [{"type": "InternalIP", "address": address}]}
    return {"metadata": {"name": name}, "status": status}


def test_an_empty_cluster_is_summed_up_with_the_next_step() -> None:
    said = lines(RUN)
    assert said[1] == "GPUs: 0 on no node"
    assert said[2].endswith("and run ansible-playbook -i x kubegpu.autoscale.autoscaling")
    forward = "kubectl -n monitoring port-forward service/stack-prometheus 9090:9090, then http://localhost:9090/prom"
    assert said[3] == f"Prometheus: {forward}; alerts are at /alerts"
    assert said[5].startswith("Grafana: not installed.")


def test_what_was_proven_is_a_line() -> None:
    said = lines(replace(RUN, proof="CUDA on 8 GPUs of gpu1"))
    assert said[3] == "Proof: CUDA on 8 GPUs of gpu1"
    assert "Proof" not in " ".join(lines(RUN))


def test_a_login_in_the_address_of_prometheus_is_not_shown() -> None:
    url = "https://reader:secret@prometheus.example.com/tenant"
    said = lines(replace(RUN, prometheus={**PROMETHEUS, "url": url}))
    assert said[3] == "Prometheus: https://prometheus.example.com/tenant; alerts are at /alerts"


def test_gpus_of_all_kinds_are_counted() -> None:
    gpus = {"nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "3", "cpu": "64"}
    assert lines(replace(RUN, nodes=[node("a", **gpus), node("b")]))[1] == "GPUs: 7 on a, b"


def test_grafana_is_named_with_the_way_to_its_password() -> None:
    said = lines(replace(RUN, grafana_secret="admin", release="stack", receivers=["on-call"]))
    assert "port-forward service/stack-grafana 3000:80" in said[5]
    assert "get secret admin -o jsonpath='{.data.admin-password}'" in said[5]
    assert said[4] == "Alerts are sent to on-call (docs/monitoring.md)"


@pytest.mark.parametrize(
    ("values", "address"),
    [
        ({}, ""),
        ({"ingress": {"enabled": False, "hosts": ["a.example.com"]}}, ""),
        ({"ingress": {"enabled": True, "hosts": ["a.example.com"]}}, "http://a.example.com"),
        ({"ingress": {"enabled": True, "hosts": ["a.example.com"], "tls": [{}]}}, "https://a.example.com"),
        ({"route": {"main": {"enabled": True, "hostnames": ["b.example.com"]}}}, "b.example.com"),
        ({"service": {"type": "NodePort", "nodePort": 30300}}, "http://192.0.2.4:30300"),
        ({"service": {"type": "NodePort"}, "ingress": None}, ""),
    ],
)
def test_a_part_is_reached_as_its_values_say(values: dict[str, Any], address: str) -> None:
    assert outside_address(values, [node("a")]) == address


def test_a_browser_takes_an_ipv6_address_in_brackets() -> None:
    values = {"service": {"type": "NodePort", "nodePort": 30300}}
    assert outside_address(values, [node("a", "2001:db8::4")]) == "http://[2001:db8::4]:30300"
    assert outside_address(values, []) == "http://the address of a node:30300"
