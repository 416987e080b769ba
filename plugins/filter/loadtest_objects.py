# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.plain import plain
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.job import Generator, manifests
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.k6_plan import k6_plan
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.shapes import from_dict

DOCUMENTATION = r"""
name: loadtest_objects
short_description: Create the Job of a load test
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Returns the Secret with the plan of a load test, and the Job that sends the load.
positional: _input, stages, owners
options:
  _input:
    description:
      - C(name), C(namespace) and C(inventory) of the objects, C(image) and C(command) of the generator, its C(files),
        C(start_timeout), C(node_selector) and C(tolerations).
      - C(plan) is for k6, with C(timeout_s) per request and at most C(most_users) at once. Empty for other generators.
    type: dict
    required: true
  stages:
    description: The stages that P(kubegpu.autoscale.gpu_loadtest_stages#filter) returned.
    type: list
    elements: dict
    required: true
  owners:
    description: Owner references of the Secret.
    type: list
    elements: dict
    default: []
"""

EXAMPLES = r"""
- name: Show the Job
  ansible.builtin.debug:
    msg: "{{ generator | kubegpu.autoscale.loadtest_objects(stages) | last }}"
"""

RETURN = r"""
_value:
  description:
    - The Secret and the Job.
  type: list
  elements: dict
"""


def loadtest_objects(
    generator: Mapping[str, Any], stages: Sequence[Mapping[str, Any]], owners: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    given, steps = plain(generator), [from_dict(stage) for stage in stages]
    plan = given.pop("plan", None)
    numbers = {"seconds": sum(step.seconds for step in steps), "start_timeout": int(given["start_timeout"])}
    files = given["files"] | ({"plan.json": json.dumps(k6_plan(plan, steps))} if plan else {})
    return manifests(Generator(**{**given, **numbers, "files": files}, owners=plain(owners)))


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"loadtest_objects": loadtest_objects}
