# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.server.decisions import Address, subnet_of

DOCUMENTATION = r"""
name: server_addresses
short_description: Collect the addresses by which nodes reach each other
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the address of each server, C(kubernetes_node_ip) or that of its default route, with its subnet.
  - Needs the facts C(network) of the servers.
positional: _input, hostvars
options:
  _input:
    description: Names of hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description: Variables and facts by host.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the addresses of all servers
  ansible.builtin.debug:
    msg: "{{ ansible_play_hosts | kubegpu.autoscale.server_addresses(hostvars) }}"
"""

RETURN = r"""
_value:
  description:
    - C(address), C(subnet) and whether the server C(is_node) already, by host. Servers without an address are omitted.
  type: dict
"""


def server_addresses(servers: Sequence[str], hostvars: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = {host: _address(hostvars[host]) for host in servers}
    return {host: asdict(address) for host, address in found.items() if address.address}


def _address(variables: Mapping[str, Any]) -> Address:
    facts = variables.get("ansible_facts") or {}
    wanted = str(variables.get("kubernetes_node_ip") or "").split(",", maxsplit=1)[0].strip()
    address = wanted or (facts.get("default_ipv4") or {}).get("address") or ""
    known = (variables.get("_common_server") or {}).get("result") or {}
    row = next((row for row in _rows(facts) if row.get("address") == address), {})
    subnet = subnet_of(address, str(row.get("prefix") or row.get("netmask") or ""))
    return Address(address, subnet, bool(known.get("clusters")))


def _rows(facts: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Addresses of all interfaces. A fact has the name of its interface with an underscore for each dash."""
    for interface in facts.get("interfaces") or ():
        details = facts.get(str(interface).replace("-", "_")) or {}
        yield from (row for row in (details.get("ipv4"), *(details.get("ipv4_secondaries") or ())) if row)


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"server_addresses": server_addresses}
