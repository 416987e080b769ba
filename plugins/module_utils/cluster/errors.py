# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

import re
from typing import Any

# Too many requests, and responses of a server or load balancer that restarts or is overloaded.
BUSY = frozenset({429, 500, 502, 503, 504})
# The API server's user for a client without credentials.
ANONYMOUS = "system:anonymous"
# Prefix of every authorizer's error. Quotas and admission webhooks also return 403.
# Source: k8s.io/apiserver pkg/endpoints/handlers/responsewriters/errors.go
_FORBIDDEN = re.compile(r'User "(?P<user>[^"]*)" cannot ')

# Source: apiserver, registry/rest/delete.go, storage/interfaces.go and endpoints/handlers/patch.go.
_PRECONDITION = re.compile(r"in the precondition|[Pp]recondition failed|uid mismatch")


class ApiError(Exception):
    """A request that the API server, or a server behind it, rejected.

    status:        HTTP status; 0 if there was no answer at all.
    body:          the answer, decoded if it was JSON.
    retry_after_s: seconds after which to retry; None if the server did not set it.
    is_cut_off:    the connection broke, or was rejected by a server that had answered before.
    """

    def __init__(
        self,
        status: int,
        body: Any,
        request: str,
        *,
        retry_after_s: float | None = None,
        is_cut_off: bool = False,
    ) -> None:
        self.status = status
        self.body = body
        self.request = request
        self.retry_after_s = retry_after_s
        self.is_cut_off = is_cut_off
        super().__init__(f"{request}: {status or 'no answer'}: {self.message}")

    @property
    def message(self) -> str:
        if isinstance(self.body, dict):
            return str(self.body.get("message") or self.body.get("error") or self.body)
        return str(self.body)

    @property
    def refused_user(self) -> str:
        """The user without permission for this request; empty if it failed for another reason."""
        found = _FORBIDDEN.search(self.message) if self.status == 403 else None
        return found["user"] if found else ""

    @property
    def is_not_found(self) -> bool:
        return self.status == 404

    @property
    def is_gone(self) -> bool:
        """Whether the requested version is no longer kept."""
        return self.status == 410

    @property
    def field_conflicts(self) -> list[dict[str, Any]]:
        """Causes of a server-side apply's conflict: message and field of each field with another manager."""
        if self.status != 409 or not isinstance(self.body, dict):
            return []
        causes = (self.body.get("details") or {}).get("causes") or []
        return [cause for cause in causes if cause.get("reason") == "FieldManagerConflict"]

    @property
    def is_unknown_field(self) -> bool:
        """Whether a server-side apply has a field that the kind lacks: the API server then returns 500."""
        return self.status == 500 and "failed to create typed patch object" in self.message

    @property
    def is_other_object(self) -> bool:
        """Whether the object now has another uid or resourceVersion than the request."""
        return self.status == 409 and bool(_PRECONDITION.search(self.message))

    @property
    def is_retryable(self) -> bool:
        """Whether the same request may succeed a moment later."""
        if self.status == 409:
            # The object was written between the server's own read and write.
            return isinstance(self.body, dict) and self.body.get("reason") == "Conflict" and not self.field_conflicts
        return self.is_cut_off or (self.status in BUSY and not self.is_unknown_field)


class QueryError(Exception):
    """Prometheus rejects the query."""
