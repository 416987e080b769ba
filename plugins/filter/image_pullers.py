# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling import image_pullers as pullers

DOCUMENTATION = r"""
name: image_pullers
short_description: Create DaemonSets that pull the images of workloads
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns a DaemonSet for each workload. It mounts the workload's images as volumes on all GPU nodes, so that they
    are pulled before a pod needs them.
positional: _input, pause_image, affinity
options:
  _input:
    description: The workloads. Workloads without a pod template are ignored.
    type: list
    elements: dict
    required: true
  pause_image:
    description: Image of the only container.
    type: str
    required: true
  affinity:
    description: Affinity of the pods to nodes with GPUs.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show which images are pulled for a Deployment
  ansible.builtin.debug:
    msg: "{{ [deployment] | kubegpu.autoscale.image_pullers('registry.k8s.io/pause:3.10', {}) }}"
"""

RETURN = r"""
_value:
  description: The DaemonSets.
  type: list
  elements: dict
"""


def image_pullers(
    targets: Sequence[Mapping[str, Any]], pause_image: str, affinity: Mapping[str, Any]
) -> list[dict[str, Any]]:
    return list(pullers.image_pullers(targets, pause_image, affinity))


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"image_pullers": image_pullers}
