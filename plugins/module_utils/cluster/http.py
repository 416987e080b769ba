# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A server that is asked directly, not through the API server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit, urlunsplit

from .errors import ApiError

REQUEST_TIMEOUT_S = 30
# What a proxy answers for a server that it cannot reach.
_UNREACHABLE = 503


class HttpGetter:
    """GET requests to one address, answered in JSON.

    ca_cert: path of the certificates to trust instead of the system's.
    """

    def __init__(self, address: str, *, ca_cert: str | None = None, bearer_token: str | None = None) -> None:
        self._address = address.rstrip("/")
        self._shown = without_login(self._address)
        self._ca_cert = ca_cert
        self._headers = {"Authorization": f"Bearer {bearer_token}"} if bearer_token else {}

    def __call__(self, path: str, query: Mapping[str, str] | None = None, *, retry: bool = False) -> Any:
        """Raises: ApiError, with status 503 if there is no answer. retry: ask a second time if there is none."""
        request = f"GET {self._shown}{path}"
        try:
            return self._ask(f"{self._address}{path}?{urlencode(query or {})}")
        except HTTPError as err:
            raise ApiError(err.code, _decoded(err.read()) or err.reason, request) from err
        except (URLError, OSError) as err:
            if retry:
                return self(path, query)
            raise ApiError(_UNREACHABLE, f"no answer: {getattr(err, 'reason', err)}", request) from err

    def _ask(self, url: str) -> Any:
        # Only here: it brings the library cryptography, some 8 MB, which no answer through the API server needs.
        from ansible.module_utils.urls import open_url

        answer = open_url(url, headers=self._headers, ca_path=self._ca_cert, timeout=REQUEST_TIMEOUT_S)
        return _decoded(answer.read())


def without_login(address: str) -> str:
    """The address as it may be shown: without user and password."""
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _decoded(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace")
