# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
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
short_description: Decide whether a removal is confirmed by the name of its cluster
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Says what a run would remove, and whether it was confirmed by the name of the cluster that loses it.
positional: given
options:
  _input:
    description:
      - What would be removed.
      - C(what) in words, and C(hosts), names in the inventory.
      - C(recorded), names of their clusters, and C(candidates), names for a cluster that has recorded none.
      - C(at), the address of its API server, and C(whole), true if no server of the cluster is left out.
      - C(settings), the variables that ask for the removal.
    type: dict
    required: true
  given:
    description: The name by which the user confirms; empty for none.
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
    - C(cluster), its name, and C(prompt), a question for a terminal.
    - C(refused), why the removal does not begin; empty if it is confirmed.
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
    """The command of this run, as far as it is known to the user already."""
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
