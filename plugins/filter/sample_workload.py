# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components import sample
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.object_owners import kind_and_name, owned
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.plain import plain

DOCUMENTATION = r"""
name: sample_workload
short_description: Create the objects of the sample workload
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the manifests of the role gpu_workload, the queries to run before they are applied, and errors that follow
    from the results.
positional: _input, scripts, inventory, found
options:
  _input:
    description: Options of the role, as P(kubegpu.autoscale.role_options#lookup) returns them.
    type: dict
    required: true
  scripts:
    description: Texts of the scripts by file name.
    type: dict
    required: true
  inventory:
    description: ID of the inventory, which all objects have as a label.
    type: str
    required: true
  found:
    description:
      - The objects that P(kubegpu.autoscale.objects_info#module) returned for the C(queries). Omit it if no cluster was
        queried.
    type: list
    elements: dict
"""

EXAMPLES = r"""
- name: Show what the sample consists of
  ansible.builtin.debug:
    msg: "{{ (options | kubegpu.autoscale.sample_workload(scripts, 'prod')).objects }}"
"""

RETURN = r"""
_value:
  description:
    - C(queries) are for P(kubegpu.autoscale.objects_info#module). C(refusals) are errors that stop the role before a
      change.
    - C(base) are the objects to apply first, C(check) is the check with its name C(check_name), C(objects) are all
      other objects, and C(left) the objects to remove. All of them have the C(labels).
    - C(deployments) are the Deployments by name. C(checked) is the Job of this check, if it exists. C(is_wanted) shows
      whether the sample is enabled, and C(namespace_exists) whether its namespace exists.
  type: dict
"""

_OPTIONS = {field.name for field in fields(sample.Sample)} - {"inventory", "scripts"}
_TEXTS = ("queue", "request_ms", "load_gpus")


def sample_workload(
    options: Mapping[str, Any],
    scripts: Mapping[str, str],
    inventory: str,
    found: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    it, is_present = _sample(options, scripts, inventory), options.get("state", "present") == "present"
    objects = sample.wanted(it) if is_present else []
    seen = found or ()
    in_namespace = [obj for obj in seen if obj["kind"] in sample.API_VERSIONS]
    sorted_out = owned(in_namespace, it.labels, list(map(kind_and_name, objects)))
    checks = [obj for obj in sorted_out.found if obj["metadata"]["name"] == it.check_name]
    return {
        "queries": sample.queries(it),
        "refusals": list(sample.refusals(it, sorted_out.foreign, found)) if is_present else [],
        "base": sample.base(it, seen),
        "check": sample.check(it),
        "check_name": it.check_name,
        "objects": sample.objects(it),
        "deployments": it.deployments,
        "labels": it.labels,
        "left": list(sorted_out.left),
        "checked": checks[0] if checks else {},
        "is_wanted": it.is_wanted,
        "namespace_exists": any(obj["kind"] == "Namespace" for obj in seen),
    }


def _sample(options: Mapping[str, Any], scripts: Mapping[str, str], inventory: str) -> sample.Sample:
    given = {name: value for name, value in plain(options).items() if name in _OPTIONS}
    read: dict[str, Any] = {
        **{key: str(given[key]) for key in _TEXTS},
        "node_selector": given["node_selector"] or {},
    }
    return sample.Sample(**{**given, **read}, scripts=plain(scripts), inventory=str(inventory))


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"sample_workload": sample_workload}
