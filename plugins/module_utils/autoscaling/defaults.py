# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Defaults: where Prometheus is, as the role prometheus_stack installs it, how often it evaluates, and the target."""

from __future__ import annotations

NAMESPACE = "monitoring"
RELEASE = "kube-prometheus-stack"
SERVICE = f"{RELEASE}-prometheus"
PORT = 9090
# Seconds between two evaluations of a recording rule, and between two scrapes. components/fleet.py changes it by size.
EVALUATION_INTERVAL_S = 2
# Target value of metrics in percent.
TARGET_PERCENT = 60
