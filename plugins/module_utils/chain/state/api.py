# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The metrics APIs that HPAs query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from ...autoscaling.spec import ADAPTER, KEDA
from ...kube.objects import Manifest, containers_of, flag, seconds


@dataclass(frozen=True)
class AdapterConfig:
    """The file that prometheus-adapter reads when it starts.

    config_map: its ConfigMap. error: why it is not YAML, or not the adapter's. rules: of all kinds of metrics.
    """

    config_map: Manifest
    error: str = ""
    rules: Sequence[Any] = ()


@dataclass(frozen=True)
class ApiState:
    """One metrics API.

    service: its APIService, or None. owner: its server. unavailable: why it is not available, or empty.
    listed:  listed metrics, None if it does not answer. silence: the error in that case.
    adapter: the Deployment behind it, if it is one. pods: of its service.
    config:  configuration of prometheus-adapter; None if unknown.
    """

    group: str
    service: Manifest | None = None
    _by_name: KW_ONLY
    owner: str = ""
    is_prometheus_adapter: bool = False
    is_keda: bool = False
    unavailable: str = ""
    listed: frozenset[str] | None = None
    silence: str = ""
    adapter: Manifest | None = None
    pods: Sequence[Manifest] = ()
    config: AdapterConfig | None = None

    def option(self, name: str) -> str:
        """The value of an option in the adapter's command line."""
        return next(filter(None, (flag(container, name) for container in containers_of(self.adapter or {}))), "")

    @property
    def backends(self) -> frozenset[str]:
        """Autoscalers whose metrics it can serve."""
        known = {ADAPTER: self.is_prometheus_adapter, KEDA: self.is_keda}
        return frozenset(backend for backend, is_it in known.items() if is_it)

    @property
    def relist_s(self) -> float:
        return seconds(self.option("--metrics-relist-interval")) or 600.0 if self.adapter else 60.0
