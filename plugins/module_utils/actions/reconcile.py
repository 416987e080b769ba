# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..autoscaling.manifests import MANAGER, Manifest, RuleOptions, is_managed
from ..autoscaling.spec import Autoscaler, autoscaler_key
from ..cluster.errors import ApiError
from ..cluster.kube import HPAS, RULES, KubeClient, Resource
from ..cluster.ownership import dropped_fields, is_up_to_date, other_managers
from ..cluster.parallel import in_parallel
from ..cluster.prometheus import PrometheusClient
from ..errors import HopError, enumeration
from .backend import Backend
from .dead_time import describe_behaviors, resolve_dead_times, unusual_dead_times
from .outcome import Outcome
from .preflight import preflight
from .snapshot import Objects, metric_of, read_hpas, read_objects, read_snapshot
from .targets import Key, key_of

_RESOURCES = {resource.kind: resource for resource in (RULES, HPAS)}


def reconcile(
    kube: KubeClient,
    prometheus: PrometheusClient,
    backend: Backend,
    autoscalers: Sequence[Autoscaler],
    rules: RuleOptions,
) -> Outcome:
    """Make the cluster's recording rules and HPAs match.

    One object's failure does not stop the others; failures are collected in the outcome's errors.
    Raises: HopError before anything is changed, if there is reason to refuse.
    """
    objects = read_objects(kube, rules.namespace)
    outcome = Outcome()
    if autoscalers:
        snapshot = read_snapshot(kube, prometheus, autoscalers)
        outcome.warnings += preflight(autoscalers, objects, snapshot, dry_run=kube.dry_run)
        autoscalers = resolve_dead_times(kube, prometheus, autoscalers, objects, snapshot.targets)
        outcome.warnings += unusual_dead_times(autoscalers)
    desired = backend.desired_objects(autoscalers, rules)
    adopted = {autoscaler.key for autoscaler in autoscalers if autoscaler.adopt}
    made, scaled = _write(kube, outcome, [_apply(manifest, objects, adopted) for manifest in desired])
    written = {key_of(manifest): manifest for manifest in desired if manifest["kind"] == HPAS.kind}
    unused = (
        backend.unused_rules((objects.rules or {}).values(), {**objects.hpas, **written}) if not outcome.errors else []
    )
    if unused:  # another run may have found such a rule in place and made its HPA meanwhile
        unused = backend.unused_rules(unused, {**read_hpas(kube), **written})
    removed, _ = _write(kube, outcome, [_Change(before=rule, after=None) for rule in unused])
    behaviors, places = describe_behaviors(autoscalers)
    for entry, place in zip(scaled, places, strict=True):
        entry["behavior"] = place
    outcome.result = {"autoscalers": scaled, "behaviors": behaviors, "rules": made + removed}
    return outcome


def remove(kube: KubeClient, backend: Backend, params: Sequence[Mapping[str, Any]], rules: RuleOptions) -> Outcome:
    """Remove autoscalers, and each recording rule with its last user. What is not ours stays."""
    objects = read_objects(kube, rules.namespace)
    outcome = Outcome()
    keys = list(dict.fromkeys(map(autoscaler_key, params)))
    ours = {key: objects.hpas[key] for key in keys if key in objects.hpas and is_managed(objects.hpas[key])}
    for key in keys:
        if key in objects.hpas and key not in ours:
            outcome.warnings.append(f"HPA {'/'.join(key)} was not made by this module and stays")
    _, entries = _write(kube, outcome, [_Change(before=hpa, after=None) for hpa in ours.values()])
    done = {(entry["namespace"], entry["name"]): entry for entry in entries}
    gone = {key for key, entry in done.items() if entry["action"] != "failed"}
    left = {key: hpa for key, hpa in objects.hpas.items() if key not in gone}
    unused = backend.unused_rules((objects.rules or {}).values(), left)
    if unused:
        unused = backend.unused_rules(unused, {key: hpa for key, hpa in read_hpas(kube).items() if key not in gone})
    removed, _ = _write(kube, outcome, [_Change(before=rule, after=None) for rule in unused])
    outcome.result = {"autoscalers": [done.get(key) or _absent(key) for key in keys], "rules": removed}
    return outcome


@dataclass(frozen=True)
class _Change:
    """One object as it is and as it is to be; None where there is none.

    adopt: take its fields over from others, also if it is not ours.
    """

    before: Manifest | None
    after: Manifest | None
    adopt: bool = False

    @property
    def manifest(self) -> Manifest:
        return self.after or self.before or {}

    @property
    def resource(self) -> Resource:
        return _RESOURCES[self.manifest["kind"]]

    @property
    def takes_over(self) -> bool:
        """What we made is put back, whoever has edited it since."""
        return self.adopt or (self.before is not None and is_managed(self.before))

    @property
    def edited_by(self) -> list[str]:
        if self.adopt or self.before is None or self.after is None or not is_managed(self.before):
            return []
        return other_managers(self.before, MANAGER)

    @property
    def is_needed(self) -> bool:
        return self.before is None or self.after is None or not is_up_to_date(self.before, self.after, MANAGER)


def _apply(desired: Manifest, objects: Objects, adopted: set[Key]) -> _Change:
    key = key_of(desired)
    if desired["kind"] == RULES.kind:
        return _Change((objects.rules or {}).get(key[1]), desired)
    return _Change(objects.hpas.get(key), desired, adopt=key in adopted)


def _write(
    kube: KubeClient, outcome: Outcome, changes: Sequence[_Change]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Send what is needed, many at once, and note in the outcome what came of each.

    Returns: an entry for each rule, and one for each HPA.
    """
    needed = [change for change in changes if change.is_needed]
    results = dict(zip(map(id, needed), in_parallel(lambda change: _send(kube, change), needed), strict=True))
    entries: dict[str, list[dict[str, Any]]] = {RULES.kind: [], HPAS.kind: []}
    for change in changes:
        action = outcome.record(change.before, results[id(change)]) if id(change) in results else "unchanged"
        namespace, name = key_of(change.manifest)
        outcome.warnings += _notes(change, results.get(id(change)))
        entry = {"namespace": namespace, "name": name, "metric": metric_of(change.manifest), "action": action}
        entries[change.manifest["kind"]].append(entry)
    return entries[RULES.kind], entries[HPAS.kind]


def _notes(change: _Change, result: Manifest | HopError | ApiError | None) -> list[str]:
    """What the user has to know of an object that was written."""
    if not isinstance(result, dict) or change.after is None:
        return []
    title = f"{change.resource.kind} {'/'.join(key_of(change.manifest))}"
    notes = []
    if change.edited_by:
        notes.append(f"{title}: what {enumeration(change.edited_by)} had changed is put back")
    dropped = dropped_fields(result["spec"], change.after["spec"])
    if dropped:
        notes.append(f"{title}: this cluster does not keep {enumeration(dropped)}; leave it out, or upgrade Kubernetes")
    return notes


def _send(kube: KubeClient, change: _Change) -> Manifest | None:
    """What is there afterwards."""
    if change.after is None:
        namespace, name = key_of(change.manifest)
        kube.delete(change.resource, name, namespace)
        return None
    try:
        return {**kube.apply(change.resource, change.after, force=change.takes_over), "kind": change.resource.kind}
    except ApiError as err:
        # The namespace or the kind is still to come: a dry run can only assume that it would work.
        if kube.dry_run and err.is_not_found:
            return change.after
        raise


def _absent(key: Key) -> dict[str, Any]:
    return {"namespace": key[0], "name": key[1], "metric": "", "action": "unchanged"}
