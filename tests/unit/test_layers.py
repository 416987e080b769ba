"""Imports of module_utils go one way, and a module ships to its target only what it uses."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from collection import ROOT

MODULE_UTILS = ROOT / "plugins" / "module_utils"
OURS = "ansible_collections.kubegpu.autoscale.plugins.module_utils."
# From left to right: a package imports from itself and from those on its left.
LEFT = (
    "secrets",
    "hops",
    "errors",
    "formats",
    "kube",
    "role_plan",
    "server",
    "autoscaling",
    "diagnosis",
    "nodes",
    "chain",
    "components",
    "gitops",
    "loadtest",
    "proof",
    "report",
)
# The subjects of nodes, likewise.
NODES = (
    "survey",
    "membership",
    "findings",
    "restore",
    "maintain",
    "pod_reach",
    "apt",
    "driver",
    "containerd",
    "toolkit",
    "server",
    "kubernetes",
    "registry",
    "plans",
)
PACKAGES = (*LEFT, "cluster", "reading", "actions", "runtime")
PURE = {
    "secrets",
    "kube",
    "autoscaling",
    "diagnosis",
    "nodes",
    "chain",
    "components",
    "gitops",
    "loadtest",
    "proof",
    "report",
    "formats",
}
# What would be input or output: a pure package is handed what it judges.
WORLD = {"ansible", "ansible_collections", "kubernetes", "os", "pathlib", "socket", "subprocess", "time", "urllib"}


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Dotted names that a file imports, ours from `module_utils` on; nothing is executed."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield _absolute(path, node).removeprefix(OURS)


def _absolute(path: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    folder = path.parents[node.level - 1].relative_to(MODULE_UTILS).parts
    return OURS + ".".join((*folder, *([node.module] if node.module else [])))


def shipped(path: Path) -> set[str]:
    """Files of module_utils that travel with a module, as dotted names."""
    found: set[str] = set()
    paths = [path]
    while paths:
        for name in imported(paths.pop()):
            file = MODULE_UTILS / (name.replace(".", "/") + ".py")
            if name not in found and file.is_file():
                found.add(name)
                paths.append(file)
    return found


def package(path: Path) -> str:
    return path.relative_to(MODULE_UTILS).with_suffix("").parts[0]


FILES = sorted(path for path in MODULE_UTILS.rglob("*.py") if package(path) != "argspecs")
MODULES = sorted((ROOT / "plugins" / "modules").glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(MODULE_UTILS)))
def test_a_package_imports_only_from_the_left(path: Path) -> None:
    right = PACKAGES[PACKAGES.index(package(path)) + 1 :]
    assert not [name for name in imported(path) if name.split(".")[0] in right]


@pytest.mark.parametrize("path", sorted((MODULE_UTILS / "nodes").rglob("*.py")), ids=lambda path: path.stem)
def test_a_subject_of_nodes_imports_only_from_the_left(path: Path) -> None:
    subject = path.relative_to(MODULE_UTILS / "nodes").with_suffix("").parts[0]
    right = NODES[NODES.index(subject) + 1 :]
    assert not [name for name in imported(path) if name.startswith("nodes.") and name.split(".")[1] in right]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(MODULE_UTILS)))
def test_a_pure_package_knows_nothing_of_the_world(path: Path) -> None:
    if package(path) in PURE:
        assert not {name.split(".")[0] for name in imported(path)} & WORLD


@pytest.mark.parametrize("path", sorted(MODULE_UTILS.rglob("__init__.py")), ids=str)
def test_no_face_names_everything_again(path: Path) -> None:
    assert not path.read_text()


def test_gpu_facts_ships_what_reads_a_server_alone() -> None:
    (gpu_facts,) = (path for path in MODULES if path.stem == "gpu_facts")
    assert {name.split(".")[0] for name in shipped(gpu_facts)} == {"server"}


def test_no_module_ships_what_is_decided_on_the_controller() -> None:
    assert [path.stem for path in MODULES for name in shipped(path) if name.split(".")[0] == "nodes"] == []


def test_a_plan_knows_nothing_that_reads() -> None:
    """It runs once for each host and task."""
    plans = {name.split(".")[0] for name in shipped(ROOT / "plugins" / "action" / "plan.py")}
    assert not plans & {"cluster", "reading", "actions", "runtime", "report", "loadtest"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_module_ships_what_shows_a_report(path: Path) -> None:
    """The report is written on the controller, by a filter."""
    assert not [name for name in shipped(path) if name.split(".")[0] == "report"]


def test_filters_need_no_client_library() -> None:
    """The first task that uses one filter of the collection loads them all, in a process of its own."""
    names = sorted(path.stem for path in (ROOT / "plugins" / "filter").glob("*.py"))
    script = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
import collection; collection.install()
from importlib import import_module
for name in {names!r}:
    import_module("ansible_collections.kubegpu.autoscale.plugins.filter." + name)
print(sorted({{"kubernetes", "requests", "urllib3"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
