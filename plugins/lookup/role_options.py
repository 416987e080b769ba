# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

DOCUMENTATION = r"""
name: role_options
short_description: Return the typed options of a role
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Reads all options in the argument specification of a role of this collection, and converts them to their types, as
    Ansible does with module options. For example, a string from the command line becomes a number or a boolean.
options:
  _terms:
    description: Names of roles.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Show whether the sample has a service
  ansible.builtin.debug:
    msg: "{{ lookup('kubegpu.autoscale.role_options', 'gpu_workload').service }}"
"""

RETURN = r"""
_raw:
  description: The options of each role, by their names without the prefix. Undefined options are omitted.
  type: list
  elements: dict
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.lookup import LookupBase

_ROLES = Path(__file__).resolve().parents[2] / "roles"


class LookupModule(LookupBase):
    """Returns the options of each role in the terms."""

    def run(self, terms: list[Any], variables: Mapping[str, Any] | None = None, **kwargs: Any) -> list[Any]:
        return [self._typed(str(term), variables or {}) for term in terms]

    def _typed(self, role: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        prefix = f"{role}_"
        spec = {name: row for name, row in _spec(role).items() if name.startswith(prefix) and name in variables}
        given = dict(self._templar.template({name: variables[name] for name in spec}))
        result = ArgumentSpecValidator(spec).validate(given)
        if result.error_messages:
            raise AnsibleLookupError(f"role {role}: {'; '.join(result.error_messages)}. Next: correct its options.")
        unset = {name: value for name, value in given.items() if value == {}}  # not merged with defaults
        return {name.removeprefix(prefix): value for name, value in (result.validated_parameters | unset).items()}


@cache
def _spec(role: str) -> Mapping[str, Any]:
    path = _ROLES / role / "meta" / "argument_specs.yml"
    if not path.is_file():
        raise AnsibleLookupError(f"role_options: unknown role {role}. Next: name a role of this collection.")
    options: Mapping[str, Any] = DataLoader().load_from_file(str(path))["argument_specs"]["main"]["options"]
    return options
