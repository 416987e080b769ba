# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  inventory_id:
    description:
      - ID of the inventory that manages the objects, which is their label C(kubegpu.autoscale/inventory).
      - Inventories that share a cluster need different IDs.
      - Objects of another inventory are neither changed nor removed.
      - The roles set it to C(kubegpu_inventory_id), which is derived from the name of the inventory's folder.
    type: str
    default: default
"""
