# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """A request that the API server, or what stands behind it, did not grant.

    status: HTTP status; 0 if there was no answer at all.
    body:   the answer, decoded if it was JSON.
    """

    def __init__(self, status: int, body: Any, request: str) -> None:
        self.status = status
        self.body = body
        self.request = request
        super().__init__(f"{request}: {status or 'no answer'}: {self.message}")

    @property
    def message(self) -> str:
        if isinstance(self.body, dict):
            return str(self.body.get("message") or self.body.get("error") or self.body)
        return str(self.body)

    @property
    def is_not_found(self) -> bool:
        return self.status == 404

    @property
    def is_gone(self) -> bool:
        """The version that was asked for is no longer kept."""
        return self.status == 410


class QueryError(Exception):
    """Prometheus has read the query and does not accept it."""
