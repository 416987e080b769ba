# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from ..autoscaling.backends import (
    all_rules,
    backend_of,
    check_backends,
    inputs_read,
    needs_scaled_object,
    unused_rules,
)
from ..autoscaling.behavior_texts import describe_behaviors
from ..autoscaling.manifests import RuleOptions, autoscaler_behind, is_shared, selectors_of
from ..autoscaling.spec import Autoscaler, read_keys
from ..cluster.kube import HPAS, SCALED_OBJECTS, KubeClient
from ..cluster.prometheus_client import PrometheusClient
from ..errors import HopError, enumeration
from ..hops import Hop
from ..kube.labels import inventory_of, is_managed, is_of, maker
from ..kube.objects import Key, Manifest, key_of, owners
from ..reading.change_reader import ChangeReader
from ..reading.dead_time import resolve_dead_times
from ..reading.existing_autoscalers import (
    Existing,
    lacks,
    read_existing,
    read_reachable_hpas,
    read_rules,
    read_scaled_objects,
)
from ..reading.query_trial import candidates_of
from .divide_gpus import divide_gpus
from .outcome import Outcome
from .preflight import preflight
from .scrape_selectors import detect_selectors
from .wait import Deadline, wait_until
from .write import Change, write

# Seconds within which KEDA and the garbage collector must release an HPA.
RELEASED_S = 60.0


def reconcile(
    kube: KubeClient,
    prometheus: PrometheusClient,
    autoscalers: Sequence[Autoscaler],
    rules: RuleOptions,
    *,
    divides_gpus: bool = False,
    shared_rules_only: bool = False,
) -> Outcome:
    """Apply the recording rules, then the HPAs that read them.

    An object's failure does not stop the others, except for the HPAs of a rejected rule. Failures are collected
    in the outcome's errors.
    divides_gpus: lower the maxima to what the GPUs hold together.
    shared_rules_only: apply the rules that all namespaces share, for users who may not, and nothing else.
    Raises: HopError before anything is changed, if a check fails.
    """
    check_backends(autoscalers, rules)
    outcome = Outcome()
    reader = ChangeReader(kube, prometheus, autoscalers, rules.namespace)
    if autoscalers and divides_gpus:
        autoscalers, outcome.result["shares"], outcome.warnings = divide_gpus(reader, autoscalers)
        reader = reader.of(autoscalers)
    existing = reader.existing
    if autoscalers:
        rules = detect_selectors(rules, reader.trial.candidates, autoscalers, (existing.rules or {}).values())
    if autoscalers and shared_rules_only:
        outcome.result |= {"autoscalers": [], "behaviors": []}
        changes = [
            change for change in Wanted(autoscalers, rules, existing).rule_changes(()) if is_shared(change.manifest)
        ]
        outcome.result["rules"], _scalers = write(kube, outcome, changes)
        return outcome
    if autoscalers:
        outcome.warnings += preflight(reader.state(rules), dry_run=kube.dry_run)
        autoscalers, warnings = resolve_dead_times(reader, autoscalers, rules.evaluation_interval_s)
        outcome.warnings += warnings
    return _write_all(kube, Wanted(autoscalers, rules, existing), outcome)


@dataclass(frozen=True)
class Wanted:
    """The decided autoscalers and rule options of a run, and the objects before it."""

    autoscalers: Sequence[Autoscaler]
    options: RuleOptions
    existing: Existing

    @cached_property
    def rules(self) -> dict[str, Manifest]:
        return {key_of(rule)[1]: rule for rule in all_rules(self.autoscalers, self.options)}

    @property
    def adopted(self) -> set[Key]:
        return {autoscaler.key for autoscaler in self.autoscalers if autoscaler.adopt}

    def rule_changes(self, adopted: Collection[Key]) -> list[Change]:
        there = self.existing.rules or {}
        return [_rule_change(there.get(name), rule, adopted) for name, rule in self.rules.items()]

    def rejected_rule_of(self, rejected: Collection[str]) -> dict[Key, str]:
        """For each autoscaler a rule that it uses and that was rejected; empty without one."""
        return {
            autoscaler.key: next(
                (name for name in backend_of(autoscaler).rule_names(autoscaler) if name in rejected), ""
            )
            for autoscaler in self.autoscalers
        }

    def leaving(self, lacking: Mapping[Key, str]) -> dict[Key, Manifest]:
        """ScaledObjects of autoscalers that now have another backend, and all rules that they use."""
        return {
            autoscaler.key: found
            for autoscaler in self.autoscalers
            if not needs_scaled_object(autoscaler)
            and not lacking[autoscaler.key]
            and (found := self.existing.scaled_objects.get(autoscaler.key))
            and (is_of(found, self.options.inventory) or (autoscaler.adopt and is_managed(found)))
        }

    def scaler_changes(self, existing: Existing, taken: Collection[Key], lacking: Mapping[Key, str]) -> list[Change]:
        """taken: autoscalers whose objects are taken from other managers."""
        wanted = [(one.key, backend_of(one).scaler(one, self.options)) for one in self.autoscalers]
        return [
            Change(existing.scaler(manifest), manifest, adopt=key in taken, lacks=lacking[key])
            for key, manifest in wanted
        ]


def _write_all(kube: KubeClient, wanted: Wanted, outcome: Outcome) -> Outcome:
    """Rules first, because an HPA without its rule has no value; then HPAs, then rules that none uses any more."""
    made, _scalers = write(kube, outcome, wanted.rule_changes(wanted.adopted))
    lacking = wanted.rejected_rule_of({entry["name"] for entry in made if entry["action"] == "failed"})
    existing, freed = _release(kube, outcome, wanted.existing, wanted.leaving(lacking))
    changes = wanted.scaler_changes(existing, wanted.adopted | freed, lacking)
    _rules, scaled = write(kube, outcome, changes)
    written = [change.manifest for change in changes]
    there = existing.rules or {}
    left = [] if outcome.errors else [rule for name, rule in there.items() if name not in wanted.rules]
    removed = _remove_unused(kube, outcome, existing, left, wanted.options.inventory, written=written)
    behaviors, places = describe_behaviors(wanted.autoscalers)
    for entry, place in zip(scaled, places, strict=True):
        entry["behavior"] = place
    outcome.result |= {"autoscalers": scaled, "behaviors": behaviors, "rules": made + removed}
    return outcome


def narrow_rules(
    kube: KubeClient,
    prometheus: PrometheusClient,
    autoscalers: Sequence[Autoscaler],
    rules: RuleOptions,
    outcome: Outcome,
) -> None:
    """Limit proven rules that were created before Prometheus had series of an input to the input's targets.

    Otherwise the next run would change them. Rules of other inventories are left to those.
    Raises: HopError if several jobs or clusters report an input.
    """
    live = read_rules(kube, rules.namespace) or {}
    known = {*rules.selectors, *(name for rule in live.values() for name in selectors_of(rule))}
    if unknown := inputs_read(autoscalers) - known:
        narrowed = detect_selectors(rules, candidates_of(prometheus, unknown), autoscalers, live.values())
        wanted = [
            (found, rule)
            for rule in all_rules(autoscalers, narrowed)
            if selectors_of(rule).keys() & unknown
            and (found := live.get(key_of(rule)[1]))
            and is_of(found, rules.inventory)
        ]
        write(kube, outcome, [_rule_change(found, rule, ()) for found, rule in wanted])


def remove(kube: KubeClient, params: Sequence[Mapping[str, Any]], rules: RuleOptions) -> Outcome:
    """Remove autoscalers, and each recording rule with its last user. Objects of others are kept."""
    keys = list(dict.fromkeys(read_keys(params)))
    existing = read_existing(kube, rules.namespace, {namespace for namespace, _name in keys})
    outcome = Outcome()
    # KEDA's HPA is deleted with its ScaledObject, and would be recreated without that.
    there = {key: found for key in keys if (found := existing.scaled_objects.get(key) or existing.hpas.get(key))}
    staying = {key: why for key, scaler in there.items() if (why := _why_kept(scaler, rules.inventory))}
    ours = {key: scaler for key, scaler in there.items() if key not in staying}
    outcome.warnings += [f"{_title(there[key])} {why}" for key, why in staying.items()]
    if unknown := ["/".join(key) for key in keys if key not in there]:
        outcome.warnings.append(f"no HPA or ScaledObject found for {enumeration(unknown)}, so there was none to remove")
    _changed, entries = write(kube, outcome, _deletions(ours.values(), rules.inventory))
    done = {(entry["namespace"], entry["name"]): entry for entry in entries}
    gone = {key for key, entry in done.items() if entry["action"] != "failed"}
    left = existing.scalers(gone)
    rules_there = (existing.rules or {}).values()
    may_be_used = [rule for rule in rules_there if is_of(rule, rules.inventory) and not existing.are_users_known(rule)]
    if kept := unused_rules(may_be_used, left):
        names = enumeration(sorted(rule["metadata"]["name"] for rule in kept))
        outcome.warnings.append(f"{existing.unread}; an HPA elsewhere may use PrometheusRule {names}, which stays")
    removed = _remove_unused(kube, outcome, existing, rules_there, rules.inventory, gone=gone)
    absent = {key: {"namespace": key[0], "name": key[1], "metric": "", "action": "unchanged"} for key in keys}
    outcome.result = {"autoscalers": [*{**absent, **done}.values()], "rules": removed}
    return outcome


def _why_kept(scaler: Manifest, inventory: str) -> str:
    """Why this HPA or ScaledObject is not removed; empty if it is."""
    if not is_managed(scaler):
        return "was not created by this module and is kept"
    if not is_of(scaler, inventory):
        return f"{maker(scaler)}, not to {inventory}, and stays"
    owner = next((name for kind, name in owners(scaler) if kind == SCALED_OBJECTS.kind), "")
    # KEDA would create it again.
    return owner and f"belongs to ScaledObject {owner}, which this user has no permission to list, and stays"


def _remove_unused(
    kube: KubeClient,
    outcome: Outcome,
    existing: Existing,
    rules: Iterable[Manifest],
    inventory: str,
    *,
    written: Sequence[Manifest] = (),
    gone: Collection[Key] = (),
) -> list[dict[str, Any]]:
    """Remove the rules that this inventory created and no HPA uses. Returns an entry for each.

    Other users of a rule, such as alerts, dashboards and other ScaledObjects, cannot all be detected: only HPAs and
    ScaledObjects of this collection keep a rule.
    written, gone: HPAs and ScaledObjects that this run wrote and removed.
    """
    ours = [rule for rule in rules if is_of(rule, inventory) and existing.are_users_known(rule)]
    unused = unused_rules(ours, [*existing.scalers(gone, written), *written])
    if unused:  # another run may have found this rule and created its HPA since then
        now = replace(
            existing,
            hpas=read_reachable_hpas(kube, existing.namespaces)[0],
            scaled_objects=read_scaled_objects(kube, existing.namespaces),
        )
        unused = unused_rules(unused, [*now.scalers(gone, written), *written])
    removed, _entries = write(kube, outcome, _deletions(unused, inventory))
    return removed


def _release(
    kube: KubeClient, outcome: Outcome, existing: Existing, leaving: Mapping[Key, Manifest]
) -> tuple[Existing, set[Key]]:
    """Release the HPAs of ScaledObjects from KEDA. No replica changes, because each HPA is kept.

    Without its ScaledObject an HPA gets no value, so it keeps the count until it is written.
    Returns: the existing objects, and the autoscalers whose HPA was released.
    """
    if not leaving:
        return existing, set()
    _rules, entries = write(kube, outcome, [Change(found, None, orphan=True) for found in leaving.values()])
    freed = {(entry["namespace"], entry["name"]) for entry in entries if entry["action"] != "failed"}
    hpas = {key: hpa for key in freed if (hpa := _without_owner(kube, key))}
    scaled_objects = {key: found for key, found in existing.scaled_objects.items() if key not in freed}
    return replace(existing, hpas={**existing.hpas, **hpas}, scaled_objects=scaled_objects), freed


def _without_owner(kube: KubeClient, key: Key) -> Manifest | None:
    """The HPA, when KEDA has released its ScaledObject and the garbage collector has removed the owner reference.

    Raises: HopError if that takes too long.
    """
    namespace, name = key

    def look() -> tuple[Manifest | None, bool]:
        hpa = kube.get(HPAS, name, namespace)
        is_owned = hpa is not None and any(kind == SCALED_OBJECTS.kind for kind, _name in owners(hpa))
        return hpa, is_owned or kube.get(SCALED_OBJECTS, name, namespace) is not None

    is_final = kube.dry_run
    hpa, is_held = wait_until(look, lambda seen: is_final or not seen[1], Deadline(RELEASED_S))
    if is_held and not is_final:
        raise HopError(
            Hop.HPA,
            seen=f"ScaledObject {namespace}/{name} is still being deleted after {RELEASED_S:g} s, so its HPA was not "
            "changed. It keeps the replicas as they are",
            fix="check that KEDA's operator runs: it removes the finalizer. Then run again",
        )
    return hpa and {**hpa, "kind": HPAS.kind}


def _title(scaler: Manifest) -> str:
    kind = "HPA" if scaler["kind"] == HPAS.kind else scaler["kind"]
    return f"{kind} {'/'.join(key_of(scaler))}"


def _deletions(objects: Iterable[Manifest], inventory: str) -> list[Change]:
    return [Change(before=found, after=None, may_go=partial(is_of, inventory=inventory)) for found in objects]


def _rule_change(live: Manifest | None, wanted: Manifest, adopted: Collection[Key]) -> Change:
    """The rule of a workload is adopted with its HPA. A rule of another inventory is shared."""
    if tuple(autoscaler_behind(wanted).split("/")) in adopted:
        return Change(live, wanted, adopt=True)
    is_shared_already = live is not None and not is_of(live, inventory_of(wanted)) and not lacks(live, wanted)
    return Change(live, live if is_shared_already else wanted)
