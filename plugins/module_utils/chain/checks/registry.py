# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""All checks, by hop from left to right, so that causes precede their consequences; in a hop by file.

The file with the name of a hop has `summary`, a short text for a healthy hop, and `nothing`: why a hop without
findings is not healthy either, because it has no objects. Empty if something could be checked.
"""

from __future__ import annotations

from ...diagnosis.check import Check, FindingType, checks_in
from ...hops import Hop
from ..state.cluster import State
from . import (
    access,
    device_plugin,
    exporter,
    exporter_values,
    hpa,
    hpa_metrics,
    keda,
    keda_server,
    labels,
    metric,
    metrics_api,
    monitors,
    node,
    node_labels,
    pod_states,
    prometheus,
    rule,
    scrape,
    servers,
    workload,
    workload_pods,
)
from . import unrequested_gpus as unrequested

HOPS = {
    Hop.ACCESS: access,
    Hop.NODE: node,
    Hop.DEVICE_PLUGIN: device_plugin,
    Hop.NODE_LABELS: node_labels,
    Hop.EXPORTER: exporter,
    Hop.SCRAPE: scrape,
    Hop.LABELS: labels,
    Hop.RULE: rule,
    Hop.METRICS_API: metrics_api,
    Hop.METRIC: metric,
    Hop.HPA: hpa,
    Hop.WORKLOAD: workload,
}
CHECKS: tuple[Check[State], ...] = checks_in(
    access,
    servers,
    node,
    device_plugin,
    unrequested,
    node_labels,
    exporter,
    exporter_values,
    prometheus,
    monitors,
    scrape,
    labels,
    rule,
    pod_states,
    metrics_api,
    keda_server,
    keda,  # of the HPA, but a ScaledObject that KEDA does not process explains a metric without a value
    metric,
    hpa,
    hpa_metrics,
    workload_pods,
    workload,
)
FINDING_TYPES: dict[str, FindingType] = {
    finding_type.id: finding_type for check in CHECKS for finding_type in check.types
}
