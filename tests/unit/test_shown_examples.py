"""The examples of the documentation: YAML parses, variables and options exist, commands have the shell's grammar."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import AUTOSCALERS
from collection import ROOT

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("roles/*/README.md")),
]
TARGETS = set(re.findall(r"^([a-z-]+)(?: [a-z-]+)*:", (ROOT / "Makefile").read_text(), re.MULTILINE))
PLAYBOOKS = {path.stem for path in (ROOT / "playbooks").glob("*.yml")}
MODULES = {path.stem for path in (ROOT / "plugins" / "modules").glob("*.py")}
SPECS = [yaml.safe_load(path.read_text()) for path in ROOT.glob("roles/*/meta/argument_specs.yml")]
DEFAULTS = [path.read_text() for path in ROOT.glob("roles/*/defaults/**/*.yml")]
VARIABLES = {name for text in DEFAULTS for name in re.findall(r"^([a-z]\w*):", text, re.MULTILINE)} | {
    name for spec in SPECS for entry in spec["argument_specs"].values() for name in entry.get("options", {})
}
SERVER_ROLES = {"containerd", "kubernetes", "maintain", "nvidia_container_toolkit", "nvidia_driver"}
OURS = re.compile(r"(?:kubegpu|gpu|nvidia|dcgm|prometheus|kubernetes|containerd|helm)_\w+")


def blocks(*languages: str) -> list[Any]:
    """Each example in one of these languages, with its page and number."""
    return [
        pytest.param(page, text, id=f"{page.relative_to(ROOT)}-{number}")
        for page in PAGES
        for number, (language, text) in enumerate(BLOCK.findall(page.read_text()), 1)
        if language in languages
    ]


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from mappings(part)


@pytest.mark.parametrize(("page", "text"), blocks("yaml"))
def test_yaml_sets_what_is_there(page: Path, text: str) -> None:
    [document] = yaml.safe_load_all(text)
    for mapping in mappings(document):
        names = {key for key in mapping if isinstance(key, str) and OURS.fullmatch(key)}
        assert names - VARIABLES - MODULES - set(AUTOSCALERS["autoscalers"]["options"]) == set(), page
        modules = {key.rpartition(".")[2] for key in mapping if str(key).startswith("kubegpu.autoscale.")}
        assert modules <= MODULES
        if {"target", "metric"} <= mapping.keys():
            assert mapping.keys() <= AUTOSCALERS["autoscalers"]["options"].keys()


@pytest.mark.parametrize(("page", "text"), blocks("sh", "console", "bash"))
def test_commands_are_there(page: Path, text: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
    assert done.stderr == ""
    assert set(re.findall(r"^make ([a-z-]+)", text, re.MULTILINE)) <= TARGETS
    named = re.findall(r"ansible-playbook[^\n;&]*?kubegpu\.autoscale\.(\w+)", text)
    assert set(named) <= PLAYBOOKS


@pytest.mark.parametrize("page", sorted(ROOT.glob("roles/[a-z]*/README.md")), ids=lambda page: page.parent.name)
def test_the_example_of_a_role_has_the_hosts_that_its_playbook_has(page: Path) -> None:
    [[play]] = [yaml.safe_load(text) for language, text in BLOCK.findall(page.read_text()) if "hosts:" in text]
    on_servers = page.parent.name in SERVER_ROLES
    assert play["hosts"] == ("kube_control_plane:kube_node" if on_servers else "localhost")
    assert play.get("become", False) == on_servers


def steps(page: str, *headings: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Below headings: variables and values, without rows that differ by cluster, and the playbooks in their order."""
    whole = (ROOT / "docs" / "clusters" / page).read_text()
    text = "".join(whole.partition(f"\n## {heading}\n")[2].partition("\n## ")[0] for heading in headings)
    documents = [yaml.safe_load(block) for language, block in BLOCK.findall(text) if language == "yaml"]
    own = ("kubegpu_kubeconfig", "kubegpu_context", "gpu_autoscaling_autoscalers")
    shared = [{key: value for key, value in document.items() if key not in own} for document in documents]
    return shared, re.findall(r"^ansible-playbook .*kubegpu\.autoscale\.(\w+)(?: +#.*)?$", text, re.MULTILINE)


def test_two_pages_have_the_same_steps_for_an_existing_operator() -> None:
    on_eks = steps(
        "eks-vllm.md", "3. Describe the cluster", "4. Scrape the exporter", "6. Create and prove the autoscaler"
    )

    assert on_eks == steps("gpu-operator.md", "Existing operator")
    assert on_eks[1] == ["monitoring", "autoscaling", "doctor"]
    assert on_eks[0][0]["gpu_operator_state"] == "existing"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_targets_in_the_text_are_there(page: Path) -> None:
    assert set(re.findall(r"`make ([a-z-]+)", page.read_text())) <= TARGETS
