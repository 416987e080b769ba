"""YAML as ansible-lint expects it, for the files that tools record."""

from __future__ import annotations

from typing import Any

import yaml


class _Indented(yaml.SafeDumper):
    """Lists are indented below their name."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def dump(content: Any) -> str:
    text: str = yaml.dump(content, Dumper=_Indented, sort_keys=False, width=120)
    return text
