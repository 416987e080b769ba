# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from ..catalogue import HOPS
from .adapter import ADAPTER_CHECKS
from .node import NODE_CHECKS
from .prometheus import PROMETHEUS_CHECKS
from .queries import QUERY_CHECKS
from .settings import CAUSE_CHECKS, SETTINGS_CHECKS
from .workload import WORKLOAD_CHECKS

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
