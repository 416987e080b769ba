# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible import context
from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.confirmation import (
    Removal,
    command,
    prompt,
    refusal,
)

DOCUMENTATION = r"""
name: confirmation
short_description: Check whether a removal is confirmed
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Checks whether a removal is confirmed with the name of its cluster, and returns the prompt that asks for it.
positional: given
options:
  _input:
    description:
      - The removal.
      - C(what) describes it, and C(hosts) are the names of its hosts in the inventory.
      - C(recorded) are the names of their clusters, and C(uids) their UIDs. C(candidates) are the names for a cluster
        without a recorded one.
      - C(at) is the address of the API server. C(whole) is true if the run includes all servers of the cluster.
      - C(settings) are the variables that request the removal.
    type: dict
    required: true
  given:
    description: The name with which the user confirms. Empty without a confirmation.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Fail unless the removal is confirmed
  ansible.builtin.assert:
    that: (removal | kubegpu.autoscale.confirmation(kubegpu_confirm)).refused | length == 0
  vars:
    removal: {what: the GPU driver, hosts: [gpu1], recorded: [prod], settings: {nvidia_driver_state: absent}}
"""

RETURN = r"""
_value:
  description:
    - C(cluster) is the name of the cluster, and C(prompt) the text of a prompt.
    - C(refused) is the error that stops the removal. Empty if it is confirmed.
  type: dict
  sample: {cluster: prod, prompt: Type the name of the cluster, refused: ""}
"""


def _confirmation(request: Mapping[str, Any], given: str = "") -> dict[str, str]:
    try:
        removal = Removal.of(request)
    except (AttributeError, KeyError, TypeError) as err:
        raise AnsibleFilterError(f"confirmation: a removal needs `what` and lists of names: {err}") from err
    return {
        "cluster": removal.cluster,
        "prompt": prompt(removal),
        "refused": refusal(removal, str(given or ""), _confirming(removal, request.get("settings") or {})),
    }


def _confirming(removal: Removal, settings: Mapping[str, Any]) -> str:
    """The command of this run, without values that the user did not type."""
    given = context.CLIARGS
    return command(
        [str(name) for name in given.get("args") or ()],
        [str(name) for name in given.get("inventory") or ()],
        str(given.get("subset") or ""),
        settings,
        removal.cluster,
    )


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"confirmation": _confirmation}
