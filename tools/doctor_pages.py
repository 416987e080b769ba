"""Writes the pages of docs/doctor: the written text above the first finding, then the findings from the checks.

`python tools/doctor_pages.py` writes them.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from collection import ROOT, install

install()

from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.checks.registry import FINDING_TYPES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.hops import (
    REPORTED,
    SERVER_TITLES,
    TITLES,
    Hop,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes import registry as server

# A kubectl command that is not marked as code yet.
_COMMAND = re.compile(
    r"(?<![`\w])kubectl (?!convert|describe the)[^`;(]+?(?=[;,] |\. |$| and | shows | lists | does | reverts | \()"
)
DOCS = ROOT / "docs" / "doctor"
WIDTH = 150
PAGES = (*SERVER_TITLES, *REPORTED)
ALL_TYPES = {**server.FINDING_TYPES, **FINDING_TYPES}


def page(hop: Hop) -> str:
    written = _path(hop).read_text().partition("\n## ")[0].partition("\n")[2].strip()
    findings = [_section(finding_type) for finding_type in ALL_TYPES.values() if finding_type.hop == hop]
    return "\n\n".join([f"# {(TITLES | SERVER_TITLES)[hop]}", written, *findings]) + "\n"


def _path(hop: Hop) -> Path:
    return DOCS / f"{hop}.md"


def _section(finding_type: Any) -> str:
    parts = [
        f"## {finding_type.id}",
        f"{finding_type.severity.capitalize()}: {_text(finding_type.cause)}.",
        f"Fix: {_text(finding_type.fix)}.",
    ]
    if finding_type.evidence:
        rows = "\n".join(f"| {_cell(evidence.cause)} | {_cell(evidence.fix)} |" for evidence in finding_type.evidence)
        parts.append(f"With more evidence:\n\n| cause | fix |\n| --- | --- |\n{rows}")
    notes = []
    if finding_type.grace_s:
        notes.append(f"Grace period: {finding_type.grace_s} s. A healthy cluster may show it for that long.")
    if finding_type.is_consequence:
        notes.append("Listed as a consequence if an error further left explains it.")
    if finding_type.before:
        notes.append(_BEFORE_WORK if finding_type.hop in SERVER_TITLES else _BEFORE[finding_type.before])
    parts += [" ".join(notes)] if notes else []
    return "\n\n".join(part if "\n| " in part else _filled(part) for part in parts)


def _filled(text: str) -> str:
    """Commands have hyphens, after which a new line would be a space."""
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


_BEFORE = {
    "refuse": "Before a change, `gpu_autoscaler` fails.",
    "await": "Before a change, `gpu_autoscaler` fails. In check mode it warns, because an earlier task may fix it.",
    "warn": "Before a change, `gpu_autoscaler` warns.",
}


_BEFORE_WORK = "The role stops before it changes anything."


def _text(text: str) -> str:
    text = text.replace("{why}", "(see the finding)")
    text = re.sub(r"(?<!\{)\{(\w+)\}(?!\})", lambda match: match[1].upper(), text)
    return _COMMAND.sub(r"`\g<0>`", text.replace("{{", "{").replace("}}", "}").rstrip("."))


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|")


if __name__ == "__main__":
    for hop in PAGES:
        _path(hop).write_text(page(hop))
