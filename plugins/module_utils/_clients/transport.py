# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from ..domain import API_SERVER, HopError
from .errors import ApiError

try:
    from ansible_collections.kubernetes.core.plugins.module_utils.k8s.client import get_api_client
    from ansible_collections.kubernetes.core.plugins.module_utils.k8s.exceptions import CoreException
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError
except ImportError:  # connect() is only called once the module has made sure that the library is there
    pass

REQUEST_TIMEOUT_S = 30


class Transport(Protocol):
    """Sends one request and returns the decoded answer. Raises ApiError."""

    def __call__(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: Any = None,
        content_type: str = "application/json",
    ) -> Any: ...


def connect(auth: Mapping[str, Any]) -> Transport:
    """A transport with kubernetes.core's client, `auth` being its authentication options.

    Raises: HopError if they do not say where the API server is, ApiError if it does not answer.
    """
    try:
        client = get_api_client(**auth).client
    except CoreException as err:
        raise HopError(API_SERVER, seen=str(err), fix="set kubeconfig, or host and api_key") from err
    except ApiException as err:
        raise _api_error(err, "connect") from err
    except HTTPError as err:
        raise ApiError(0, err, "connect") from err

    def send(
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: Any = None,
        content_type: str = "application/json",
    ) -> Any:
        request = f"{method} {path}"
        try:
            answer = client.request(
                method,
                path,
                # As text: the library encodes a dict only for the content types it knows.
                body=None if body is None else json.dumps(body),
                query_params=list(query.items()),
                header_params={"Accept": "application/json"},
                content_type=content_type,
                serialize=False,
                _request_timeout=REQUEST_TIMEOUT_S,
            )
        except ApiException as err:
            raise _api_error(err, request) from err
        except HTTPError as err:
            raise ApiError(0, err, request) from err
        return _decoded(answer.data)

    return send


def _api_error(err: ApiException, request: str) -> ApiError:
    return ApiError(err.status, _decoded(err.body or err.reason), request)


def _decoded(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace") if isinstance(text, bytes) else text
