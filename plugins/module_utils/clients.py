# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What we talk to: the API server, and Prometheus behind it. No decisions here."""

from __future__ import annotations

from ._clients.errors import ApiError, QueryError
from ._clients.kube import (
    APISERVICES,
    CONFIG_MAPS,
    CRDS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    HPAS,
    NAMESPACES,
    NODES,
    POD_MONITORS,
    PODS,
    PROMETHEUSES,
    RULES,
    SCALED_OBJECTS,
    SERVICE_MONITORS,
    SERVICES,
    VALIDATING_WEBHOOKS,
    KubeClient,
    Resource,
)
from ._clients.metrics_api import CUSTOM_METRICS, EXTERNAL_METRICS, MetricsApi, MetricValue
from ._clients.parallel import CONNECTIONS, in_parallel
from ._clients.prometheus import PrometheusClient, Series
from ._clients.rights import right_to
from ._clients.selectors import format_selector, selects
from ._clients.transport import connect
from ._clients.yaml_text import from_yaml

__all__ = [
    "APISERVICES",
    "CONFIG_MAPS",
    "CONNECTIONS",
    "CRDS",
    "CUSTOM_METRICS",
    "DAEMON_SETS",
    "DEPLOYMENTS",
    "EVENTS",
    "EXTERNAL_METRICS",
    "HPAS",
    "NAMESPACES",
    "NODES",
    "PODS",
    "POD_MONITORS",
    "PROMETHEUSES",
    "RULES",
    "SCALED_OBJECTS",
    "SERVICES",
    "SERVICE_MONITORS",
    "VALIDATING_WEBHOOKS",
    "ApiError",
    "KubeClient",
    "MetricValue",
    "MetricsApi",
    "PrometheusClient",
    "QueryError",
    "Resource",
    "Series",
    "connect",
    "format_selector",
    "from_yaml",
    "in_parallel",
    "right_to",
    "selects",
]
