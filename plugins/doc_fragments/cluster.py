# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations


class ModuleDocFragment:
    """Modules that connect to a cluster."""

    DOCUMENTATION = r"""
options: {}
requirements:
  - kubernetes >= 30.1 (Python)
attributes:
  action_group:
    description: Use C(group/kubegpu.autoscale.all) in C(module_defaults) to set defaults for this module.
    support: full
    membership: [kubegpu.autoscale.all]
"""
