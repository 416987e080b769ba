# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kubeconfig import read_kubeconfig
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError

DOCUMENTATION = r"""
name: kubeconfig_cluster
short_description: Describe the cluster of a kubeconfig
version_added: 0.1.0
author: kubegpu.autoscale contributors (@kubegpu)
description:
  - Returns the context and the address of the API server, for a prompt. Does not connect to the cluster.
  - If the cluster is unknown, returns the reason in parentheses.
options:
  _input:
    description: Path of the kubeconfig on the controller.
    type: path
    required: true
  context:
    description: Name of the context. Empty for the current context.
    type: str
    default: ""
"""

EXAMPLES = r"""
# production at https://192.0.2.1:6443
- ansible.builtin.debug:
    msg: "{{ '~/.kube/config' | kubegpu.autoscale.kubeconfig_cluster('production') }}"
"""

RETURN = r"""
_value:
  description: The cluster, or the reason why it is unknown.
  type: str
"""


def kubeconfig_cluster(path: str, context: str = "") -> str:
    """Context and address of the API server, or in parentheses the reason why they are unknown."""
    try:
        name, server = read_kubeconfig(path).context(context, path)
    except HopError as err:
        return f"(none: {err.seen})"
    return f"{name} at {server}"


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"kubeconfig_cluster": kubeconfig_cluster}
