"""An API server of a dictionary, for what depends on requests and answers only: a transport for KubeClient."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.selectors import labels_match, parse_selector
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError

_IN_NAMESPACE = re.compile(r"(?P<version>/apis?/.+)/namespaces/(?P<namespace>[^/]+)(?P<plural>/[^/]+)")


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

    An answer may be an ApiError, or an iterator that has one for each time it is asked. The list of a namespace
    is that of the cluster without the rest, unless it has an answer.
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
        accept: str = "application/json",
    ) -> Any:
        self.requests.append(Request(method, path, query, body, content_type, retry))
        found = _IN_NAMESPACE.fullmatch(path)
        everywhere = f"{method} {found['version']}{found['plural']}" if found else ""
        if found and f"{method} {path}" not in self.answers and everywhere in self.answers:
            return _selected(self.answer(everywhere), found["namespace"], query.get("labelSelector", ""))
        return self.answer(f"{method} {path}")

    def answer(self, request: str) -> Any:
        answer = self.answers.get(request, refusal(404, "not found"))
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


def _selected(listed: dict[str, Any], namespace: str, selector: str) -> dict[str, Any]:
    its = [item for item in listed["items"] if item["metadata"].get("namespace") == namespace]
    chosen = parse_selector(selector) or {}
    return {**listed, "items": [item for item in its if labels_match(chosen, item["metadata"].get("labels") or {})]}
