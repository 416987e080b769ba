"""Plans of roles as the action plugin makes them, and results of tasks for their surveys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from hashlib import sha1
from typing import Any

import yaml
from ansible_collections.kubegpu.autoscale.plugins.action.plan import PLANS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.diagnosis.check import Check
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.survey.host import Host
from ansible_collections.kubegpu.autoscale.plugins.module_utils.role_plan import Plan, options_of, variables_of
from collection import ROOT

from lab.versions import versions

HOST = Host("gpu1", "Debian 12", "6.1.0-40-amd64", "x86_64", release="bookworm")
CONTAINERD_PATHS = yaml.safe_load((ROOT / "roles" / "containerd" / "vars" / "main.yml").read_text())[
    "__containerd_paths"
]


def plan_of(name: str, survey: Mapping[str, Any], /, host: Host = HOST, **options: Any) -> dict[str, Any]:
    """Plan of a role, or `role.subject`, with options typed as the action plugin does it."""
    plan = PLANS[name]
    typed = typed_options(plan, name.partition(".")[0], **options)
    return plan.decide(*typed, {"host": asdict(host), **survey})  # `result` also searches the plan for secrets


def typed_options(plan: Plan, role: str, /, **options: Any) -> list[Any]:
    """options: by the name of the field or of the variable; others have the defaults of the specification."""
    fields = {field: variable for kind in plan.options for field, variable in variables_of(kind, role).items()}
    given = {"kubegpu_versions": versions(), **{fields.get(name, name): value for name, value in options.items()}}
    return options_of(plan, role, lambda names: {name: given[name] for name in names if name in given})


def said(*lines: str, rc: int = 0) -> dict[str, Any]:
    """Result of a program."""
    return {"rc": rc, "stdout": "\n".join(lines)}


def found(*paths: str) -> dict[str, Any]:
    """Result of the module find for empty files."""
    return {"files": [entry(path) for path in paths]}


def entry(path: str, content: str = "", mode: str = "0644", mtime: float = 1) -> dict[str, Any]:
    """One file as the module find returns it."""
    checksum = sha1(content.encode()).hexdigest()
    return {"path": path, "checksum": checksum, "mode": mode, "uid": 0, "gid": 0, "mtime": mtime}


def unseen(checks: Iterable[Check[Any]], sentences: Iterable[str]) -> list[str]:
    """Findings of the checks that no sentence reports."""
    reported = "\n".join(sentences)
    return [kind.id for check in checks for kind in check.types if f"({kind.doc})" not in reported]
