# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans of roles, and the options that they depend on.

The action plugin `plan` calls `options_of` with the variables of a task, unit tests with their own values. An option
is converted to the type in roles/ROLE/meta/argument_specs.yml. Options that all roles share are in the entry point
`shared` of the role _common.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.yaml import yaml_load

from .secrets import redacted, secrets_in

_ROLES = Path(__file__).resolve().parents[2] / "roles"
Read = Callable[[Collection[str]], Mapping[str, Any]]


@dataclass(frozen=True)
class Plan:
    """A pure function that decides for a role.

    decide:  takes an instance of each class of `options`, and the survey: a mapping of what the role's tasks have read.
             Returns the plan, in the format of the module `plan`. Raises: ValueError with the message that the task
             fails with.
    options: dataclasses with one field for each option that it depends on. The field `state` of the role `keda` is
             the option keda_state, or kubegpu_state if the role has no such option.
    """

    decide: Callable[..., dict[str, Any]]
    options: tuple[type[Any], ...] = ()

    def result(self, options: Sequence[Any], survey: Mapping[str, Any]) -> dict[str, Any]:
        """The result of the task. It is hidden if files in the plan contain a login, such as a proxy's."""
        made = self.decide(*options, survey)
        # A login is not recognized in TOML, so the plan reports it.
        is_hidden = made.get("steps", {}).get("has_secrets", False) or bool(secrets_in(made))
        return {"changed": False, **made, "_ansible_no_log": is_hidden}


def options_of(plan: Plan, role: str, read: Read) -> list[Any]:
    """An instance of each class of options, with lists as tuples.

    read: returns the values of the named variables, without those that are undefined.

    Raises: ValueError if a value does not have the type of its option; KeyError if a field is no option.
    """
    names = [variables_of(kind, role) for kind in plan.options]
    wanted = [variable for row in names for variable in row.values()]
    values = _typed(role, wanted, read(wanted)) if wanted else {}
    return [
        kind(**{field: values[variable] for field, variable in row.items()})
        for kind, row in zip(plan.options, names, strict=True)
    ]


def variables_of(kind: type[Any], role: str) -> Mapping[str, str]:
    """Variable of each field of a class of options."""
    own = specification(role)
    names = {field.name: f"{role}_{field.name}" for field in fields(kind)}
    return {field: variable if variable in own else f"kubegpu_{field}" for field, variable in names.items()}


@cache
def specification(role: str) -> Mapping[str, Mapping[str, Any]]:
    """Options of a role by variable, with those that all roles share."""
    return {**_entry_point("_common", "shared"), **_entry_point(role, "main")}


def _entry_point(role: str, name: str) -> Mapping[str, Mapping[str, Any]]:
    path = _ROLES / role / "meta" / "argument_specs.yml"
    options: Mapping[str, Any] = yaml_load(path.read_text())["argument_specs"].get(name, {}).get("options", {})
    return options


def _typed(role: str, names: Collection[str], given: Mapping[str, Any]) -> dict[str, Any]:
    spec = specification(role)
    result = ArgumentSpecValidator({name: spec[name] for name in names}).validate(dict(given))
    if result.error_messages:
        raise ValueError(f"role {role}: {'; '.join(redacted(result.error_messages))}. Next: correct its options.")
    empty = {name: value for name, value in given.items() if value == {}}  # without the defaults of suboptions
    values = result.validated_parameters | empty
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
