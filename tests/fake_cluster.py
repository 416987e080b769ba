"""An API server of a dictionary, for what depends on requests and answers only: a transport for KubeClient."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    body: Any = None
    content_type: str = "application/json"
    retry: bool = field(default=True, compare=False)


class FakeTransport:
    """Answers by method and path, 404 to the rest, and remembers what it was asked.

    An answer may be an ApiError, or an iterator that has one for each time it is asked.
    """

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = dict(answers)
        self.requests: list[Request] = []

    def __call__(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: Any = None,
        content_type: str = "application/json",
        retry: bool = True,
    ) -> Any:
        self.requests.append(Request(method, path, query, body, content_type, retry))
        answer = self.answers.get(f"{method} {path}", refusal(404, "not found"))
        if isinstance(answer, Iterator):
            answer = next(answer)
        if isinstance(answer, ApiError):
            raise answer
        return json.loads(json.dumps(answer))

    @property
    def asked(self) -> list[str]:
        return [f"{request.method} {request.path}" for request in self.requests]


def refusal(status: int, message: str, **body: Any) -> ApiError:
    return ApiError(status, {"message": message, **body}, "a request")
