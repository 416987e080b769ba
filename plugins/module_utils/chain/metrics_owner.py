# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The server of a metrics API, as its APIService names it: prometheus-adapter, KEDA or another."""

from __future__ import annotations

from dataclasses import dataclass

from ..kube.labels import NAME_LABEL
from ..kube.objects import Manifest, condition


@dataclass(frozen=True)
class Owner:
    """The server of a metrics API. A cluster has one server of each, which its APIService names.

    api_service: None if it does not exist or cannot be read.
    """

    group: str
    api_service: Manifest | None

    def __str__(self) -> str:
        if self.is_prometheus_adapter:
            return "prometheus-adapter"
        if self.is_keda:
            return "KEDA"
        return f"service {self.service}" if self.service else f"the server of {self.group}"

    @property
    def service(self) -> str:
        """Namespace and name of its service; empty if the API server serves it, or if unknown."""
        service = ((self.api_service or {}).get("spec") or {}).get("service") or {}
        return f"{service['namespace']}/{service['name']}" if service else ""

    @property
    def is_prometheus_adapter(self) -> bool:
        return self._is_called("prometheus-adapter")

    @property
    def is_keda(self) -> bool:
        return self._is_called("keda-operator-metrics-apiserver")

    def _is_called(self, name: str) -> bool:
        labels = ((self.api_service or {}).get("metadata") or {}).get("labels") or {}
        names = (self.service, labels.get(NAME_LABEL, ""), labels.get("app", ""))
        return any(name in found for found in names)

    @property
    def unavailable(self) -> str:
        """Why the API server does not forward to it; empty if it does."""
        available = condition(self.api_service or {}, "Available")
        is_away = available.get("status") == "False"
        return f"{available.get('reason')}: {available.get('message')}" if is_away else ""
