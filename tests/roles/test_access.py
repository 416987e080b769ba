"""Components without a login are not exposed by the chart's values, unless the user allows it."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from charts_check import releases
from collection import ROOT
from playbook import local, run_playbook

BLOCKS = [
    yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/access.md").read_text(), re.S)
]
PAGE = [block for block in BLOCKS if "prometheus_stack_values" in block]


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
