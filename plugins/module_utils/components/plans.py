# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plans of the roles that change a cluster, by role and subject. Private to this collection, may change at any time."""

from __future__ import annotations

from ..role_plan import Plan

PLANS: dict[str, Plan] = {}
