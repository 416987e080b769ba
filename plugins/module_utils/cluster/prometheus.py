# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol

from ..secrets import without_login
from .errors import ApiError, QueryError


class RawGetter(Protocol):
    """Asks for a path, once or patiently. Raises ApiError."""

    def __call__(self, path: str, query: Mapping[str, str] | None = None, *, retry: bool = False) -> Any: ...


@dataclass(frozen=True)
class Series:
    """Labels and, oldest first, the samples: one for an instant vector, several for a range. Times in Unix seconds."""

    labels: Mapping[str, str]
    values: tuple[float, ...]
    times: tuple[float, ...] = ()


def merged_series(replicas: Sequence[Series]) -> Series:
    """One series that several replicas have recorded."""
    samples = sorted(sample for series in replicas for sample in zip(series.times, series.values, strict=True))
    times, values = zip(*samples, strict=True)
    return Series(replicas[0].labels, values, times)


class PrometheusClient:
    """Prometheus' HTTP API: one method, one request.

    Each method raises ApiError if Prometheus cannot be reached, QueryError if it rejects the query.
    service: namespace and name of its Service; both empty if it is reached by its own address.
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
        """Through the API server's service proxy, which reaches Prometheus from the control plane."""
        self._get_raw = get_raw
        self._scheme = "https:" if scheme == "https" else ""
        self._path = f"proxy{_prefix(path_prefix)}/api/v1"
        self._root = f"/api/v1/namespaces/{namespace}/services/{self._scheme}{service}:{port}/{self._path}"
        self.name = f"{namespace}/{service}:{port}"
        self.service = namespace, service
        self.port = port

    @classmethod
    def at(cls, address: str, get_raw: RawGetter) -> PrometheusClient:
        """At its own address, which `get_raw` asks, and which may be that of Thanos or Mimir."""
        client = cls(get_raw, namespace="", service="", port=0)
        client._root, client.name = "/api/v1", without_login(address)
        return client

    def replica(self, pod: str, port: int) -> PrometheusClient:
        """One pod behind the Service, through the API server's pod proxy. port: of the pod."""
        client = copy(self)
        client._root = f"/api/v1/namespaces/{self.service[0]}/pods/{self._scheme}{pod}:{port}/{self._path}"
        client.name = pod
        return client

    def query(self, promql: str, *, retry: bool = False) -> list[Series]:
        """The series that `promql` gives now; for a scalar one without labels. retry: be patient with a busy server."""
        answer = self._get("query", {"query": promql}, retry=retry)
        if answer.get("resultType") == "scalar":
            return [_series({"metric": {}, "value": answer["result"]})]
        return [_series(series) for series in answer["result"]]

    def recording_rules(self) -> list[dict[str, Any]]:
        """The recording rules that are loaded, with their health and last error, and their group's interval (s)."""
        groups = self._get("rules", {"type": "record"})["groups"]
        return [{**rule, "interval": group.get("interval")} for group in groups for rule in group["rules"]]

    def targets(self) -> list[dict[str, Any]]:
        """The targets that are scraped, with their labels, health and last error."""
        found: list[dict[str, Any]] = self._get("targets", {"state": "active"})["activeTargets"]
        return found

    def runtime(self) -> dict[str, Any]:
        """What the process says of itself: reloadConfigSuccess, corruptionCount and others."""
        return self._get("status/runtimeinfo", {})

    def _get(self, endpoint: str, query: Mapping[str, str], *, retry: bool = False) -> dict[str, Any]:
        try:
            answer = self._get_raw(f"{self._root}/{endpoint}", query, retry=retry)
        except ApiError as err:
            # Prometheus' errors pass through the proxy with their body.
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
