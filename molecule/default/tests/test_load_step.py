"""The load step of the demo, on the autoscaler's own pace: it reacts in time, and nobody is served worse for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from testinfra.host import Host

from lab.load.summary import only_overshoots

testinfra_hosts = ["ansible://kube_control_plane"]

ROOT = Path(__file__).parents[3]
DEAD_TIME = "kubegpu.autoscale/dead-time-seconds"


def test_the_way_up_is_at_the_default_pace(host: Host) -> None:
    asked = "kubectl --kubeconfig /etc/kubernetes/admin.conf --namespace gpu-workload get hpa sample --output=json"
    hpa = json.loads(host.check_output(asked))
    period = int(hpa["metadata"]["annotations"][DEAD_TIME])
    scale_up = hpa["spec"]["behavior"]["scaleUp"]

    assert scale_up["stabilizationWindowSeconds"] == 0
    assert {(policy["type"], policy["value"], policy["periodSeconds"]) for policy in scale_up["policies"]} == {
        ("Pods", 2, period),
        ("Percent", 50, period),
    }


def test_a_load_step(pytestconfig: pytest.Config) -> None:
    """It ends with 1 at a decision beyond the worst case, one replica too many, or a failed request.

    A replica too many is judged by a second step: on a machine that starves requests pile up, and the HPA is right.
    """
    inventory = Path(pytestconfig.getoption("ansible_inventory")).absolute()
    kubeconfig = (inventory if inventory.is_dir() else inventory.parent) / ".kubegpu" / "kubeconfig"
    for _attempt in range(2):
        done = step(kubeconfig)
        print(done.stdout, done.stderr)  # pytest shows it when the test fails
        if not only_overshoots(done.stderr):
            break
    assert done.returncode == 0


def step(kubeconfig: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lab.load", "--kubeconfig", kubeconfig, "--out", ROOT / "build" / "load-step"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
