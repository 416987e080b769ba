"""The dashboards on a site that works: each panel's query gives series."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml
from test_site import PROMETHEUS, SEEN_S, kubectl
from testinfra.host import Host
from waiting import eventually

testinfra_hosts = ["ansible://kube_control_plane"]

ROOT = Path(__file__).parents[3]
WRITTEN = yaml.safe_load((ROOT / "roles/gpu_dashboards/files/dashboards.yml").read_text())
VARIABLES = {"node": "node1", "namespace": "gpu-workload", "autoscaler": "sample", "__range": "1h"}


def queries(name: str) -> Iterator[str]:
    """Of the panels that show something wherever all is well."""
    for row in WRITTEN[name]["rows"]:
        for panel in row["panels"]:
            if not panel.get("empty"):
                yield from (
                    re.sub(r"\$(\w+)", lambda found: VARIABLES[found[1]], query) for query in panel["queries"].values()
                )


@pytest.mark.parametrize("name", WRITTEN)
def test_each_panel_shows_something(host: Host, name: str) -> None:
    """Asked in one command: each takes a second by itself."""
    asked = list(queries(name))
    ask = "kubectl --kubeconfig /etc/kubernetes/admin.conf get --raw"
    words = [f"{ask} '{PROMETHEUS}/query?query={quote(query)}' && echo" for query in asked]

    def empty() -> list[str]:
        answers = [json.loads(line) for line in host.check_output(" && ".join(words)).splitlines() if line]
        return [query for query, answer in zip(asked, answers, strict=True) if not answer["data"]["result"]]

    assert eventually(empty, lambda queries: not queries, SEEN_S) == []


def test_grafana_would_find_each_dashboard(host: Host) -> None:
    found = kubectl(host, "get configmaps --all-namespaces --selector grafana_dashboard=1 --output=json")["items"]
    shown = {json.loads(text)["uid"] for config_map in found for text in config_map["data"].values()}

    assert shown == {f"kubegpu-{name}" for name in WRITTEN}
