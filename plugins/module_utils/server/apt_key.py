# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Downloads the key of an apt repository. ansible.builtin.uri shows the password of a proxy in the process list."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.error import HTTPError

TIMEOUT_S = 30
_UNAUTHORIZED = (401, 403)


@contextmanager
def by_proxy(proxy: str) -> Iterator[None]:
    """This process alone uses it: what a command has in its own environment is not in the process list."""
    before = dict(os.environ)
    if proxy:
        os.environ.update(dict.fromkeys(("http_proxy", "https_proxy"), proxy))
        os.environ.pop("no_proxy", None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def download(url: str, *, proxy: str, allow_unauthorized: bool) -> str:
    """The text of the file. Empty if the repository requires a login, and `allow_unauthorized` accepts that.

    Raises: OSError if there is no answer, or another one than the file; ValueError for another notation of an address.
    """
    from ansible.module_utils.urls import open_url  # other calls of server_info do not pay for it

    try:
        with by_proxy(proxy):
            return open_url(url, timeout=TIMEOUT_S).read().decode(errors="replace")
    except HTTPError as error:
        if allow_unauthorized and error.code in _UNAUTHORIZED:
            return ""
        raise
