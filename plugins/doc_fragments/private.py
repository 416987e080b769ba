# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
notes:
  - This plugin is private to the collection and may change at any time.
options: {}
"""
