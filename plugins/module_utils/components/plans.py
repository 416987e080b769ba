# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans of the roles that change a cluster, by role and subject."""

from __future__ import annotations

from ..role_plan import Plan
from .alerts import AlertOptions, alerts_plan
from .mig import MigOptions, mig_plan
from .sample import SampleOptions, sample_plan
from .stack import StackOptions, stack_plan

PLANS: dict[str, Plan] = {
    "gpu_alerts": Plan(alerts_plan, (AlertOptions,)),
    "gpu_mig": Plan(mig_plan, (MigOptions,)),
    "gpu_workload": Plan(sample_plan, (SampleOptions,)),
    "prometheus_stack": Plan(stack_plan, (StackOptions,)),
}
