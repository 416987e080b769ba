# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which scrape targets are believed about GPUs, where the user does not say it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from ..autoscaling.manifests import EXPORTER_ANNOTATION, Manifest, RuleOptions, metrics_of
from ..autoscaling.spec import Autoscaler
from ..errors import enumeration


def with_exporter_labels(
    rules: RuleOptions,
    jobs: Sequence[str],
    autoscalers: Iterable[Autoscaler],
    live: Iterable[Manifest],
) -> tuple[RuleOptions, list[str]]:
    """The options with the labels of the exporter's targets, and warnings.

    What a live rule believes stays, until its targets are gone: a job that is new takes nothing over. Without a rule
    the one job that reports GPUs is believed.
    jobs: that report GPUs. live: rules that are there.
    """
    if rules.exporter_labels is not None or not any(metric.is_of_gpus for metric in metrics_of(autoscalers)):
        return rules, []
    kept = next(filter(None, map(_labels_of, live)), {})
    if kept and (not jobs or set(kept) != {"job"} or kept["job"] in jobs):
        return replace(rules, exporter_labels=kept), []
    if len(jobs) > 1:
        warning = (
            f"jobs {enumeration(jobs)} report GPUs, and the recording rules believe all of them. Set "
            "prometheus.exporter_labels to the job of your exporter, {job: " + jobs[0] + "} for example"
        )
        return replace(rules, exporter_labels={}), [warning]
    return replace(rules, exporter_labels={"job": jobs[0]} if jobs else {}), []


def _labels_of(rule: Manifest) -> Mapping[str, str]:
    """What a rule notes; nothing if others have changed that."""
    noted = (rule["metadata"].get("annotations") or {}).get(EXPORTER_ANNOTATION, "{}")
    with suppress(ValueError):
        labels = json.loads(noted)
        if isinstance(labels, dict):
            return {str(label): str(value) for label, value in labels.items()}
    return {}
