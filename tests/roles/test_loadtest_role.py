"""What the role gpu_loadtest takes, and what it refuses before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playbook import local, run_playbook

LOAD: dict[str, Any] = {
    "gpu_loadtest_namespace": "ml",
    "gpu_loadtest_name": "chat",
    "gpu_loadtest_url": "http://chat:8000/",
    "gpu_loadtest_high": 40,
}
OWN = {"image": "docker.io/blazemeter/taurus:latest", "command": ["bzt", "/plan/plan.yml"]}
NO_CLUSTER = "there is no kubeconfig at"


def said(folder: Path, **options: Any) -> str:
    role = {"ansible.builtin.include_role": {"name": "kubegpu.autoscale.gpu_loadtest"}}
    variables = {"kubegpu_kubeconfig": str(folder / "none"), **LOAD, **options}
    return " ".join(run_playbook(folder, local(role), variables).stdout.split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({}, NO_CLUSTER, id="defaults"),
        pytest.param({"gpu_loadtest_own": OWN, "gpu_loadtest_url": ""}, NO_CLUSTER, id="a generator of one's own"),
        pytest.param({"gpu_loadtest_own": {"image": "x"}}, "missing required arguments: command", id="half of one"),
        pytest.param(
            {"gpu_loadtest_url": "chat:8000"}, "gpu_loadtest_url is `chat:8000`, which is no address", id="url"
        ),
        pytest.param({"gpu_loadtest_high": 1}, "that is no load to scale on", id="no load"),
        pytest.param({"gpu_loadtest_url": "grpc://chat:9000"}, "gpu_loadtest_grpc_method is ``", id="no method"),
    ],
)
def test_what_is_taken_and_what_is_refused(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    assert words in said(tmp_path, **options)
