# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans of the roles that change a cluster, by role and subject. Private to this collection, may change at any time."""

from __future__ import annotations

from ..role_plan import Plan

PLANS: dict[str, Plan] = {}
