# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations


class ModuleDocFragment:
    """Modules that connect to a cluster; READS is for those that change nothing."""

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

    READS = r"""
options: {}
attributes:
  check_mode:
    support: full
    description: The module changes nothing.
  diff_mode:
    support: none
    description: The module changes nothing, so it returns no diff.
"""
