"""What the chart roles wait for and label: nodes that are ready and have GPUs to give, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from collection import ROOT
from playbook import local, run_playbook


def node(name: str, ready: str, gpus: str) -> dict[str, Any]:
    conditions = [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": ready}]
    return {"metadata": {"name": name}, "status": {"conditions": conditions, "allocatable": {"nvidia.com/gpu": gpus}}}


NODES = [node("works", "True", "8"), node("down", "Unknown", "8"), node("without-plugin", "True", "0")]
PROFILED = {"dcgm_exporter_values": {}, "dcgm_exporter_profiling": True}
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "the exporter is waited for": (
        {"__dcgm_exporter_seen": {"result": {"objects": [[], NODES]}}},
        ["__dcgm_exporter_rollout == {'ready': 0, 'nodes': 2, 'is_complete': false}"],
    ),
    "the exporter is not asked about yet": ({}, ["__dcgm_exporter_rollout.nodes == 0"]),
    "the plugin of a pool at zero": ({}, ["__nvidia_device_plugin_offers.waiting == []"]),
    "the plugin is waited for": (
        {"__nvidia_device_plugin_nodes": {"resources": NODES}},
        ["__nvidia_device_plugin_offers.waiting == ['without-plugin']"],
    ),
    "profiling is left to others": (
        {**PROFILED, "dcgm_exporter_profiling": False},
        # A line of it is a row of three.
        [
            "'DCGM_FI_PROF' not in __dcgm_exporter_counted",
            "'DCGM_FI_DEV_GPU_UTIL' in __dcgm_exporter_counted",
            "__dcgm_exporter_counted.splitlines() | length"
            " == _common_gpu_counters.splitlines() | reject('match', 'DCGM_FI_PROF_') | length",
        ],
    ),
    "profiling is read": (PROFILED, ["__dcgm_exporter_counted == _common_gpu_counters"]),
}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> str:
    """All in one run: each case says by its name what was not so."""
    files = [
        ROOT / "roles" / role / "vars" / "main.yml" for role in ("_common", "dcgm_exporter", "nvidia_device_plugin")
    ]
    files.append(ROOT / "roles" / "gpu_node_labels" / "vars" / "main.yml")
    tasks = [
        {
            "ansible.builtin.debug": {"msg": f"{{{{ 'holds: ' if {' and '.join(that)} else 'fails: ' }}}}{name}."},
            "vars": variables,
        }
        for name, (variables, that) in CASES.items()
    ]
    plays = local(*tasks, vars_files=[str(file) for file in files])
    folder: Path = tmp_path_factory.mktemp("play")
    return run_playbook(folder, plays, {}).stdout


@pytest.mark.parametrize("case", CASES)
def test_nodes(case: str, verdicts: str) -> None:
    assert f"holds: {case}." in verdicts
