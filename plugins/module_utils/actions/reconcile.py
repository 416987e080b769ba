# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..autoscaling.behaviors import describe_behaviors
from ..autoscaling.manifests import RuleOptions
from ..autoscaling.spec import Autoscaler, read_keys
from ..chain.objects import key_of
from ..cluster.kube import HPAS, KubeClient
from ..cluster.prometheus import PrometheusClient
from ..errors import enumeration
from ..marks import is_managed
from .backend import Backend
from .dead_time import resolve_dead_times
from .exporter_labels import with_exporter_labels
from .outcome import Outcome
from .preflight import preflight
from .snapshot import read_hpas, read_objects, read_snapshot
from .write import Change, write


def reconcile(
    kube: KubeClient,
    prometheus: PrometheusClient,
    backend: Backend,
    autoscalers: Sequence[Autoscaler],
    rules: RuleOptions,
) -> Outcome:
    """Make the cluster's recording rules match, and then the HPAs that read them.

    One object's failure does not stop the others, but for the HPAs of a rule that was refused. Failures are collected
    in the outcome's errors.
    Raises: HopError before anything is changed, if there is reason to refuse.
    """
    objects = read_objects(kube, rules.namespace, {autoscaler.namespace for autoscaler in autoscalers})
    outcome = Outcome()
    if autoscalers:
        snapshot = read_snapshot(kube, prometheus, autoscalers, "" if objects.rules else rules.namespace)
        rules, unknown = with_exporter_labels(rules, snapshot.gpu_jobs, autoscalers, (objects.rules or {}).values())
        outcome.warnings += unknown
        outcome.warnings += preflight(autoscalers, objects, snapshot, rules, dry_run=kube.dry_run)
        autoscalers, warnings = resolve_dead_times(
            kube, prometheus, autoscalers, objects, snapshot.targets, rules.evaluation_interval_s
        )
        outcome.warnings += warnings
    desired = backend.desired_objects(autoscalers, rules)
    recorded = {key_of(manifest)[1]: manifest for manifest in desired if manifest["kind"] != HPAS.kind}
    written = {key_of(manifest): manifest for manifest in desired if manifest["kind"] == HPAS.kind}
    rules_there = objects.rules or {}
    made, _hpas = write(kube, outcome, [Change(rules_there.get(name), manifest) for name, manifest in recorded.items()])
    refused = {entry["name"] for entry in made if entry["action"] == "failed"}
    lacking = {
        autoscaler.key: next((name for name in backend.rule_names(autoscaler) if name in refused), "")
        for autoscaler in autoscalers
    }
    adopted = {autoscaler.key for autoscaler in autoscalers if autoscaler.adopt}
    changes = [
        Change(objects.hpas.get(key), manifest, adopt=key in adopted, lacks=lacking[key])
        for key, manifest in written.items()
    ]
    _rules, scaled = write(kube, outcome, changes)
    unused = []
    if not outcome.errors and not objects.unread:  # else HPAs that nobody sees may use them
        left = [rule for name, rule in rules_there.items() if name not in recorded]
        unused = backend.unused_rules(left, {**objects.hpas, **written})
    if unused:  # another run may have found such a rule in place and made its HPA meanwhile
        unused = backend.unused_rules(unused, {**read_hpas(kube), **written})
    removed, _entries = write(kube, outcome, [Change(before=rule, after=None) for rule in unused])
    behaviors, places = describe_behaviors(autoscalers)
    for entry, place in zip(scaled, places, strict=True):
        entry["behavior"] = place
    outcome.result = {"autoscalers": scaled, "behaviors": behaviors, "rules": made + removed}
    return outcome


def remove(kube: KubeClient, backend: Backend, params: Sequence[Mapping[str, Any]], rules: RuleOptions) -> Outcome:
    """Remove autoscalers, and each recording rule with its last user. What is not ours stays."""
    keys = list(dict.fromkeys(read_keys(params)))
    objects = read_objects(kube, rules.namespace, {namespace for namespace, _name in keys})
    outcome = Outcome()
    ours = {key: objects.hpas[key] for key in keys if key in objects.hpas and is_managed(objects.hpas[key])}
    for key in keys:
        if key in objects.hpas and key not in ours:
            outcome.warnings.append(f"HPA {'/'.join(key)} was not made by this module and stays")
    _changed, entries = write(kube, outcome, [Change(before=hpa, after=None) for hpa in ours.values()])
    done = {(entry["namespace"], entry["name"]): entry for entry in entries}
    gone = {key for key, entry in done.items() if entry["action"] != "failed"}
    left = {key: hpa for key, hpa in objects.hpas.items() if key not in gone}
    unused = backend.unused_rules((objects.rules or {}).values(), left)
    if unused and objects.unread:
        names = enumeration(sorted(rule["metadata"]["name"] for rule in unused))
        outcome.warnings.append(f"{objects.unread}; an HPA elsewhere may use PrometheusRule {names}, which stays")
        unused = []
    if unused:
        unused = backend.unused_rules(unused, {key: hpa for key, hpa in read_hpas(kube).items() if key not in gone})
    removed, _entries = write(kube, outcome, [Change(before=rule, after=None) for rule in unused])
    absent = {key: {"namespace": key[0], "name": key[1], "metric": "", "action": "unchanged"} for key in keys}
    outcome.result = {"autoscalers": [*{**absent, **done}.values()], "rules": removed}
    return outcome
