# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans of the server roles, by role and subject. Private to this collection, may change at any time."""

from __future__ import annotations

from ..role_plan import Plan
from .driver.decisions import DriverOptions
from .driver.plan import driver_plan
from .toolkit.decisions import ToolkitOptions
from .toolkit.plan import toolkit_plan

PLANS: dict[str, Plan] = {
    "nvidia_container_toolkit": Plan(toolkit_plan, (ToolkitOptions,)),
    "nvidia_driver": Plan(driver_plan, (DriverOptions,)),
}
