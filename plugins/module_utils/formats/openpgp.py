# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Computes fingerprints of OpenPGP keys (RFC 4880 and 9580), to check downloaded keys without gpg."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator

_ARMOUR = re.compile(r"-----BEGIN PGP PUBLIC KEY BLOCK-----\n(.*?)-----END", re.DOTALL)
_PUBLIC_KEY = 6
_TRUNCATED = "not an OpenPGP key: it ends in the middle of a packet"


def openpgp_fingerprints(armoured: str) -> list[str]:
    """Fingerprints of the primary keys (version 4) in ASCII-armoured text, upper-case hex, in their order.

    Raises: ValueError if a block is truncated or damaged.
    """
    blocks = _ARMOUR.findall(armoured.replace("\r\n", "\n"))
    return [
        hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()
        for block in blocks
        for tag, body in _packets(_dearmour(block))
        if tag == _PUBLIC_KEY
    ]


def _dearmour(block: str) -> bytes:
    """The bytes of one block, without its headers (they end at an empty line) and its checksum (it starts with =)."""
    lines = block.split("\n")
    body = lines[lines.index("") + 1 :] if "" in lines[:-1] else lines
    try:
        return base64.b64decode("".join(line.strip() for line in body if not line.startswith("=")), validate=True)
    except binascii.Error as err:
        raise ValueError(f"not an OpenPGP key: {err}") from err


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(data):
        try:
            tag, start, length = _header(data, position)
        except IndexError as err:
            raise ValueError(_TRUNCATED) from err
        position = start + length
        if position > len(data):
            raise ValueError(_TRUNCATED)
        yield tag, data[start:position]


def _header(data: bytes, at: int) -> tuple[int, int, int]:
    """Tag, start and length of a packet's body. The old format has the size of the length in its lowest two bits."""
    first = data[at]
    if not first & 0x80:
        raise ValueError("not an OpenPGP key: no packet where one should start")
    if not first & 0x40:
        size = 1 << (first & 3)
        return (first >> 2) & 15, at + 1 + size, int.from_bytes(data[at + 1 : at + 1 + size], "big")
    tag, octet = first & 63, data[at + 1]
    if octet < 192:
        return tag, at + 2, octet
    if octet < 224:
        return tag, at + 3, ((octet - 192) << 8) + data[at + 2] + 192
    return tag, at + 6, int.from_bytes(data[at + 2 : at + 6], "big")
