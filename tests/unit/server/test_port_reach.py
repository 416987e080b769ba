"""Whether ports of other servers are reached, by sockets of this machine."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.port_reach import unreached


@pytest.fixture
def listening() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def refusing() -> Iterator[str]:
    """Bound, so that nobody else listens there."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def dropping() -> Iterator[str]:
    """A queue that is full: the kernel drops what comes, as a firewall does."""
    with socket.socket() as server, socket.socket() as first, socket.socket() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for client in (first, second):
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_port_where_nobody_listens_yet_is_reached(listening: str, refusing: str) -> None:
    assert unreached([listening, refusing], 5) == {}


def test_a_port_behind_a_firewall_is_not(listening: str, dropping: str) -> None:
    assert unreached([listening, dropping], 0.3) == {dropping: "no answer in 0.3 s"}


def test_a_network_without_a_route_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_more: object) -> None:
        raise OSError(errno.EHOSTUNREACH, "No route to host")

    monkeypatch.setattr(socket, "create_connection", refuse)
    assert unreached(["10.0.0.1:6443"], 0.3) == {"10.0.0.1:6443": "no route to host"}


@pytest.mark.parametrize("address", ["10.0.0.1", ":6443", "10.0.0.1:api", ""])
def test_an_address_without_a_port_is_an_error(address: str) -> None:
    with pytest.raises(ValueError, match=r"port|Port"):
        unreached([address], 1)


def test_an_ipv6_address_is_taken_apart() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        assert unreached([f"[::1]:{server.getsockname()[1]}"], 5) == {}
