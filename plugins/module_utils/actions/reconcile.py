# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from ..autoscaling.behaviors import describe_behaviors
from ..autoscaling.manifests import AUTOSCALER_ANNOTATION, Manifest, RuleOptions
from ..autoscaling.spec import Autoscaler, read_keys
from ..chain.objects import Key, key_of
from ..cluster.kube import HPAS, KubeClient
from ..cluster.prometheus import PrometheusClient
from ..errors import enumeration
from ..marks import is_managed, is_of, maker
from ..reading.before import Before
from ..reading.existing import Existing, read_existing, read_reachable_hpas, read_rules, shared
from ..reading.trial import gpu_jobs
from .backend import Backend
from .dead_time import resolve_dead_times
from .exporter_labels import are_wanted, labels_of, with_exporter_labels
from .outcome import Outcome
from .preflight import preflight
from .write import Change, write


def reconcile(
    kube: KubeClient,
    prometheus: PrometheusClient,
    backend: Backend,
    autoscalers: Sequence[Autoscaler],
    rules: RuleOptions,
) -> Outcome:
    """Make the cluster's recording rules match, and then the HPAs that read them.

    An object's failure does not stop the others, except for the HPAs of a rejected rule. Failures are collected
    in the outcome's errors.
    Raises: HopError before anything is changed, if a check fails.
    """
    reader = Before(kube, prometheus, autoscalers, rules.namespace)
    existing, outcome = reader.existing, Outcome()
    rules_there = existing.rules or {}
    if autoscalers:
        rules, unknown = with_exporter_labels(rules, reader.trial.gpu_jobs, autoscalers, rules_there.values())
        outcome.warnings += unknown
        outcome.warnings += preflight(reader.state(rules), dry_run=kube.dry_run)
        autoscalers, warnings = resolve_dead_times(
            kube, prometheus, autoscalers, existing.hpas, reader.targets, rules.evaluation_interval_s
        )
        outcome.warnings += warnings
    desired = backend.desired_objects(autoscalers, rules)
    recorded = {key_of(manifest)[1]: manifest for manifest in desired if manifest["kind"] != HPAS.kind}
    written = {key_of(manifest): manifest for manifest in desired if manifest["kind"] == HPAS.kind}
    adopted = {autoscaler.key for autoscaler in autoscalers if autoscaler.adopt}
    made, _hpas = write(
        kube, outcome, [_rule_change(rules_there.get(name), manifest, adopted) for name, manifest in recorded.items()]
    )
    refused = {entry["name"] for entry in made if entry["action"] == "failed"}
    lacking = {
        autoscaler.key: next((name for name in backend.rule_names(autoscaler) if name in refused), "")
        for autoscaler in autoscalers
    }
    changes = [
        Change(existing.hpas.get(key), manifest, adopt=key in adopted, lacks=lacking[key])
        for key, manifest in written.items()
    ]
    _rules, scaled = write(kube, outcome, changes)
    left = [] if outcome.errors else [rule for name, rule in rules_there.items() if name not in recorded]
    removed = _remove_unused(kube, backend, outcome, existing, left, rules.inventory, written=written)
    behaviors, places = describe_behaviors(autoscalers)
    for entry, place in zip(scaled, places, strict=True):
        entry["behavior"] = place
    outcome.result = {"autoscalers": scaled, "behaviors": behaviors, "rules": made + removed}
    return outcome


def narrow_rules(
    kube: KubeClient,
    prometheus: PrometheusClient,
    backend: Backend,
    autoscalers: Sequence[Autoscaler],
    rules: RuleOptions,
    outcome: Outcome,
) -> None:
    """Narrow proven rules that were made before Prometheus had rows of GPUs: they believe the exporter alone.

    Otherwise the next run would change them.
    """
    if not are_wanted(rules, autoscalers):
        return
    live = read_rules(kube, rules.namespace) or {}
    if any(map(labels_of, live.values())):
        return
    narrowed, _warnings = with_exporter_labels(rules, gpu_jobs(prometheus), autoscalers, live.values())
    if narrowed.exporter_labels:
        wanted = [rule for rule in backend.desired_objects(autoscalers, narrowed) if rule["kind"] != HPAS.kind]
        write(kube, outcome, [_rule_change(live.get(key_of(rule)[1]), rule, ()) for rule in wanted])


def remove(kube: KubeClient, backend: Backend, params: Sequence[Mapping[str, Any]], rules: RuleOptions) -> Outcome:
    """Remove autoscalers, and each recording rule with its last user. What was not made for this inventory stays."""
    keys = list(dict.fromkeys(read_keys(params)))
    existing = read_existing(kube, rules.namespace, {namespace for namespace, _name in keys})
    outcome = Outcome()
    there = {key: existing.hpas[key] for key in keys if key in existing.hpas}
    ours = {key: hpa for key, hpa in there.items() if is_of(hpa, rules.inventory)}
    outcome.warnings += [
        f"HPA {'/'.join(key)} {maker(hpa)}, not to {rules.inventory}, and stays"
        if is_managed(hpa)
        else f"HPA {'/'.join(key)} was not made by this module and stays"
        for key, hpa in there.items()
        if key not in ours
    ]
    _changed, entries = write(kube, outcome, _deletions(ours.values(), rules.inventory))
    done = {(entry["namespace"], entry["name"]): entry for entry in entries}
    gone = {key for key, entry in done.items() if entry["action"] != "failed"}
    left = {key: hpa for key, hpa in existing.hpas.items() if key not in gone}
    rules_there = (existing.rules or {}).values()
    may_be_used = [rule for rule in rules_there if is_of(rule, rules.inventory) and not existing.are_users_known(rule)]
    if kept := backend.unused_rules(may_be_used, left):
        names = enumeration(sorted(rule["metadata"]["name"] for rule in kept))
        outcome.warnings.append(f"{existing.unread}; an HPA elsewhere may use PrometheusRule {names}, which stays")
    removed = _remove_unused(kube, backend, outcome, existing, rules_there, rules.inventory, gone=gone)
    absent = {key: {"namespace": key[0], "name": key[1], "metric": "", "action": "unchanged"} for key in keys}
    outcome.result = {"autoscalers": [*{**absent, **done}.values()], "rules": removed}
    return outcome


def _remove_unused(
    kube: KubeClient,
    backend: Backend,
    outcome: Outcome,
    existing: Existing,
    rules: Iterable[Manifest],
    inventory: str,
    *,
    written: Mapping[Key, Manifest] = MappingProxyType({}),
    gone: Collection[Key] = (),
) -> list[dict[str, Any]]:
    """Remove those of these rules that this inventory made and that no HPA uses. Returns an entry for each.

    What else reads a rule, an alert, a dashboard or a ScaledObject for instance, cannot be seen in full: a rule stays
    for HPAs alone.
    written, gone: HPAs that this run has made, and removed.
    """

    def unused_beside(hpas: Mapping[Key, Manifest], rules: Iterable[Manifest]) -> list[Manifest]:
        left = {key: hpa for key, hpa in hpas.items() if key not in gone}
        return backend.unused_rules(rules, {**left, **written})

    ours = [rule for rule in rules if is_of(rule, inventory) and existing.are_users_known(rule)]
    unused = unused_beside(existing.hpas, ours)
    if unused:  # another run may have found such a rule in place and made its HPA meanwhile
        unused = unused_beside(read_reachable_hpas(kube, existing.namespaces)[0], unused)
    removed, _entries = write(kube, outcome, _deletions(unused, inventory))
    return removed


def _deletions(objects: Iterable[Manifest], inventory: str) -> list[Change]:
    return [Change(before=found, after=None, may_go=partial(is_of, inventory=inventory)) for found in objects]


def _rule_change(live: Manifest | None, wanted: Manifest, adopted: Collection[Key]) -> Change:
    """The rule of a workload goes with its HPA, if that is adopted. One that another inventory made is shared."""
    only = (wanted["metadata"].get("annotations") or {}).get(AUTOSCALER_ANNOTATION, "")
    if tuple(only.split("/")) in adopted:
        return Change(live, wanted, adopt=True)
    return Change(live, shared(live, wanted) if live else wanted)
