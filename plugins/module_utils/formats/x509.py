# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads certificates without a library for X.509: validity and subject (RFC 5280, section 4.1.2), and digest."""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import UTC, datetime

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
# The validity in DER: a sequence of two times, each UTCTime (years 1950 to 2049) or GeneralizedTime.
_TIME = rb"(?:\x17\x0d(\d{12})Z|\x18\x0f(\d{14})Z)"
_VALIDITY = re.compile(rb"\x30." + _TIME + _TIME, re.DOTALL)


def not_after(text: str) -> datetime:
    """End of the first certificate in PEM. Raises ValueError without one."""
    _der, validity = _validity(text)
    short, long = validity[3], validity[4]
    year = "" if long else "19" if short[:2] >= b"50" else "20"
    return datetime.strptime(year + (long or short).decode(), "%Y%m%d%H%M%S").replace(tzinfo=UTC)


def subject(text: str) -> bytes:
    """The subject of the first certificate in PEM, in DER: it follows the validity. Raises ValueError as not_after."""
    der, validity = _validity(text)
    rest = der[validity.end() :]
    long = rest[1] & 0x7F if rest[1] & 0x80 else 0  # bytes of a length above 127
    length = int.from_bytes(rest[2 : 2 + long]) if long else rest[1]
    return rest[: 2 + long + length]


def _validity(text: str) -> tuple[bytes, re.Match[bytes]]:
    found = _PEM.search(text)
    der = base64.b64decode(found[1]) if found else b""
    validity = _VALIDITY.search(der)
    if not validity:
        raise ValueError("no PEM certificate found")
    return der, validity


def digests(text: str) -> frozenset[str]:
    """SHA-256 of each certificate in PEM, `sha256:<hex>`, as `openssl x509 -fingerprint` computes it."""
    return frozenset(f"sha256:{hashlib.sha256(base64.b64decode(found)).hexdigest()}" for found in _PEM.findall(text))
