# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks whether pods can get GPUs that they do not request, and which pods may have some."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnosis.check import CheckResult, FindingTypes, check
from ...errors import enumeration
from ...hops import Hop
from ...kube.objects import name_of
from ...kube.visible_devices import VARIABLE, takes_gpus
from ..finding_texts import first_and_rest
from ..state.cluster import State

_DEVICE_PLUGIN = FindingTypes(Hop.DEVICE_PLUGIN)

GPUS_WITHOUT_REQUEST = _DEVICE_PLUGIN.warning(
    "GPUS_WITHOUT_REQUEST",
    cause="the container toolkit gives an unprivileged container the GPUs that NVIDIA_VISIBLE_DEVICES names, and "
    "NVIDIA's images name all. So a pod without a GPU request can compute on the GPUs of other pods",
    fix="on servers of the inventory, set kubegpu_unrequested_gpus: deny and run the playbook kubegpu.autoscale.gpu; "
    "on other nodes apply docs/isolation/policy.yml. Give each pod that needs a GPU a limit of nvidia.com/gpu",
)


@check(
    "pods get only the GPUs that they request",
    GPUS_WITHOUT_REQUEST,
    needs=("nodes", "daemon_sets", "component_pods", "cuda_errors"),
)
def only_requested_gpus(state: State) -> Iterator[CheckResult]:
    """No result where nothing shows it: only the proof tries it."""
    nodes = state.open_nodes
    if not nodes:
        return
    is_proven = any(name in state.unrequested for name in nodes)
    seen = (
        "in the last proof, a pod without a request saw GPUs"
        if is_proven
        else f"the device plugin gets GPUs by {VARIABLE}, although its container is unprivileged"
    )
    users = _users(state)
    using = f"; {len(users)} pods may have GPUs without a request: {enumeration(users)}" if users else ""
    yield CheckResult(GPUS_WITHOUT_REQUEST, first_and_rest("node", nodes), seen + using)


def _users(state: State) -> list[str]:
    """Except for the components that offer and measure GPUs."""
    components = {name_of(pod) for pod in state.agents.all_pods}
    has_default = state.agents.has_default_runtime
    return sorted(
        name
        for pod in state.pods
        if pod["spec"].get("nodeName") in state.open_nodes
        and (name := name_of(pod)) not in components
        and takes_gpus(pod, has_default=has_default)
    )
