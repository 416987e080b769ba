"""The demo's load step at the autoscaler's default pace: it reacts in time, no request fails, the doctor is silent."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from live_lab import Lab, ids, wait_until_healed, words
from testinfra.host import Host

from lab.load.summary import only_overshoots

testinfra_hosts = ["ansible://kube_control_plane"]

ROOT = Path(__file__).parents[3]
LOG = ROOT / "build" / "load-step.log"
# How often the doctor looks during a step.
EVERY_S = 2
# What the tests before may leave, such as a rule that has just been written.
HEALED_S = 120


def test_the_way_up_is_at_the_default_pace(host: Host) -> None:
    asked = "kubectl --kubeconfig /etc/kubernetes/admin.conf --namespace gpu-workload get hpa sample --output=json"
    hpa = json.loads(host.check_output(asked))
    scale_up = hpa["spec"]["behavior"]["scaleUp"]

    assert scale_up["stabilizationWindowSeconds"] == 0
    assert [(policy["type"], policy["value"], policy["periodSeconds"]) for policy in scale_up["policies"]] == [
        ("Pods", 2, 15),
        ("Percent", 67, 15),
    ]


def test_a_load_step(pytestconfig: pytest.Config) -> None:
    """It ends with 1 at a decision beyond the worst case, one replica too many, or a failed request.

    A replica too many is judged by a second step: on a machine that starves requests pile up, and the HPA is right.
    The doctor looks on, with grace, as a person would ask it while the HPA scales up.
    """
    lab = Lab(Path(pytestconfig.getoption("ansible_inventory")).absolute())
    wait_until_healed(lab, "the lab is healthy before the load step", HEALED_S)
    for _attempt in range(2):
        code, log = step(lab)
        print(log)  # pytest shows it when the test fails
        if not only_overshoots(log):
            break
    assert code == 0


def step(lab: Lab) -> tuple[int, str]:
    """The exit code of a load step and what it wrote. The doctor is silent from its beginning to its end."""
    command = [sys.executable, "-m", "lab.load", "--kubeconfig", lab.kubeconfig, "--out", ROOT / "build" / "load-step"]
    looks = 0
    with LOG.open("w+") as log:
        load = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        try:
            while load.poll() is None:
                report = lab.examine(grace=True)
                assert not ids(report), words(report)
                looks += 1
                time.sleep(EVERY_S)
        finally:
            load.terminate()
            load.wait()
        log.seek(0)
        assert looks
        return load.returncode, log.read()
