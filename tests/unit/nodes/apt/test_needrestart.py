"""Services that needrestart leaves alone: those that the roles start from packages, by the drop-in of each role."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from collection import ROOT
from driver_machines import Machine
from driver_machines import plan as driver_plan
from kubernetes_nodes import Node
from planned import CONTAINERD_PATHS, plan_of
from task_walk import read

PATHS = {name: f"/{name}" for name in ("key", "source", "pin", "before", "config", "needrestart")}
# As needrestart reads its folder, after its own defaults.
EVALUATED = """
our %nrconf = (override_rc => {{ qr(^dbus) => 0 }});
eval do {{ local(@ARGV, $/) = $ARGV[0]; <> }};
die $@ if $@;
for my $unit (qw({units})) {{
    for my $pattern (keys %{{$nrconf{{override_rc}}}}) {{
        print "$unit=$nrconf{{override_rc}}{{$pattern}}\n" if $unit =~ /$pattern/
    }}
}}
"""


def sets(folder: Path) -> dict[str, dict[str, Any]]:
    """What is installed on a bare server, by role."""
    return {
        "containerd": plan_of("containerd", {"paths": CONTAINERD_PATHS})["packages"]["apt"],
        "kubernetes": Node().plan()["packages"]["apt"],
        "nvidia_driver": driver_plan(folder, Machine())["packages"]["apt"],
    }


def drop_in(apt: dict[str, Any]) -> str:
    differing = plan_of("_common.apt", {"set": apt, "paths": PATHS})["files"]["differing"]
    return next(str(file["content"]) for file in differing if file["path"] == "/needrestart")


def started(role: str) -> set[str]:
    """Services that tasks of the role run, but for this collection's own: those have no program that stays."""
    tasks = (task for path in (ROOT / "roles" / role / "tasks").glob("*.yml") for task in _tasks(read(path)))
    units = (task.get("ansible.builtin.systemd_service", {}) for task in tasks)
    names = {unit["name"] for unit in units if unit.get("state") != "stopped" and "name" in unit}
    return {name for name in names if re.fullmatch(r"(?!kubegpu-)[\w-]+\.service", name)}


def _tasks(entries: Any) -> Iterator[Mapping[str, Any]]:
    for entry in entries:
        yield entry
        for part in ("block", "rescue", "always"):
            yield from _tasks(entry.get(part, ()))


@pytest.mark.skipif(not shutil.which("perl"), reason="takes perl, as needrestart does")
def test_each_service_that_a_role_starts_is_left_to_maintain(tmp_path: Path) -> None:
    """A restart of the fabric manager ends every CUDA program of its server."""
    by_role = sets(tmp_path)
    units = set[str]().union(*map(started, by_role))
    assert len(units) > 3, "the walk finds too little"
    seen = set[str]()
    for role, apt in by_role.items():
        (file := tmp_path / f"kubegpu-{role}.conf").write_text(drop_in(apt))
        program = EVALUATED.format(units=" ".join([*sorted(units), "sshd.service", "containerdx.service"]))
        done = subprocess.run(["perl", "-e", program, file], capture_output=True, text=True)
        assert done.stderr == ""
        seen |= {*done.stdout.split()}
    assert seen == {f"{unit}=0" for unit in units}


def test_the_drop_in_comes_and_goes_with_the_set() -> None:
    apt = {"name": "x", "url": "", "suite": "/", "key_url": "", "fingerprint": "", "packages": ["x"], "version": "1"}
    found = [{"path": "/needrestart", "checksum": "other", "mode": "0644", "uid": 0, "gid": 0, "isdir": False}]
    plan = plan_of("_common.apt", {"set": apt, "paths": PATHS, "found": {"files": found}})
    assert plan["files"]["unwanted"] == ["/needrestart"]
    wanted = plan_of(
        "_common.apt", {"set": {**apt, "services": ["x.service"]}, "paths": PATHS, "found": {"files": found}}
    )
    assert [file["validate"] for file in wanted["files"]["differing"] if file["path"] == "/needrestart"] == [
        "perl -c %s"
    ]
