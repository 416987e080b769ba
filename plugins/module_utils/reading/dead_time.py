# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Measures the dead time, from which scaling rules are computed unless the user sets them."""

from __future__ import annotations

from collections.abc import Sequence

from ..autoscaling.manifests import dead_time_of
from ..autoscaling.scaling_rules import dead_time_s
from ..autoscaling.spec import Autoscaler
from ..cluster.errors import ApiError
from ..hops import Hop
from ..kube.labels import is_managed
from ..kube.objects import Key, Manifest, labels_of, made_s, scaled_pod_spec, start_s
from ..kube.rollouts import HASH
from .change_reader import ChangeReader
from .pods import read_pods

# A longer dead time is measured again in each run: the first pods of a workload also pull its image, and many that
# start at once slow each other down. Existing pods started faster than this.
ORDINARY_DEAD_TIME_S = 30
# Labels of pods: a Deployment's, a StatefulSet's, a Rollout's.
_REVISIONS = ("pod-template-hash", "controller-revision-hash", HASH)
# A longer dead time leads to a warning.
UNUSUAL_DEAD_TIME_S = 300


def resolve_dead_times(
    reader: ChangeReader, autoscalers: Sequence[Autoscaler], evaluate_s: int
) -> tuple[list[Autoscaler], list[str]]:
    """Returns the autoscalers with measured dead times, if the user does not set their scaling rules.

    The dead time is measured when the target has ready pods, and then stored on the HPA: rules that change with each
    run would be unwanted changes. Only a value above ORDINARY_DEAD_TIME_S is measured again, and replaced if the
    new one is smaller, because problems during the start of a pod only lengthen the measured time.
    evaluate_s: seconds between two evaluations of the rules that this run writes.
    Also returns a warning for each autoscaler whose scale-up a measured dead time slows down.
    """
    hpas = {**reader.existing.hpas, **reader.existing.scaled_objects}
    kept = {autoscaler.key: dead_time for autoscaler in autoscalers if (dead_time := _kept(hpas.get(autoscaler.key)))}
    to_measure = [
        autoscaler
        for autoscaler in autoscalers
        if autoscaler.needs_dead_time and not 0 < kept.get(autoscaler.key, 0) <= ORDINARY_DEAD_TIME_S
    ]
    known = dict(kept)
    for key, seconds in (_measure(reader, to_measure, evaluate_s) if to_measure else {}).items():
        known[key] = min(seconds, kept.get(key, seconds))
    resolved = [
        autoscaler.with_dead_time(known[autoscaler.key])
        if autoscaler.needs_dead_time and autoscaler.key in known
        else autoscaler
        for autoscaler in autoscalers
    ]
    return resolved, [
        f"{Hop.WORKLOAD}: autoscaler {autoscaler}: a scaling step takes {autoscaler.dead_time} s, "
        "because its pods seem to need minutes until they are ready (fix: set dead_time_seconds to the true value; "
        f"{autoscaler.dead_time} confirms it)"
        for autoscaler in resolved
        if autoscaler.is_measured
        and autoscaler.dead_time > UNUSUAL_DEAD_TIME_S
        and autoscaler.dead_time in {policy.period_seconds for policy in autoscaler.scale_up.policies}
    ]


def _kept(hpa: Manifest | None) -> int:
    if hpa is None or not is_managed(hpa):
        return 0
    seconds, is_given = dead_time_of(hpa)
    return 0 if is_given else seconds


def _measure(reader: ChangeReader, autoscalers: Sequence[Autoscaler], evaluate_s: int) -> dict[Key, int]:
    targets = reader.targets
    try:
        pods = read_pods(reader.kube, autoscalers, targets)
    except ApiError:
        return {}  # no permission to list pods: the assumed value is on the safe side
    starts = {
        autoscaler.key: _pod_start_s(pods[autoscaler.key], targets[autoscaler.key].manifest or {})
        for autoscaler in autoscalers
    }
    measured = {key: start for key, start in starts.items() if start is not None}
    if not measured:
        return {}
    # Imported here, because most runs find every dead time on its HPA.
    from .intervals import Intervals

    intervals = Intervals(reader.kube, reader.prometheus, evaluate_s)
    return {
        autoscaler.key: dead_time_s(
            measured[autoscaler.key], intervals.budget(autoscaler.metric_targets[0]).metric_lag_s
        )
        for autoscaler in autoscalers
        if autoscaler.key in measured
    }


def _pod_start_s(pods: Sequence[Manifest], target: Manifest) -> float | None:
    """Seconds from scheduling to readiness of the newest revision's pods; None if it cannot be measured.

    Returns the minimum, because temporary loss of readiness only lengthens the measured time. Times that are
    longer than the allowed time of a rollout are ignored.
    """
    newest = max(pods, key=made_s, default=None)
    revision = _revision(newest) if newest else None
    starts = [start for pod in pods if _revision(pod) == revision and (start := start_s(pod)) is not None]
    start = min(starts, default=None)
    return start if start is not None and start <= _longest_start_s(target) else None


def _revision(pod: Manifest) -> str:
    labels = labels_of(pod)
    return next(filter(None, map(labels.get, _REVISIONS)), "")


def _longest_start_s(target: Manifest) -> float:
    """The longest time that a Deployment allows for a rollout, plus that of the startup probes."""
    probes = [container.get("startupProbe") for container in scaled_pod_spec(target).get("containers") or ()]
    allowed = [
        probe.get("initialDelaySeconds", 0) + probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
        for probe in probes
        if probe
    ]
    return (target.get("spec") or {}).get("progressDeadlineSeconds", 600) + max(allowed, default=0)
