#!/usr/bin/python
# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: pod_reach_info
short_description: Which addresses a pod of this node reaches
version_added: 0.1.0
description:
  - Joins an empty network namespace to the node's pod network, as the container runtime does for a pod. It connects
    from there. It needs no image, and the cluster does not see it.
  - The namespace and its address are given back before the module ends.
author:
  - kubegpu.autoscale contributors (@kubegpu)
options:
  addresses:
    description: Addresses to connect to by TCP, C(<address>:<port>) each.
    type: list
    elements: str
    required: true
  network:
    description: The pod network's list of CNI plugins. The first one is called; it has to be C(bridge) or of its kind.
    type: path
    default: /etc/cni/net.d/10-kubegpu.conflist
  plugins:
    description: Folder of the CNI plugins.
    type: path
    default: /opt/cni/bin
  timeout:
    description: Seconds to wait for each connection.
    type: int
    default: 3
attributes:
  check_mode:
    description: Can run in check mode and return what it would return otherwise.
    support: partial
    details: It is skipped there, since it needs a place in the pod network.
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: See whether a pod of this node reaches the cluster's DNS on other nodes
  kubegpu.autoscale.pod_reach_info:
    addresses: [10.244.0.2:53, 10.244.3.7:53]
  register: reach
  failed_when: reach.result.missed | length > 0
"""

RETURN = r"""
result:
  description: The connections that were tried.
  returned: always
  type: dict
  contains:
    reached:
      description: Addresses that took the connection.
      type: list
      elements: str
      sample: ["10.244.0.2:53"]
    missed:
      description: Addresses that did not, with the reason.
      type: dict
      sample: {"10.244.3.7:53": timed out}
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

ARGUMENTS: dict[str, Any] = {
    "addresses": {"type": "list", "elements": "str", "required": True},
    "network": {"type": "path", "default": "/etc/cni/net.d/10-kubegpu.conflist"},
    "plugins": {"type": "path", "default": "/opt/cni/bin"},
    "timeout": {"type": "int", "default": 3},
}
# Prints why a connection failed, nothing otherwise.
CONNECT = """
import socket, sys
host, _, port = sys.argv[1].rpartition(":")
try:
    socket.create_connection((host, int(port)), float(sys.argv[2])).close()
except OSError as error:
    print(error)
"""


class ReachError(Exception):
    """What keeps a namespace from joining the pod network."""


def first_plugin(text: str) -> dict[str, Any]:
    """A list's first plugin, with what the list says for all of them."""
    network = json.loads(text)
    return {**network["plugins"][0], "name": network["name"], "cniVersion": network["cniVersion"]}


def call(plugin: dict[str, Any], command: str, namespace: str, folder: str) -> None:
    environment = {
        **os.environ,
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": namespace,
        "CNI_NETNS": f"/var/run/netns/{namespace}",
        "CNI_IFNAME": "eth0",
        "CNI_PATH": folder,
    }
    done = subprocess.run(
        [Path(folder) / plugin["type"]],
        check=False,
        env=environment,
        input=json.dumps(plugin),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ReachError(f"CNI plugin {plugin['type']}: {(done.stdout or done.stderr).strip()}")


@contextmanager
def joined(plugin: dict[str, Any], folder: str) -> Iterator[str]:
    """The name of a network namespace in the pod network."""
    namespace = f"kubegpu-reach-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", namespace], check=False, capture_output=True, text=True)
    if made.returncode:
        raise ReachError(f"ip netns add: {made.stderr.strip()}")
    try:
        call(plugin, "ADD", namespace, folder)
        yield namespace
    finally:
        try:
            call(plugin, "DEL", namespace, folder)
        finally:
            subprocess.run(["ip", "netns", "delete", namespace], check=False, capture_output=True)


def connect(namespace: str, address: str, timeout: int) -> str:
    """Why an address cannot be reached from there; empty if it can."""
    command = ["ip", "netns", "exec", namespace, sys.executable, "-c", CONNECT, address, str(timeout)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return (done.stdout + done.stderr).strip()


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    if module.check_mode:
        module.exit_json(skipped=True, msg="no place in the pod network is made in check mode")
    options = module.params
    try:
        with joined(
            first_plugin(Path(options["network"]).read_text(encoding="utf-8")), options["plugins"]
        ) as namespace:
            answers = {address: connect(namespace, address, options["timeout"]) for address in options["addresses"]}
    except (OSError, ValueError, KeyError, ReachError) as error:
        module.fail_json(msg=f"node -> pod network {options['network']}: {error}")
    reached = [address for address, reason in answers.items() if not reason]
    missed = {address: reason for address, reason in answers.items() if reason}
    module.exit_json(changed=False, result={"reached": reached, "missed": missed})


if __name__ == "__main__":
    main()
