# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Iterator

from ...diagnosis.check import CheckResult, FindingType, check
from ...hops import Hop
from ..objects import condition
from ..state import State, is_up
from ..texts import condition_text

DRIVER_NEEDS_REBOOT = FindingType(
    "DRIVER_NEEDS_REBOOT",
    Hop.NODE,
    "error",
    cause="the loaded driver is not the installed one, so NVML refuses to work",
    fix="run the nvidia_driver role with nvidia_driver_reboot_ok: true, or reboot the node",
)
DRIVER_BROKEN = FindingType(
    "DRIVER_BROKEN",
    Hop.NODE,
    "error",
    cause="the driver does not serve the node's GPUs",
    fix="follow the message, then run the nvidia_driver role",
)


@check("drivers, by gpu_facts", DRIVER_NEEDS_REBOOT, DRIVER_BROKEN, needs=("facts",))
def drivers(state: State) -> Iterator[CheckResult]:
    for node, facts in state.facts.items():
        affected = state.affected_by_nodes([node])
        if facts.get("driver_problem"):
            yield CheckResult(DRIVER_BROKEN, f"node {node}", facts["driver_problem"], affected)
        elif facts.get("reboot_required"):
            seen = facts.get("reboot_reason") or "reboot_required"
            yield CheckResult(DRIVER_NEEDS_REBOOT, f"node {node}", seen, affected)


NODE_NOT_READY = FindingType(
    "NODE_NOT_READY",
    Hop.NODE,
    "error",
    cause="the kubelet of a GPU node does not report, so nothing on that node is seen",
    fix="kubectl describe node {name}; on the node: journalctl -u kubelet",
    grace_s=120,
)


@check("GPU nodes are ready", NODE_NOT_READY, needs=("nodes",))
def nodes_ready(state: State) -> Iterator[CheckResult]:
    for name, node in state.gpu_nodes.items():
        if not is_up(node):
            yield CheckResult(
                NODE_NOT_READY,
                f"node {name}",
                condition_text(condition(node, "Ready")),
                state.affected_by_nodes([name]),
                state.condition_age_s(node, "Ready"),
                template_vars={"name": name},
            )


def summary(state: State) -> str:
    return f"{len(state.gpu_nodes)} of {len(state.nodes)} nodes have GPUs"


def nothing(state: State) -> str:
    return "" if state.gpu_nodes else "no node is known to have GPUs"
