# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.plain import plain
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.job import Generator, manifests
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.request_schedule import (
    load_plan,
    longest_s,
    sweep_plan,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.shapes import from_dict

DOCUMENTATION = r"""
name: loadtest_objects
short_description: Create the Job of a load test
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the Job that sends the load of a test, and the Secret with its plan if it has an owner.
positional: _input, stages, owners
options:
  _input:
    description:
      - C(name), C(namespace) and C(inventory) of the objects, C(image) and C(command) of the generator, its C(files),
        C(start_timeout), C(node_selector) and C(tolerations).
      - C(plan) for Locust, with C(timeout_s) of a request and C(most_users) at a time. Empty for another generator.
      - C(sweep) for a search for a target, with C(settle_s), C(level_s), C(users) and C(goals). Empty for stages.
    type: dict
    required: true
  stages:
    description: The stages that P(kubegpu.autoscale.gpu_loadtest_stages#filter) returned.
    type: list
    elements: dict
    required: true
  owners:
    description: Owner references of the Secret. Without one there is no Secret.
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
    - The Secret, if it has an owner, and the Job.
  type: list
  elements: dict
"""


def loadtest_objects(
    generator: Mapping[str, Any], stages: Sequence[Mapping[str, Any]], owners: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    given, steps = plain(generator), [from_dict(stage) for stage in stages]
    options, sweep = given.pop("plan", None), given.pop("sweep", None)
    seconds = sum(step.seconds for step in steps)
    files = dict(given["files"])
    if options:
        plan = searching(options, sweep) if sweep else load_plan(options, steps)
        files["plan.json"] = json.dumps(plan)
        seconds = ceil(longest_s(plan["sweep"])) if sweep else seconds
    numbers = {"seconds": seconds, "start_timeout": int(given["start_timeout"])}
    return manifests(Generator(**{**given, **numbers, "files": files}, owners=plain(owners)))


def searching(options: Mapping[str, Any], sweep: Mapping[str, Any]) -> dict[str, Any]:
    """The plan of a search for a target. Numbers may be text, as the command line gives them."""
    return sweep_plan(
        options,
        sweep["goals"],
        settle_s=float(sweep["settle_s"]),
        level_s=float(sweep["level_s"]),
        users=[int(number) for number in sweep["users"]],
    )


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"loadtest_objects": loadtest_objects}
