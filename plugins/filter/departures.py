# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.members import (
    departures,
    majority_refusals,
    members_of,
)

DOCUMENTATION = r"""
name: departures
short_description: Decide which nodes and members of etcd may be removed
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Lost nodes are removed. None may be Ready, be in the run, or have a member of etcd that answers.
  - Nothing is removed that would leave etcd without a majority of healthy members.
positional: members, health
options:
  _input:
    description: The cluster's nodes, as the API server lists them.
    type: list
    elements: dict
    required: true
  members:
    description: What etcd returns for its member list; empty for an etcd outside of the cluster.
    type: dict
    required: true
  health:
    description: Results of M(ansible.builtin.uri) for C(/health), with their content and the member as C(item).
    type: list
    elements: dict
    required: true
  lost:
    description: Names of nodes that the user calls lost.
    type: list
    elements: str
    default: []
  returned:
    description: Names of control planes that are bare again in a cluster that knows them.
    type: list
    elements: str
    default: []
  leaving:
    description:
      - Names of control planes that leave by themselves in this run. Etcd's majority is judged, and nothing returned to
        remove.
    type: list
    elements: str
    default: []
  in_play:
    description: Hosts of the run, by the name of their node.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Fail if a lost node is not lost
  ansible.builtin.assert:
    that: gone.refused | length == 0
    fail_msg: "{{ gone.refused | join('\n') }}"
  vars:
    gone: "{{ nodes | kubegpu.autoscale.departures(etcd.json, health.results, lost=kubernetes_lost_nodes) }}"
"""

RETURN = r"""
_value:
  description:
    - C(refused), sentences that say why nothing may be removed; else C(members) of etcd and C(nodes) to remove.
    - C(confirmed_by_name) has the lost nodes that are there, which the user has to confirm.
  type: dict
  sample: {refused: [], members: [{ID: "9372538179322589801", name: cp2}], nodes: [cp2], confirmed_by_name: [cp2]}
"""


def _departures(
    nodes: Sequence[Mapping[str, Any]],
    members: Mapping[str, Any],
    health: Sequence[Mapping[str, Any]],
    lost: Sequence[str] = (),
    returned: Sequence[str] = (),
    leaving: Sequence[str] = (),
    in_play: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    try:
        known = members_of(members, health)
        found = departures(nodes, known, lost, returned, in_play or {})
    except (AttributeError, KeyError, TypeError) as err:
        raise AnsibleFilterError(f"departures: nodes, members and health are not what they return: {err!r}") from err
    return {**found, "refused": [*found["refused"], *majority_refusals(known, leaving)]}


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"departures": _departures}
