"""site.yml from a shipped inventory, twice: the first run ends with the proof, the second one changes nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from server import EPHEMERAL, USER_ENVIRONMENT

INVENTORY = EPHEMERAL / "my-servers"
PROOF = INVENTORY / ".kubegpu" / "proof"
GPUS = 8  # of both sizes of the lab
# What its user has: a key, a list of known hosts, and the ansible.cfg of the inventory, if it has one.
CONTROLLER = USER_ENVIRONMENT | {
    "ANSIBLE_PRIVATE_KEY_FILE": str(EPHEMERAL / "login"),
    "ANSIBLE_SSH_COMMON_ARGS": f"-o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={EPHEMERAL}/known_hosts",
    "ANSIBLE_SSH_CONTROL_PATH_DIR": str(EPHEMERAL / "sessions"),
}


@dataclass(frozen=True)
class Run:
    """One run of the site. `seconds` of all of it."""

    code: int
    output: str
    seconds: float

    @cached_property
    def changed(self) -> int:
        return int(re.findall(r"^(\d+) changed on \d+ hosts? in ", self.output, re.M)[-1])

    @property
    def last_words(self) -> str:
        """The output from the proof's line on, without line breaks."""
        return " ".join(self.output[self.output.rfind("Proof:") :].split())


def site(name: str) -> Run:
    """Run it, and keep its log in build/shipped: molecule removes its own folder."""
    log = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"], "build", "shipped", f"{os.environ['SHIPPED']}-{name}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    command = (Path(sys.executable).with_name("ansible-playbook"), "kubegpu.autoscale.site")
    began = time.monotonic()
    with log.open("w") as out:  # no pipe: ssh's session in the background would hold it for a minute
        code = subprocess.run(command, cwd=INVENTORY, env=CONTROLLER, stdout=out, stderr=out).returncode
    ran = Run(code, log.read_text(), time.monotonic() - began)
    print(f"{name} run: {ran.seconds:.0f} s, {len(ran.output.splitlines())} lines, changed {ran.changed}: {log}")
    print(ran.last_words)
    return ran


def report() -> dict[str, Any]:
    return dict(json.loads((PROOF / "report.json").read_text()))


@pytest.fixture(scope="module")
def first() -> Run:
    return site("first")


@pytest.fixture(scope="module")
def first_report(first: Run) -> dict[str, Any]:
    return report()


@pytest.fixture(scope="module")
def second(first_report: dict[str, Any]) -> Run:
    return site("second")


def test_the_first_run_succeeds(first: Run) -> None:
    assert first.code == 0, first.output[-4000:]


def test_each_gpu_has_computed_and_a_workload_has_scaled(first_report: dict[str, Any]) -> None:
    print(f"the proof took {first_report['seconds']} s: {first_report['chain']['hops']}")

    assert sum(node["gpus"] for node in first_report["nodes"]) == GPUS
    assert {node["status"] for node in first_report["nodes"]} == {first_report["chain"]["status"]} == {"proven"}
    assert first_report["chain"]["decision"]["after"] > first_report["chain"]["decision"]["before"]


def test_the_last_words_are_the_proof(first: Run) -> None:
    assert first.last_words.startswith(f"Proof: CUDA on {GPUS} GPUs of ")
    assert "load step: 1 -> 2 replicas" in first.last_words or "LATE: 1 -> 2 replicas" in first.last_words
    assert (PROOF / "report.html").exists()


def test_the_second_run_changes_nothing_and_proves_nothing_again(second: Run, first_report: dict[str, Any]) -> None:
    assert second.code == 0, second.output[-4000:]
    assert second.changed == 0
    assert "(proven 20" in second.last_words
    assert report() == first_report
