# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  verify:
    description:
      - Wait until custom.metrics.k8s.io gives a value for every ready pod of each target, the value agrees with
        Prometheus, and each HorizontalPodAutoscaler is C(ScalingActive).
      - On failure the first broken hop is named, with what was seen there and what mends it.
      - Not done in check mode.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait for that. A metric that is new to the cluster takes the adapter up to its relist interval.
    type: int
    default: 180
"""
