# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Iterable

from ..clients import CRDS, KubeClient
from ..domain import API_SERVER, MANAGED_BY, MANAGER, HopError, Manifest
from .outcome import Outcome
from .snapshot import is_managed
from .wait import Deadline, wait_until


def apply_crds(kube: KubeClient, crds: Iterable[Manifest], deadline: Deadline) -> Outcome:
    """Bring CRDs to what a chart has, and wait until they are served. Those that somebody else brought stay.

    Raises: HopError if one is not served in time.
    """
    outcome = Outcome()
    actions = {crd["metadata"]["name"]: _apply(kube, crd) for crd in crds}
    outcome.changed = bool({"created", "changed"} & set(actions.values()))
    outcome.result = {"crds": [{"name": name, "action": action} for name, action in sorted(actions.items())]}
    if not kube.dry_run:
        _wait_until_served(kube, actions, deadline)
    return outcome


def _apply(kube: KubeClient, crd: Manifest) -> str:
    """Returns created, changed, unchanged, or kept for one that is not ours."""
    metadata = crd["metadata"]
    live = kube.get(CRDS, metadata["name"])
    if live is not None and not is_managed(live):
        return "kept"
    labels = {**metadata.get("labels", {}), MANAGED_BY: MANAGER}
    after = kube.apply(CRDS, {**crd, "metadata": {**metadata, "labels": labels}})
    if live is None:
        return "created"
    return "unchanged" if after["metadata"]["generation"] == live["metadata"]["generation"] else "changed"


def _wait_until_served(kube: KubeClient, names: Iterable[str], deadline: Deadline) -> None:
    def not_served() -> list[str]:
        return [name for name in names if not _is_established(kube.get(CRDS, name))]

    if missing := wait_until(not_served, lambda left: not left, deadline, poll_s=0.2):
        raise HopError(
            API_SERVER,
            seen=f"not Established in time: {', '.join(missing)}",
            fix=f"kubectl describe crd {missing[0]}",
        )


def _is_established(crd: Manifest | None) -> bool:
    conditions = (crd or {}).get("status", {}).get("conditions", [])
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
