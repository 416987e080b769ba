"""By which address and in which subnet the other nodes reach a server."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.server.decisions import server_addresses

FACTS = {
    "default_ipv4": {"address": "10.0.1.7", "interface": "eth0"},
    "interfaces": ["lo", "eth0", "br-gpu", "down0"],
    "lo": {"ipv4": {"address": "127.0.0.1", "prefix": "8"}},
    "eth0": {"ipv4": {"address": "10.0.1.7", "netmask": "255.255.255.0"}},
    "br_gpu": {
        "ipv4": {"address": "172.16.0.7", "prefix": "20"},
        "ipv4_secondaries": [{"address": "192.0.2.7", "prefix": "31"}],
    },
    "down0": {},
}


@pytest.mark.parametrize(
    ("wanted", "address", "subnet"),
    [
        (None, "10.0.1.7", "10.0.1.0/24"),
        ("", "10.0.1.7", "10.0.1.0/24"),
        ("172.16.0.7", "172.16.0.7", "172.16.0.0/20"),
        ("192.0.2.7,2001:db8::7", "192.0.2.7", "192.0.2.6/31"),
        ("10.9.9.9", "10.9.9.9", ""),
    ],
)
def test_the_address_is_the_wanted_one_or_that_of_the_default_route(
    wanted: str | None, address: str, subnet: str
) -> None:
    variables: dict[str, Any] = {"ansible_facts": FACTS} | ({} if wanted is None else {"kubernetes_node_ip": wanted})
    assert server_addresses(["gpu1"], {"gpu1": variables}) == {
        "gpu1": {"address": address, "subnet": subnet, "is_node": False, "vendor": ""}
    }


def test_a_node_of_a_cluster_is_known_and_a_server_without_an_address_left_out() -> None:
    result = {"clusters": ["/etc/kubernetes/kubelet.conf"], "vendor": "Amazon EC2"}
    known = {"ansible_facts": FACTS, "_common_server": {"result": result}}
    found = server_addresses(["gpu1", "gpu2"], {"gpu1": known, "gpu2": {"ansible_facts": {"default_ipv4": {}}}})
    assert found == {"gpu1": {"address": "10.0.1.7", "subnet": "10.0.1.0/24", "is_node": True, "vendor": "Amazon EC2"}}
