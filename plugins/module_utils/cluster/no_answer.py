# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Why a server does not answer at all, where waiting does not help."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

from ..errors import HopError
from ..hops import Hop
from .errors import ApiError

_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


class LastingFailure(HopError):
    """A server that does not answer, and will not."""


def lasting_failure(err: ApiError, server: str) -> LastingFailure | None:
    """The error if a request had no answer, and a later one will have none either; None otherwise.

    server: address of the API server, as in the kubeconfig.
    """
    chain = [*_chain(err.body)] if err.status == 0 and isinstance(err.body, Exception) else []
    address = urlsplit(server)
    if any(type(cause).__name__ == "ProxyError" for cause in chain):
        given = next((name for name in _PROXIES if os.environ.get(name)), _PROXIES[0])
        return _error(
            f"the proxy of {given} does not lead to {server}",
            f"correct or unset {given}, or add {address.hostname} to NO_PROXY; proxy-url of the kubeconfig takes "
            "precedence",
        )
    for cause in chain:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _error(
                f"the certificate of {server} is not valid for the kubeconfig: {cause.verify_message}",
                "create the kubeconfig again, for example with your provider's command; "
                "certificate-authority-data has to be the CA of this cluster",
            )
        if isinstance(cause, ssl.SSLError):
            return _error(
                f"{server} does not speak TLS as an API server does: {cause.reason or cause}",
                "correct the address in the kubeconfig, with its port and scheme",
            )
        if isinstance(cause, socket.gaierror):
            return _error(
                f"the host name of {server} cannot be resolved: {cause.strerror}",
                f"getent hosts {address.hostname}; check the VPN, and the address in the kubeconfig",
            )
    return None


def refused_connection(err: ApiError, server: str) -> LastingFailure | None:
    """The error if nothing listens at the address, which is also so for seconds while an API server restarts."""
    if err.status or not isinstance(err.body, Exception):
        return None
    if not any(isinstance(cause, ConnectionRefusedError) for cause in _chain(err.body)):
        return None
    return _error(
        f"nothing listens at {server}: Connection refused",
        "start the cluster, or correct the address and the port in the kubeconfig",
    )


def _error(seen: str, fix: str) -> LastingFailure:
    return LastingFailure(Hop.API_SERVER, seen=seen, fix=fix)


def _chain(err: BaseException) -> Iterator[BaseException]:
    """The error with the errors that caused it, each once."""
    waiting: list[BaseException] = [err]
    known: set[int] = set()
    while waiting:
        cause = waiting.pop(0)
        if id(cause) in known:
            continue
        known.add(id(cause))
        yield cause
        reasons = (getattr(cause, "reason", None), getattr(cause, "original_error", None), *cause.args)
        causes = (*reasons, cause.__cause__, cause.__context__)
        waiting += [found for found in causes if isinstance(found, BaseException)]
