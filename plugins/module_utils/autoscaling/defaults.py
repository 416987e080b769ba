# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Defaults of the option `prometheus`: those of a release of the role prometheus_stack."""

from __future__ import annotations

NAMESPACE = "monitoring"
RELEASE = "kube-prometheus-stack"
SERVICE = f"{RELEASE}-prometheus"
PORT = 9090
# Seconds between two evaluations of a recording rule, and between two scrapes. components/fleet.py changes it by size.
EVALUATION_INTERVAL_S = 2
