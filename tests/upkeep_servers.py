"""Control planes below folders, each with the program that servers get, and a restore as the role's tasks run it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from collection import ROOT
from planned import plan_of

PROGRAM = ROOT / "roles/kubernetes/files/etc/kubegpu_upkeep.py"
BACKUPS = "/backups"  # of the plan, for the folder below each server's root


class Failed(Exception):
    """The program's error."""


class Refused(Exception):
    """The plan's."""


def load(root: Path, **more: Any) -> ModuleType:
    """The program, of a server below `root`. more: what else is replaced in it."""
    module = ModuleType("kubegpu_upkeep")
    module.__file__ = str(PROGRAM)
    exec(_code(), module.__dict__)
    for name, value in {"ROOT": root, "arguments": cache(module.arguments), **more}.items():
        setattr(module, name, value)
    return module


@cache
def _code() -> CodeType:
    return compile(PROGRAM.read_text(), PROGRAM, "exec")


def call(module: ModuleType, *words: str) -> dict[str, Any]:
    """What it prints; its error raises."""
    said, error = io.StringIO(), io.StringIO()
    mask = os.umask(0o077)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(error):
            rc = module.main(list(words))
    finally:
        os.umask(mask)
    if rc:
        raise Failed(error.getvalue())
    found: dict[str, Any] = json.loads(said.getvalue())
    return found


@dataclass
class Servers:
    """by_host: the program of each. after: is called with a host when the program has run there, for its kubelet."""

    by_host: Mapping[str, ModuleType]
    controller: Path
    run: Callable[..., dict[str, Any]] = call
    after: Callable[[str], None] = lambda _host: None
    save: bool = True
    ran: list[tuple[str, str]] = field(default_factory=list)

    def on(self, host: str, *words: str) -> dict[str, Any]:
        module = self.by_host[host]
        self.ran.append((words[0], host))
        try:
            return self.run(module, *(word.replace(BACKUPS, f"{module.ROOT}{BACKUPS}", 1) for word in words))
        finally:
            self.after(host)

    def plan(self, wanted: str, state: str = "present", hosts: tuple[str, ...] = ()) -> dict[str, Any]:
        """As restore_preflight.yml makes it."""
        hosts = hosts or tuple(self.by_host)
        copies = self.run(self.by_host[hosts[0]], "list", "--folder", str(self.controller), "--check", wanted)
        peers = [url for row in copies["backups"] if row["name"] == wanted for url in row["members"]]
        words = ("member", "--folder", BACKUPS, "--check", wanted, "--ask", ",".join(peers))
        rows = [{"host": host, "stdout": json.dumps(self.on(host, *words))} for host in hosts]
        survey = {"hosts": [*hosts], "control_planes": [*hosts], "controller": json.dumps(copies), "members": rows}
        options = {"restore_backup": wanted, "restore_state": state, "backup": self.save, "backup_folder": BACKUPS}
        return plan_of("kubernetes.restore", survey, **options)

    def restore(self, wanted: str, state: str = "present", hosts: tuple[str, ...] = ()) -> dict[str, Any]:
        """As restore.yml does it: each step on all hosts, and the run ends after the first that fails anywhere."""
        plan = self.plan(wanted, state, hosts)
        if plan["refused"]:
            raise Refused("\n".join(plan["refused"]))
        self.copy(plan)
        for step in plan["commands"]:
            self.step(step, hosts or tuple(self.by_host))
        return plan

    def step(self, words: list[str], hosts: tuple[str, ...]) -> None:
        errors = []
        for host in hosts:
            try:
                self.on(host, *words)
            except Failed as error:
                errors.append(f"{host}: {error}")
        if errors:
            raise Failed("\n".join(errors))

    def copy(self, plan: dict[str, Any]) -> None:
        source = plan["source"]["controller"]
        if plan["source"]["server"]:
            source = f"{self.by_host[plan['source']['server']].ROOT}{plan['folder']}"
        for host in plan["copied_to"]:
            shutil.copytree(source, f"{self.by_host[host].ROOT}{plan['folder']}", dirs_exist_ok=True)
