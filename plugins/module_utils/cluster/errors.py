# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import re
from typing import Any

# Too many requests, and what a server or a load balancer before it answers while it restarts or is overloaded.
BUSY = frozenset({429, 500, 502, 503, 504})
# User of the API server for a client without credentials.
ANONYMOUS = "system:anonymous"
# Beginning of every authorizer's error. A quota and an admission webhook answer 403 as well.
# Source: k8s.io/apiserver pkg/endpoints/handlers/responsewriters/errors.go
_FORBIDDEN = re.compile(r'User "(?P<user>[^"]*)" cannot ')

# Source: apiserver, registry/rest/delete.go, storage/interfaces.go and endpoints/handlers/patch.go.
_PRECONDITION = re.compile(r"in the precondition|[Pp]recondition failed|uid mismatch")


class ApiError(Exception):
    """A request that the API server, or what stands behind it, did not grant.

    status:        HTTP status; 0 if there was no answer at all.
    body:          the answer, decoded if it was JSON.
    retry_after_s: when the server wants to be asked again; None if it did not say.
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
        """The version that was asked for is no longer kept."""
        return self.status == 410

    @property
    def field_conflicts(self) -> list[dict[str, Any]]:
        """The causes of a server-side apply's conflict: message and field of each that has another manager."""
        if self.status != 409 or not isinstance(self.body, dict):
            return []
        causes = (self.body.get("details") or {}).get("causes") or []
        return [cause for cause in causes if cause.get("reason") == "FieldManagerConflict"]

    @property
    def is_unknown_field(self) -> bool:
        """A server-side apply names a field that the kind does not have: the API server answers 500 to that."""
        return self.status == 500 and "failed to create typed patch object" in self.message

    @property
    def is_other_object(self) -> bool:
        """The request names a uid or a resourceVersion, and the object has another one by now."""
        return self.status == 409 and bool(_PRECONDITION.search(self.message))

    @property
    def is_retryable(self) -> bool:
        """The same request may well be granted in a moment."""
        if self.status == 409:
            # The object was written between the server's own read and write.
            return isinstance(self.body, dict) and self.body.get("reason") == "Conflict" and not self.field_conflicts
        return self.is_cut_off or (self.status in BUSY and not self.is_unknown_field)


class QueryError(Exception):
    """Prometheus has read the query and does not accept it."""
