"""A Prometheus that enforces the label `namespace`: what a team can forge, and which selectors leave it out."""

from __future__ import annotations

import json
import subprocess
from itertools import product
from pathlib import Path

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import all_rules
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions, recordings_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import read_specs
from programs import program
from test_rules import READINGS

ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
EXPORTER = {"job": "dcgm-exporter", "namespace": "monitoring"}
OWNER = {"exported_namespace": "team-b", "exported_pod": "chat-0"}
HONEST = {**EXPORTER, **OWNER, "instance": "10.0.0.1:9400", "UUID": "GPU-1"}
# What a rule or a monitor of the namespace ml can leave: any label but `namespace`.
FORGED = [
    {**HONEST, "namespace": "ml", **changes, "UUID": uuid}
    for changes, uuid in product(
        ({}, {"instance": "10.9.9.9:1"}, {"exported_pod": "", "pod": "chat-0"}), ("GPU-1", "GPU-forged")
    )
]


def recorded(profile: str, selector: dict[str, str], rows: list[dict[str, str]], folder: Path) -> list[str]:
    """What the rules of the profile record after five minutes, while the honest GPU is at 5 percent others at 95."""
    spec = {"namespace": "team-b", "target": {"name": "chat"}, "max_replicas": 4, "metric": profile}
    rules = all_rules(read_specs([spec]), RuleOptions(selectors={"exporter": selector}))
    groups = [group for rule in rules for group in rule["spec"]["groups"]]
    (folder / "rules.yml").write_text(json.dumps({"groups": groups}))
    entries = []
    for labels in (HONEST, *rows):
        text = "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
        for name, value in READINGS[profile](5 if labels is HONEST else 95).items():
            entries.append({"series": name + text, "values": f"{value}x40"})
        entries.append({"series": ENERGY + text, "values": "1000+100x40"})
    names = [recording["record"] for rule in rules for recording in recordings_of(rule)]
    asked = [{"expr": name, "eval_time": "5m", "exp_samples": []} for name in names]
    test = {"interval": "10s", "input_series": entries, "promql_expr_test": asked}
    file = {"rule_files": ["rules.yml"], "evaluation_interval": "10s", "tests": [test]}
    (folder / "test.yml").write_text(json.dumps(file))
    command = [program("promtool"), "test", "rules", str(folder / "test.yml")]
    done = subprocess.run(command, capture_output=True, text=True)
    found = [line.strip() for line in (done.stdout + done.stderr).splitlines() if "got:" in line]
    assert any("team-b" in line for line in found), done.stdout + done.stderr
    return found


@pytest.mark.parametrize("profile", [profile for profile in READINGS if profile not in ("mig", "shared")])
def test_rows_of_other_namespaces_count_only_without_the_namespace_of_the_exporter(
    profile: str, tmp_path: Path
) -> None:
    job = {"job": EXPORTER["job"]}
    honest = recorded(profile, EXPORTER, [], tmp_path)

    assert recorded(profile, EXPORTER, FORGED, tmp_path) == honest
    assert recorded(profile, job, [], tmp_path) == honest
    assert recorded(profile, job, FORGED, tmp_path) != honest, "the job alone would be enough"
