# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol

from ..secrets import without_login
from .errors import ApiError, QueryError


class RawGetter(Protocol):
    """Requests a path, once or with retries. Raises ApiError."""

    def __call__(self, path: str, query: Mapping[str, str] | None = None, *, retry: bool = False) -> Any: ...


@dataclass(frozen=True)
class Series:
    """Labels and samples, oldest first: one for an instant vector, several for a range. Times in Unix seconds."""

    labels: Mapping[str, str]
    values: tuple[float, ...]
    times: tuple[float, ...] = ()


def merged_series(replicas: Sequence[Series]) -> Series:
    """Whether several replicas recorded the series."""
    samples = sorted(sample for series in replicas for sample in zip(series.times, series.values, strict=True))
    times, values = zip(*samples, strict=True)
    return Series(replicas[0].labels, values, times)


class PrometheusClient:
    """Prometheus' HTTP API. Each method sends one request.

    Each method raises ApiError if Prometheus cannot be reached, QueryError if it rejects the query.
    service: namespace and name of its Service; both empty if an address is used.
    """

    def __init__(
        self,
        get_raw: RawGetter,
        *,
        namespace: str,
        service: str,
        port: int,
        scheme: str = "http",
        path_prefix: str = "",
    ) -> None:
        """Through the API server's service proxy, which connects from the control plane."""
        self._get_raw = get_raw
        self._scheme = "https:" if scheme == "https" else ""
        self._path = f"proxy{_prefix(path_prefix)}/api/v1"
        self._root = f"/api/v1/namespaces/{namespace}/services/{self._scheme}{service}:{port}/{self._path}"
        self.name = f"{namespace}/{service}:{port}"
        self.service = namespace, service
        self.port = port

    @classmethod
    def at(cls, address: str, get_raw: RawGetter) -> PrometheusClient:
        """At an address, which `get_raw` requests. It may be that of Thanos or Mimir."""
        client = cls(get_raw, namespace="", service="", port=0)
        client._root, client.name = "/api/v1", without_login(address)
        return client

    def replica(self, pod: str, port: int) -> PrometheusClient:
        """One pod behind the Service, through the API server's pod proxy. port: port of the pod."""
        client = copy(self)
        client._root = f"/api/v1/namespaces/{self.service[0]}/pods/{self._scheme}{pod}:{port}/{self._path}"
        client.name = pod
        return client

    def query(self, promql: str, *, retry: bool = False) -> list[Series]:
        """The current result of `promql`; a scalar is one series without labels. retry: retry if the server is busy."""
        answer = self._get("query", {"query": promql}, retry=retry)
        if answer.get("resultType") == "scalar":
            return [_series({"metric": {}, "value": answer["result"]})]
        return [_series(series) for series in answer["result"]]

    def recording_rules(self) -> list[dict[str, Any]]:
        """The loaded recording rules, with their health and last error, and their group's interval (s)."""
        groups = self._get("rules", {"type": "record"})["groups"]
        return [{**rule, "interval": group.get("interval")} for group in groups for rule in group["rules"]]

    def targets(self) -> list[dict[str, Any]]:
        """The scraped targets, with their labels, health and last error."""
        found: list[dict[str, Any]] = self._get("targets", {"state": "active"})["activeTargets"]
        return found

    def runtime(self) -> dict[str, Any]:
        """The status of the process: reloadConfigSuccess, corruptionCount and others."""
        return self._get("status/runtimeinfo", {})

    def _get(self, endpoint: str, query: Mapping[str, str], *, retry: bool = False) -> dict[str, Any]:
        try:
            answer = self._get_raw(f"{self._root}/{endpoint}", query, retry=retry)
        except ApiError as err:
            # The proxy forwards Prometheus' errors with their body.
            if isinstance(err.body, dict) and "errorType" in err.body:
                raise QueryError(err.body.get("error", "")) from err
            raise
        if not isinstance(answer, dict) or "data" not in answer:
            raise ApiError(200, "the answer does not come from Prometheus", self._root)
        return answer["data"]


def _prefix(path: str) -> str:
    return f"/{path.strip('/')}" if path.strip("/") else ""


def _series(found: Mapping[str, Any]) -> Series:
    samples = found["values"] if "values" in found else [found["value"]]
    times, values = zip(*samples, strict=True)
    return Series(found["metric"], tuple(map(float, values)), tuple(map(float, times)))
