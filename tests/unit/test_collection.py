"""What several files have to say alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible_collections.kubegpu.autoscale.plugins.module_utils import argspecs
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster import kube
from collection import ROOT

MODULES = {path.stem for path in (ROOT / "plugins" / "modules").glob("*.py")}


def fragment(name: str) -> dict[str, Any]:
    module = import_module(f"ansible_collections.kubegpu.autoscale.plugins.doc_fragments.{name}")
    return yaml.safe_load(module.ModuleDocFragment.DOCUMENTATION)["options"]


def shape(options: dict[str, Any], inner: str) -> dict[str, Any]:
    """Type, default, choices and need of each option, all the way down."""
    return {
        name: {
            "type": option.get("type", "str"),
            **{
                key: option[key]
                for key in ("default", "choices", "required", "elements")
                if option.get(key) is not None
            },
            "options": shape(option.get(inner, {}), inner),
        }
        for name, option in options.items()
    }


def test_module_defaults_reach_all_modules_that_talk_to_a_cluster() -> None:
    runtime = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text())
    sources = {name: (ROOT / "plugins" / "modules" / f"{name}.py").read_text() for name in MODULES}
    talk = {name for name, source in sources.items() if "kubernetes.core.k8s_auth_options" in source}
    assert set(runtime["action_groups"]["all"]) == talk
    fragment = re.compile(r"- kubegpu\.autoscale\.cluster$", re.MULTILINE)
    documented = {name for name, source in sources.items() if fragment.search(source)}
    assert documented <= talk
    assert {name for name in talk if name.startswith("gpu_")} <= documented


@pytest.mark.parametrize("name", ["autoscalers", "prometheus", "verify", "inventory"])
def test_documentation_says_what_the_argument_spec_says(name: str) -> None:
    assert shape(fragment(name), "suboptions") == shape(getattr(argspecs, name.upper()), "options")


def test_role_options_are_documented_with_their_defaults() -> None:
    role = ROOT / "roles" / "gpu_autoscaling"
    spec = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    defaults = yaml.safe_load((role / "defaults" / "main.yml").read_text())
    # What follows from variables of the inventory has no default in a spec: role pages cannot print a template.
    shared = {
        "gpu_autoscaling_metrics_backend": "{{ kubegpu_metrics_backend }}",
        "gpu_autoscaling_prometheus": "{{ _common_prometheus.options }}",
    }
    assert {name: option["default"] for name, option in spec.items() if name not in shared} | shared == defaults


def test_the_rights_that_are_documented_are_those_of_what_is_read() -> None:
    role = yaml.safe_load((ROOT / "docs" / "rights.yml").read_text())
    granted = {
        (group, resource) for rule in role["rules"] for group in rule["apiGroups"] for resource in rule["resources"]
    }
    read = {
        (resource.api_version.rpartition("/")[0], resource.plural)
        for resource in vars(kube).values()
        if isinstance(resource, kube.Resource) and resource not in (kube.CRDS, kube.RUNTIME_CLASSES, kube.SECRETS)
    }
    assert read <= granted


TASKS = [*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("roles/*/handlers/*.yml"), *ROOT.glob("playbooks/*.yml")]


def mappings(node: Any) -> Iterator[dict[str, Any]]:
    """Of a file of tasks: each task, its arguments, defaults of its blocks, and what is in them."""
    if isinstance(node, dict):
        yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from mappings(inner)


def test_chart_values_are_not_in_the_controllers_journal() -> None:
    """Ansible's modules write their arguments there, and values of a user may hold passwords."""
    tasks = [
        (str(file.relative_to(ROOT)), task)
        for file in TASKS
        for task in mappings(_tasks(file))
        if any(isinstance(arguments, dict) and "release_values" in arguments for arguments in task.values())
    ]
    assert len(tasks) == 2
    assert [file for file, task in tasks if not task.get("vars", {}).get("ansible_no_target_syslog")] == []


def test_what_is_delegated_to_the_controller_runs_by_its_python() -> None:
    """An inventory that names localhost has the system's, without the libraries of the controller."""
    delegated = [
        (str(file.relative_to(ROOT)), found)
        for file in TASKS
        for found in mappings(_tasks(file))
        if found.get("delegate_to") == "localhost" and "ansible_become" in found.get("vars", {})
    ]
    assert len(delegated) > 10
    assert [file for file, task in delegated if "ansible_python_interpreter" not in task["vars"]] == []


@pytest.mark.parametrize("role", sorted(path.name for path in (ROOT / "roles").iterdir()))
def test_no_result_takes_the_name_of_a_variable_of_the_role(role: str) -> None:
    """What a task or a handler registers wins over vars from then on."""
    folder = ROOT / "roles" / role
    loader = DataLoader()
    given = {name for path in folder.glob("vars/**/*.yml") for name in loader.load_from_file(str(path)) or {}}
    registered = {
        found["register"]
        for path in [*folder.glob("tasks/*.yml"), *folder.glob("handlers/*.yml")]
        for found in mappings(_tasks(path))
        if isinstance(found.get("register"), str)
    }
    assert given & registered == set()


def test_no_play_sets_a_variable_of_a_role() -> None:
    """A role's vars win over those of a play, which then have no effect."""
    loader = DataLoader()
    own = {name for path in (ROOT / "roles").glob("*/vars/**/*.yml") for name in loader.load_from_file(str(path)) or {}}
    plays = [play for path in (ROOT / "playbooks").glob("*.yml") for play in _tasks(path)]
    assert {name for play in plays for name in play.get("vars", {})} & own == set()


def _tasks(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def test_no_two_files_of_one_run_have_the_same_name() -> None:
    """Tests lie in folders that are no packages: pytest imports each file by its name alone."""
    apart = {"faults", "integration"}
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if path.parent.name not in apart]
    names = [path.name for path in files]
    assert [name for name in sorted(set(names)) if names.count(name) > 1] == []
