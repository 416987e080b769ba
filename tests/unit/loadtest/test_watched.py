from __future__ import annotations

from itertools import pairwise
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.watched import (
    Ends,
    Sample,
    Samples,
    highest_ratio,
    sample_of,
)


def pods(name: str, value: str | None, target: str) -> tuple[dict, dict]:
    spec = {
        "type": "Pods",
        "pods": {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": target}},
    }
    status = {"type": "Pods", "pods": {"metric": {"name": name}, "current": {"averageValue": value}}}
    return spec, status if value is not None else {"type": ""}


def hpa(*metrics: tuple[dict, dict]) -> dict:
    return {
        "spec": {"metrics": [spec for spec, _ in metrics]},
        "status": {"currentReplicas": 2, "desiredReplicas": 3, "currentMetrics": [status for _, status in metrics]},
    }


CPU = (
    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
    {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 40, "averageValue": "200m"}}},
)
QUEUE = (
    {
        "type": "Object",
        "object": {
            "describedObject": {"kind": "Service", "name": "chat"},
            "metric": {"name": "queue"},
            "target": {"type": "Value", "value": "10"},
        },
    },
    {
        "type": "Object",
        "object": {
            "describedObject": {"kind": "Service", "name": "chat"},
            "metric": {"name": "queue"},
            "current": {"value": "25"},
        },
    },
)


def test_the_metric_farthest_above_its_target_counts():
    assert highest_ratio(hpa(pods("gpu", "45", "60"), CPU)) == 0.8
    assert highest_ratio(hpa(pods("gpu", "90500m", "60"), CPU)) == 90.5 / 60
    assert highest_ratio(hpa(pods("gpu", "45", "60"), QUEUE)) == 2.5


def test_a_metric_without_a_value_is_left_out():
    assert highest_ratio(hpa(pods("gpu", None, "60"))) is None
    assert highest_ratio(hpa(pods("gpu", None, "60"), CPU)) == 0.8
    assert highest_ratio({"spec": {}}) is None


def test_an_hpa_that_has_decided_nothing_yet_wants_what_there_is():
    seen = hpa(CPU)
    del seen["status"]["desiredReplicas"]
    assert sample_of(seen, 1, 5.0) == Sample(5.0, 2, 2, 1, 0.8)


def test_looks_that_say_the_same_are_left_out_but_for_the_last_before_a_change():
    samples = Samples()
    for look in range(400):
        samples.add(Sample(look / 2, 1 if look < 43 else 3, 1, 1, None))
    kept = [(sample["time_s"], sample["desired"]) for sample in samples.as_dicts()]
    assert (21.0, 1) in kept
    assert (21.5, 3) in kept
    assert len(kept) < 140  # of 400
    gaps = [later[0] - earlier[0] for earlier, later in pairwise(kept)]
    assert max(gaps) <= 2.0


def test_at_zero_replicas_an_average_is_no_number():
    """The controller divides by the replicas, and writes what comes of it."""
    asleep = hpa(pods("queue", "-9223372036854775808m", "5"))
    asleep["status"] |= {"currentReplicas": 0, "desiredReplicas": 0}
    assert highest_ratio(asleep) is None


def a_pod(name: str, uid: str = "", *, terminating: bool = False) -> dict[str, Any]:
    deleted = {"deletionTimestamp": "2026-11-18T11:07:27Z"} if terminating else {}
    return {"metadata": {"name": name, "uid": uid or name, **deleted}}


def test_when_pods_ended():
    """One without a grace period is gone at the next look; one of a StatefulSet returns under its name."""
    ends = Ends()
    ends.add([a_pod("a"), a_pod("b"), a_pod("c-0", "1"), a_pod("d")], 10.0)
    ends.add([a_pod("a", terminating=True), a_pod("c-0", "2"), a_pod("d", terminating=True)], 10.5)
    ends.add([a_pod("a", terminating=True), a_pod("c-0", "2")], 11.0)
    ends.add([a_pod("a", terminating=True), a_pod("c-0", "2")], 11.5)
    assert ends.as_dicts() == [
        {"uid": "b", "name": "b", "began_s": 10.0, "seen_s": 10.0, "ended_s": 10.5},
        {"uid": "1", "name": "c-0", "began_s": 10.0, "seen_s": 10.0, "ended_s": 10.5},
        {"uid": "a", "name": "a", "began_s": 10.5, "seen_s": 11.5, "ended_s": None},
        {"uid": "d", "name": "d", "began_s": 10.5, "seen_s": 10.5, "ended_s": 11.0},
    ]
