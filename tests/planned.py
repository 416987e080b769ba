"""Plans of a server as node_plan makes them: arguments are checked first, as the action plugin does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha1
from typing import Any

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.kubegpu.autoscale.plugins.module_utils.diagnosis.check import Check
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.survey.host import Host
from collection import ROOT

HOST = Host("gpu1", "Debian 12", "6.1.0-40-amd64", "x86_64", release="bookworm")
CONTAINERD_PATHS = yaml.safe_load((ROOT / "roles" / "containerd" / "vars" / "main.yml").read_text())[
    "__containerd_paths"
]
Plan = Callable[[Host, Mapping[str, Any]], dict[str, Any]]


def planned(plan: Plan, spec: dict[str, Any], params: Mapping[str, Any], host: Host = HOST) -> dict[str, Any]:
    checked = ArgumentSpecValidator(spec).validate(dict(params))
    assert not checked.error_messages
    return plan(host, checked.validated_parameters)


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
