# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  inventory_id:
    description:
      - Id of the inventory that the objects are made for. They have it as the label C(kubegpu.autoscale/inventory).
      - Inventories that share a cluster need different ids.
      - An object that was made for another inventory is neither changed nor removed.
      - The roles set it to C(kubegpu_inventory_id), which follows from the name of the inventory's folder.
    type: str
    default: default
"""
