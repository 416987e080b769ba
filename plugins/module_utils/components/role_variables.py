# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Options of each chart role in an inventory: its variables or their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..autoscaling.spec import ADAPTER
from .places import COMPONENTS

# Extra metrics may read CPU or memory, which metrics-server serves; KEDA serves those with the backend keda.
AUTOSCALERS = "gpu_autoscaling_autoscalers"
BACKEND = "kubegpu_metrics_backend"


def variables() -> list[str]:
    """Names of all variables that are read."""
    options = [f"{role}_{option}" for role, component in COMPONENTS.items() for option in component.options]
    return [*options, AUTOSCALERS, BACKEND]


def wanted(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Options by role; a missing or empty value has the default of the table."""
    autoscalers, backend = values.get(AUTOSCALERS) or [], values.get(BACKEND) or ADAPTER
    return {
        role: {
            **{option: values.get(f"{role}_{option}") or component.default(option) for option in component.options},
            "needed": component.is_needed(autoscalers, backend),
        }
        for role, component in COMPONENTS.items()
    }
