"""The tests that the documentation names: they exist, and the page says which target runs them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from collection import ROOT

# By the folder of the test: what of the Makefile runs it.
TARGETS = {
    "molecule/cluster": "make test-cluster",
    "molecule/default": "make test",
    "molecule/driver": "make test-nodes",
    "molecule/existing": "make test-existing",
    "molecule/interrupted": "make test-nodes",
    "molecule/nodes": "make test-nodes",  # some of it in make test, too
    "molecule/runtime": "make test-nodes",
    "tools/bench": "make bench-",
    "tests/faults": "make faults",  # some of it in make test, too
    "tests/faults/test_alerts_fire.py": "make test-alerts",
    "tests/faults/test_safety.py": "make test-outages",
}
PAGES = [
    path
    for path in [ROOT / "README.md", ROOT / "SECURITY.md", *ROOT.glob("docs/**/*.md")]
    if "test_" in path.read_text()
]
FILES = [path for folder in ("tests", "molecule") for path in (ROOT / folder).rglob("test_*.py")]
HOMES: dict[str, list[Path]] = {}
for path in FILES:
    for name in (path.stem, *re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)):
        HOMES.setdefault(name, []).append(path)


def target(test: Path) -> str:
    """All other tests are pytest's own, in `make unit`, which is part of `make test`."""
    path = test.relative_to(ROOT)
    return TARGETS.get(path.as_posix()) or TARGETS.get("/".join(path.parts[:2]), "make test")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_run_by_a_target_that_it_names(page: Path) -> None:
    text = page.read_text()
    named = set(re.findall(r"\btest_\w+", text))
    assert sorted(named - set(HOMES)) == []
    assert sorted(name for name in named if not any(target(home) in text for home in HOMES[name])) == []


def test_the_targets_are_there() -> None:
    made = {f"make {name}" for name in re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}
    assert all(any(command.startswith(name) for command in made) for name in TARGETS.values())


def test_what_one_looks_for_is_where_the_table_says() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Where to look")[2]
    for placeholder, example in (("ROLE", "metrics_server"), ("NAME", "metrics-server")):
        table = table.replace(placeholder, example)
    utils = ROOT / "plugins" / "module_utils"
    packages = "|".join(path.name for path in utils.iterdir() if path.is_dir())
    paths = re.findall(rf"(?<![\w/])((?:plugins|roles|lab|tests|\.github|{packages})/[-\w/.*]*\w)", table)
    assert len(paths) > 60
    assert [path for path in paths if not [*ROOT.glob(path), *utils.glob(path)]] == []


REQUIRED = re.findall(r"^([\w-]+)>=", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
INSTALLING = [
    pytest.param(block, id=f"{path.relative_to(ROOT)}-{number}")
    for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    if re.search(r"ansible-playbook .*kubegpu\.autoscale\.", text := path.read_text())
    for number, block in enumerate(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    if re.search(r"ansible-galaxy collection install \S*kubegpu/autoscale", block)
]


@pytest.mark.parametrize("block", INSTALLING)
def test_a_page_that_runs_a_playbook_installs_its_requirements_with_the_collection(block: str) -> None:
    is_listed = re.search(r"pip install -r \S*/kubegpu/autoscale/requirements\.txt", block)
    assert is_listed or set(REQUIRED) <= set(re.findall(r"--with ([\w-]+)", block))
