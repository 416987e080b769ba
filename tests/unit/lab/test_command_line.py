"""Taking a lab down asks nothing of a machine but podman, and touches no other lab."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
CONTAINERS = {"mine-cp1": "mine", "mine-one-node1": "mine-one", "mineral-cp1": "mineral"}
PODMAN = f"""#!{sys.executable}
import json, os, sys
with open(os.environ["CALLS"], "a") as calls:
    print(*sys.argv[1:], file=calls)
containers = {CONTAINERS}
if sys.argv[1] == "ps":
    wanted = [word.removeprefix("label=kubegpu-lab=") for word in sys.argv if word.startswith("label=kubegpu-lab=")]
    rows = [
        dict(Id=name, Names=[name], Labels={{"kubegpu-lab": lab}}, Pid=0, State="running", Status="Up 5 hours")
        for name, lab in containers.items()
    ]
    print(json.dumps([row for row in rows if not wanted or row["Labels"]["kubegpu-lab"] in wanted]))
elif sys.argv[1:3] == ["network", "ls"]:
    print("podman", "mine", "mine-nodes", "mineral", sep="\\n")
elif sys.argv[1] == "stats":  # podman 4.3, where the process of a container is gone
    sys.exit("Error: cannot get cgroup path unless container e33e7f is running: container is stopped")
"""


@pytest.fixture
def machine(tmp_path: Path) -> Mapping[str, str]:
    """The environment on a machine where a Python without any library, and podman, are all there is."""
    (tmp_path / "podman").write_text(PODMAN)
    (tmp_path / "podman").chmod(0o755)
    return {
        "PATH": str(tmp_path),
        "LAB": "mine",
        "LAB_INVENTORY": str(tmp_path / "inventory" / "hosts.yml"),
        "XDG_CACHE_HOME": str(tmp_path),
        "CALLS": str(tmp_path / "calls"),
    }


def lab(machine: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    # -S leaves out what pip has installed
    command = [sys.executable, "-S", "-m", "lab", *words]
    return subprocess.run(command, cwd=CHECKOUT, env=dict(machine), capture_output=True, text=True)


def removed(machine: Mapping[str, str]) -> list[str]:
    calls = Path(machine["CALLS"]).read_text().splitlines()
    return [call.split()[-1] for call in calls if call.startswith(("rm ", "network rm "))]


def test_one_lab_goes_and_its_neighbours_stay(machine: Mapping[str, str]) -> None:
    assert lab(machine, "down").returncode == 0

    assert removed(machine) == ["mine-cp1", "mine"]


def test_the_labs_of_the_scenarios_go_when_asked_for(machine: Mapping[str, str]) -> None:
    assert lab(machine, "down", "--scenarios").returncode == 0

    assert removed(machine) == ["mine-cp1", "mine", "mine-nodes", "mine-one-node1"]


def test_what_was_written_for_it_goes_as_well(machine: Mapping[str, str], tmp_path: Path) -> None:
    written = [tmp_path / "inventory" / "hosts.yml", tmp_path / "kubegpu-lab" / "labs" / "mine" / "debian.sources"]
    others = tmp_path / "kubegpu-lab" / "labs" / "mineral" / "debian.sources"
    for file in (*written, others):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")

    lab(machine, "down")

    assert not any(file.exists() for file in written)
    assert others.exists()


def test_a_machine_without_podman_is_told_so(machine: Mapping[str, str], tmp_path: Path) -> None:
    (tmp_path / "podman").unlink()

    ended = lab(machine, "status")

    assert ended.returncode
    assert ended.stderr == "lab: podman is not on this machine: `make lab-env` installs what the lab needs\n"


def test_the_status_names_containers_whose_processes_are_gone(machine: Mapping[str, str]) -> None:
    shown = lab(machine, "status")

    assert shown.returncode == 0, shown.stderr
    assert [line.split()[:2] for line in shown.stdout.splitlines() if "mine-cp1" in line] == [["mine-cp1", "gone"]]
    assert "`make lab-up` starts the lab anew" in shown.stdout
