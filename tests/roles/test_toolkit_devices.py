"""The devices of the CDI specification, with stand-ins for nvidia-ctk and nvidia-smi."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from driver_machines import BARE, DEBIAN, node_facts

DRIVER = "580.95.05"
# What it could offer becomes what it offers.
CTK = """#!/bin/sh
cd {folder}
if [ "$2" = list ]; then cat offered; exit; fi
echo once >>written
cp could offered
echo /usr/lib/libcuda.so.{driver} >${{3#--output=}}
"""
SMI = """#!/bin/sh
cd {folder}
case $1 in --list-gpus) cat listed ;; *) cat modes ;; esac
"""


def names_of(gpus: list[int | None]) -> list[str]:
    """In the CDI specification."""
    return [
        name
        for number, instances in enumerate(gpus)
        for name in ([str(number)] if instances is None else [f"{number}:{part}" for part in range(instances)])
    ]


class Node:
    """gpus: of each, how many MIG instances it has; None without MIG mode."""

    def __init__(self, folder: Path, gpus: list[int | None]) -> None:
        self.folder, self.gpus = folder, gpus
        (folder / "bin").mkdir()
        for name, text in {"nvidia-ctk": CTK, "nvidia-smi": SMI}.items():
            (folder / "bin" / name).write_text(text.format(folder=folder, driver=DRIVER))
            (folder / "bin" / name).chmod(0o755)
        self.offers(*names_of(gpus))
        (folder / "offered").touch()
        self.is_split(gpus)

    def is_split(self, gpus: list[int | None]) -> None:
        """What the driver says from now on."""
        rows = [f"{number}, {'[N/A]' if count is None else 'Enabled'}" for number, count in enumerate(gpus)]
        (self.folder / "modes").write_text("".join(f"{row}\n" for row in rows))
        lines = [
            line
            for number, count in enumerate(gpus)
            for line in (
                f"GPU {number}: NVIDIA H100 80GB HBM3 (UUID: GPU-{number})",
                *(f"  MIG 1g.10gb     Device  {part}: (UUID: MIG-{number}{part})" for part in range(count or 0)),
            )
        ]
        (self.folder / "listed").write_text("".join(f"{line}\n" for line in lines))

    def offers(self, *names: str) -> None:
        """From the next time on that the specification is written."""
        (self.folder / "could").write_text("".join(f"nvidia.com/gpu={name}\n" for name in (*names, "all")))

    @property
    def written(self) -> int:
        path = self.folder / "written"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def run(self, **variables: Any) -> str:
        """What a run says where it fails."""
        facts = node_facts(len(self.gpus), driver_version_installed=DRIVER, driver_version_loaded=DRIVER)
        for gpu in facts["gpus"]:
            gpu["mig_capable"] = True
        role = {"name": "kubegpu.autoscale.nvidia_container_toolkit"}
        tasks = [
            {"ansible.builtin.set_fact": {"gpu_facts": facts, **DEBIAN, "cacheable": True}},
            *({"ansible.builtin.include_role": {**role, "tasks_from": name}} for name in ("plan", "cdi", "verify")),
        ]
        play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}]
        (self.folder / "play.yml").write_text(json.dumps(play))
        known = {
            "__nvidia_container_toolkit_cdi_spec": str(self.folder / "nvidia.yaml"),
            "_common_server": BARE,
            "nvidia_container_toolkit_verify_container": False,
            **variables,
        }
        done = ansible_playbook(
            "-i", "localhost,", "play.yml", "-e", json.dumps(known), cwd=self.folder,
            env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH, "PATH": f"{self.folder}/bin:/usr/bin:/bin"},
        )  # fmt: skip
        return "" if done.returncode == 0 else " ".join((done.stdout + done.stderr).split())


# tests/unit/nodes/toolkit/test_toolkit.py has when the specification is written.
def test_the_specification_is_written_once_and_fits(tmp_path: Path) -> None:
    """The GPUs are as many as before, so their number says nothing."""
    node = Node(tmp_path, [1, None, 0])
    assert [node.run(), node.written] == ["", 1]
    assert [node.run(), node.written] == ["", 1]

    node.is_split([None, 1, 0])
    node.offers(*names_of([None, 1, 0]))
    assert [node.run(), node.written] == ["", 2]
    assert [node.run(), node.written] == ["", 2]


def test_a_gpu_that_is_missing_for_no_reason_is_told(tmp_path: Path) -> None:
    node = Node(tmp_path, [None, None])
    node.offers("0")

    assert "has 2 GPUs to offer, the CDI specification has 1" in node.run()
