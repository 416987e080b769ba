# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The state of the NVLink fabric, as `nvidia-smi -q` shows it."""

from __future__ import annotations

import re

COMPLETED = "Completed"
_GPU = re.compile(r"^GPU ([0-9A-Fa-f:.]+)$", re.MULTILINE)
_STATE = re.compile(r"^ +Fabric\n +State +: *(.*?) *$(?:\n +Status +: *(.*?) *$)?", re.MULTILINE)
# State of GPUs before Hopper, and of those without a fabric.
_UNKNOWN = ("n/a", "unknown error", "not supported", "")
# The status is the fabric manager's response: a GPU may have completed the handshake without having joined.
_JOINED = ("success", "nvml_success", "n/a", "")


def fabric_states(text: str) -> dict[str, str]:
    """States by PCI address, a failure as `Completed (its status)`; without GPUs that report no state."""
    _before, *parts = _GPU.split(text)
    return {
        address: _state(found[1], found[2] or "")
        for address, part in zip(parts[::2], parts[1::2], strict=True)
        if (found := _STATE.search(part)) and found[1].lower() not in _UNKNOWN
    }


def _state(state: str, status: str) -> str:
    return state if status.lower() in _JOINED or state != COMPLETED else f"{state} ({status})"
