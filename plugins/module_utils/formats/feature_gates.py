# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Feature gates of Kubernetes' programs, as their flag gives them."""

from __future__ import annotations

FLAG = "feature-gates"
SCALE_TO_ZERO = "HPAScaleToZero"
# On by default from this minor version of Kubernetes 1 on. Source: KEP-2021.
SCALES_TO_ZERO_MINOR = 37


def gate_of(gate: str, values: list[str]) -> bool | None:
    """Whether a gate is on by the values of the flag, of which the last one counts; None if they do not name it."""
    entries = [entry.split("=", 1) for text in values for entry in text.split(",") if "=" in entry]
    gates = {name.strip(): value.strip() for name, value in entries}
    return gates[gate].lower() in ("true", "t", "1") if gate in gates else None
