# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Whether this server reaches ports of others, before anything listens there."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

AT_A_TIME = 64


def unreached(addresses: Iterable[str], timeout_s: float) -> dict[str, str]:
    """Why there is no way, by address.

    addresses: `192.0.2.1:6443` or `[2001:db8::1]:6443`. ValueError for another notation.
    A port is reached although nothing listens there: its server rejects the connection at once. A firewall drops the
    packet, or a router reports that the host or the network is unreachable.
    """
    wanted = list(dict.fromkeys(addresses))
    targets = [_target(address) for address in wanted]
    with ThreadPoolExecutor(max_workers=AT_A_TIME) as pool:
        reasons = pool.map(lambda target: _reason(target, timeout_s), targets)
        return {address: reason for address, reason in zip(wanted, reasons, strict=True) if reason}


def _target(address: str) -> tuple[str, int]:
    parts = urlsplit(f"//{address}")
    if not parts.hostname or parts.port is None or parts.username is not None:
        raise ValueError(f'"{address}" is no address with a port, such as 192.0.2.1:6443')
    return parts.hostname, parts.port


def _reason(target: tuple[str, int], timeout_s: float) -> str:
    """Empty if it is reached."""
    try:
        socket.create_connection(target, timeout=timeout_s).close()
    except ConnectionRefusedError:
        return ""
    except TimeoutError:
        return f"no answer in {timeout_s:g} s"
    except OSError as error:
        return os.strerror(error.errno).lower() if error.errno else str(error)
    return ""
