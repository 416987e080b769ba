"""Fingerprints against what gpg says of the same key."""

from __future__ import annotations

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.openpgp import openpgp_fingerprints

# gpg --quick-gen-key "kubegpu test <test@example.org>" ed25519 sign
KEY = """\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawDokRYJKwYBBAHaRw8BAQdArDZHnaplWhkoRnYMinLapAgu92ZJsvUNJ4EZ
FfafaI60H2t1YmVncHUgdGVzdCA8dGVzdEBleGFtcGxlLm9yZz6IlgQTFggAPhYh
BL+hPPSovgy+4B7ifJYio//nYjjGBQJrAOiRAhsDBQmHpOOvBQsJCAcCBhUKCQgL
AgQWAgMBAh4BAheAAAoJEJYio//nYjjGpQwA/ib+96g8aUlOl/O1tz9+YSh7YRKt
zcSv952XF2Uon1B6APwPvluRfCW0mODOgERm8aTuHCbLVvGPlggXsuJNaEBdAQ==
=tQjI
-----END PGP PUBLIC KEY BLOCK-----
"""
FINGERPRINT = "BFA13CF4A8BE0CBEE01EE27C9622A3FFE76238C6"


def test_fingerprint_is_the_one_gpg_shows() -> None:
    assert openpgp_fingerprints(KEY) == [FINGERPRINT]


def test_every_key_of_a_text_is_seen() -> None:
    assert openpgp_fingerprints(f"Two keys.\n{KEY}\n{KEY}") == [FINGERPRINT, FINGERPRINT]


def test_headers_and_windows_line_ends_do_not_matter() -> None:
    with_header = KEY.replace("BLOCK-----\n\n", "BLOCK-----\nVersion: GnuPG v1\nComment: a comment\n\n", 1)

    assert openpgp_fingerprints(with_header.replace("\n", "\r\n")) == [FINGERPRINT]


@pytest.mark.parametrize("text", ["", "<html>404</html>", "deadbeef"])
def test_text_without_a_key_has_no_fingerprint(text: str) -> None:
    assert openpgp_fingerprints(text) == []


@pytest.mark.parametrize("damage", [KEY.splitlines()[2], KEY.splitlines()[3]])
def test_damaged_key_is_refused(damage: str) -> None:
    with pytest.raises(ValueError, match="not an OpenPGP key"):
        openpgp_fingerprints(KEY.replace(f"{damage}\n", ""))
