"""A query to a metrics API: what is rejected and requested, and the hop in the error without a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.metric_query import MetricQuery
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.read_metric import (
    metric_condition,
    read_metric,
    read_metric_until,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from fake_cluster import FakeTransport, refusal

CUSTOM = "/apis/custom.metrics.k8s.io"
V1 = f"{CUSTOM}/v1beta1"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
PODS = "/api/v1/namespaces/ml/pods"
SCALE = "/apis/apps/v1/namespaces/ml/deployments/chat/scale"
APISERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.custom.metrics.k8s.io"

OPTIONS: dict[str, Any] = {
    "api": "custom",
    "metric": "gpu",
    "namespace": "ml",
    "resource": "pods",
    "name": "*",
    "label_selectors": [],
    "metric_label_selectors": [],
    "target": None,
}
TARGET: dict[str, Any] = {"target": {"kind": "Deployment", "name": "chat", "api_version": None}}
EXTERNAL_OPTIONS = {"api": "external", "metric": "queue"}


def query(**options: Any) -> MetricQuery:
    return MetricQuery.from_params({**OPTIONS, **options})


def pod(name: str, *, ready: str = "True", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ml", "labels": {"app": "chat"}, **metadata},
        "spec": {},
        "status": {"conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready}]},
    }


def values(**by_name: str) -> dict[str, Any]:
    items = [
        {"describedObject": {"kind": "Pod", "namespace": "ml", "name": name.replace("_", "-")}, "value": value}
        for name, value in by_name.items()
    ]
    return {"items": items}


def listing(*names: str) -> dict[str, Any]:
    return {"resources": [{"name": name} for name in names]}


def apiservice(service: str = "monitoring/prometheus-adapter", **condition: str) -> dict[str, Any]:
    namespace, name = service.split("/")
    return {
        "metadata": {"name": "v1beta1.custom.metrics.k8s.io"},
        "spec": {"service": {"namespace": namespace, "name": name}},
        "status": {"conditions": [{"type": "Available", "status": "True", **condition}]},
    }


ANSWERS: dict[str, Any] = {
    f"GET {CUSTOM}": {"versions": [{"version": "v1beta1"}], "preferredVersion": {"version": "v1beta1"}},
    f"GET {V1}": listing("pods/gpu", "namespaces/gpu"),
    f"GET {V1}/namespaces/ml/pods/*/gpu": values(chat_0="41500m", chat_1="20"),
    f"GET {V1}/namespaces/ml/pods/chat-0/gpu": values(chat_0="41500m"),
    "GET /apis/apps/v1": {
        "resources": [
            {"name": "deployments", "kind": "Deployment"},
            {"name": "deployments/scale", "kind": "Scale"},
            {"name": "daemonsets", "kind": "DaemonSet"},
        ]
    },
    f"GET {SCALE}": {"spec": {"replicas": 2}, "status": {"selector": "app=chat"}},
    f"GET {PODS}": {"items": [pod("chat-0"), pod("chat-1")]},
    f"GET {PODS}/chat-0": pod("chat-0"),
    f"GET {APISERVICE}": apiservice(),
    f"GET {EXTERNAL}": listing("queue"),
    f"GET {EXTERNAL}/namespaces/ml/queue": {"items": [{"metricLabels": {"name": "a"}, "value": "7"}]},
}


def cluster() -> FakeTransport:
    """One in which every hop works."""
    return FakeTransport(ANSWERS)


def asked(transport: FakeTransport, **options: Any) -> dict[str, Any]:
    return read_metric(KubeClient(transport), query(**options))[0]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a slash": ({"metric": "pods/gpu"}, "so they must not contain '/' and '%'"),
    "a percent sign": ({"name": "a%2Fb"}, "so they must not contain '/' and '%'"),
    "the way up": ({"namespace": ".."}, "so they must not contain '/' and '%'"),
    "external with a target": ({**EXTERNAL_OPTIONS, **TARGET}, "does not belong to an object"),
    "external with a name": ({**EXTERNAL_OPTIONS, "name": "chat-0"}, "does not belong to an object"),
    "external with a resource": ({**EXTERNAL_OPTIONS, "resource": "nodes"}, "does not belong to an object"),
    "target with a resource": ({**TARGET, "resource": "nodes"}, "target stands for its pods"),
    "pods without a namespace": ({"namespace": None}, "pods need a namespace"),
    "all namespaces": ({"resource": "namespaces", "namespace": None}, "a query is for one namespace"),
    "two namespaces": ({"resource": "namespaces", "name": "web"}, "a query is for one namespace"),
    "labels and a name": ({"name": "chat-0", "label_selectors": ["a=b"]}, "one object is named"),
    "labels of a namespace": ({"resource": "namespaces", "label_selectors": ["a=b"]}, "one object is named"),
    "a kind from nowhere": (
        {"target": {"kind": "Foo", "name": "a", "api_version": None}},
        "kind Foo is unknown",
    ),
}


@pytest.mark.parametrize(("options", "seen"), REFUSED.values(), ids=REFUSED)
def test_options_that_contradict_each_other(options: dict[str, Any], seen: str) -> None:
    with pytest.raises(HopError) as caught:
        query(**options)
    assert caught.value.hop == "query"
    assert seen in caught.value.seen


def test_namespaces_may_be_named_once_or_twice_alike() -> None:
    for options in ({"namespace": "ml"}, {"namespace": None, "name": "ml"}, {"namespace": "ml", "name": "ml"}):
        assert query(resource="namespaces", **options).discovery_name == "namespaces/gpu"


def test_a_value_for_each_pod() -> None:
    result = asked(cluster())
    assert result == {
        "api": "custom",
        "metric": "gpu",
        "namespace": "ml",
        "samples": [
            {"kind": "Pod", "namespace": "ml", "name": "chat-0", "value": 41.5, "timestamp": "", "labels": {}},
            {"kind": "Pod", "namespace": "ml", "name": "chat-1", "value": 20, "timestamp": "", "labels": {}},
        ],
        "listed": True,
        "missing": [],
        "hop": None,
        "seen": None,
        "fix": None,
    }


def test_one_look_asks_for_no_more_than_it_needs() -> None:
    transport = cluster()
    asked(transport, label_selectors=["app = chat", "tier in (a,b)"], metric_label_selectors=["model=a"])
    assert transport.asked == [f"GET {CUSTOM}", f"GET {V1}", f"GET {V1}/namespaces/ml/pods/*/gpu"]
    selectors = {"labelSelector": "app = chat,tier in (a,b)", "metricLabelSelector": "model=a"}
    assert transport.requests[-1].query == selectors


def test_a_target_is_asked_by_the_selector_of_its_scale() -> None:
    transport = cluster()
    assert asked(transport, **TARGET)["missing"] == []
    assert f"GET {SCALE}" in transport.asked
    [values_request] = [request for request in transport.requests if request.path.startswith(f"{V1}/")]
    assert values_request.query == {"labelSelector": "app=chat"}


def test_a_metric_of_the_external_api() -> None:
    transport = cluster()
    result = asked(transport, **EXTERNAL_OPTIONS, label_selectors=["name=a"], metric_label_selectors=["b=c"])
    assert result["samples"][0]["labels"] == {"name": "a"}
    assert (result["api"], result["listed"], result["hop"]) == ("external", True, None)
    assert transport.requests[-1].query == {"labelSelector": "name=a,b=c"}


def test_ready_pods_without_a_value_are_named() -> None:
    transport = cluster()
    transport.answers[f"GET {PODS}"] = {
        "items": [
            pod("chat-0"),
            pod("chat-3"),
            pod("chat-2"),
            pod("loading", ready="False"),
            pod("leaving", deletionTimestamp="2026-01-01T00:00:00Z"),
        ]
    }
    result = asked(transport, **TARGET)
    assert result["missing"] == ["chat-2", "chat-3"]
    assert len(result["samples"]) == 2
    assert result["hop"] == "metric"
    assert result["seen"] == "metric gpu: no gpu for chat-2, chat-3"


NOT_FOUND = refusal(404, "could not find the metric")
NO_ADAPTER = {
    f"GET {V1}": refusal(503, "service unavailable\n"),
    f"GET {APISERVICE}": apiservice(status="False", reason="EndpointsNotFound", message="cannot find endpointslices"),
}
NO_PODS_VALUES = {f"GET {V1}/namespaces/ml/pods/*/gpu": NOT_FOUND}
FORBIDDEN = ApiError(403, {"message": "forbidden"}, "GET /x")

BROKEN: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "nobody serves it": (
        {},
        {f"GET {CUSTOM}": NOT_FOUND, f"GET {V1}": NOT_FOUND, f"GET {APISERVICE}": NOT_FOUND},
        "metrics_api",
        "APIService v1beta1.custom.metrics.k8s.io: not found",
    ),
    "nobody serves external": (
        EXTERNAL_OPTIONS,
        {f"GET {EXTERNAL}": NOT_FOUND},
        "metrics_api",
        "APIService v1beta1.external.metrics.k8s.io: not found",
    ),
    "adapter is down": (
        {},
        NO_ADAPTER,
        "metrics_api",
        "APIService v1beta1.custom.metrics.k8s.io: not Available: EndpointsNotFound: cannot",
    ),
    "another owner is down": (
        {},
        {
            **NO_ADAPTER,
            f"GET {APISERVICE}": apiservice("datadog/cluster-agent", status="False", reason="a", message="b"),
        },
        "metrics_api",
        "not Available: a: b",
    ),
    "adapter stumbles": (
        {},
        {f"GET {V1}": refusal(503, "etcd\n")},
        "metrics_api",
        "prometheus-adapter does not answer: etcd",
    ),
    "adapter is down and its APIService secret": (
        {},
        {**NO_ADAPTER, f"GET {APISERVICE}": FORBIDDEN},
        "metrics_api",
        "the server of custom.metrics.k8s.io does not answer: service unavailable",
    ),
    "metric not listed": (
        {},
        {f"GET {V1}": listing("pods/gpu_util", "deployments.apps/gpu"), **NO_PODS_VALUES},
        "metric",
        "prometheus-adapter lists 2 metrics, no gpu for pods * in namespace ml, but deployments.apps/gpu",
    ),
    "metric not listed by another owner": (
        {},
        {f"GET {V1}": listing(), **NO_PODS_VALUES, f"GET {APISERVICE}": apiservice("datadog/cluster-agent")},
        "metric",
        "metric gpu: no gpu for pods * in namespace ml: could not find the metric",
    ),
    "metric not listed and no pods either": (
        {},
        {f"GET {V1}": listing("pods/gpu_util"), f"GET {PODS}": {"items": []}, **NO_PODS_VALUES},
        "workload",
        "Pod ml/*: not found",
    ),
    "no such kind": (
        {"target": {"kind": "Job", "name": "chat", "api_version": "apps/v1"}},
        {},
        "workload",
        "no kind Job with a scale subresource in apps/v1",
    ),
    "a kind that cannot be scaled": (
        {"target": {"kind": "DaemonSet", "name": "chat", "api_version": "apps/v1"}},
        {},
        "workload",
        "no kind DaemonSet with a scale subresource",
    ),
    "no such target": (TARGET, {f"GET {SCALE}": NOT_FOUND}, "workload", "Deployment ml/chat: not found"),
    "target without selector": (
        TARGET,
        {f"GET {SCALE}": {"status": {}}},
        "workload",
        "the scale subresource has no selector",
    ),
    "target without pods": (
        TARGET,
        {f"GET {PODS}": {"items": []}, **NO_PODS_VALUES},
        "workload",
        "Deployment ml/chat: 0 of 0 pods are ready",
    ),
    "target without ready pods": (
        TARGET,
        {f"GET {PODS}": {"items": [pod("chat-0", ready="False")]}, **NO_PODS_VALUES},
        "workload",
        "Deployment ml/chat: 0 of 1 pods are ready",
    ),
    "labels that no pod has": (
        {"label_selectors": ["app=none"], "metric_label_selectors": ["model=x"]},
        {f"GET {PODS}": {"items": []}, **NO_PODS_VALUES},
        "workload",
        "Pod ml/app=none: not found",
    ),
    "a pod that is not there": ({"name": "chat-9"}, {}, "workload", "Pod ml/chat-9: not found"),
    "a pod without a value": (
        {"name": "chat-0"},
        {f"GET {V1}/namespaces/ml/pods/chat-0/gpu": NOT_FOUND},
        "metric",
        "no gpu for pods chat-0 in namespace ml: could not find the metric",
    ),
    "series labels that none has": (
        {"metric_label_selectors": ["model=x"]},
        {f"GET {V1}/namespaces/ml/pods/*/gpu": values()},
        "metric",
        "no gpu for pods * in namespace ml with model=x",
    ),
    "pods that may not be listed": (
        {"label_selectors": ["app=chat"]},
        {f"GET {PODS}": FORBIDDEN, **NO_PODS_VALUES},
        "metric",
        "no gpu for pods * in namespace ml with app=chat: could not find",
    ),
    "adapter without Prometheus": (
        {},
        {f"GET {V1}/namespaces/ml/pods/*/gpu": refusal(500, "unable to fetch metrics")},
        "metric",
        "in namespace ml: unable to fetch metrics",
    ),
    "nodes without a value": (
        {"resource": "nodes", "namespace": None},
        {f"GET {V1}": listing("nodes/gpu")},
        "metric",
        "no gpu for nodes * in the cluster",
    ),
    "external without a value": (
        EXTERNAL_OPTIONS,
        {f"GET {EXTERNAL}/namespaces/ml/queue": {"items": []}, f"GET {PODS}": {"items": []}},
        "metric",
        "no queue for any series in namespace ml",
    ),
    "KEDA lists none of its metrics": (
        {"api": "external", "metric": "s0-queue"},
        {f"GET {EXTERNAL}": listing("externalmetrics")},
        "metric",
        "no s0-queue for any series in namespace ml: not found",
    ),
    "external in upper case": (
        {"api": "external", "metric": "Queue"},
        {f"GET {EXTERNAL}": listing("Queue"), f"GET {EXTERNAL}/namespaces/ml/queue": NOT_FOUND},
        "metric",
        "HPAs query it in lower case, as queue",
    ),
}


@pytest.mark.parametrize(("options", "answers", "hop", "seen"), BROKEN.values(), ids=BROKEN)
def test_the_hop_that_is_broken(options: dict[str, Any], answers: dict[str, Any], hop: str, seen: str) -> None:
    transport = FakeTransport({**ANSWERS, **answers})
    result = asked(transport, **options)
    assert result["samples"] == []
    assert result["hop"] == hop
    assert seen in result["seen"]
    assert result["seen"] == result["seen"].strip()
    assert result["fix"]


def test_a_metric_that_is_served_although_it_is_not_listed_lacks_only_values() -> None:
    transport = FakeTransport({**ANSWERS, f"GET {V1}": listing("pods/gpu_util")})
    transport.answers[f"GET {V1}/namespaces/ml/pods/*/gpu"] = values(chat_0="1")
    result = asked(transport, **TARGET)
    assert (result["listed"], result["missing"]) == (False, ["chat-1"])
    assert result["hop"] == "metric"


def test_pods_are_missed_only_among_those_that_were_asked_for() -> None:
    transport = FakeTransport({**ANSWERS, **NO_PODS_VALUES})
    asked(transport, label_selectors=["app=none"])
    [pods_request] = [request for request in transport.requests if request.path == PODS]
    assert pods_request.query["labelSelector"] == "app=none"


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({}, "query namespace_pod:gpu:avg in Prometheus"),
        (
            {"resource": "namespaces", "name": "ml", "namespace": None},
            "query namespace_workload:gpu:avg or namespace_pod:gpu:avg in Prometheus",
        ),
        (
            {"resource": "deployments.apps"},
            "query namespace_workload:gpu:avg or namespace_workload:gpu:sum in Prometheus",
        ),
        ({"resource": "services"}, "query its series in Prometheus"),
        ({"api": "external"}, "query external:gpu:sum with these labels in Prometheus"),
    ],
)
def test_where_to_look_for_a_metric_that_is_not_listed(options: dict[str, Any], fix: str) -> None:
    external_service = {f"GET {APISERVICE.replace('custom', 'external')}": apiservice()}
    transport = FakeTransport({**ANSWERS, **external_service, f"GET {V1}": listing("pods/other"), **NO_PODS_VALUES})
    assert asked(transport, **options)["fix"].startswith(fix)


def test_what_keda_serves_counts_although_it_lists_nothing() -> None:
    transport = FakeTransport({**ANSWERS, f"GET {EXTERNAL}": listing("externalmetrics")})
    result = asked(transport, **EXTERNAL_OPTIONS)
    assert (len(result["samples"]), result["listed"], result["hop"]) == (1, False, None)


FORBIDDEN = 'pods.custom.metrics.k8s.io "*" is forbidden: User "chris" cannot get resource "pods/gpu" in API group'


def test_a_missing_right_is_named() -> None:
    path = f"{V1}/namespaces/ml/pods/*/gpu"
    transport = FakeTransport({**ANSWERS, f"GET {path}": ApiError(403, {"message": FORBIDDEN}, f"GET {path}")})
    with pytest.raises(HopError) as caught:
        asked(transport)
    assert caught.value.hop == "API server"
    assert caught.value.seen == (
        "user chris has no permission to get pods/gpu of apiGroup 'custom.metrics.k8s.io' in namespace ml"
    )


@pytest.mark.parametrize("status", [0, 400, 401])
def test_what_the_question_itself_provokes_is_an_error(status: int) -> None:
    transport = FakeTransport({**ANSWERS, f"GET {V1}/namespaces/ml/pods/*/gpu": refusal(status, "no")})
    with pytest.raises(ApiError):
        asked(transport)


# Conditions

TRUTH = {
    "result.samples": True,
    "length(result.missing) == `0` && max(result.samples[].value) < `90`": True,
    "result.samples && !(result.missing)": True,
    "max(result.samples[].value) < `30`": False,
    "result.samples[?name=='chat-1'].value | [0]": True,
    "`0`": True,
    "`false`": False,
    "result.hop": False,
    "result.missing": False,
    "''": False,
    "`{}`": False,
    "samples": False,
    "max(result.samples[].name)": True,
    "abs(result.hop)": False,
    "changed == `false`": True,
}


@pytest.mark.parametrize(("expression", "truth"), TRUTH.items())
def test_a_condition_is_true_as_jmespath_has_it(expression: str, truth: bool) -> None:
    _answer, broken = wait(cluster(), expression, seconds=0)
    assert (broken is None) is truth


@pytest.mark.parametrize(
    "expression",
    ["result.samples[", "", "result.samples[].value < 90", "nonsense(result)", "length()", "result samples"],
)
def test_what_is_no_jmespath(expression: str) -> None:
    with pytest.raises(HopError) as caught:
        metric_condition(expression)
    assert caught.value.hop == "until"
    assert "is not a JMESPath expression" in caught.value.seen


def test_a_function_that_only_some_answers_lead_to_is_refused_when_they_do() -> None:
    with pytest.raises(HopError, match="nonsense"):
        wait(cluster(), "result.samples[?name=='chat-1'] && nonsense(@)")


def wait(
    transport: FakeTransport,
    expression: str,
    *,
    seconds: float = 3,
    meanwhile: Callable[[int], None] = lambda _second: None,
    **options: Any,
) -> tuple[dict[str, Any], Any]:
    """Each pause takes a second, in which `meanwhile` happens."""
    now = 0

    def sleep(_seconds: float) -> None:
        nonlocal now
        now += 1
        meanwhile(now)

    deadline = Deadline(seconds, clock=lambda: now, sleep=sleep)
    answer, broken = read_metric_until(
        KubeClient(transport), query(**options), metric_condition(expression), deadline, poll_s=1
    )
    return answer, broken


def test_what_holds_at_once_costs_no_pause() -> None:
    def no_pause(_second: int) -> None:
        raise AssertionError("it slept")

    result, broken = wait(cluster(), "result.samples", meanwhile=no_pause)
    assert broken is None
    assert len(result["samples"]) == 2


@pytest.mark.parametrize(
    ("path", "error"),
    [
        (V1, refusal(404, "404 page not found")),
        (V1, refusal(503, "service unavailable")),
        (V1, refusal(429, "too many requests")),
        (f"{V1}/namespaces/ml/pods/*/gpu", refusal(404, "could not find the metric")),
        (f"{V1}/namespaces/ml/pods/*/gpu", refusal(500, "unable to fetch metrics")),
        (SCALE, refusal(404, "no such deployment")),
        (SCALE, refusal(500, "etcd has no leader")),
        (PODS, refusal(0, "connection refused")),
    ],
)
def test_what_passes_is_waited_out(path: str, error: ApiError) -> None:
    transport = FakeTransport({**ANSWERS, f"GET {path}": error})

    def recover(second: int) -> None:
        if second == 2:
            transport.answers.update(ANSWERS)

    result, broken = wait(transport, "result.samples", meanwhile=recover, **TARGET)
    assert broken is None
    assert len(result["samples"]) == 2


@pytest.mark.parametrize("status", [400, 401, 403])
def test_what_does_not_pass_ends_the_wait(status: int) -> None:
    transport = FakeTransport({**ANSWERS, f"GET {V1}/namespaces/ml/pods/*/gpu": refusal(status, "no")})

    def no_pause(_second: int) -> None:
        raise AssertionError("it waited")

    with pytest.raises((ApiError, HopError)):
        wait(transport, "result.samples", meanwhile=no_pause)


def test_a_value_that_changes_while_waiting() -> None:
    transport = cluster()

    def fall(_second: int) -> None:
        transport.answers[f"GET {V1}/namespaces/ml/pods/*/gpu"] = values(chat_0="10", chat_1="20")

    result, broken = wait(transport, "max(result.samples[].value) < `30`", meanwhile=fall)
    assert broken is None
    assert [item["value"] for item in result["samples"]] == [10, 20]


def test_when_the_time_is_over_the_last_answer_and_the_broken_hop_are_there() -> None:
    transport = FakeTransport({**ANSWERS, **NO_ADAPTER})
    result, broken = wait(transport, "result.samples")
    assert broken.hop == result["hop"] == "metrics_api"
    assert "not Available" in broken.seen


def test_when_only_the_condition_does_not_hold_it_is_named_with_the_last_values() -> None:
    result, broken = wait(cluster(), "max(result.samples[].value) < `30`")
    assert broken.hop == "condition"
    assert broken.seen == (
        "every hop answers, but max(result.samples[].value) < `30` gives false; last values: chat-0 41.5, chat-1 20"
    )
    assert result["hop"] is None
    assert len(result["samples"]) == 2


def test_a_condition_that_cannot_be_evaluated_says_why() -> None:
    _result, broken = wait(cluster(), "abs(result.samples[0].name) > `1`")
    assert broken.hop == "condition"
    assert "cannot be evaluated: In function abs()" in broken.seen


def test_values_of_an_external_metric_are_told_by_their_labels() -> None:
    _result, broken = wait(cluster(), "result.samples[0].value > `10`", **EXTERNAL_OPTIONS)
    assert "last values: {'name': 'a'} 7" in broken.seen


def test_an_api_server_that_is_away_until_the_end() -> None:
    transport = FakeTransport({f"GET {CUSTOM}": refusal(0, "connection refused")})
    result, broken = wait(transport, "result.samples")
    assert broken.hop == result["hop"] == "API server"
    assert "connection refused" in broken.seen
