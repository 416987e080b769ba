"""Until when a certificate is valid, and its digest, compared with a library."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.x509 import digests, not_after
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

BEGIN = datetime(1999, 12, 31, tzinfo=UTC)


def certificate(end: datetime) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubernetes-admin")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), BEGIN, end)
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def test_of_several_the_first_counts() -> None:
    first, second = (datetime(year, 1, 1, tzinfo=UTC) for year in (2028, 2027))

    assert not_after(f"a text\n{certificate(first)}{certificate(second)}") == first


@pytest.mark.parametrize(
    "text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_certificate_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="no PEM certificate found"):
        not_after(text)


def test_the_digest_is_that_of_a_library() -> None:
    texts = [certificate(datetime(year, 1, 1, tzinfo=UTC)) for year in (2028, 2027)]
    known = {x509.load_pem_x509_certificate(text.encode()).fingerprint(hashes.SHA256()).hex() for text in texts}

    assert digests("a text\n".join(texts)) == {f"sha256:{digest}" for digest in known}
    assert digests("") == frozenset()
