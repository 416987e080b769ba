"""Plans of roles: options as the argument specifications type them, and surveys as the roles' tasks pass them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.kubegpu.autoscale.plugins.action.plan import PLANS, ActionModule
from ansible_collections.kubegpu.autoscale.plugins.module_utils.role_plan import (
    Plan,
    options_of,
    specification,
    variables_of,
)
from collection import ROOT

from lab.versions import versions

ACTION = "kubegpu.autoscale.plan"
# Types of options, each with a text of the command line and its value.
TEXTS: dict[str, tuple[type, str, Any]] = {
    "bool": (bool, "false", False),
    "int": (int, "5", 5),
    "float": (float, "0.5", 0.5),
    "list": (tuple, "a,b", ("a", "b")),
    "dict": (Mapping, '{"a": 1}', {"a": 1}),
    "str": (str, "a", "a"),
    "path": (str, "/a", "/a"),
}
FIELDS = [
    (name.partition(".")[0], kind, field, variable)
    for name, plan in PLANS.items()
    for kind in plan.options
    for field, variable in variables_of(kind, name.partition(".")[0]).items()
]


def typed(role: str, kind: type[Any], field: str, **variables: Any) -> Any:
    [options] = options_of(Plan(dict, (kind,)), role, lambda _names: variables)
    return getattr(options, field)


@pytest.mark.parametrize(
    ("role", "kind", "field", "variable"), FIELDS, ids=lambda value: getattr(value, "__name__", value)
)
def test_a_text_has_the_type_of_its_option(role: str, kind: type[Any], field: str, variable: str) -> None:
    spec = specification(role)[variable]
    if spec["type"] == "raw":
        return
    annotated, text, value = TEXTS[spec["type"]]
    if "options" in spec or spec.get("elements") == "dict":  # no text, but YAML
        text, value = ({}, {}) if annotated is Mapping else ([], ())
    given = spec.get("choices", [text])[0]
    wanted = value if given == text else (given,) if annotated is tuple else given
    hint = get_type_hints(kind)[field]
    [known] = [row for row in get_args(hint) if row is not NoneType] if get_origin(hint) is UnionType else [hint]

    assert typed(role, kind, field, **{variable: given}) == wanted
    assert issubclass(annotated, get_origin(known) or known)
    if "choices" in spec:
        with pytest.raises(ValueError, match=rf"role {role}: .*{variable}.*Next: correct its options"):
            typed(role, kind, field, **{variable: "neither"})


@pytest.mark.parametrize(
    ("role", "kind", "field", "variable"), FIELDS, ids=lambda value: getattr(value, "__name__", value)
)
def test_an_option_of_a_wrong_type_is_shown_without_a_login(
    role: str, kind: type[Any], field: str, variable: str
) -> None:
    if specification(role)[variable]["type"] in ("bool", "dict", "float", "int"):
        with pytest.raises(ValueError, match="Next: correct its options") as error:
            typed(role, kind, field, **{variable: "https://me:pa55W0rdOfMine@proxy:3128"})
        assert "pa55W0rdOfMine" not in str(error.value)


def test_each_shared_option_is_of_a_plan() -> None:
    shared = {variable for _role, _kind, _field, variable in FIELDS if variable.startswith("kubegpu_")}
    assert {*specification("_common")} <= shared | {"kubegpu_inventory_id"}


def tasks(node: Any) -> Iterator[dict[str, Any]]:
    """Arguments of all tasks that plan, below a value of YAML."""
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from tasks(inner)
    if isinstance(node, dict) and ACTION in node:
        yield node[ACTION]


PASSED: dict[str, set[str]] = {}
for _path in sorted((ROOT / "roles").glob("*/tasks/*.yml")):
    for _task in tasks(yaml.safe_load(_path.read_text())) if ACTION in _path.read_text() else ():
        _keys = PASSED.setdefault(".".join(filter(None, (_task["role"], _task.get("subject", "")))), set())
        _keys |= {*_task.get("survey", {})}


def keys(path: Path) -> set[str]:
    """Keys that a file reads of a name `survey`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Subscript(value=ast.Name(id="survey"), slice=ast.Constant(value=str(key))):
                found.add(key)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="survey"), attr="get"), args=[ast.Constant(value=key), *_]
            ):
                found.add(key)
    return found


def file_of(name: str) -> Path:
    return Path(str(inspect.getsourcefile(PLANS[name].decide)))


def test_each_plan_has_a_task() -> None:
    assert {*PASSED} == {*PLANS}


@pytest.mark.parametrize("path", sorted({*map(file_of, PLANS)}), ids=lambda path: path.stem)
def test_tasks_pass_the_survey_that_a_plan_reads(path: Path) -> None:
    assert set().union(*(passed for name, passed in PASSED.items() if file_of(name) == path)) == keys(path)


def registered(node: Any) -> Iterator[tuple[str, str]]:
    """Names of plans below a value of YAML, each with the variable of its result."""
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from registered(inner)
    if isinstance(node, dict) and ACTION in node:
        yield ".".join(filter(None, (node[ACTION]["role"], node[ACTION].get("subject", "")))), node["register"]


TASKS = {path: path.read_text() for path in [*ROOT.glob("roles/*/*/**/*.yml"), *ROOT.glob("playbooks/*.yml")]}
REGISTERED = {pair for text in TASKS.values() if ACTION in text for pair in registered(yaml.safe_load(text))}


@pytest.mark.parametrize(("name", "variable"), sorted(REGISTERED))
def test_tasks_use_what_a_plan_returns(name: str, variable: str) -> None:
    used = {key for text in TASKS.values() for key in re.findall(rf"\b{variable}\.(\w+)", text)}
    returned = {
        key.value
        for node in ast.walk(ast.parse(file_of(name).read_text()))
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant)
    }
    assert used - {"changed", "failed", "skipped"} <= returned


def skipped_imports(tasks: list[dict[str, Any]], *, is_conditional: bool = False) -> Iterator[str]:
    """Names of tasks that import a plan below a condition."""
    for task in tasks:
        may_skip = is_conditional or "when" in task
        if may_skip and task.get("ansible.builtin.import_tasks") == "plan.yml":
            yield task["name"]
        for part in ("block", "rescue", "always"):
            yield from skipped_imports(task.get(part, []), is_conditional=may_skip)


@pytest.mark.parametrize("role", sorted({name.partition(".")[0] for name in PLANS}))
def test_a_condition_that_fails_does_not_replace_the_plan(role: str) -> None:
    """The result of a skipped task is registered as well: a plan below a condition is included, not imported."""
    files = (ROOT / "roles" / role / "tasks").glob("*.yml")
    assert [name for file in files for name in skipped_imports(yaml.safe_load(file.read_text()))] == []


HOST = {"name": "gpu1", "system": "Debian 12", "kernel": "6.1.0", "architecture": "x86_64"}


def run(role: str, survey: dict[str, Any] | None = None, **variables: Any) -> dict[str, Any]:
    """Result of the action."""
    task = SimpleNamespace(
        args={"role": role, "survey": survey or {}}, async_val=0, check_mode=False, environment=None, collections=[]
    )
    templar = Templar(DataLoader(), variables)
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=""))
    found: dict[str, Any] = ActionModule(task, connection, None, DataLoader(), templar).run(task_vars=variables)
    return found


def test_variables_are_rendered_and_typed() -> None:
    template = trust_as_template("{{ 'ab' }}sent")
    plan = run("nvidia_driver", {"host": HOST}, nvidia_driver_state=template, kubegpu_versions=versions())
    assert plan["steps"]["remove"]
    assert not plan["changed"]


def test_a_wrong_type_fails_with_the_name_of_the_option() -> None:
    with pytest.raises(AnsibleActionFail, match=r"role nvidia_driver: .*nvidia_driver_expected_gpus.*Next: correct"):
        run("nvidia_driver", {"host": HOST}, nvidia_driver_expected_gpus="many")


def test_an_unknown_plan_is_named() -> None:
    with pytest.raises(AnsibleActionFail, match=r"unknown plan gpu_workloads\. Next"):
        run("gpu_workloads")
