# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""A component that gets or gives GPUs by the environment is installed only where each server accepts that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import enumeration
from ..formats.mappings import merged
from ..kube.visible_devices import is_admin

# As the chart of the exporter has it, and the role sets it for the device plugin.
_ADMIN = {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}


def needs_variable(values: Mapping[str, Any]) -> bool:
    """values: of the chart of NVIDIA's device plugin, which has a strategy, or of the exporter."""
    # The chart of the plugin makes it privileged for the CPU manager.
    is_privileged = values.get("compatWithCPUManager") or is_admin(merged(_ADMIN, values))
    return not is_privileged or "cdi" not in str(values.get("deviceListStrategy") or "cdi")


def refusal(values: Mapping[str, Any], closed: Sequence[str], present: Sequence[Mapping[str, Any]]) -> str:
    """Why the component cannot be installed; empty if it can, or if it needs the variable already.

    closed:  servers that ignore the variable, or that the run has not read.
    present: existing ones, as `find_components` returns them.
    """
    is_so_already = any(row.get("owned") and row.get("depends_on_variable") for row in present)
    if not closed or is_so_already or not needs_variable(values):
        return ""
    return (
        "cluster -> device plugin: with these values a container finds or gets GPUs only by NVIDIA_VISIBLE_DEVICES, "
        f"and {enumeration(closed)} ignores it, or was not examined by this run. Nothing was changed. Next: give the "
        "container the capability SYS_ADMIN, and a device plugin the strategy cdi-cri; or set "
        "kubegpu_unrequested_gpus: allow, and run the playbook site without --limit and --tags (docs/isolation.md)"
    )
