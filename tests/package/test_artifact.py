"""The tarball for Galaxy: built from this checkout, installed into an empty folder, and used only from there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tarball
import yaml
from collection import ROOT

MODULES = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py"))
FILTERS = sorted(path.stem for path in (ROOT / "plugins" / "filter").glob("*.yml"))
PLAYBOOKS = sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml"))
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if not path.name.startswith("_"))
# What begins with one of these stays in the checkout.
OF_THE_CHECKOUT = re.compile(
    r"(?:changelogs/fragments|docs/benchmarks|docs/real-gpus|inventories/lab|lab|molecule|tests|tools|\.ci|\.github|LICENSES)/|\.[^/]*$|requirements-"
    r"|(?:CODE_OF_CONDUCT\.md|CONTRIBUTING\.md|MAINTAINERS\.md|Makefile|REUSE\.toml|ansible\.cfg|galaxy\.yml|mkdocs\.yml|pyproject\.toml)$"
)
# The lab's is made by the lab.
INVENTORIES = sorted(path.name for path in (ROOT / "inventories").iterdir() if path.name != "lab")


@pytest.fixture(scope="session")
def own_folder() -> Iterator[Path]:
    """What a run leaves beside an inventory; git does not know it."""
    folder = ROOT / "inventories" / "cluster" / ".kubegpu" / "of-a-test"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "secret.yml").touch()
    yield folder
    shutil.rmtree(folder)
    if not any(folder.parent.iterdir()):
        folder.parent.rmdir()


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, own_folder: Path) -> Path:
    """The path of collections that it is installed in. Dependencies come with the package `ansible`."""
    place = tmp_path_factory.mktemp("galaxy")
    artifact = tarball.build(place)
    run(place, "ansible-galaxy", "collection", "install", artifact, "--collections-path", place / "path", "--no-deps")
    return place / "path"


def run(collections: Path, program: str, *arguments: object) -> str:
    """The output of one of Ansible's programs, which sees no checkout and nobody's settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    done = subprocess.run(
        [str(word) for word in (Path(sys.executable).with_name(program), *arguments)],
        cwd=collections,
        env={
            **environment,
            "HOME": str(collections),
            "ANSIBLE_COLLECTIONS_PATH": str(collections),
            "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
        },
        capture_output=True,
        text=True,
    )
    print(done.stdout[-5000:], done.stderr)  # pytest shows it when the test fails
    assert done.returncode == 0
    return done.stdout


def home(installed: Path) -> Path:
    return installed / "ansible_collections" / "kubegpu" / "autoscale"


def test_it_has_what_users_need_and_nothing_else(installed: Path) -> None:
    in_git = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).split()
    made = {"tests/config.yml", "FILES.json", "MANIFEST.json"}
    wanted = {path for path in in_git if not OF_THE_CHECKOUT.match(path)} | made
    found = {str(path.relative_to(home(installed))) for path in home(installed).rglob("*") if path.is_file()}
    assert found == wanted


def test_who_builds_it_again_gets_the_same(installed: Path, tmp_path: Path) -> None:
    [first] = installed.parent.glob("kubegpu-autoscale-*.tar.gz")
    assert tarball.checksum(tarball.build(tmp_path)) == tarball.checksum(first)


@pytest.mark.parametrize(("kind", "names"), [("module", MODULES), ("filter", FILTERS), ("role", ROLES)])
def test_all_of_it_is_documented(installed: Path, kind: str, names: list[str]) -> None:
    wanted = [f"kubegpu.autoscale.{name}" for name in names]
    assert set(json.loads(run(installed, "ansible-doc", "--json", "--type", kind, *wanted))) == set(wanted)


@pytest.mark.parametrize("inventory", INVENTORIES)
def test_each_playbook_reads_each_example_inventory(installed: Path, inventory: str) -> None:
    playbooks = [f"kubegpu.autoscale.{name}" for name in PLAYBOOKS]
    place = home(installed) / "inventories" / inventory
    shown = run(installed, "ansible-playbook", "--inventory", place, "--syntax-check", *playbooks)
    assert shown.count("playbook: ") == len(playbooks)


@pytest.mark.parametrize("inventory", INVENTORIES)
def test_an_example_inventory_sets_what_a_role_reads(inventory: str) -> None:
    read = {
        name
        for path in ROOT.glob("roles/*/*/**/*.yml")
        for name in re.findall(r"\b(?:kubegpu|gpu_autoscaling|kubernetes)_\w+", path.read_text())
    }
    groups = (ROOT / "inventories" / inventory / "group_vars").glob("*.yml")
    assert {name for path in groups for name in yaml.safe_load(path.read_text())} - read == set()


def test_an_execution_environment_gets_what_the_controller_needs(installed: Path, tmp_path: Path) -> None:
    """As ansible-builder reads it of the collections in an image, and the files from which an image is built."""
    asked = run(installed, "ansible-builder", "introspect", "--sanitize", installed)
    python = yaml.safe_load(asked)["python"]
    assert [line.partition(" ")[0] for line in python] == ["jmespath>=1.0", "kubernetes>=30.1"]
    shown = home(installed) / "docs" / "execution-environment.yml"
    run(installed, "ansible-builder", "create", "--file", shown, "--context", tmp_path)
    assert "kubegpu.autoscale" in (tmp_path / "_build" / "requirements.yml").read_text()
    assert "FROM" in (tmp_path / "Containerfile").read_text()
