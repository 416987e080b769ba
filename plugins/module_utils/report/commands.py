# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Turns the fixes of a doctor's report into commands for the cluster and the inventory of the run."""

from __future__ import annotations

import re
from typing import Any

from .doctor_texts import Report

# The playbook that runs a role.
PLAYBOOK_OF = {
    "nvidia_driver": "nodes",
    "containerd": "nodes",
    "nvidia_container_toolkit": "nodes",
    "kubernetes": "cluster",
    "gpu_node_labels": "gpu",
    "nvidia_device_plugin": "gpu",
    "gpu_operator": "gpu",
    "gpu_mig": "gpu",
    "prometheus_stack": "monitoring",
    "dcgm_exporter": "monitoring",
    "prometheus_adapter": "monitoring",
    "metrics_server": "monitoring",
    "keda": "monitoring",
    "gpu_autoscaling": "autoscaling",
}
# Playbooks that change servers, which a run without an inventory does not know.
_OF_SERVERS = ("nodes", "cluster")
_RUN = re.compile(r"run the (?:(?P<role>[a-z_]+) role|playbook kubegpu\.autoscale\.(?P<playbook>[a-z_]+))")
_FILE = re.compile(r"(?<![\w/])docs/[\w/-]+\.yml")


def with_commands(report: Report, command: str, kubectl: str, folder: str) -> dict[str, Any]:
    """The report with fixes that can be pasted.

    command: of the run without the name of a playbook, `ansible-playbook -i prod` for example.
    kubectl: with the options that select the cluster. folder: of the collection, which has the files of docs.
    """
    findings = [
        {**finding, "fix": as_commands(finding["fix"], command, kubectl, folder)}
        for finding in report.get("findings") or ()
    ]
    return {**report, "findings": findings}


def as_commands(fix: str, command: str, kubectl: str, folder: str) -> str:
    def run(found: re.Match[str]) -> str:
        playbook = found["playbook"] or PLAYBOOK_OF.get(found["role"] or "", "")
        if not playbook:
            return found[0]
        is_elsewhere = playbook in _OF_SERVERS and " -i " not in command
        start = "ansible-playbook -i <inventory with the server>" if is_elsewhere else command
        return f"run {start} kubegpu.autoscale.{playbook}"

    text = re.sub(r"\bkubectl(?= )", lambda _found: kubectl, fix)
    return _FILE.sub(lambda found: f"{folder}/{found[0]}", _RUN.sub(run, text))
