from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.watch_autoscaler import Watch, watch_autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from fake_cluster import FakeTransport, refusal

HPA_PATH = "/apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers/chat"
TARGET_PATH = "/apis/apps/v1/namespaces/ml/deployments/chat"
PODS_PATH = "/api/v1/namespaces/ml/pods"
LOG_PATH = f"{PODS_PATH}/load-x/log"
APPS = {"resources": [{"name": "deployments", "kind": "Deployment"}]}
BEGAN_S = 1_795_000_000.0

HPA = {
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
        "maxReplicas": 8,
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 30}},
    },
    "status": {"currentReplicas": 1, "desiredReplicas": 1},
}
TARGET = {"spec": {"selector": {"matchLabels": {"app": "chat"}}}, "status": {"readyReplicas": 1}}


class Clock:
    """Time that passes only during sleeps."""

    def __init__(self) -> None:
        self.now_s = BEGAN_S
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds


def scaled(desired: int) -> dict[str, Any]:
    hpa = copy.deepcopy(HPA)
    hpa["status"]["desiredReplicas"] = desired
    return hpa


def watched(answers: dict[str, Any], clock: Clock | None = None, **more: Any) -> dict[str, Any]:
    clock = clock or Clock()
    transport = FakeTransport(
        {
            f"GET {HPA_PATH}": HPA,
            "GET /apis/apps/v1": APPS,
            f"GET {TARGET_PATH}": TARGET,
            "GET /api/v1/namespaces/ml/events": {"items": []},
            f"GET {PODS_PATH}": {"items": []},
            **answers,
        }
    )
    watch = Watch("ml", "chat", **{"seconds": 2} | more)
    return watch_autoscaler(KubeClient(transport), watch, clock=clock, sleep=clock.sleep).result


def test_replicas_over_time():
    answers = iter([HPA, HPA, HPA, scaled(3), scaled(3), scaled(3)])  # the first look is for the target alone
    seen = watched({f"GET {HPA_PATH}": answers})
    assert [(sample["time_s"] - BEGAN_S, sample["desired"]) for sample in seen["samples"]] == [
        (0, 1),
        (0.5, 1),
        (1.0, 3),
        (2.0, 3),
    ]
    assert (seen["began_s"], seen["ended_s"]) == (BEGAN_S, BEGAN_S + 2)
    assert (seen["min_replicas"], seen["max_replicas"], seen["scale_down_window_s"]) == (1, 8, 30)
    assert seen["behavior"] == HPA["spec"]["behavior"]


def test_one_look():
    clock = Clock()
    assert len(watched({}, clock, seconds=0)["samples"]) == 1
    assert clock.pauses == []


def test_until_a_moment():
    clock = Clock()
    assert watched({}, clock, end_s=BEGAN_S + 3)["ended_s"] == BEGAN_S + 3


@pytest.mark.parametrize("missing", [HPA_PATH, TARGET_PATH])
def test_an_autoscaler_or_a_target_that_is_not_there(missing):
    with pytest.raises(HopError, match=r"does not exist|no such"):
        watched({f"GET {missing}": refusal(404, "not found")})


def test_a_kind_that_nobody_serves():
    with pytest.raises(HopError, match="no kind Deployment in apps/v1"):
        watched({"GET /apis/apps/v1": {"resources": []}})


def pod(phase: str, name: str = "load-x", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": f"u-{name}", "labels": {"job-name": "load"}, **more},
        "status": {"phase": phase},
    }


def test_the_time_begins_when_the_load_does():
    clock = Clock()
    answers = {
        f"GET {PODS_PATH}": iter(
            [{"items": items} for items in ([], [pod("Pending")], *[[pod("Running")]] * 2, *[[]] * 9)]
        ),
        f"GET {LOG_PATH}": iter(["starting", "starting\nbegins\n"]),
    }
    assert watched(answers, clock, job="load", line="begins")["began_s"] == BEGAN_S + 1.5


def test_a_load_that_has_begun_earlier():
    """Its log tells how long ago."""
    text = "begins\n    1.0 s  served 5\n    2.1 s  served 5, latency p95 91 ms\n"
    answers = {f"GET {PODS_PATH}": {"items": [pod("Running")]}, f"GET {LOG_PATH}": text}
    seen = watched(answers, job="load", line="begins", seconds=5)
    assert (seen["began_s"], seen["ended_s"]) == (BEGAN_S - 2.1, BEGAN_S + 2.9)


@pytest.mark.parametrize("default", [{}, {"annotations": {"kubectl.kubernetes.io/default-container": "load"}}])
def test_the_log_is_that_of_the_load_and_not_of_a_proxy_beside_it(default):
    """The API server gives none of a pod with several containers unless it is told which."""
    load = {**pod("Running", **default), "spec": {"containers": [{"name": "load"}, {"name": "istio-proxy"}]}}
    if default:
        load["spec"]["containers"].reverse()
    answers = {f"GET {PODS_PATH}": {"items": [load]}, f"GET {LOG_PATH}": "begins\n"}
    transport = FakeTransport(
        {f"GET {HPA_PATH}": HPA, "GET /apis/apps/v1": APPS, f"GET {TARGET_PATH}": TARGET, **answers}
    )
    clock = Clock()
    watch = Watch("ml", "chat", seconds=0, job="load", line="begins")
    watch_autoscaler(KubeClient(transport), watch, clock=clock, sleep=clock.sleep)
    assert [request.query.get("container") for request in transport.requests if request.path == LOG_PATH] == ["load"]


def test_a_load_that_fails_before_it_begins():
    answers = {f"GET {PODS_PATH}": {"items": [pod("Failed")]}, f"GET {LOG_PATH}": "no such host\n"}
    with pytest.raises(HopError, match="ml/load: the load did not start: its pod load-x is Failed: no such host"):
        watched(answers, job="load", line="begins")


def test_a_load_that_does_not_come():
    with pytest.raises(HopError, match="it has no pod after 5 s"):
        watched({}, job="load", line="begins", job_timeout_s=5)


def test_events_of_others_and_of_earlier_are_left_out():
    def event(name: str, second: int, **more: Any) -> dict[str, Any]:
        return {
            "metadata": {"name": f"{name}.1", "namespace": "ml"},
            "involvedObject": {"kind": "Pod", "name": name},
            "lastTimestamp": f"2020-01-01T11:06:{second:02}Z",  # by a clock of its own
            "reason": "Scheduled",
            "message": "assigned to\n gpu1",
            **more,
        }

    before = [event("chat-a", 30), event("chat-old", 10)]
    after = [event("chat-b", 45), event("chat-a", 42), event("chat-old", 10), event("chatter", 45), event("other", 45)]
    after.append(event("chat-c", 0, lastTimestamp=None, eventTime="2020-01-01T11:06:50Z"))
    answers = iter([{"items": before}, {"items": after}])
    seen = watched({"GET /api/v1/namespaces/ml/events": answers})
    assert [(entry["object"], entry["message"]) for entry in seen["events"]] == [
        ("Pod chat-a", "assigned to gpu1"),
        ("Pod chat-b", "assigned to gpu1"),
        ("Pod chat-c", "assigned to gpu1"),
    ]


def test_who_may_not_see_events_gets_the_rest():
    seen = watched({"GET /api/v1/namespaces/ml/events": refusal(403, "forbidden")})
    assert seen["events"] == []
    assert seen["samples"]


def test_how_long_new_pods_took_to_start():
    old = pod("Running", "chat-old", creationTimestamp="2026-11-18T11:06:41Z", labels={"app": "chat"})
    new = pod("Running", "chat-new", creationTimestamp="2020-01-01T11:06:41Z", labels={"app": "chat"})
    new["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2020-01-01T11:06:42Z"},
        {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T11:06:50Z"},
    ]
    waiting = pod("Pending", "chat-waits", creationTimestamp="2020-01-01T11:06:43Z", labels={"app": "chat"})
    seen = watched({f"GET {PODS_PATH}": iter([{"items": [old]}, *[{"items": [waiting, old, new]}] * 9])})
    assert [(entry["name"], entry["scheduled_s"], entry["ready_s"]) for entry in seen["pods"]] == [
        ("chat-new", 1.0, 9.0),
        ("chat-waits", None, None),
    ]


def test_pods_that_end_are_seen_at_each_look():
    of_chat = {"labels": {"app": "chat"}, "creationTimestamp": "2026-11-18T11:06:41Z"}
    serving = pod("Running", "chat-a", **of_chat)
    leaving = pod("Running", "chat-a", **of_chat, deletionTimestamp="2026-11-18T11:08:41Z")
    items = iter([[serving], [serving], [leaving], [leaving], [], []])
    seen = watched({f"GET {PODS_PATH}": ({"items": found} for found in items)})
    [end] = seen["ends"]
    assert (end["name"], end["uid"]) == ("chat-a", leaving["metadata"]["uid"])
    assert [end[name] - BEGAN_S for name in ("began_s", "seen_s", "ended_s")] == [0.5, 1.0, 1.5]


def test_a_pod_s_own_values_until_the_generator_has_ended():
    """Of metrics of type Pods, as the HPA reads them; a look without a value is left out."""
    hpa = copy.deepcopy(HPA)
    target = {"type": "AverageValue", "averageValue": "60"}
    hpa["spec"]["metrics"] = [
        {"type": "Pods", "pods": {"metric": {"name": "gpu"}, "target": target}},
        {"type": "External", "external": {"metric": {"name": "queue"}, "target": target}},
    ]
    value = {"describedObject": {"kind": "Pod", "name": "chat-a"}, "timestamp": "", "metric": {"name": "gpu"}}
    values = iter([refusal(404, "none yet"), *({"items": [{**value, "value": number}]} for number in ("900m", "90"))])
    ended = {"name": "load", "state": {"terminated": {"exitCode": 0}}}
    load, done = pod("Running"), pod("Succeeded")
    done["status"]["containerStatuses"] = [ended]
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T11:06:50Z"}]
    of_chat = {"labels": {"app": "chat"}, "creationTimestamp": "2020-01-01T11:06:41Z"}
    serving = pod("Running", "chat-a", **of_chat)
    leaving = pod("Running", "chat-b", **of_chat, deletionTimestamp="2020-01-01T12:00:00Z")
    for chat in (serving, leaving):
        chat["spec"] = {"containers": [{"name": "chat", "ports": [{"containerPort": 8000}]}]}
        chat["status"] |= {"conditions": ready, "podIP": "10.244.1.7"}
    pods = iter([[load], [serving], [serving], [load], [serving], [load], [serving, leaving], [done]])
    path = "/apis/custom.metrics.k8s.io"
    seen = watched(
        {
            f"GET {HPA_PATH}": hpa,
            f"GET {PODS_PATH}": ({"items": items} for items in pods),
            f"GET {LOG_PATH}": "begins",
            f"GET {path}": {"versions": [{"version": "v1beta2"}]},
            f"GET {path}/v1beta2/namespaces/ml/pods/chat-a/gpu": values,
        },
        job="load",
        line="begins",
        until_job_ends=True,
        seconds=60,
        pod="chat-a",
    )
    assert seen["pod_samples"] == [
        {"time_s": BEGAN_S + 0.5, "pod_values": {"gpu": 0.9}},
        {"time_s": BEGAN_S + 1, "pod_values": {"gpu": 90}},
    ]
    assert seen["targets"] == {"gpu": 60}
    assert seen["ready_pods"] == [{"name": "chat-a", "uid": "u-chat-a", "address": "10.244.1.7", "ports": [8000]}]
    assert seen["ended_s"] == BEGAN_S + 1
