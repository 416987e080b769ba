# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads certificates: end and subject by the library of ansible-core, and digests, which servers compute without it."""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)


def not_after(text: str) -> datetime:
    """End of the first certificate in PEM. Raises ValueError without one."""
    return _certificate(text).not_valid_after_utc


def subject(text: str) -> bytes:
    """The subject of the first certificate in PEM, in DER. Raises ValueError without one."""
    return _certificate(text).subject.public_bytes()


def _certificate(text: str) -> Certificate:
    from cryptography.x509 import load_pem_x509_certificate  # only on the controller, and slow to import

    try:
        return load_pem_x509_certificate(text.encode())
    except ValueError as err:
        raise ValueError("no PEM certificate found") from err


def digests(text: str) -> frozenset[str]:
    """SHA-256 of each certificate in PEM, `sha256:<hex>`, as `openssl x509 -fingerprint` computes it."""
    return frozenset(f"sha256:{hashlib.sha256(base64.b64decode(found)).hexdigest()}" for found in _PEM.findall(text))
