#!/usr/bin/python
# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

DOCUMENTATION = r"""
module: pod_reach
short_description: Connect from a pod of this node to other pods, or answer for a pod
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Enters the network namespace of a pod that containerd runs on this node, and connects or listens there. The pod
    needs no program for that, so the pause image is sufficient.
  - The listener ends with its pod.
author: kubegpu (@kubegpu)
options:
  pod:
    description: UID of the pod.
    type: str
    required: true
  addresses:
    description:
      - Addresses to connect to by TCP, each as C(<address>:<port>), with the text that each must send.
      - With an empty text only the connection is checked.
    type: dict
    default: {}
  answer_for:
    description: Seconds to listen on O(port) and send the pod's UID to each client. With 0 it does not listen.
    type: int
    default: 0
  port:
    description: Port of the pod for O(answer_for).
    type: int
    default: 8080
  timeout:
    description: Seconds to wait for each connection.
    type: int
    default: 3
  containerd:
    description: Folder of containerd's state for Kubernetes containers.
    type: path
    default: /run/containerd/io.containerd.runtime.v2.task/k8s.io
attributes:
  check_mode:
    description: Runs in check mode, and returns the same as otherwise.
    support: partial
    details: It is skipped in check mode, because the pods do not exist.
  diff_mode:
    description: The module changes nothing, so it returns no diff.
    support: none
"""

EXAMPLES = r"""
- name: Answer with the UID of a pod of this node
  kubegpu.autoscale.pod_reach:
    pod: 5f0c7d3e-91a4-4f9e-8a77-2c1f6d0b8e11
    answer_for: 60

- name: Check that a pod of this node reaches a pod of another node, and the cluster's DNS
  kubegpu.autoscale.pod_reach:
    pod: 5f0c7d3e-91a4-4f9e-8a77-2c1f6d0b8e11
    addresses:
      10.244.3.7:8080: a3b1c2d4-07f6-4a53-9c37-b1d0e5a98f22
      10.244.0.2:53: ""
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
      description: Addresses that sent the expected text.
      type: list
      elements: str
      sample: ["10.244.3.7:8080"]
    missed:
      description: All other addresses, with the reason.
      type: dict
      sample: {"10.244.0.2:53": timed out}
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.masked_module import MaskedModule

ARGUMENTS: dict[str, Any] = {
    "pod": {"type": "str", "required": True},
    "addresses": {"type": "dict", "default": {}},
    "answer_for": {"type": "int", "default": 0},
    "port": {"type": "int", "default": 8080},
    "timeout": {"type": "int", "default": 3},
    "containerd": {"type": "path", "default": "/run/containerd/io.containerd.runtime.v2.task/k8s.io"},
}
Run = Callable[..., tuple[int, str, str]]
UNIT = "kubegpu-reach.service"
# Containerd removes the file of a namespace with its pod.
LISTEN = """
import os, socket, sys, time
namespace, pod, port, seconds = sys.argv[1:]
end = time.monotonic() + int(seconds)
both = socket.has_dualstack_ipv6()
family = socket.AF_INET6 if both else socket.AF_INET
server = socket.create_server(("", int(port)), family=family, dualstack_ipv6=both)
server.settimeout(1)
while os.path.exists(namespace) and time.monotonic() < end:
    try:
        peer, _ = server.accept()
        with peer:
            peer.sendall(pod.encode())
    except OSError:
        pass
"""
# Prints by address why it is missed; an empty text means that it is not.
CONNECT = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
timeout = int(sys.argv[1])
wanted = json.load(sys.stdin)
def ask(address):
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout) as peer:
            said = peer.makefile().read() if wanted[address] else ""
    except (OSError, ValueError) as error:
        return str(error)
    return "" if said == wanted[address] else f"another answers there: {said[:40]!r}"
with ThreadPoolExecutor(64) as pool:
    print(json.dumps(dict(zip(wanted, pool.map(ask, wanted)))))
"""


class ReachError(Exception):
    """What keeps this module out of a pod's network."""


def namespace_of(pod: str, containerd: Path) -> str:
    """Path of the network namespace, by the annotation that containerd gives each sandbox."""
    for path in containerd.glob("*/config.json"):
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # it goes, or is being written
            continue
        if config.get("annotations", {}).get("io.kubernetes.cri.sandbox-uid") == pod:
            spaces = config.get("linux", {}).get("namespaces", [])
            paths = [space["path"] for space in spaces if space["type"] == "network" and space.get("path")]
            if paths:
                return paths[0]
    raise ReachError(f"containerd runs no pod {pod} with its own network; searched in {containerd}")


def python(namespace: str, code: str, *words: object) -> list[str]:
    """A command that runs code of Python in the network namespace."""
    return ["nsenter", f"--net={namespace}", sys.executable, "-c", code, *map(str, words)]


def output_of(run: Run, command: list[str], text: str = "") -> str:
    status, output, errors = run(*command, data=text)
    if status:
        raise ReachError(f"{command[0]}: {(errors or output).strip()}")
    return output


def listen(run: Run, namespace: str, pod: str, port: int, seconds: int) -> None:
    """With systemd, so that it continues when this module has ended; one of a run before is replaced."""
    run("systemctl", "stop", UNIT)
    words = ["systemd-run", "--quiet", "--collect", f"--unit={UNIT}"]
    output_of(run, [*words, *python(namespace, LISTEN, namespace, pod, port, seconds)])


def connect(run: Run, namespace: str, addresses: Mapping[str, str], timeout: int) -> dict[str, str]:
    """Why addresses are missed; empty for those that are not."""
    answers: dict[str, str] = json.loads(output_of(run, python(namespace, CONNECT, timeout), json.dumps(addresses)))
    return answers


def main() -> None:
    module = MaskedModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    if module.check_mode:
        module.exit_json(skipped=True, msg="the pods do not exist in check mode")
    options = module.params
    try:
        namespace = namespace_of(options["pod"], Path(options["containerd"]))
        if options["answer_for"]:
            listen(module.run, namespace, options["pod"], options["port"], options["answer_for"])
        wanted = options["addresses"]
        answers = connect(module.run, namespace, wanted, options["timeout"]) if wanted else {}
    except (OSError, ReachError) as error:
        module.fail_json(msg=f"node -> pod {options['pod']}: {error}")
    reached = [address for address, reason in answers.items() if not reason]
    missed = {address: reason for address, reason in answers.items() if reason}
    module.exit_json(changed=False, result={"reached": reached, "missed": missed})


if __name__ == "__main__":
    main()
