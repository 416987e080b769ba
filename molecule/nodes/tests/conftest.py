"""The two servers of the scenario, for tests that change them."""

from __future__ import annotations

import pytest
import testinfra
from server import EPHEMERAL, Server
from testinfra.host import Host


@pytest.fixture
def gpu1(host: Host) -> Server:
    return Server(host)


@pytest.fixture
def cp1() -> Server:
    return Server(testinfra.get_host("ansible://cp1", ansible_inventory=str(EPHEMERAL / "inventory")))
