# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from .doctor_adapter import ADAPTER_CHECKS
from .doctor_catalogue import HOPS
from .doctor_node import NODE_CHECKS
from .doctor_prometheus import PROMETHEUS_CHECKS
from .doctor_queries import QUERY_CHECKS
from .doctor_settings import CAUSE_CHECKS, SETTINGS_CHECKS
from .doctor_workload import WORKLOAD_CHECKS

_CHECKS = (
    *CAUSE_CHECKS,
    *NODE_CHECKS,
    *PROMETHEUS_CHECKS,
    *ADAPTER_CHECKS,
    *WORKLOAD_CHECKS,
    *SETTINGS_CHECKS,
    *QUERY_CHECKS,
)
# From left to right, so that a cause is met before what follows from it; in a hop, as they stand above.
CHECKS = tuple(sorted(_CHECKS, key=lambda check: list(HOPS).index(check.hop)))
