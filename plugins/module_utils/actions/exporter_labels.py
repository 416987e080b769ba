# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Selects the scrape targets for GPU metrics if the user does not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from ..autoscaling.manifests import EXPORTER_ANNOTATION, Manifest, RuleOptions, metrics_of
from ..autoscaling.spec import Autoscaler
from ..errors import enumeration
from ..marks import is_of


def with_exporter_labels(
    rules: RuleOptions,
    jobs: Sequence[str],
    autoscalers: Sequence[Autoscaler],
    live: Iterable[Manifest],
) -> tuple[RuleOptions, list[str]]:
    """The options with the labels of the exporter's targets, and warnings.

    A live rule keeps its targets as long as they exist, so a new job changes nothing. Without a rule, the only job
    that reports GPUs is selected. A rule of another inventory does not change.
    jobs: jobs that report GPUs. live: existing rules.
    """
    if not are_wanted(rules, autoscalers):
        return rules, []
    live = list(live)
    names = {profile.rule_name("") for autoscaler in autoscalers for profile in autoscaler.profiles if profile.of_gpus}
    theirs = [rule for rule in live if rule["metadata"]["name"] in names and not is_of(rule, rules.inventory)]
    if theirs:
        return replace(rules, exporter_labels=labels_of(theirs[0])), []
    kept = next(filter(None, map(labels_of, live)), {})
    if kept and (not jobs or set(kept) != {"job"} or kept["job"] in jobs):
        return replace(rules, exporter_labels=kept), []
    if len(jobs) > 1:
        warning = (
            f"jobs {enumeration(jobs)} report GPUs, and the recording rules use all of them. Set "
            "prometheus.exporter_labels to the job of your exporter, {job: " + jobs[0] + "} for example"
        )
        return replace(rules, exporter_labels={}), [warning]
    return replace(rules, exporter_labels={"job": jobs[0]} if jobs else {}), []


def are_wanted(rules: RuleOptions, autoscalers: Iterable[Autoscaler]) -> bool:
    """Whether the labels must be detected: the user does not set them, and a metric of GPUs is used."""
    return rules.exporter_labels is None and any(metric.is_of_gpus for metric in metrics_of(autoscalers))


def labels_of(rule: Manifest) -> Mapping[str, str]:
    """The labels recorded on a rule; empty if the annotation was edited."""
    noted = (rule["metadata"].get("annotations") or {}).get(EXPORTER_ANNOTATION, "{}")
    with suppress(ValueError):
        labels = json.loads(noted)
        if isinstance(labels, dict):
            return {str(label): str(value) for label, value in labels.items()}
    return {}
