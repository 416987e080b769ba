"""What a machine lacks is said before anything is changed, each with the next step; and what it has, it keeps."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from lab import preflight
from lab.preflight import Machine, Refusal

FINE = Machine(missing=["podman"])


@pytest.mark.parametrize(
    "machine",
    [
        FINE,
        replace(FINE, release=("ubuntu", "24.04")),
        replace(FINE, release=("debian", "")),  # its next release has no number yet
        replace(FINE, release=("linuxmint", "22")),  # unknown: apt says whether it has the packages
        replace(FINE, missing=[], apt=False),
    ],
)
def test_a_machine_that_can_carry_the_lab_is_not_refused(machine: Machine) -> None:
    assert preflight.lab_refusals(machine) == []


@pytest.mark.parametrize(
    ("machine", "reason", "step"),
    [
        (Machine(system="Darwin"), "needs Linux on x86_64, this is Darwin", "virtual one"),
        (Machine(architecture="aarch64"), "this is Linux on aarch64", "such a machine"),
        (replace(FINE, root=False), "needs root", "sudo"),
        (replace(FINE, release=("ubuntu", "22.04")), "ubuntu 22.04 has neither podman 4 nor netavark", "ubuntu 24.04"),
        (replace(FINE, release=("debian", "11")), "debian 11 has neither", "debian 12"),
        (replace(FINE, apt=False), "podman not found, and no apt-get", "install them"),
        (replace(FINE, overlay_below=True), "lies on an overlay", "mount a volume at /var/lib/containers"),
        (replace(FINE, memory_gib=2.5), "6 GiB of memory are needed, 2.5 are available", "stop"),
        (
            replace(FINE, locked={"inet firewalld filter_FORWARD": "Operation not permitted"}),
            "the chain inet firewalld filter_FORWARD filters the packets of the lab's pods",
            "systemctl stop firewalld",
        ),
        (replace(FINE, free_gib={"/": 14.0}), "15 GiB of disk are needed on /, 14 are free", "XDG_CACHE_HOME"),
    ],
)
def test_what_stands_in_the_way_is_said_with_the_next_step(machine: Machine, reason: str, step: str) -> None:
    (refusal,) = preflight.lab_refusals(machine)

    assert reason in refusal
    assert step in refusal.partition(reason)[2]


def test_all_that_is_wrong_is_said_at_once() -> None:
    assert len(preflight.lab_refusals(replace(FINE, root=False, memory_gib=2.5))) == 2


def test_a_full_cache_still_needs_room_for_containers_and_changes() -> None:
    full = replace(FINE, cache_filled=True)

    assert preflight.lab_refusals(replace(full, free_gib={"/": 10.0})) == []
    assert preflight.lab_refusals(replace(full, free_gib={"/": 9.0}))


def test_the_disks_of_a_hosted_runner_are_enough() -> None:
    runner = replace(FINE, cache_disk="/var/lab-cache", free_gib={"/": 13.0, "/var/lab-cache": 60.0})

    assert preflight.lab_refusals(runner) == []


def test_a_first_build_says_what_it_takes_and_changes() -> None:
    takes, changes = preflight.announcement(replace(FINE, cores=2), ["br_netfilter"])

    assert "some 13 minutes (2 processors), up to 9 GiB in " in takes
    assert "installs podman, loads the kernel modules br_netfilter, adds a rule" in changes
    assert "some 4 minutes (16 processors)" in preflight.announcement(replace(FINE, cores=16), [])[0]
    assert preflight.announcement(replace(FINE, cache_filled=True), ["br_netfilter"]) == []


def test_a_first_build_names_the_firewall_that_drops() -> None:
    _, changes = preflight.announcement(replace(FINE, drops=True), [])

    assert "adds a rule for each lab to iptables, since the policy of FORWARD is DROP here" in changes


def test_a_profile_that_may_stop_logins_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(preflight, "PROFILES", tmp_path / "profiles")
    assert not preflight.look().confines_pam

    (tmp_path / "profiles").write_text("unix-chkpwd (complain)\n")
    assert not preflight.look().confines_pam

    (tmp_path / "profiles").write_text("runc (unconfined)\nunix-chkpwd (enforce)\n")
    assert preflight.look().confines_pam
    assert preflight.announcement(replace(FINE, confines_pam=True), [])[-1] == preflight.CONFINED


def test_a_chain_that_accepts_no_rule_is_found(program: Callable[..., None]) -> None:
    def chain(table: str, name: str, **hook: str) -> dict[str, object]:
        return {"chain": {"family": "inet", "table": table, "name": name, "handle": 1, **hook}}

    forward = {"hook": "forward", "type": "filter", "policy": "accept"}
    chains = [
        chain("firewalld", "filter_FORWARD", **forward),
        chain("firewalld", "filter_FWD_public"),
        chain("firewalld", "filter_INPUT", **forward | {"hook": "input"}),
        chain("site", "forward", **forward),
        chain("netavark", "FORWARD", **forward),
    ]
    listed = json.dumps({"nftables": [{"metainfo": {}}, *chains]})
    program(
        "nft",
        f"case $* in *list*) echo '{listed}' ;; *firewalld*) echo 'Operation not permitted' >&2; exit 1 ;; esac",
    )

    assert preflight.look().locked == {"inet firewalld filter_FORWARD": "Operation not permitted"}


def test_the_disk_of_the_containers_is_looked_at_as_well() -> None:
    two = replace(FINE, cache_disk="/home", containers_disk="/var", free_gib={"/home": 50.0, "/var": 3.0})

    (refusal,) = preflight.lab_refusals(two)
    assert refusal.startswith("6 GiB of disk are needed on /var, 3 are free")


@pytest.mark.parametrize("version", [(3, 10, 12), (3, 14, 0)])
def test_a_python_that_ansible_does_not_run_on_is_refused(version: tuple[int, ...]) -> None:
    (refusal,) = preflight.python_refusals(Machine(python=version))

    assert "Python 3.11 to 3.13 is needed" in refusal
    assert "PYTHON=" in refusal


@pytest.mark.parametrize("version", [(3, 11, 2), (3, 13, 5)])
def test_a_python_that_ansible_runs_on_is_not(version: tuple[int, ...]) -> None:
    assert preflight.python_refusals(Machine(python=version)) == []


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Puts a program before all others in the path; what it is called with stands in tmp_path/calls."""

    def put(name: str, script: str) -> None:
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{tmp_path}/calls\n{script}\n')
        (tmp_path / name).chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return put


def test_a_package_is_never_removed(program: Callable[..., None], tmp_path: Path) -> None:
    going = "Remv docker-ce [5:29.0.0] []\nRemv containerd.io [2.1.5-1]\nInst runc (1.1.5 Debian:12 [amd64])"
    program("apt-get", f'case "$*" in *--simulate*) echo "{going}" ;; esac')

    with pytest.raises(Refusal, match=r"apt would remove docker-ce, containerd\.io to install podman"):
        preflight.install(["podman"])

    installs = [call for call in (tmp_path / "calls").read_text().splitlines() if " install " in call]
    assert installs
    assert all("--simulate" in call for call in installs)


def test_apt_itself_is_told_to_remove_nothing(program: Callable[..., None], tmp_path: Path) -> None:
    program("apt-get", "")

    preflight.install(["podman"])

    assert " --no-remove podman" in (tmp_path / "calls").read_text().splitlines()[-1]


def test_a_mirror_that_does_not_answer_ends_in_one_sentence(program: Callable[..., None]) -> None:
    program("apt-get", 'echo "E: Failed to fetch http://deb.debian.org: could not connect" >&2; exit 100')

    with pytest.raises(Refusal, match=r"could not connect\): see that they answer, and run it again") as refused:
        preflight.install(["podman"])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("there", "named"), [(["runc", "crun"], "runc"), (["crun"], "crun"), (["runc"], "runc"), ([], None)]
)
def test_any_runtime_will_do(monkeypatch: pytest.MonkeyPatch, there: Sequence[str], named: str | None) -> None:
    monkeypatch.setattr(
        preflight, "program", lambda name: f"/usr/bin/{name}" if name not in ("runc", "crun") or name in there else None
    )

    assert preflight.runtime() == named
    assert ("runc" in preflight.missing()) is (named is None)


def test_the_runtime_is_named_to_podman_once_it_has_started_a_container(
    monkeypatch: pytest.MonkeyPatch, program: Callable[..., None], tmp_path: Path
) -> None:
    monkeypatch.setattr(preflight, "ENGINE", tmp_path / "containers.conf")
    monkeypatch.setattr(preflight, "runtime", lambda: "crun")
    program("podman", 'echo "Error: netavark: iptables: no chain nat" >&2; exit 126')

    with pytest.raises(Refusal, match=r"podman cannot start .* no chain nat"):
        preflight.engine()
    assert not (tmp_path / "containers.conf").exists()

    program("podman", "exit 0")
    preflight.engine()
    assert '\nruntime = "crun"\n' in (tmp_path / "containers.conf").read_text()

    preflight.engine()
    assert len((tmp_path / "calls").read_text().splitlines()) == 2


def test_a_module_that_servers_cannot_load_is_loaded_for_them(program: Callable[..., None], tmp_path: Path) -> None:
    program("modprobe", "exit 0")
    there = dict.fromkeys(preflight.KERNEL.values(), True) | {preflight.KERNEL["br_netfilter"]: False}

    preflight.load(preflight.kernel_lacks(there))

    assert (tmp_path / "calls").read_text() == "modprobe br_netfilter\n"


def test_a_kernel_without_a_module_is_refused_with_its_name(program: Callable[..., None]) -> None:
    program("modprobe", 'echo "modprobe: FATAL: Module br_netfilter not found" >&2; exit 1')

    with pytest.raises(Refusal, match=r"has no module br_netfilter .*linux-modules-extra"):
        preflight.load(["br_netfilter"])


def test_requirements_are_read_with_those_they_name(tmp_path: Path) -> None:
    (tmp_path / "lab.txt").write_text("ansible==12.3.0\n")
    (tmp_path / "test.txt").write_text("-r lab.txt\npytest==9.2.0\n")

    assert "ansible==12.3.0" in preflight._resolved(tmp_path / "test.txt")


def test_each_python_gets_one_pin_of_each_package() -> None:
    """Of the lines of one package, the marker of exactly one applies."""
    lines = (preflight.CHECKOUT / "requirements-lab.txt").read_text().splitlines()
    named = [Requirement(line) for line in lines if not line.startswith("#")]
    (_, oldest), (_, newest) = preflight.PYTHON

    for minor in range(oldest, newest + 1):
        environment = {"python_version": f"3.{minor}"}
        applies = [pin.name for pin in named if pin.marker is None or pin.marker.evaluate(environment)]
        assert sorted(applies) == sorted({pin.name for pin in named})


def test_the_makefile_takes_the_systems_python_where_it_fits() -> None:
    """It asks that one. One that a person names is taken as it is."""
    root = preflight.CHECKOUT
    asked = subprocess.run(["/usr/bin/python3", "lab/preflight.py", "fits"], cwd=root, check=False)
    for given, expected in (
        ([], "python3" if asked.returncode else "/usr/bin/python3"),
        (["PYTHON=python3.13"], "python3.13"),
    ):
        command = ["make", "--no-print-directory", "--dry-run", "lab-unpack", *given]
        # Not what the run of this test was given.
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "MAKEFLAGS")}
        printed = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True).stdout
        assert printed.split()[0] == expected


@pytest.mark.parametrize("target", ["test", "unit", "integration", "molecule", "lint-lab", "test-systems"])
def test_a_machine_is_looked_at_before_anything_is_installed(target: str) -> None:
    command = ["make", "--no-print-directory", "--dry-run", "PYTHON=python3", target]
    printed = subprocess.run(command, cwd=preflight.CHECKOUT, capture_output=True, text=True, check=True).stdout
    asked = [line.split()[2] for line in printed.splitlines() if line.startswith("python3 lab/preflight.py")]
    assert asked[:2] == ["lab", "gates" if target == "test" else "env"]


def test_the_bytecode_that_is_kept_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "template-bytecode"
    monkeypatch.setattr(preflight, "VENV", tmp_path)
    monkeypatch.setattr(preflight, "MOST_KEPT", 2)
    preflight.keep_bytecode()
    for name in ("one", "two"):
        (kept / name).touch()

    preflight.keep_bytecode()
    assert len(list(kept.iterdir())) == 2
    (kept / "three").touch()
    preflight.keep_bytecode()
    assert list(kept.iterdir()) == []
