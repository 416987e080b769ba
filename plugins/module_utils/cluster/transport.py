# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from ..errors import HopError
from ..hops import Hop
from .errors import ApiError
from .kubeconfig import exec_plugin
from .no_answer import lasting_failure
from .parallel import CONNECTIONS
from .retry import RetryingTransport

try:
    from ansible_collections.kubernetes.core.plugins.module_utils.k8s.client import get_api_client
    from ansible_collections.kubernetes.core.plugins.module_utils.k8s.exceptions import CoreException
    from kubernetes.client.exceptions import ApiException
    from urllib3 import PoolManager
    from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError
    from urllib3.util import Retry
except ImportError:  # connect() is called only after the module has checked that the library is installed
    pass

REQUEST_TIMEOUT_S = 30
# Length of a quoted external error, which may be a whole page.
_SHOWN = 400


class Transport(Protocol):
    """Sends one request and returns the decoded response. Raises ApiError.

    retry: send it again if the API server is temporarily busy; the request may then arrive twice.
    """

    def __call__(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: Any = None,
        content_type: str = "application/json",
        retry: bool = True,
        **more: Any,
    ) -> Any: ...


JSON = "application/json"


def connect(auth: Mapping[str, Any], *, sleep: Callable[[float], None] = time.sleep) -> Transport:
    """A transport with kubernetes.core's client. `auth` has its authentication options.

    Raises: HopError if the options have no API server, or if the kubeconfig's plugin returns no login. ApiError
    if the API server does not answer.
    """
    with _errors_logged() as errors:
        try:
            known = get_api_client(**auth)
        except CoreException as err:
            raise HopError(Hop.API_SERVER, seen=str(err), fix="set kubeconfig, or host and api_key") from err
        except ApiException as err:
            _require_login(auth, errors)
            raise _refusal(err, "connect") from err
        except HTTPError as err:
            _require_login(auth, errors)
            raise _no_answer(err, "connect") from err
    if not _has_login(known.configuration):
        _require_login(auth, errors)
    client = known.client
    _widen(client.client.rest_client.pool_manager)

    def send(
        method: str, path: str, *, query: Mapping[str, str], body: Any, content_type: str, accept: str = JSON
    ) -> Any:
        request = f"{method} {path}"
        try:
            answer = client.request(
                method,
                path,
                body=_encoded(body, content_type),
                query_params=list(query.items()),
                header_params={"Accept": accept},
                content_type=content_type,
                serialize=False,
                _request_timeout=REQUEST_TIMEOUT_S,
            )
            return _decoded(answer.data)
        except ApiException as err:
            raise _refusal(err, request) from err
        except HTTPError as err:
            raise _no_answer(err, request) from err

    return RetryingTransport(send, sleep=sleep)


@contextmanager
def _errors_logged() -> Iterator[list[str]]:
    """Errors in the client library's log. Without a login of a plugin it continues as system:anonymous."""
    errors: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: errors.append(" ".join(record.getMessage().split())[:_SHOWN])  # type: ignore[method-assign]
    logger = logging.getLogger()
    logger.addHandler(handler)
    try:
        yield errors
    finally:
        logger.removeHandler(handler)


def _require_login(auth: Mapping[str, Any], errors: Sequence[str]) -> None:
    """Raises: HopError if the kubeconfig's plugin returned no login."""
    if errors and (plugin := exec_plugin(auth)):
        raise plugin.failure("; ".join(errors))


def _has_login(configuration: Any) -> bool:
    return bool(configuration.api_key or configuration.cert_file or configuration.username)


def _encoded(body: Any, content_type: str) -> Any:
    """The body for the library, which encodes JSON itself, and accepts text for other content types."""
    return body if body is None or content_type.endswith("json") else json.dumps(body)


def _widen(pools: PoolManager) -> None:
    """One connection per concurrent request, and retries only in this package."""
    options = pools.connection_pool_kw
    options["maxsize"] = max(CONNECTIONS, options.get("maxsize") or 0)
    options["retries"] = Retry(connect=0, read=0, status=0, other=0, redirect=3, respect_retry_after_header=False)
    pools.clear()


def _refusal(err: ApiException, request: str) -> ApiError:
    return ApiError(err.status, _decoded(err.body or err.reason), request, retry_after_s=_seconds(err))


def _no_answer(err: HTTPError, request: str) -> ApiError:
    reason = getattr(err, "reason", None) or err
    answer = ApiError(0, err, request, is_cut_off=isinstance(reason, ProtocolError | NewConnectionError))
    answer.is_cut_off = answer.is_cut_off and lasting_failure(answer, "") is None
    return answer


def _seconds(err: ApiException) -> float | None:
    """Retry-After, unless it is a date."""
    given = (err.headers or {}).get("Retry-After", "")
    return float(given) if given.isdecimal() else None


def _decoded(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace") if isinstance(text, bytes) else text
