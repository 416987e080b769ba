# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from enum import StrEnum


class Hop(StrEnum):
    """Hops: the chain from the GPU to the workload, from left to right.

    The first ones precede the chain: the options of a run, the API server, permissions in the cluster, and
    the checks of a server.
    """

    SPEC = "autoscaler spec"
    API_SERVER = "API server"
    ACCESS = "access"
    SERVER = "server"
    APT = "apt"
    DRIVER = "driver"
    RUNTIME = "runtime"
    KUBERNETES = "kubernetes"
    NODE = "node"
    DEVICE_PLUGIN = "device_plugin"
    NODE_LABELS = "node_labels"
    EXPORTER = "exporter"
    SCRAPE = "scrape"
    LABELS = "labels"
    RULE = "rule"
    METRICS_API = "metrics_api"
    METRIC = "metric"
    HPA = "hpa"
    WORKLOAD = "workload"


TITLES = {
    Hop.ACCESS: "Access to the cluster",
    Hop.NODE: "GPU nodes and drivers",
    Hop.DEVICE_PLUGIN: "Device plugin and allocatable GPUs",
    Hop.NODE_LABELS: "Node labels",
    Hop.EXPORTER: "dcgm-exporter",
    Hop.SCRAPE: "Prometheus scrapes the exporter",
    Hop.LABELS: "Series name the pods",
    Hop.RULE: "Recording rules",
    Hop.METRICS_API: "Metrics API",
    Hop.METRIC: "Metric of each pod",
    Hop.HPA: "HorizontalPodAutoscaler",
    Hop.WORKLOAD: "Workload",
}
# Hops of a report: first, whether the others could be read.
REPORTED = tuple(TITLES)
CHAIN = REPORTED[1:]
# Hops of a server before it becomes a node.
SERVER_TITLES = {
    Hop.SERVER: "Server before it becomes a node",
    Hop.APT: "Packages of a server",
    Hop.DRIVER: "NVIDIA driver of a server",
    Hop.RUNTIME: "Container runtime of a server",
    Hop.KUBERNETES: "Kubernetes on a server",
}
# From left to right, if both are reported.
ORDER = (Hop.ACCESS, *SERVER_TITLES, *CHAIN)
