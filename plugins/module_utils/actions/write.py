# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Writes objects that differ, many at once, and reports changes to the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..autoscaling.manifests import is_shared, metric_of
from ..cluster.errors import ApiError
from ..cluster.kube import HPAS, RULES, SCALED_OBJECTS, KubeClient, Resource
from ..cluster.ownership import dropped_fields, is_up_to_date, other_managers
from ..cluster.parallel import in_parallel
from ..errors import HopError, enumeration
from ..hops import Hop
from ..kube.labels import MANAGER, hand_over, inventory_of, is_managed, is_of, maker
from ..kube.objects import Manifest, key_of
from .outcome import Outcome

_RESOURCES = {resource.kind: resource for resource in (RULES, HPAS, SCALED_OBJECTS)}


@dataclass(frozen=True)
class Change:
    """One object before and after the change, or None.

    adopt: take its fields from other managers, even if it was not created for this inventory.
    lacks: a rejected rule that the object uses. The object is then not written, because the HPA would have no value.
    may_go: whether it may still be deleted if it has changed since it was read.
    orphan: keep its dependents when it is deleted.
    """

    before: Manifest | None
    after: Manifest | None
    adopt: bool = False
    lacks: str = ""
    may_go: Callable[[Manifest], bool] = is_managed
    orphan: bool = False

    @property
    def manifest(self) -> Manifest:
        return self.after or self.before or {}

    @property
    def resource(self) -> Resource:
        return _RESOURCES[self.manifest["kind"]]

    @property
    def title(self) -> str:
        return f"{self.resource.kind} {'/'.join(key_of(self.manifest))}"

    @property
    def takes_over(self) -> bool:
        """Whether edits are reverted, as for all objects of this inventory."""
        return self.adopt or self._is_ours

    @property
    def _is_ours(self) -> bool:
        return self.before is not None and self.after is not None and is_of(self.before, inventory_of(self.after))

    @property
    def is_of_another(self) -> bool:
        """Whether the object was created for another inventory, and is not adopted."""
        return self.before is not None and not self.adopt and is_managed(self.before) and not self._is_ours

    @property
    def edited_by(self) -> list[str]:
        return (
            other_managers(self.before, MANAGER) if self.before is not None and not self.adopt and self._is_ours else []
        )

    @property
    def is_needed(self) -> bool:
        return self.before is None or self.after is None or not is_up_to_date(self.before, self.after, MANAGER)


def write(
    kube: KubeClient, outcome: Outcome, changes: Sequence[Change]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Send necessary changes, many at once, and record the results in the outcome.

    Returns: an entry for each rule, and one for each HPA or ScaledObject.
    """
    needed = [change for change in changes if change.is_needed]
    results = dict(zip(map(id, needed), in_parallel(lambda change: _send(kube, change), needed), strict=True))
    rules: list[dict[str, Any]] = []
    scalers: list[dict[str, Any]] = []
    for change in changes:
        action = outcome.record(change.before, results[id(change)]) if id(change) in results else "unchanged"
        namespace, name = key_of(change.manifest)
        outcome.warnings += _notes(change, results.get(id(change)))
        entry = {"namespace": namespace, "name": name, "metric": metric_of(change.manifest), "action": action}
        (rules if change.resource is RULES else scalers).append(entry)
    return rules, scalers


def _notes(change: Change, result: Manifest | HopError | ApiError | None) -> list[str]:
    """Warnings about an object that was written."""
    if not isinstance(result, dict) or change.after is None:
        return []
    notes = []
    if change.edited_by:
        notes.append(f"{change.title}: what {enumeration(change.edited_by)} had changed is restored")
    if dropped := enumeration(dropped_fields(result["spec"], change.after["spec"])):
        notes.append(f"{change.title}: this cluster does not support {dropped}; leave it out, or upgrade Kubernetes")
    return notes


def _send(kube: KubeClient, change: Change) -> Manifest | None:
    """The object after the change."""
    if change.lacks:
        raise HopError(
            Hop.RULE,
            seen=f"{change.title} is not written: PrometheusRule {change.lacks}, which it uses, was rejected",
            fix="fix the error of the rule, then run again",
        )
    if change.is_of_another and change.after is not None:
        raise _of_another(change.before or {}, change.title, inventory_of(change.after))
    if change.after is None:
        kube.delete(change.resource, change.manifest, change.may_go, orphan=change.orphan)
        return None
    try:
        written = kube.apply(change.resource, change.after, change.before, force=change.takes_over)
        written["metadata"].pop("managedFields", None)  # half of the object, and not used later
        return {**written, "kind": change.resource.kind}
    except ApiError as err:
        # The namespace or kind does not exist yet: a dry run can only assume that the change would succeed.
        if kube.dry_run and err.is_not_found:
            return change.after
        if err.refused_user and change.resource is RULES and is_shared(change.after):
            raise _not_of_one_team(change, err) from err
        raise


def _of_another(live: Manifest, title: str, inventory: str) -> HopError:
    """A shared rule that would have to change, if the checks before the change did not see it."""
    return HopError(
        Hop.API_SERVER,
        seen=f"{title} {maker(live)}, and inventory {inventory} needs different content. It was not changed",
        fix="use one version of the collection and the same options of prometheus in both inventories, or give the "
        f"object to this one: {hand_over(live['kind'], *key_of(live), inventory)}",
    )


def _not_of_one_team(change: Change, err: ApiError) -> HopError:
    """A rule that all namespaces share is an administrator's."""
    seen = "does not exist" if change.before is None else "differs from what these autoscalers need"
    return HopError(
        Hop.RULE,
        seen=f"{change.title} serves the autoscalers of all namespaces and {seen}, and user {err.refused_user} has no "
        "permission to write it. It was not changed",
        fix="have an administrator with the rights of docs/rights.yml run the playbook kubegpu.autoscale.autoscaling "
        "with the same autoscalers, prometheus options and version, and -e gpu_autoscaling_shared_rules_only=true",
    )
