# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans of the roles that change a cluster, by role and subject. Private to this collection, may change at any time."""

from __future__ import annotations

from ..role_plan import Plan
from .sample import SampleOptions, sample_plan

PLANS: dict[str, Plan] = {
    "gpu_workload": Plan(sample_plan, (SampleOptions,)),
}
