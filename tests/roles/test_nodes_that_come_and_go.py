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


def daemon_set(*, seen: int) -> dict[str, Any]:
    status = {"observedGeneration": seen, "numberReady": 1, "updatedNumberScheduled": 1}
    return {"metadata": {"generation": 2}, "status": status}


NODES = [node("works", "True", "8"), node("down", "Unknown", "8"), node("without-plugin", "True", "0")]
PROFILED = {"dcgm_exporter_values": {}, "dcgm_exporter_profiling": True}
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "the exporter of an empty cluster": (
        {},
        ["__dcgm_exporter_current == []", "__dcgm_exporter_nodes | int == 0"],
    ),
    "the exporter waits for ready nodes alone": (
        {"__dcgm_exporter_seen": {"result": {"objects": [[daemon_set(seen=2)], NODES[:2]]}}},
        ["__dcgm_exporter_current | length == 1", "__dcgm_exporter_ready | int == __dcgm_exporter_nodes | int == 1"],
    ),
    "an exporter that was changed just now is waited for": (
        {"__dcgm_exporter_seen": {"result": {"objects": [[daemon_set(seen=1)], NODES]}}},
        ["__dcgm_exporter_current == []", "__dcgm_exporter_ready | int == 0"],
    ),
    "the plugin of a pool at zero": ({}, ["__nvidia_device_plugin_ready == []"]),
    "the plugin waits for ready nodes alone": (
        {"__nvidia_device_plugin_nodes": {"resources": NODES}},
        ["__nvidia_device_plugin_ready | map(attribute='metadata.name') == ['works', 'without-plugin']"],
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
