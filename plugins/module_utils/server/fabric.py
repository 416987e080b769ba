# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The state of the NVLink fabric, as `nvidia-smi -q` shows it."""

from __future__ import annotations

import re

COMPLETED = "Completed"
_GPU = re.compile(r"^GPU ([0-9A-Fa-f:.]+)$", re.MULTILINE)
_STATE = re.compile(r"^ +Fabric\n +State +: *(.*?) *$", re.MULTILINE)
# Of GPUs before Hopper, and of those without a fabric.
_UNKNOWN = ("N/A", "Unknown Error", "")


def fabric_states(text: str) -> dict[str, str]:
    """By PCI address; without the GPUs that report no state."""
    _before, *parts = _GPU.split(text)
    states = {
        address: found[1]
        for address, part in zip(parts[::2], parts[1::2], strict=True)
        if (found := _STATE.search(part))
    }
    return {address: state for address, state in states.items() if state not in _UNKNOWN}
