# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads what controllers report about their objects, in conditions and events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..kube.objects import Manifest, last_seen, name_of, unix
from .finding_texts import condition_text
from .state.autoscaler import AutoscalerState
from .state.cluster import State

# Controllers of the control plane, by the names of their leases.
CONTROLLERS = CONTROLLER_MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"
# A controller renews its lease every few seconds.
SILENT_S = 60
# Reasons of events that are read for all objects of their kind in any state.
REJECTED = "InvalidConfiguration"
RESCALED = "SuccessfulRescale"
# An event may be written in the same second as the change.
_SAME_SECOND_S = 1.0
# Direction of scaling in the HPA controller's events.
# Source: kubernetes pkg/controller/podautoscaler/horizontal.go
_UP = re.compile(r"above target|below Spec\.MinReplicas|must be greater than 0")
_DOWN = re.compile(r"below target|above Spec\.MaxReplicas")


# This many times is not a coincidence, and after this time without an event it is over.
_OFTEN, _LATELY_S = 3, 900


@dataclass(frozen=True)
class Said:
    """A message of a controller, and how long it has been true."""

    text: str
    age_s: float | None = None


def rejection(state: State, manifest: Manifest, kind: str) -> Said | None:
    """Why the Prometheus operator rejects a monitor or a rule; None if it does not.

    Uses the condition of its binding to a Prometheus, which newer operators write, or else a later event.
    """
    for binding in (manifest.get("status") or {}).get("bindings") or ():
        for condition in binding.get("conditions") or ():
            if condition.get("type") == "Accepted" and condition.get("status") == "False":
                return Said(condition_text(condition), state.clock.seconds_since(condition.get("lastTransitionTime")))
    changed_s = state.clock.last_change_age_s(manifest)
    for event in sorted(_about(state, manifest, kind, REJECTED), key=last_seen, reverse=True):
        age_s = state.clock.seconds_since(last_seen(event) or None)
        if changed_s is None or age_s is None or age_s <= changed_s + _SAME_SECOND_S:
            return Said(f"{REJECTED}: {event.get('message')}", changed_s)
    return None


def silence_s(state: State, controller: str) -> float | None:
    """Seconds since a controller of the control plane renewed its lease; None if it has none."""
    lease = state.leases.get(controller) or {}
    return state.clock.seconds_since((lease.get("spec") or {}).get("renewTime"))


def undone_rescales(state: State, autoscaler: AutoscalerState) -> Said | None:
    """Shows that the HPA has repeatedly scaled to the same size without resetting the replicas itself.

    None if it has not, or not recently. Each step of a growth has a separate event.
    """
    events = list(_about(state, autoscaler.hpa, "HorizontalPodAutoscaler", RESCALED))
    for event in events:
        (began, ended), count, text = _span(event), _count(event), str(event.get("message"))
        turn = _DOWN if _UP.search(text) else _UP if _DOWN.search(text) else None
        if turn is None or count < _OFTEN or state.now_s - ended > _LATELY_S:
            continue
        if not any(_overlaps(its, began, ended) for its in events if turn.search(str(its.get("message")))):
            return Said(f"the HPA has scaled {count} times: {text}", state.now_s - began)
    return None


def _count(event: Manifest) -> int:
    return int((event.get("series") or {}).get("count") or event.get("count") or 1)


def _span(event: Manifest) -> tuple[float, float]:
    """First and last time, in Unix seconds."""
    ended = unix(last_seen(event) or None) or 0.0
    return unix(event.get("firstTimestamp") or event.get("eventTime")) or ended, ended


def _overlaps(event: Manifest, began: float, ended: float) -> bool:
    first, last = _span(event)
    return first <= ended and began <= last


def _about(state: State, manifest: Manifest, kind: str, reason: str) -> Iterator[Manifest]:
    """The objects of a list do not contain their kind."""
    for event in state.controller_events:
        about = event.get("involvedObject") or {}
        its = "/".join(filter(None, (about.get("namespace"), about.get("name", ""))))
        if (event.get("reason"), about.get("kind"), its) == (reason, kind, name_of(manifest)):
            yield event
