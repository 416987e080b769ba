# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
attributes:
  check_mode:
    description: Runs in check mode, and returns the same as otherwise.
    support: full
  diff_mode:
    description: The module changes nothing, so it returns no diff.
    support: none
"""
