#!/usr/bin/python
# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

DOCUMENTATION = r"""
module: server_info
short_description: Describe a server before it becomes a node
extends_documentation_fragment:
  - kubegpu.autoscale.private
  - kubegpu.autoscale.reads
description:
  - Reads in one call what can prevent a server from becoming a node, including software that was installed otherwise.
  - Only reads files, unless O(apt_key), O(apt_offer) or O(ports) asks another question, which is then the only one.
  - Changes nothing.
author: kubegpu (@kubegpu)
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
  apt_key:
    description:
      - Downloads the key of an apt repository.
      - M(ansible.builtin.uri) gets a proxy from the environment of its command, where the process list shows the
        password. This module gets it as an option, and never shows it.
    type: dict
    suboptions:
      url: {description: URL of the file., type: str, required: true}
      proxy:
        description: Proxy, C(http://user:password@host:port). The default is the proxy in the server's environment.
        type: str
        default: ""
      allow_unauthorized:
        description: Whether to accept a response that requires a login. The content is then empty.
        type: bool
        default: false
  apt_offer:
    description:
      - Queries dpkg and apt for packages that are neither installed nor available, before anything is installed.
      - A repository does not need to be configured yet. Its lists are then read into a temporary folder.
    type: dict
    suboptions:
      repositories:
        description: Repositories, and the packages to look up in each.
        type: list
        elements: dict
        required: true
        suboptions:
          name: {description: Name of the repository in the result., type: str, required: true}
          uri:
            description: URL of the repository. Empty for the repositories that are configured on the server.
            type: str
            required: true
          suite: {description: "Suite, or C(/) for a flat repository.", type: str, required: true}
          components: {description: Components. Empty for a flat repository., type: str, default: ""}
          packages:
            description: Packages as C(name=version), where C(*) is a wildcard, or as C(name).
            type: list
            elements: str
            required: true
          hosts:
            description: Other hosts that the repository redirects to. They are also reached through the proxy.
            type: list
            elements: str
            default: []
      proxy:
        description: Proxy for repositories with a URL, C(http://host:port).
        type: str
        default: ""
  ports:
    description:
      - Ports of other servers, for example V(192.0.2.1:6443) or V([2001:db8::1]:6443), to connect to at the same time.
      - A port on which nothing listens yet counts as reached, because its server rejects the connection immediately.
        A firewall that rejects connections instead of dropping them looks like such a port, and is not found.
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Describe the server
  kubegpu.autoscale.server_info:
  register: server

- name: Fail if the server uses swap
  ansible.builtin.assert:
    that: server.result.swaps | length == 0

- name: Check whether the server reaches the API server and etcd
  kubegpu.autoscale.server_info:
    ports: ["10.0.0.1:6443", "10.0.0.1:2379"]
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
    vendor:
      description: Manufacturer of the machine by its firmware. Empty if it is not known.
      type: str
      sample: Amazon EC2
    reboots_alone:
      description: Whether unattended-upgrades reboots the server.
      type: bool
      sample: false
    free_gib:
      description: Free space in GiB of the file system of each folder.
      type: dict
      sample: {/boot: 0.7, /usr: 20.1, /var/lib: 20.1}
    clock_ahead:
      description: Seconds by which the server's clock is ahead of O(controller_time). V(0) without it.
      type: float
      sample: 0.4
    content:
      description: Text of the file, with O(apt_key). Empty if the repository requires a login.
      type: str
      sample: "-----BEGIN PGP PUBLIC KEY BLOCK-----"
    missing:
      description:
        - Packages that are neither installed nor available in that version, with O(apt_offer).
        - C(offered) has at most five available versions, newest first.
      type: list
      elements: dict
      sample:
        - {repository: docker, uri: "https://download.docker.com/linux/ubuntu", package: "containerd.io=2.1.9-*",
           offered: ["2.3.6-1~debian.12~bookworm"]}
    installed:
      description: Installed packages among those of O(apt_offer).
      type: list
      elements: str
      sample: ["containerd.io=2.3.6-1~debian.12~bookworm"]
    files:
      description:
        - Files of this collection in C(/etc/apt), and the lists of repositories that apt has read, with O(apt_offer).
        - The checksum is the SHA-1 of the content, and empty for a list.
      type: list
      elements: dict
      sample:
        - {path: /etc/apt/preferences.d/kubegpu-docker.pref, checksum: 2fd4e1c67a2d28fced849ee1bb76e7391b93eb12,
           mode: "0644", uid: 0, gid: 0}
    failures:
      description: Messages of apt about repositories that it could not read, with O(apt_offer).
      type: list
      elements: str
      sample: ["Failed to fetch https://download.docker.com/linux/debian/dists/nowhere/InRelease  404  Not Found"]
    unreached:
      description: Reason why an address of O(ports) is not reached, by address.
      type: dict
      sample: {"10.0.0.1:6443": no answer in 5 s}
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from ansible_collections.kubegpu.autoscale.plugins.module_utils.secrets import without_login
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server import apt_offer
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.apt_key import download
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.host import ROOM, read_host, reboots_alone
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.masked_module import MaskedModule
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.port_reach import unreached

REPOSITORY: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "uri": {"type": "str", "required": True},
    "suite": {"type": "str", "required": True},
    "components": {"type": "str", "default": ""},
    "packages": {"type": "list", "elements": "str", "required": True},
    "hosts": {"type": "list", "elements": "str", "default": []},
}
PROXY = {"type": "str", "default": "", "no_log": True}  # may have a password
KEY: dict[str, Any] = {
    "url": {"type": "str", "required": True},
    "proxy": PROXY,
    "allow_unauthorized": {"type": "bool", "default": False},
}
OFFER: dict[str, Any] = {
    "repositories": {"type": "list", "elements": "dict", "required": True, "options": REPOSITORY},
    "proxy": PROXY,
}
ARGUMENTS: dict[str, Any] = {
    "root": {"type": "path", "default": "/"},
    "folders": {"type": "list", "elements": "path", "default": [*ROOM]},
    "controller_time": {"type": "float"},
    "apt_key": {"type": "dict", "options": KEY, "no_log": False},
    "apt_offer": {"type": "dict", "options": OFFER},
    "ports": {"type": "list", "elements": "str"},
}
PORTS_TIMEOUT_S = 5.0


class ReadError(Exception):
    """The server did not give an answer. Its text is the module's message."""


def read_server(module: MaskedModule) -> dict[str, Any]:
    began = time.time()
    host, warnings = read_host(Path(module.params["root"]), module.params["folders"])
    for warning in warnings:
        module.warn(warning)
    then = module.params["controller_time"]
    ahead = 0.0 if then is None else round(began - then, 1)
    return {**host, "reboots_alone": reboots_alone(module.run), "clock_ahead": ahead}


def read_key(module: MaskedModule) -> dict[str, Any]:
    options = dict(module.params["apt_key"])
    shown = without_login(options["url"])
    module.params["apt_key"]["url"] = shown  # -vvv shows the parameters
    try:
        return {"content": download(**options)}
    except HTTPError as error:
        raise ReadError(f"{shown} answers {error.code} {error.reason}.") from error
    except (OSError, ValueError) as error:
        raise ReadError(f"no answer from {shown}: {getattr(error, 'reason', error)}.") from error


def read_offer(module: MaskedModule) -> dict[str, Any]:
    options = module.params["apt_offer"]
    repositories = [
        apt_offer.Repository(
            **{**repository, "packages": tuple(repository["packages"]), "hosts": tuple(repository["hosts"])}
        )
        for repository in options["repositories"]
    ]
    try:
        return apt_offer.look(module.run, repositories, options["proxy"])
    except OSError as error:
        raise ReadError(f"apt: {error}") from error


def read_ports(module: MaskedModule) -> dict[str, Any]:
    try:
        return {"unreached": unreached(module.params["ports"], PORTS_TIMEOUT_S)}
    except ValueError as error:
        raise ReadError(str(error)) from error


READERS: dict[str, Callable[[MaskedModule], dict[str, Any]]] = {
    "apt_key": read_key,
    "apt_offer": read_offer,
    "ports": read_ports,
}


def main() -> None:
    module = MaskedModule(
        argument_spec=ARGUMENTS,
        supports_check_mode=True,
        mutually_exclusive=[[*READERS]],
        no_log=True,  # no line in the journal
    )
    read = next((read for option, read in READERS.items() if module.params[option] is not None), read_server)
    try:
        module.exit_json(changed=False, result=read(module))
    except ReadError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
