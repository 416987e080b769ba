# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  verify:
    description:
      - Wait until each ready pod of each target has a value in custom.metrics.k8s.io that agrees with Prometheus, and
        each HorizontalPodAutoscaler is C(ScalingActive).
      - On failure, the module reports the first broken hop, the evidence and the fix.
      - It is skipped in check mode.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait for that. A metric that is new to the cluster takes up to the adapter's relist interval.
      - The reloader of prometheus-operator can miss a changed file, and checks every 180 s.
    type: int
    default: 300
"""
