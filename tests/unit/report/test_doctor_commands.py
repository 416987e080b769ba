"""The fixes of the doctor as commands for the cluster that was examined."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.checks.registry import FINDING_TYPES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.run_kubeconfig import kubectl_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.commands import (
    PLAYBOOK_OF,
    as_commands,
)
from collection import ROOT

ALONE, KUBECTL = "ansible-playbook -e kubegpu_kubeconfig=/tmp/kc", "kubectl --kubeconfig /tmp/kc"


def fixes() -> Iterator[tuple[str, str]]:
    for name, finding_type in FINDING_TYPES.items():
        for number, text in enumerate([finding_type.fix, *(evidence.fix for evidence in finding_type.evidence)]):
            yield f"{name}-{number}", text


FIXES = dict(fixes())


@pytest.mark.parametrize("name", FIXES)
def test_no_fix_names_a_role_or_a_file_of_another_folder(name: str) -> None:
    shown = as_commands(FIXES[name], ALONE, KUBECTL, str(ROOT))
    assert not re.search(r"run the \w+ role", shown)
    assert not re.search(r"kubectl (?!--kubeconfig /tmp/kc)", shown)
    for path in re.findall(r"\S+\.yml", shown):
        assert Path(path).is_file()


@pytest.mark.parametrize("role", PLAYBOOK_OF)
def test_the_playbook_runs_the_role(role: str) -> None:
    plays = yaml.safe_load((ROOT / "playbooks" / f"{PLAYBOOK_OF[role]}.yml").read_text())
    assert f"kubegpu.autoscale.{role}" in str(plays)


def test_a_run_without_an_inventory_knows_no_servers() -> None:
    fix = "run the nvidia_driver role, or reboot the node"
    assert as_commands(fix, ALONE, KUBECTL, "").startswith(
        "run ansible-playbook -i <inventory with the server> kubegpu.autoscale.nodes, or reboot"
    )
    assert as_commands(fix, "ansible-playbook -i prod", KUBECTL, "").startswith(
        "run ansible-playbook -i prod kubegpu.autoscale.nodes, or reboot"
    )


@pytest.mark.parametrize(
    ("given", "context", "environment", "shown"),
    [
        ("~/.kube/config", "", {}, "kubectl"),
        ("", "", {}, "kubectl"),
        ("~/.kube/config", "lab", {}, "kubectl --context lab"),
        ("~/.kube/config", "", {"KUBECONFIG": "/tmp/kc"}, "kubectl --kubeconfig ~/.kube/config"),
        ("/tmp/kc", "", {"KUBECONFIG": "/tmp/kc"}, "kubectl"),
        ("/tmp/kc", "lab", {}, "kubectl --kubeconfig /tmp/kc --context lab"),
    ],
)
def test_kubectl_reads_the_cluster_that_was_examined(
    given: str, context: str, environment: dict[str, str], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert kubectl_of(given, context) == shown
