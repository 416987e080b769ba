"""Whole clusters: an API server, and Prometheus behind it, that answer what the files in answers/ say.

A file holds
  origin:      written, after the documentation, charts and sources of those whose cluster it is: no such cluster was
               asked. Or captured, by `make capture`, from a cluster that runs.
  about:       whose cluster it is.
  prometheus:  where gpu_doctor is told to find Prometheus.
  unknown:     hops of which there is nothing, not_checked: checks that cannot be made, while all is well.
  answers:     bodies by request path, with the whole query of Prometheus. What is not there is not served, and a
               query without an answer has no series.
  cases:       by what has changed: `patch`, `findings` with the id, object and seen of each, and in `unasked` the
               answers that nobody asks for then.
A written file is YAML: `$prometheus` begins the paths of its Prometheus, and shapes.py has what else begins with `$`.
A patch is a JSON merge patch (RFC 7386) for each answer, with `#namespace/name` for one object of a list.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.examine import examine
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.cluster import Scope
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import PrometheusClient
from fake_cluster import FakeTransport
from shapes import expanded

# Where the paths of a written cluster's Prometheus begin.
PROMETHEUS = "$prometheus"


def _read(path: Path) -> dict[str, Any]:
    """What a file holds, with the objects that a written one has in short."""
    cluster = json.loads(path.read_text()) if path.suffix == ".json" else expanded(yaml.safe_load(path.read_text()))
    proxy = "/api/v1/namespaces/{namespace}/services/{service}:{port}/proxy".format(**cluster["prometheus"])
    for holder, name in [(cluster, "answers"), *((case, "patch") for case in cluster["cases"].values())]:
        holder[name] = {path.replace(PROMETHEUS, proxy, 1): body for path, body in holder[name].items()}
    for case in cluster["cases"].values():
        case["unasked"] = [path.replace(PROMETHEUS, proxy, 1) for path in case.get("unasked", ())]
    return cluster


_FILES = [path for path in Path(__file__).with_name("answers").iterdir() if path.stem != "shared"]
CLUSTERS = {path.stem: _read(path) for path in sorted(_FILES)}
CASES = [(name, case) for name, cluster in CLUSTERS.items() for case in cluster["cases"]]

_NO_SERIES = {"status": "success", "data": {"resultType": "vector", "result": []}}


class Replay(FakeTransport):
    """One of them; `unasked` are the answers that nobody has asked for so far."""

    def __init__(self, name: str, case: str = "") -> None:
        self.cluster = CLUSTERS[name]
        answers = copy.deepcopy(self.cluster["answers"])
        for address, change in self.cluster["cases"][case]["patch"].items() if case else ():
            _patch(answers, address, change)
        super().__init__({f"GET {path}": _answer(path, body) for path, body in answers.items()})
        self.unasked = set(answers)

    def __call__(self, method: str, path: str, *, query: Mapping[str, str], **options: Any) -> Any:
        if not path.endswith("/proxy/api/v1/query"):
            return super().__call__(method, path, query=query, **options)
        asked = f"{path}?query={query['query']}"
        return self.answer(f"GET {asked}") if f"GET {asked}" in self.answers else _NO_SERIES

    def answer(self, request: str) -> Any:
        self.unasked.discard(request.removeprefix("GET "))
        return super().answer(request)

    def examine(self) -> dict[str, Any]:
        """The report, with nothing left to time."""
        kube = KubeClient(self)
        prometheus = PrometheusClient(kube.get_raw, **self.cluster["prometheus"])
        return examine(kube, prometheus, scope=Scope(), facts={}, history_s=0, grace=False, fail_on="never").result


def _answer(path: str, body: Any) -> Any:
    """A failure as the API server says it is raised as the client does."""
    is_failure = isinstance(body, dict) and body.get("kind") == "Status"
    return ApiError(body["code"], body, f"GET {path}") if is_failure else body


def _patch(answers: dict[str, Any], address: str, change: Any) -> None:
    path, _, name = address.partition("#")
    if not name:
        old = answers.pop(path, None)
        if change is not None:
            answers[path] = _merged(old, change)
        return
    items = answers[path]["items"]
    others = [item for item in items if _name(item) != name]
    old = [item for item in items if _name(item) == name]
    answers[path]["items"] = others if change is None else [*others, _merged(old[0] if old else {}, change)]


def _merged(old: Any, change: Any) -> Any:
    if not isinstance(change, dict) or change.get("kind") == "Status":
        return change
    kept = old if isinstance(old, dict) else {}
    changed = {key: _merged(kept.get(key), value) for key, value in change.items() if value is not None}
    return {**{key: value for key, value in kept.items() if key not in change}, **changed}


def _name(manifest: Mapping[str, Any]) -> str:
    metadata = manifest["metadata"]
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
