# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks what prevents the removal of KEDA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import enumeration
from ..kube.labels import is_of

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Dependents:
    """ScaledObjects and ScaledJobs: helm would delete them with KEDA's CRDs, without an operator to finish that.

    staying: objects that remain. leaving: objects whose deletion waits for KEDA's operator.
    """

    staying: Sequence[str]
    leaving: Sequence[str]

    def error(self, context: str) -> str:
        """The error that prevents the removal; empty if nothing depends on KEDA."""
        where = f"cluster {context} -> keda"
        if self.staying:
            return (
                f"{where}: KEDA serves {enumeration(self.staying)}. Helm would delete these objects and their HPAs with"
                " KEDA's CRDs. Nothing was changed. Next: delete them, or set keda_state=existing to keep KEDA."
            )
        if self.leaving:
            return (
                f"{where}: the deletion of {enumeration(self.leaving)} waits for KEDA's operator to remove a finalizer."
                " Nothing was changed. Next: check that Deployment keda-operator is available, and run this again."
            )
        return ""


def dependents(objects: Sequence[Object], inventory: str, *, preview: bool = False) -> Dependents:
    """objects: all ScaledObjects and ScaledJobs.

    preview: in check mode, in which the inventory's autoscalers still exist; this run would remove them before KEDA.
    """
    found = [one for one in objects if not (preview and is_of(one, inventory))]
    leaving = [one for one in found if one["metadata"].get("deletionTimestamp")]
    return Dependents(
        staying=[_title(one) for one in found if one not in leaving], leaving=[_title(one) for one in leaving]
    )


def _title(found: Object) -> str:
    metadata = found["metadata"]
    return f"{found['kind']} {metadata['namespace']}/{metadata['name']}"
