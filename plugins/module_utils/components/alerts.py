# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Creates the PrometheusRules of alerts, without disabled alerts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Group = Mapping[str, Any]


@dataclass(frozen=True)
class AlertOptions:
    """Options of the role gpu_alerts: names of disabled alerts, labels for the others, and metadata of the objects."""

    disabled: Sequence[str]
    labels: Mapping[str, str]
    namespace: str
    rule_labels: Mapping[str, str]


def alert_names(files: Mapping[str, Group]) -> list[str]:
    rules = (rule for file in files.values() for group in file["groups"] for rule in group["rules"])
    return [rule["alert"] for rule in rules if "alert" in rule]


def alerts_plan(options: AlertOptions, survey: Mapping[str, Any]) -> dict[str, Any]:
    """`objects`, and `refused` with an error if a disabled alert does not exist.

    survey: `files` of rules by name, each with `groups` in the format of Prometheus.
    """
    files: Mapping[str, Group] = survey["files"]
    return {"objects": _objects(files, options), "refused": list(_unknown(alert_names(files), options.disabled))}


def _unknown(known: Sequence[str], disabled: Sequence[str]) -> Iterator[str]:
    if unknown := [name for name in disabled if name not in known]:
        yield (
            f"gpu_alerts_disabled: unknown alert {', '.join(unknown)}. Nothing was changed."
            f" Next: use names of {', '.join(known)}."
        )


def _objects(files: Mapping[str, Group], options: AlertOptions) -> list[dict[str, Any]]:
    """One PrometheusRule per file."""
    metadata = {"namespace": options.namespace, "labels": options.rule_labels}
    return [
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {"name": f"kubegpu-alerts-{name}", **metadata},
            "spec": {"groups": list(_groups(file["groups"], options))},
        }
        for name, file in files.items()
    ]


def _groups(groups: Sequence[Group], options: AlertOptions) -> Iterator[dict[str, Any]]:
    """Prometheus rejects groups without rules."""
    for group in groups:
        if rules := list(_rules(group["rules"], options)):
            yield {**group, "rules": rules}


def _rules(rules: Sequence[Mapping[str, Any]], options: AlertOptions) -> Iterator[dict[str, Any]]:
    for rule in rules:
        if "record" in rule:
            yield dict(rule)
        elif rule["alert"] not in options.disabled:
            yield {**rule, "labels": {**rule["labels"], **options.labels}}
