"""An API server of a dictionary, for what depends on requests and answers only: a transport for KubeClient."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.label_selectors import labels_match, parse_selector

_IN_NAMESPACE = re.compile(r"(?P<version>/apis?/.+)/namespaces/(?P<namespace>[^/]+)(?P<plural>/[^/]+)")
# path, whether it is `!=`, value
_FIELD = re.compile(r"^([A-Za-z.]+)(!?)={1,2}(.*)$")


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
            listed = self.answer(everywhere)
            its = [item for item in listed["items"] if item["metadata"].get("namespace") == found["namespace"]]
            return _selected({**listed, "items": its}, query)
        answer = self.answer(f"{method} {path}")
        return _selected(answer, query) if method == "GET" and _lists_objects(answer) else answer

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


def _lists_objects(answer: Any) -> bool:
    """Not a list of metrics, whose items have no metadata: there a selector is the adapter's."""
    return isinstance(answer, dict) and all("metadata" in item for item in answer.get("items") or [{}])


def _selected(listed: dict[str, Any], query: Mapping[str, str]) -> dict[str, Any]:
    """As an API server selects.

    Raises: NotImplementedError for a parameter that an API server would heed and this does not.
    """
    if unknown := query.keys() - {"labelSelector", "fieldSelector", "limit", "continue"}:
        raise NotImplementedError(f"FakeTransport: query parameters {', '.join(sorted(unknown))}")
    labels = parse_selector(query.get("labelSelector", "")) or {}
    fields = [_FIELD.findall(term)[0] for term in query.get("fieldSelector", "").split(",") if term]
    return {
        **listed,
        "items": [
            item
            for item in listed.get("items") or []
            if labels_match(labels, item["metadata"].get("labels") or {})
            and all((_field(item, path) == value) != bool(negated) for path, negated, value in fields)
        ],
    }


def _field(item: Mapping[str, Any], path: str) -> str:
    value: Any = item
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)
