# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Queries a server directly, not through the API server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, urlencode, urlsplit, urlunsplit

from ..secrets import without_login
from .errors import ApiError

REQUEST_TIMEOUT_S = 30
# Status of a proxy that cannot reach the server.
_UNREACHABLE = 503
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 3


class HttpGetter:
    """GET requests to one address, with answers in JSON.

    A credential, which is a bearer token or a login in the address, is sent only to this address: a redirect to another
    scheme, host or port is an error. ~/.netrc is not read, because no option refers to it.
    ca_cert: path of the certificates to trust instead of the system's.
    """

    def __init__(self, address: str, *, ca_cert: str | None = None, bearer_token: str | None = None) -> None:
        self._address = address.rstrip("/")
        self._shown = without_login(self._address)
        self._ca_cert = ca_cert
        self._headers = {"Authorization": f"Bearer {bearer_token}"} if bearer_token else {}
        self._has_credential = has_credential(address, bearer_token)

    def __call__(self, path: str, query: Mapping[str, str] | None = None, *, retry: bool = False) -> Any:
        """Raises: ApiError, with status 503 without an answer. retry: repeat the request once without an answer."""
        request = f"GET {self._shown}{path}"
        try:
            return self._ask(f"{self._address}{path}?{urlencode(query or {})}", request)
        except HTTPError as err:
            raise ApiError(err.code, _decoded(err.read()) or err.reason, request) from err
        except (URLError, OSError) as err:
            if retry:
                return self(path, query)
            raise ApiError(_UNREACHABLE, f"no answer: {getattr(err, 'reason', err)}", request) from err

    def _ask(self, url: str, request: str) -> Any:
        for _number in range(_MOST_REDIRECTS):
            try:
                return self._ask_once(url)
            except HTTPError as err:
                if not self._has_credential or err.code not in _REDIRECTS:
                    raise
                url = _redirected(url, err.geturl() or "", request)
        raise ApiError(_UNREACHABLE, f"more than {_MOST_REDIRECTS} redirects", request)

    def _ask_once(self, url: str) -> Any:
        # Imported here, because it loads the library cryptography (8 MB), which requests to the API server do not need.
        from ansible.module_utils.urls import open_url

        answer = open_url(
            url,
            headers=self._headers,
            ca_path=self._ca_cert,
            timeout=REQUEST_TIMEOUT_S,
            follow_redirects="none" if self._has_credential else "urllib2",
            use_netrc=False,
        )
        return _decoded(answer.read())


def _redirected(url: str, target: str, request: str) -> str:
    """The new address, with the login of the first. Raises: ApiError if it is on another server."""
    here, there = urlsplit(url), urlsplit(target)
    if _origin(here) != _origin(there):
        raise ApiError(
            _UNREACHABLE,
            f"redirected to {_shown_origin(there)}, where the credential was not sent. "
            "Set prometheus.url to the address that answers queries itself, not to one behind a login page",
            request,
        )
    return urlunsplit(there._replace(netloc=here.netloc))


def _shown_origin(parts: SplitResult) -> str:
    return without_login(urlunsplit(parts._replace(path="", query="", fragment="")))


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def has_credential(address: str, bearer_token: str | None) -> bool:
    return bool(bearer_token) or without_login(address) != address


def is_readable_by_others(address: str) -> bool:
    """Whether requests would cross a network unencrypted: plain http, and neither this machine nor a Service."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    return parts.scheme == "http" and not _is_loopback(host) and not host.endswith((".svc", ".cluster.local"))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _decoded(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace")
