#!/usr/bin/python
# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: server_info
short_description: Describe a server before it becomes a node
version_added: 0.1.0
description:
  - Tells in one call what may keep a server from becoming a node, or what belongs to somebody else there.
  - Reads files only; it runs no program and changes nothing.
author:
  - kubegpu.autoscale contributors (@kubegpu)
options:
  root:
    description: Folder that holds the machine's C(etc), C(proc), C(usr) and C(var). Another one than V(/) is a copy.
    type: path
    default: /
  folders:
    description: Folders whose free space is told.
    type: list
    elements: path
    default: [/boot, /usr, /var/lib]
attributes:
  check_mode:
    description: Can run in check mode and return what it would return otherwise.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: Look at the server
  kubegpu.autoscale.server_info:
  register: server

- name: Refuse a server that swaps
  ansible.builtin.assert:
    that: server.result.swaps | length == 0
"""

RETURN = r"""
result:
  description: The server.
  returned: always
  type: dict
  contains:
    swaps:
      description: Files and devices that are swapped to.
      type: list
      elements: str
      sample: [/swap.img]
    apt_sources:
      description: Repositories of packages that apt is configured for and that are switched on, one by one.
      type: list
      elements: dict
      contains:
        file: {description: Where it is configured., type: str, sample: /etc/apt/sources.list.d/docker.list}
        uri: {description: "Its address, without a slash at the end.", type: str, sample: "https://download.docker.com/linux/ubuntu"}
        suite: {description: "Suite; C(/) of a flat repository.", type: str, sample: noble}
        components: {description: Components., type: list, elements: str, sample: [stable]}
    runtimes:
      description: Container runtimes that no package of the collection brings.
      type: list
      elements: str
      sample: [/usr/local/bin/containerd]
    clusters:
      description: Files and folders by which the server is a node of a cluster, whoever made it.
      type: list
      elements: str
      sample: [/etc/kubernetes/kubelet.conf]
    free_gib:
      description: Free space in GiB, by folder, of the file system that it is in.
      type: dict
      sample: {/boot: 0.7, /usr: 20.1, /var/lib: 20.1}
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.kubegpu.autoscale.plugins.module_utils.secrets import masked_texts
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.host import ROOM, read_host

ARGUMENTS: dict[str, Any] = {
    "root": {"type": "path", "default": "/"},
    "folders": {"type": "list", "elements": "path", "default": [*ROOM]},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    module.no_log_values.update(masked_texts(module.params))
    host, warnings = read_host(Path(module.params["root"]), module.params["folders"])
    for warning in warnings:
        module.warn(warning)
    module.exit_json(changed=False, result=host)


if __name__ == "__main__":
    main()
