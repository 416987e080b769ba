# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Face of the code that looks at a GPU node's hardware and driver."""

from __future__ import annotations

from ._clients.machine import read_gpu_node
from ._domain.gpu_node import GpuNode
from ._domain.pci import PciDevice

__all__ = ["GpuNode", "PciDevice", "read_gpu_node"]
