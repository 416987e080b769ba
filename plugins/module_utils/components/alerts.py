# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Creates the PrometheusRules of alerts, without disabled alerts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Group = Mapping[str, Any]


@dataclass(frozen=True)
class AlertOptions:
    """Options of the role gpu_alerts: names of disabled alerts, and labels for the others."""

    disabled: Sequence[str] = ()
    labels: Mapping[str, str] | None = None


def alert_names(files: Mapping[str, Group]) -> list[str]:
    rules = (rule for file in files.values() for group in file["groups"] for rule in group["rules"])
    return [rule["alert"] for rule in rules if "alert" in rule]


def unknown_alert(files: Mapping[str, Group], options: AlertOptions) -> str:
    """The error for an unknown alert; can be empty."""
    known = alert_names(files)
    unknown = [name for name in options.disabled if name not in known]
    if not unknown:
        return ""
    return (
        f"gpu_alerts_disabled: unknown alert {', '.join(unknown)}. Nothing was changed."
        f" Next: use names of {', '.join(known)}."
    )


def alert_rules(files: Mapping[str, Group], options: AlertOptions, metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One PrometheusRule per file. metadata: of each object, without its name."""
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
            yield {**rule, "labels": {**rule["labels"], **(options.labels or {})}}
