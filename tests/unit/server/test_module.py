"""The module as Ansible runs it, and its pages as readers find them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.kubegpu.autoscale.plugins.modules import gpu_facts
from collection import COLLECTIONS_PATH
from gpu_trees import Tree

DESCRIBED = yaml.safe_load(gpu_facts.RETURN)["ansible_facts"]["contains"]["gpu_facts"]["contains"]


def run(capsys: pytest.CaptureFixture[str], root: Path) -> dict[str, Any]:
    """What the module returns for this root, in check mode."""
    with patch_module_args({"root": str(root), "_ansible_check_mode": True}), pytest.raises(SystemExit):
        gpu_facts.main()
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.device("0000:31:00.0", "0x2335", driver="nvidia")
    return tree


def test_module_returns_facts_and_warnings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tree: Tree
) -> None:
    tree.file("proc/driver/nvidia/version", "?")
    warnings: list[str] = []
    # Where a warning goes depends on what else of Ansible this process has loaded.
    monkeypatch.setattr(gpu_facts.AnsibleModule, "warn", lambda _module, warning: warnings.append(warning))

    answer = run(capsys, tree.root)

    assert answer["changed"] is False
    assert answer["ansible_facts"]["gpu_facts"] == tree.facts()
    assert [str(tree.root / "proc/driver/nvidia/version") in warning for warning in warnings] == [True]


def test_module_refuses_a_root_that_is_no_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answer = run(capsys, tmp_path / "gone")

    assert answer["failed"]
    assert f"root {tmp_path}/gone is no folder" in answer["msg"]


def test_module_travels_with_all_that_it_imports(tree: Tree) -> None:
    """Ansible packs what a module imports: a data file beside it would stay behind."""
    answer = subprocess.run(
        [
            *(Path(sys.executable).with_name("ansible"), "localhost", "-i", "localhost,", "-c", "local"),
            *("-e", f"ansible_python_interpreter={sys.executable}"),
            *("-m", "kubegpu.autoscale.gpu_facts", "-a", f"root={tree.root}"),
        ],
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH,
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
            "ANSIBLE_NOCOLOR": "1",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(answer.stdout[answer.stdout.index("{") :])["ansible_facts"]["gpu_facts"] == tree.facts()


def test_every_fact_is_described_and_no_other(tree: Tree) -> None:
    facts = tree.facts()

    assert DESCRIBED.keys() == facts.keys()
    assert DESCRIBED["gpus"]["contains"].keys() == facts["gpus"][0].keys()


@pytest.mark.parametrize("fact", DESCRIBED)
def test_every_fact_has_a_sample(fact: str) -> None:
    described = DESCRIBED[fact]

    samples = described.get("contains", {"": described}).values()
    assert all("sample" in sample and sample["description"] for sample in samples)


def test_examples_name_facts_that_exist(tree: Tree) -> None:
    tasks = yaml.safe_load(gpu_facts.EXAMPLES)
    text = json.dumps(tasks)

    named = {part.split("'")[0] for part in text.split("ansible_facts['gpu_facts']['")[1:]}
    assert named
    assert named <= tree.facts().keys()


def test_a_card_that_is_ignored_is_not_there(capsys: pytest.CaptureFixture[str], tree: Tree) -> None:
    """A GT 1030 beside a Blackwell: no single driver drives both."""
    tree.device("0000:0A:00.0".lower(), "0x1d01", "0x030000")
    tree.device("0000:41:00.0", "0x2901")

    def facts(*ignored: str) -> dict[str, Any]:
        with patch_module_args({"root": str(tree.root), "ignore": list(ignored)}), pytest.raises(SystemExit):
            gpu_facts.main()
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)["ansible_facts"]["gpu_facts"]
        return answer

    assert facts()["driver_flavour"] is None
    assert facts("0000:0A:00.0")["driver_flavour"] == "open"
    assert [gpu["pci_address"] for gpu in facts("0000:0A:00.0")["gpus"]] == ["0000:31:00.0", "0000:41:00.0"]
