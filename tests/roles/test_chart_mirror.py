"""How a chart is downloaded from a mirror. A stand-in for helm records its arguments, and fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playbook import local, run_playbook

CHART = {
    "name": "dcgm-exporter",
    "version": "4.8.2",
    "repository": "https://nvidia.github.io/charts",
    "release": "exporter",
    "namespace": "gpus",
    "values": {},
    "kinds": [],
    "crd_group": "",
}
HELM = """#!/bin/sh
[ "$1" = version ] && { echo 'version.BuildInfo{Version:"v4.3.0", GitCommit:"825e86f"}'; exit; }
echo "asked: $* by ${HELM_CONFIG_HOME:-the configuration of the user};" >&2
exit 1
"""


def fetch(folder: Path, mirror: str) -> tuple[str, str]:
    """What helm was asked for, and by which configuration; and what the user is told to do."""
    (folder / "helm").write_text(HELM)
    (folder / "helm").chmod(0o755)
    seen = {"owned": False, "made_by": "", "begun": False, "status": "", "chart": "", "changes": []}
    told = {"_common_helm": str(folder / "helm"), "_common_seen": seen, "_common_adopt": False, "_common_chart": CHART}
    role = {"name": "kubegpu.autoscale._common", "tasks_from": "chart_install"}
    done = run_playbook(
        folder, local({"ansible.builtin.include_role": role, "vars": told}), {"kubegpu_chart_mirror": mirror}
    )
    assert done.returncode == 2
    said = " ".join((done.stdout + done.stderr).split())
    asked = re.search(r"asked: pull (.+?) --destination \S+ --untar by (.+?);", said)
    assert asked, said
    return f"{asked[1]} by {re.sub(r'^/.*/', '', asked[2])}", said.partition("Next: ")[2].replace(f"{folder}/", "")


@pytest.mark.parametrize(
    ("mirror", "asked", "next_step"),
    [
        (
            "",
            "dcgm-exporter --version 4.8.2 --repo https://nvidia.github.io/charts by .config",
            "`curl -I https://nvidia.github.io/charts/index.yaml`",
        ),
        (
            "https://mirror.example/charts/",
            "dcgm-exporter --version 4.8.2 --repo https://mirror.example/charts/nvidia.github.io/charts by .config",
            "`curl -I https://mirror.example/charts/nvidia.github.io/charts/index.yaml`",
        ),
        (
            "oci://registry.example/charts",
            "oci://registry.example/charts/nvidia.github.io/charts/dcgm-exporter --version 4.8.2"
            " by the configuration of the user",
            "`helm show chart oci://registry.example/charts/nvidia.github.io/charts/dcgm-exporter --version 4.8.2`",
        ),
    ],
    ids=["none", "a repository", "a registry"],
)
def test_a_chart_comes_from_a_repository_or_a_registry(tmp_path: Path, mirror: str, asked: str, next_step: str) -> None:
    """A registry has no index, and helm asks it with the login of the user."""
    was_asked, told = fetch(tmp_path, mirror)

    assert was_asked == asked
    assert told.startswith(next_step)
