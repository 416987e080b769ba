# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..clients import HPAS, RULES, ApiError, KubeClient, PrometheusClient, Resource
from ..domain import (
    Autoscaler,
    Finding,
    Manifest,
    RuleOptions,
    autoscaler_key,
    horizontal_pod_autoscaler,
    metrics_of,
    prometheus_rule,
)
from .outcome import Outcome
from .preflight import preflight
from .snapshot import Objects, is_managed, key_of, metric_of, read_objects, read_surroundings


def reconcile(
    kube: KubeClient, prometheus: PrometheusClient, autoscalers: Sequence[Autoscaler], rules: RuleOptions
) -> Outcome:
    """Make the cluster's recording rules and HPAs match.

    Raises: HopError before anything is changed, if there is reason to refuse; or when the server refuses a change.
    """
    objects = read_objects(kube, rules.namespace)
    outcome = Outcome()
    if autoscalers:
        around = read_surroundings(kube, prometheus, autoscalers)
        outcome.warnings += _refuse_or_warn(preflight(autoscalers, objects, around), dry_run=kube.dry_run)
    writer = _Writer(kube, outcome)
    hpas = {key_of(hpa): hpa for hpa in map(horizontal_pod_autoscaler, autoscalers)}
    made = [
        writer.apply(RULES, (objects.rules or {}).get(metric.name), prometheus_rule(metric, rules))
        for metric in metrics_of(autoscalers)
    ]
    scaled = [writer.apply(HPAS, objects.hpas.get(key), hpa) for key, hpa in hpas.items()]
    unused = _remove_unused_rules(writer, objects, {**objects.managed_hpas, **hpas})
    outcome.result = {"autoscalers": scaled, "rules": [*made, *unused]}
    return outcome


def remove(kube: KubeClient, params: Sequence[Mapping[str, Any]], rules: RuleOptions) -> Outcome:
    """Remove autoscalers, and each recording rule with its last user. What is not ours stays."""
    objects = read_objects(kube, rules.namespace)
    outcome = Outcome()
    writer = _Writer(kube, outcome)
    removed, left = [], dict(objects.managed_hpas)
    for key in dict.fromkeys(map(autoscaler_key, params)):
        live = objects.hpas.get(key)
        if live is not None and not is_managed(live):
            outcome.warnings.append(f"HPA {'/'.join(key)} was not made by this module and stays")
            live = None
        removed.append(
            writer.delete(HPAS, live) if live else {"namespace": key[0], "name": key[1], "action": "unchanged"}
        )
        left.pop(key, None)
    outcome.result = {"autoscalers": removed, "rules": _remove_unused_rules(writer, objects, left)}
    return outcome


class _Writer:
    """Applies and deletes, and notes in the outcome what came of it."""

    def __init__(self, kube: KubeClient, outcome: Outcome) -> None:
        self._kube = kube
        self._outcome = outcome

    def apply(self, resource: Resource, live: Manifest | None, desired: Manifest) -> dict[str, Any]:
        if live is not None and _settled(live, desired):
            return _entry(desired, "unchanged")
        try:
            after = self._kube.apply(resource, desired)
        except ApiError as err:
            # The namespace or the kind is still to come: a dry run can only assume that it would work.
            if not (self._kube.dry_run and err.is_not_found):
                raise
            after = desired
        return _entry(desired, self._outcome.record(live, after))

    def delete(self, resource: Resource, live: Manifest) -> dict[str, Any]:
        namespace, name = key_of(live)
        gone = not self._kube.delete(resource, name, namespace)
        return _entry(live, "unchanged" if gone else self._outcome.record(live, None))


def _settled(live: Manifest, desired: Manifest) -> bool:
    """Nothing to send. Where the server's defaults make a difference, applying finds out that there is none."""
    return live["spec"] == desired["spec"] and live["metadata"].get("labels") == desired["metadata"]["labels"]


def _entry(manifest: Manifest, action: str) -> dict[str, Any]:
    namespace, name = key_of(manifest)
    return {"namespace": namespace, "name": name, "metric": metric_of(manifest), "action": action}


def _remove_unused_rules(writer: _Writer, objects: Objects, hpas: Mapping[Any, Manifest]) -> list[dict[str, Any]]:
    used = set(map(metric_of, hpas.values()))
    return [writer.delete(RULES, rule) for metric, rule in (objects.rules or {}).items() if metric not in used]


def _refuse_or_warn(findings: Sequence[Finding], *, dry_run: bool) -> list[str]:
    """The warnings; the first refusal is raised."""
    refusals = [finding for finding in findings if finding.severity == "error" and not (dry_run and finding.awaited)]
    if refusals:
        raise refusals[0].error()
    return [str(finding) for finding in findings]
