# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  verify:
    description:
      - Wait until each ready pod of each target has a value in custom.metrics.k8s.io that agrees with Prometheus. Each
        HorizontalPodAutoscaler has to be C(ScalingActive), too.
      - On failure the first broken hop is named, with what was seen there and what mends it.
      - Not done in check mode.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait for that. A metric that is new to the cluster takes the adapter up to its relist interval.
      - The reloader of prometheus-operator may miss a changed file. It looks anew every 180.
    type: int
    default: 300
"""
