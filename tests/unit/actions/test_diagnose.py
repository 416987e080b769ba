"""The hops that a real control plane is not easily brought to break."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.backend import PrometheusAdapter
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.diagnose import Chain, first_broken_hop
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.observe import GoalEvidence, Observation
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus import PrometheusClient, Series
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import Finding
from fake_cluster import FakeTransport

PROXY = "/api/v1/namespaces/monitoring/services/prometheus:9090/proxy/api/v1"

CHAT = Autoscaler.from_params({"namespace": "ml", "target": {"name": "chat"}, "max_replicas": 4})
EXTERNAL = Autoscaler.from_params(
    {
        "namespace": "ml",
        "target": {"name": "chat"},
        "metric": {"name": "sqs"},
        "metric_type": "External",
        "target_value": 5,
        "max_replicas": 4,
    }
)


def samples(*values: float) -> Series:
    return Series({}, values, tuple(100.0 + 2 * number for number in range(len(values))))


GOAL = GoalEvidence(
    CHAT.goals[0],
    holders=frozenset({"chat-0"}),
    values={"chat-0": 41.0},
    recorded={"chat-0": samples(40.0, 42.0)},
    now_s=103.5,
)
GOOD = Observation(
    exists=True,
    replicas=1,
    pods=frozenset({"chat-0"}),
    ready_pods=frozenset({"chat-0"}),
    goals=(GOAL,),
    desired=1,
    conditions={"ScalingActive": {"status": "True"}},
)


def with_goal(**changes: Any) -> dict[str, Any]:
    return {"goals": (replace(GOAL, **changes),)}


def data(**content: Any) -> dict[str, Any]:
    return {"status": "success", "data": content}


def chain(**answers: Any) -> Chain:
    kube = KubeClient(FakeTransport({**ANSWERS, **answers}))
    prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service="prometheus", port=9090)
    return Chain(prometheus, PrometheusAdapter(kube))


ANSWERS: dict[str, Any] = {
    f"GET {PROXY}/query": data(result=[{"metric": {"namespace": "ml", "pod": "chat-0"}, "value": [0, "1"]}]),
    f"GET {PROXY}/rules": data(groups=[{"interval": 2, "rules": [{"name": "namespace_pod:gpu:avg", "health": "ok"}]}]),
}
FAILING_RULE = {"name": "namespace_pod:gpu:avg", "health": "err", "lastError": "many-to-many matching"}
IDLE = {"ready_pods": frozenset(), **with_goal(holders=frozenset())}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "target gone": ({"exists": False, **IDLE}, {}, "workload", "Deployment ml/chat is gone"),
    "scaled to nothing": ({"replicas": 0, **IDLE}, {}, "workload", "has 0 replicas"),
    "nothing ready": (IDLE, {}, "workload", "none of the 1 pods of Deployment ml/chat is ready"),
    "prometheus down": (
        {},
        {f"GET {PROXY}/query": ApiError(503, "no endpoints", "")},
        "exporter -> Prometheus",
        "does not answer: no endpoints",
    ),
    "rules not readable": (
        {},
        {f"GET {PROXY}/rules": ApiError(404, "no such page", "")},
        "Prometheus -> recording rule",
        "does not say its rules",
    ),
    "rule not loaded": (
        {},
        {f"GET {PROXY}/rules": data(groups=[])},
        "Prometheus -> recording rule",
        "has not loaded the rule that records namespace_pod:gpu:avg",
    ),
    "rule that fails": (
        {},
        {f"GET {PROXY}/rules": data(groups=[{"rules": [FAILING_RULE]}])},
        "Prometheus -> recording rule",
        "many-to-many matching",
    ),
    "no series": (with_goal(recorded={}), {}, "recording rule -> series", "no value for pod ml/chat-0"),
    "no answer of the metrics API": (
        with_goal(listed=None, refusal="no endpoints"),
        {},
        "series -> adapter",
        "custom.metrics.k8s.io does not answer: no endpoints",
    ),
    "metric not listed": (with_goal(listed=False), {}, "series -> adapter", "does not list pods/gpu"),
    "no value": (
        with_goal(values={}, refusal="no metrics returned"),
        {},
        "adapter -> custom.metrics.k8s.io",
        "no gpu for pod ml/chat-0: no metrics returned",
    ),
    "another value": (
        with_goal(values={"chat-0": 90.0}),
        {},
        "adapter -> custom.metrics.k8s.io",
        "gpu of pod ml/chat-0 is 90, Prometheus recorded 40 to 42",
    ),
    "no condition": ({"conditions": {}}, {}, "custom.metrics.k8s.io -> HPA", "no condition yet"),
    "not scaling": (
        {"conditions": {"ScalingActive": {"status": "False", "reason": "Ambiguous", "message": "two"}}},
        {},
        "custom.metrics.k8s.io -> HPA",
        "ScalingActive is False, Ambiguous: two",
    ),
    "only now": ({}, {}, "custom.metrics.k8s.io -> HPA", "not before wait_timeout ended"),
    "one of two metrics without a value": (
        {"unread": ("Resource cpu",)},
        {},
        "custom.metrics.k8s.io -> HPA",
        "no current value of Resource cpu",
    ),
}


@pytest.mark.parametrize(("changes", "answers", "hop", "seen"), CASES.values(), ids=CASES)
def test_first_broken_hop(changes: dict[str, Any], answers: dict[str, Any], hop: str, seen: str) -> None:
    finding = first_broken_hop(chain(**answers), CHAT, replace(GOOD, **changes))
    assert finding.hop == hop
    assert seen in finding.seen
    assert finding.fix
    assert finding.subjects == ("ml/chat",)


def test_the_leftmost_of_several_broken_hops_is_named() -> None:
    everything = replace(GOOD, conditions={}, **with_goal(values={}, recorded={}, listed=False))
    nothing = {f"GET {PROXY}/query": data(result=[])}
    assert first_broken_hop(chain(**nothing), CHAT, everything).hop == "exporter -> Prometheus"


def test_an_external_metric_of_somebody_else_has_no_hops_in_prometheus() -> None:
    goal = GoalEvidence(EXTERNAL.goals[0], holders=frozenset({"chat"}), listed=False)
    finding = first_broken_hop(chain(**{f"GET {PROXY}/rules": data(groups=[])}), EXTERNAL, replace(GOOD, goals=(goal,)))
    assert finding == Finding(
        "series -> adapter",
        "external.metrics.k8s.io does not list sqs",
        "see what serves that API: it has to know the metric",
        subjects=("ml/chat",),
    )


def test_many_autoscalers_ask_prometheus_once() -> None:
    transport = FakeTransport({**ANSWERS, f"GET {PROXY}/rules": data(groups=[])})
    kube = KubeClient(transport)
    prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service="prometheus", port=9090)
    shared = Chain(prometheus, PrometheusAdapter(kube))
    found: set[Finding] = {first_broken_hop(shared, CHAT, GOOD) for _ in range(20)}
    assert len(found) == 1
    assert len(transport.asked) == 2


@pytest.mark.parametrize(
    ("changes", "verified"),
    [
        ({}, True),
        (with_goal(values={"chat-0": 42.005}), True),
        # The other of two replicas of Prometheus has seen other samples.
        (with_goal(values={"chat-0": 44.9}), True),
        (with_goal(values={"chat-0": 37.1}), True),
        (with_goal(values={"chat-0": 46.0}), False),
        (with_goal(values={"chat-0": 90.0}, agreed=frozenset({"chat-0"})), True),
        ({"unread": ("Resource cpu",)}, False),
        (with_goal(values={}), False),
        (with_goal(recorded={}), False),
        (IDLE, False),
        (with_goal(holders=frozenset({"chat-0", "chat-1"})), False),
        ({"conditions": {"ScalingActive": {"status": "False"}}}, False),
        ({"goals": (GOAL, replace(GOAL, values={}))}, False),
        ({"goals": (GoalEvidence(EXTERNAL.goals[0], frozenset({"chat"}), values={"chat": 7}),)}, True),
    ],
)
def test_what_counts_as_verified(changes: dict[str, Any], verified: bool) -> None:
    assert replace(GOOD, **changes).is_verified is verified


def test_the_age_is_that_of_the_pod_that_lags_most() -> None:
    lagging = replace(
        GOAL,
        holders=frozenset({"chat-0", "chat-1"}),
        recorded={"chat-0": samples(40.0, 42.0), "chat-1": samples(40.0), "gone": Series({}, (1.0,), (1.0,))},
    )
    assert (GOAL.age_s, lagging.age_s) == (1.5, 3.5)
    assert replace(GOAL, recorded={}).age_s is None
