"""Options of the roles as a command line gives them: `-e name=false` is a text, and a text is true."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.action.plan import PLANS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.role_plan import variables_of
from collection import ROOT
from jinja2 import Environment, nodes
from role_values import ROLES, RoleValues

EXPRESSIONS = {"changed_when", "failed_when", "that", "until", "when"}
COUNTS = (nodes.BinExpr, nodes.Compare, nodes.Operand)


class Loader(yaml.SafeLoader):
    """Of files as Ansible reads them. What is unsafe it does not render."""


Loader.add_constructor("!unsafe", lambda _loader, _node: None)


def options(kind: str) -> list[str]:
    """Of all roles and their entry points, each once."""
    specs = [yaml.safe_load(path.read_text())["argument_specs"] for path in ROLES.glob("*/meta/argument_specs.yml")]
    points = [point.get("options", {}) for spec in specs for point in spec.values()]
    return sorted({name for rows in points for name, row in rows.items() if row["type"] == kind})


def templates(value: Any, key: str = "") -> Iterator[str]:
    """All that Ansible renders below a value of YAML."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield from templates(below, str(name))
    elif isinstance(value, list):
        for below in value:
            yield from templates(below, key)
    elif isinstance(value, str):
        yield f"{{{{ {value} }}}}" if key in EXPRESSIONS else value


@cache
def parsed() -> tuple[tuple[Path, nodes.Template], ...]:
    """Those in the roles and playbooks that speak of an option."""
    environment, found, names = Environment(), [], [*options("bool"), *options("int"), *options("path")]
    for path in [*ROLES.rglob("*.yml"), *ROLES.rglob("*.j2"), *(ROOT / "playbooks").glob("*.yml")]:
        text = path.read_text()
        if path.parent.name == "meta" or not any(name in text for name in names):
            continue
        rows = (
            [text] if path.suffix == ".j2" else [row for page in yaml.load_all(text, Loader) for row in templates(page)]
        )
        found += [(path, environment.parse(row)) for row in rows if any(name in row for name in names)]
    return tuple(found)


def reads(name: str) -> Iterator[tuple[Path, list[nodes.Node]]]:
    """Each place where a variable is read, with all that it is in, the nearest first."""
    for path, template in parsed():
        for way in ways(template, name):
            yield path, way


def ways(node: nodes.Node, name: str) -> Iterator[list[nodes.Node]]:
    for child in node.iter_child_nodes():
        if isinstance(child, nodes.Name) and child.name == name:
            yield [node]
        yield from ([*way, node] for way in ways(child, name))


def filters(way: list[nodes.Node]) -> list[str]:
    names = []
    for node in way:
        if not isinstance(node, nodes.Filter):
            break
        names.append(node.name)
    return names


# They get their types from the action plan: see tests/unit/test_plans.py.
PLANNED = {
    variable
    for name, plan in PLANS.items()
    for kind in plan.options
    for variable in variables_of(kind, name.partition(".")[0]).values()
}
# One file of `_common` reads those of all charts by their names.
ADOPT = [name for name in options("bool") if name.endswith("_adopt")]


@pytest.mark.parametrize("name", [name for name in options("bool") if name not in ADOPT])
def test_a_switch_is_read_as_one(name: str) -> None:
    places = list(reads(name))
    assert places or name in PLANNED
    assert [str(path.relative_to(ROOT)) for path, way in places if "bool" not in filters(way)] == []


@pytest.mark.parametrize("name", options("int"))
def test_a_number_is_counted_with_as_one(name: str) -> None:
    assert [str(path.relative_to(ROOT)) for path, way in reads(name) if isinstance(way[0], COUNTS)] == []


# One is a path of nodes.
@pytest.mark.parametrize("name", [name for name in options("path") if name != "nvidia_device_plugin_driver_root"])
def test_a_relative_path_begins_where_the_command_was_given(name: str) -> None:
    """Modules begin in the folder of the playbook, which is the collection's."""
    places = list(reads(name))
    assert places or name in PLANNED
    assert [str(path.relative_to(ROOT)) for path, way in places if "realpath" not in filters(way)] == []


CHARTS = [name.removesuffix("_adopt") for name in ADOPT]


@pytest.mark.parametrize("role", CHARTS)
def test_a_chart_gets_the_same_values(role: str) -> None:
    """Helm takes any text for true, and the API server takes none for a number."""
    defaults = yaml.load((ROLES / role / "defaults/main.yml").read_text(), Loader)
    given = {name: not value for name, value in defaults.items() if isinstance(value, bool)}
    given |= {name: value + 1 for name, value in defaults.items() if type(value) is int}
    told = {"kubegpu_cluster": {"components": {}, "context": "test"}, "groups": {}, "hostvars": {}}
    typed, text, default = (
        RoleValues(role, options, told)[f"__{role}_values"]
        for options in (given, {name: str(value).lower() for name, value in given.items()}, {})
    )

    assert text == typed != default


@pytest.mark.parametrize(
    "name",
    ["gpu_autoscaling_autoscalers", "kubegpu_fleet", "kubegpu_gpu_node_selector", "kubegpu_prometheus"],
)
@pytest.mark.parametrize("role", CHARTS)
def test_an_option_of_several_roles_without_a_value_is_an_empty_one(role: str, name: str) -> None:
    """All of its lines may be comments. Its own role says what it lacks; others ended with an error of Jinja."""
    told = {"kubegpu_cluster": {"components": {}, "context": "test"}, "groups": {}, "hostvars": {}}
    empty: Any = [] if name.endswith("autoscalers") else {}
    nothing, none = (RoleValues(role, {name: value}, told)[f"__{role}_chart"] for value in (None, empty))

    assert nothing == none


def test_receivers_without_a_value_are_named_as_what_is_wrong() -> None:
    """By the role's specification. Its default of another option ended the check of it, with an error of Jinja."""
    assert (
        RoleValues("prometheus_stack", {"prometheus_stack_receivers": None}, {})["prometheus_stack_alertmanager"]
        is False
    )


LISTS = {
    "gitops_roles": ("gitops", "__gitops_roles", ["gpu_alerts", "gpu_dashboards"]),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_may_be_a_text_with_commas(name: str) -> None:
    """As NO_PROXY is; the roles' specifications take one for a list, too."""
    role, expression, rows = LISTS[name]
    told = {"ansible_play_hosts": [], "groups": {}, "hostvars": {}}
    asked = [RoleValues(role, {name: given}, told)[expression] for given in (rows, ",".join(rows), rows[:1], rows[0])]

    assert asked[0] == asked[1] != asked[2] == asked[3]
