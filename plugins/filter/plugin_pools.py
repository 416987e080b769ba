# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components import plugin_pools as pools

DOCUMENTATION = r"""
name: plugin_pools
short_description: Configure the device plugin for node pools
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the plugin's configuration for each pool, the node labels to change, and errors.
positional: _input, nodes
options:
  _input:
    description:
      - C(sharing), C(replicas), C(pools), C(feature_discovery) and C(values) of the role nvidia_device_plugin, its
        device list C(strategy), C(unrequested) as in C(kubegpu_unrequested_gpus), and C(driver_root) if the plugin
        writes a CDI specification.
    type: dict
    required: true
  nodes:
    description: Nodes of the cluster.
    type: list
    elements: dict
    default: []
"""

EXAMPLES = r"""
- name: Show the configuration of a pool whose GPUs are shared
  ansible.builtin.debug:
    msg: "{{ (options | kubegpu.autoscale.plugin_pools).configurations.dev }}"
  vars:
    options:
      pools:
        - name: dev
          nodes:
            pool: dev
          sharing: time-slicing
          replicas: 4
"""

RETURN = r"""
_value:
  description:
    - C(configurations) by name, C(chart_values) that contain them, C(faults), the error C(conflict), and C(commands) to
      label nodes by hand. C(labels) are the changes, each with C(node), C(config), C(is_own) and C(present).
  type: dict
"""


def plugin_pools(options: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Raises: AnsibleFilterError if a number of replicas is not a number."""
    try:
        sharing = pools.Sharing(**{**options, "replicas": int(options.get("replicas", 1))})
        labels = pools.labels_to_change(sharing, nodes)
        return {
            "configurations": pools.configurations(sharing),
            "chart_values": pools.chart_values(sharing),
            "faults": pools.faults(sharing),
            "labels": [asdict(label) for label in labels],
            "conflict": pools.conflict(labels),
            "commands": [
                f"kubectl label nodes --selector {pools.selector(pool)} {pools.CONFIG_LABEL}={pool['name']}"
                for pool in sharing.pools
            ],
        }
    except ValueError as err:
        raise AnsibleFilterError(
            f"inventory -> device plugin: replicas have to be whole numbers ({err}). Nothing was changed."
            " Next: set nvidia_device_plugin_sharing_replicas, or `replicas` of the pool, to 2 or more."
        ) from err


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"plugin_pools": plugin_pools}
