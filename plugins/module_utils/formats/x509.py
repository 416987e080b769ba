# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a certificate says, without a library for X.509: its validity (RFC 5280, section 4.1.2.5) and its digest."""

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
    """End of the first certificate in PEM. Raises ValueError where there is none."""
    found = _PEM.search(text)
    validity = _VALIDITY.search(base64.b64decode(found[1])) if found else None
    if not validity:
        raise ValueError("no certificate in PEM")
    short, long = validity[3], validity[4]
    year = "" if long else "19" if short[:2] >= b"50" else "20"
    return datetime.strptime(year + (long or short).decode(), "%Y%m%d%H%M%S").replace(tzinfo=UTC)


def digests(text: str) -> frozenset[str]:
    """SHA-256 of each certificate in PEM, `sha256:<hex>`, as `openssl x509 -fingerprint` computes it."""
    return frozenset(f"sha256:{hashlib.sha256(base64.b64decode(found)).hexdigest()}" for found in _PEM.findall(text))
