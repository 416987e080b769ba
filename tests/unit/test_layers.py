"""Imports of module_utils go one way: modules, runtime, flows, clients, domain."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from collection import ROOT

MODULE_UTILS = ROOT / "plugins" / "module_utils"
LAYERS = ("_domain", "_clients", "_flows")
FACES = {"_domain": "domain", "_clients": "clients", "_flows": "flows"}
OUTSIDE = {
    "_domain": {"ansible", "ansible_collections", "kubernetes", "os", "socket", "subprocess", "time", "urllib"},
    "_clients": {"ansible"},
    "_flows": {"ansible", "ansible_collections", "kubernetes", "urllib"},
}


def imported(path: Path) -> set[str]:
    """Dotted names that a file imports; nothing is executed."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


FILES = sorted(path for layer in LAYERS for path in (MODULE_UTILS / layer).glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_layer_imports_only_from_the_left(path: Path) -> None:
    right = LAYERS[LAYERS.index(path.parent.name) + 1 :]
    barred = {*right, *(FACES[layer] for layer in right), "runtime", "argspecs"}
    assert not [name for name in imported(path) if barred & set(name.split("."))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_layer_knows_no_more_of_the_world_than_it_may(path: Path) -> None:
    assert not {name.split(".")[0] for name in imported(path)} & OUTSIDE[path.parent.name]


@pytest.mark.parametrize("path", sorted((ROOT / "plugins" / "modules").glob("*.py")), ids=lambda path: path.name)
def test_a_module_sees_only_faces(path: Path) -> None:
    assert not [name for name in imported(path) if re.search(r"module_utils\._", name)]
