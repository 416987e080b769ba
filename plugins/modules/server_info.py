#!/usr/bin/python
# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: server_info
short_description: Describe a server before it becomes a node
version_added: 0.1.0
description:
  - Reads in one call what can prevent a server from becoming a node, including software that was installed otherwise.
  - Only reads files. Runs no programs and changes nothing.
author:
  - kubegpu.autoscale contributors (@kubegpu)
options:
  root:
    description: Folder that holds the machine's C(etc), C(proc), C(usr) and C(var). A folder other than V(/) is a copy.
    type: path
    default: /
  folders:
    description: Folders whose free space is reported.
    type: list
    elements: path
    default: [/boot, /usr, /var/lib]
  controller_time:
    description:
      - Time of the controller when the task begins, in seconds since 1970, C(now().timestamp()). Compared with the
        server's clock. The difference includes the time until the module runs.
    type: float
attributes:
  check_mode:
    description: Runs in check mode, and returns the same as otherwise.
    support: full
  diff_mode:
    description: The module changes nothing, so it returns no diff.
    support: none
"""

EXAMPLES = r"""
- name: Describe the server
  kubegpu.autoscale.server_info:
  register: server

- name: Fail if the server uses swap
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
      description: Swap files and devices.
      type: list
      elements: str
      sample: [/swap.img]
    apt_sources:
      description: The enabled apt repositories, one entry each.
      type: list
      elements: dict
      contains:
        file: {description: File that configures it., type: str, sample: /etc/apt/sources.list.d/docker.list}
        uri: {description: "URL without a trailing slash.", type: str, sample:
          "https://download.docker.com/linux/ubuntu"}
        suite: {description: "Suite, or C(/) for a flat repository.", type: str, sample: noble}
        components: {description: Components., type: list, elements: str, sample: [stable]}
    runtimes:
      description: Container runtimes that were not installed by the collection's packages.
      type: list
      elements: str
      sample: [/usr/local/bin/containerd]
    clusters:
      description: Files and folders that show that the server is a node of a cluster.
      type: list
      elements: str
      sample: [/etc/kubernetes/kubelet.conf]
    identity:
      description: Identity of the machine and of its cluster.
      type: dict
      contains:
        node: {description: "Name of its node, which does not have to exist.", type: str, sample: gpu1}
        machine_id: {description: Content of C(/etc/machine-id)., type: str, sample: 8f2c0d7e4b1a4c0f9d3e5a6b7c8d9e0f}
        authorities:
          description: SHA-256 of the CA certificates of its cluster. Empty if they are not known.
          type: list
          elements: str
          sample: ["sha256:5f0c1d9be4d1f6d2b6d3a4b5c6d7e8f90112233445566778899aabbccddeeff0"]
        is_member:
          description: Whether the server is part of a cluster, even one whose CA is not known.
          type: bool
          sample: true
        record:
          description: The cluster and the machine, as recorded by the role C(kubernetes) when it created the node.
          type: dict
          sample: {name: prod, uid: 0c7f6a5e-8f3b-4c55-9d4e-3f2f6f1f2a3b, machine_id: 8f2c0d7e4b1a4c0f9d3e5a6b7c8d9e0f}
    free_gib:
      description: Free space in GiB of the file system of each folder.
      type: dict
      sample: {/boot: 0.7, /usr: 20.1, /var/lib: 20.1}
    clock_ahead:
      description: Seconds by which the server's clock is ahead of O(controller_time). V(0) without it.
      type: float
      sample: 0.4
"""

import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.kubegpu.autoscale.plugins.module_utils.secrets import masked_texts
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.host import ROOM, read_host

ARGUMENTS: dict[str, Any] = {
    "root": {"type": "path", "default": "/"},
    "folders": {"type": "list", "elements": "path", "default": [*ROOM]},
    "controller_time": {"type": "float"},
}


def main() -> None:
    began = time.time()
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    module.no_log_values.update(masked_texts(module.params))
    host, warnings = read_host(Path(module.params["root"]), module.params["folders"])
    for warning in warnings:
        module.warn(warning)
    then = module.params["controller_time"]
    module.exit_json(changed=False, result={**host, "clock_ahead": 0.0 if then is None else round(began - then, 1)})


if __name__ == "__main__":
    main()
