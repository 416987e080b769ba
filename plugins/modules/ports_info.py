#!/usr/bin/python
# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: ports_info
short_description: Check which ports of other servers a firewall blocks
version_added: 0.1.0
description:
  - Connects to TCP ports of other servers, all at the same time, and closes the connections.
  - A port on which nothing listens yet counts as reached, because its server rejects the connection immediately. So
    the module works before anything is installed.
  - A firewall that rejects connections instead of dropping them looks like such a port, and is not found.
author:
  - kubegpu.autoscale contributors (@kubegpu)
options:
  addresses:
    description: Addresses with their ports, for example V(192.0.2.1:6443) or V([2001:db8::1]:6443).
    type: list
    elements: str
    required: true
  timeout:
    description: Seconds to wait for each answer.
    type: float
    default: 5.0
attributes:
  check_mode:
    description: Runs in check mode, and returns the same as otherwise.
    support: full
  diff_mode:
    description: The module changes nothing, so it returns no diff.
    support: none
"""

EXAMPLES = r"""
- name: Check whether the server reaches the API server and etcd
  kubegpu.autoscale.ports_info:
    addresses: ["10.0.0.1:6443", "10.0.0.1:2379"]
  register: ports

- name: Fail if a firewall blocks a port
  ansible.builtin.assert:
    that: ports.result.unreached | length == 0
"""

RETURN = r"""
result:
  description: What was found.
  returned: success
  type: dict
  contains:
    unreached:
      description: Reason why an address is not reached, by address.
      type: dict
      sample: {"10.0.0.1:6443": no answer in 5 s}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.kubegpu.autoscale.plugins.module_utils.secrets import masked_texts
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.ports import unreached

ARGUMENTS: dict[str, Any] = {
    "addresses": {"type": "list", "elements": "str", "required": True},
    "timeout": {"type": "float", "default": 5.0},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    module.no_log_values.update(masked_texts(module.params))
    try:
        found = unreached(module.params["addresses"], module.params["timeout"])
    except ValueError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, result={"unreached": found})


if __name__ == "__main__":
    main()
