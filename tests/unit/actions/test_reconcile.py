"""What the flows ask of a cluster, and how often."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.outcome import Outcome
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.reconcile import narrow_rules, reconcile, remove
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import manifests
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions, autoscaler_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.checks.preflight import one_query_each
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.cluster import State
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import PrometheusClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import SELECTORS_ANNOTATION
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.objects import Manifest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.change_reader import ChangeReader
from fake_cluster import FakeTransport, refusal

HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
RULES = "/apis/monitoring.coreos.com/v1/namespaces/monitoring/prometheusrules"
APISERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.custom.metrics.k8s.io"
PROXY = "/api/v1/namespaces/monitoring/services/prometheus:9090/proxy/api/v1"
DEPLOYMENTS = "/apis/apps/v1/namespaces/ml/deployments"
PODS = "/api/v1/namespaces/ml/pods"
MONITORING = "/api/v1/namespaces/monitoring"

RULE_OPTIONS = RuleOptions()


def autoscalers(*names: str, **given: Any) -> list[Autoscaler]:
    return [
        Autoscaler.from_params({"namespace": "ml", "target": {"name": name}, "max_replicas": 1, **given})
        for name in names
    ]


NODE = {"metadata": {"name": "gpu1"}, "status": {"allocatable": {"nvidia.com/gpu": "64", "cpu": "8"}}}


def deployment(name: str) -> Manifest:
    limits = {"nvidia.com/gpu": "1"}
    container = {"name": "main", "readinessProbe": {"tcpSocket": {"port": 80}}, "resources": {"limits": limits}}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": {"spec": {"containers": [container]}}}
    return {"metadata": {"name": name, "namespace": "ml"}, "spec": spec}


def cluster(names: tuple[str, ...], live: list[Manifest], **changes: Any) -> FakeTransport:
    """A cluster in which nothing is amiss, with these deployments and live objects."""
    hpas = [manifest for manifest in live if manifest["kind"] == "HorizontalPodAutoscaler"]
    rules = [manifest for manifest in live if manifest["kind"] == "PrometheusRule"]
    answers = {
        f"GET {HPAS}": {"items": hpas},
        f"GET {RULES}": {"items": rules},
        "GET /apis/apps/v1": {
            "resources": [{"name": "deployments", "kind": "Deployment"}, {"name": "deployments/scale", "kind": "Scale"}]
        },
        f"GET {DEPLOYMENTS}": {"items": [deployment(name) for name in names]},
        "GET /api/v1/nodes": {"items": [NODE]},
        f"GET {PODS}": {"items": []},
        f"GET {MONITORING}": {"metadata": {"name": "monitoring"}},
        f"GET {APISERVICE}": {"metadata": {}, "spec": {"service": {"namespace": "m", "name": "prometheus-adapter"}}},
        f"GET {PROXY}/query": {"status": "success", "data": {"result": []}},
        **changes,
    }
    return FakeTransport(answers)


def run(
    transport: FakeTransport,
    wanted: list[Autoscaler],
    *,
    dry_run: bool = False,
    rules: RuleOptions = RULE_OPTIONS,
    **flags: bool,
) -> Any:
    kube = KubeClient(transport, dry_run=dry_run)
    prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service="prometheus", port=9090)
    return reconcile(kube, prometheus, wanted, rules, **flags)


def state_before(transport: FakeTransport, wanted: list[Autoscaler]) -> State:
    kube = KubeClient(transport)
    prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service="prometheus", port=9090)
    return ChangeReader(kube, prometheus, wanted, RULE_OPTIONS.namespace).state(RULE_OPTIONS)


def test_what_matches_is_only_read_and_each_kind_once() -> None:
    names = tuple(f"service-{number}" for number in range(50))
    wanted = autoscalers(*names)
    transport = cluster(names, manifests(wanted, RULE_OPTIONS))
    outcome = run(transport, wanted)
    assert not outcome.changed
    assert not outcome.warnings
    assert Counter(transport.asked).most_common(1)[0][1] == 1
    assert {request.method for request in transport.requests} == {"GET"}
    assert len(transport.requests) == 11


def test_only_what_differs_is_applied() -> None:
    wanted = autoscalers("chat", "embed")
    live = manifests(wanted, RULE_OPTIONS)
    live[1]["spec"]["maxReplicas"] = 9
    path = "/apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers/chat"
    transport = cluster(("chat", "embed"), live, **{f"PATCH {path}": manifests(wanted, RULE_OPTIONS)[1]})
    outcome = run(transport, wanted)
    assert outcome.changed
    assert [asked for asked in transport.asked if not asked.startswith("GET")] == [f"PATCH {path}"]
    assert [entry["action"] for entry in outcome.result["autoscalers"]] == ["changed", "unchanged"]


def test_what_the_server_adds_by_itself_is_not_even_sent() -> None:
    wanted = autoscalers("chat")
    live = manifests(wanted, RULE_OPTIONS)
    live[1]["spec"]["behavior"]["scaleUp"]["added"] = "by the server"
    transport = cluster(("chat",), live)
    assert not run(transport, wanted).changed
    assert {request.method for request in transport.requests} == {"GET"}


def test_what_fails_does_not_keep_the_others_from_being_written() -> None:
    wanted = autoscalers("chat", "embed", "rank")
    rule, chat, _embed, rank = manifests(wanted, RULE_OPTIONS)
    path = "/apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers"
    answers = {
        f"PATCH {path}/chat": chat,
        f"PATCH {path}/embed": refusal(422, "spec.maxReplicas: no"),
        f"PATCH {path}/rank": rank,
    }
    unused = {**deepcopy(rule), "metadata": {**rule["metadata"], "name": "kubegpu-old"}}
    unused["spec"]["groups"][0]["rules"][0]["record"] = "namespace_pod:old:avg"
    outcome = run(cluster(("chat", "embed", "rank"), [rule, unused], **answers), wanted)
    assert [entry["action"] for entry in outcome.result["autoscalers"]] == ["created", "failed", "created"]
    assert ["spec.maxReplicas: no" in str(error) for error in outcome.errors] == [True]
    assert outcome.changed
    # Whether the rule has lost its last user is not sure while something has failed.
    assert [entry["action"] for entry in outcome.result["rules"]] == ["unchanged"]


WRITTEN = "PATCH /apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers"


def test_an_hpa_whose_rule_was_refused_is_left_as_it_is() -> None:
    """Adopted, it would read a metric that nobody records. One whose rule is there is written."""
    adopted = replace(autoscalers("chat")[0], adopt=True)
    embed, busy = (
        Autoscaler.from_params(
            {"namespace": "ml", "target": {"name": name}, "max_replicas": 1, "metric": "gpu_memory", **more}
        )
        for name, more in (("embed", {}), ("busy", {"extra_metrics": [{"metric": "gpu", "target_value": 70}]}))
    )
    theirs = deepcopy(manifests([adopted], RULE_OPTIONS)[-1])
    theirs["metadata"]["labels"] = {}
    theirs["spec"]["metrics"][0]["pods"]["metric"]["name"] = "their_own"
    memory = next(rule for rule in manifests([embed], RULE_OPTIONS) if rule["metadata"]["name"] == "kubegpu-gpu-memory")
    answers = {
        f"PATCH {RULES}/kubegpu-gpu": refusal(403, "a webhook says no"),
        f"{WRITTEN}/chat": theirs,
        f"{WRITTEN}/embed": manifests([embed], RULE_OPTIONS)[-1],
        f"{WRITTEN}/busy": manifests([busy], RULE_OPTIONS)[-1],
    }
    transport = cluster(("chat", "embed", "busy"), [theirs, memory], **answers)
    outcome = run(transport, [adopted, embed, busy])

    assert [asked for asked in transport.asked if asked.startswith("PATCH")] == [
        f"PATCH {RULES}/kubegpu-gpu",
        f"{WRITTEN}/embed",
    ]
    assert [entry["action"] for entry in outcome.result["autoscalers"]] == ["failed", "created", "failed"]
    refused, *left = map(str, outcome.errors)
    assert "a webhook says no" in refused
    assert [error.splitlines()[0] for error in left] == [
        f"rule: HorizontalPodAutoscaler {name} is not written: PrometheusRule kubegpu-gpu, which it uses, was rejected"
        for name in ("ml/chat", "ml/busy")
    ]


def test_rules_are_written_before_the_hpas_that_read_them() -> None:
    wanted = autoscalers("chat", "embed")
    rule, *hpas = manifests(wanted, RULE_OPTIONS)
    answers = {f"{WRITTEN}/{hpa['metadata']['name']}": hpa for hpa in hpas}
    transport = cluster(("chat", "embed"), [], **{f"PATCH {RULES}/kubegpu-gpu": rule}, **answers)
    assert run(transport, wanted).errors == []
    written = [asked for asked in transport.asked if asked.startswith("PATCH")]
    assert (written[0], len(written)) == (f"PATCH {RULES}/kubegpu-gpu", 3)


def test_a_missing_namespace_of_the_rules_is_refused_before_anything_is_changed() -> None:
    missing = {f"GET {MONITORING}": refusal(404, "not found")}
    transport = cluster(("chat",), [], **missing)
    with pytest.raises(HopError, match="recording rules: namespace monitoring does not exist"):
        run(transport, autoscalers("chat"))
    assert {request.method for request in transport.requests} == {"GET"}
    # A dry run takes it for one that is still to come; who may not see namespaces is not stopped.
    [warning] = run(cluster(("chat",), [], **missing), autoscalers("chat"), dry_run=True).warnings
    assert "namespace monitoring does not exist" in warning
    unseen = {f"GET {MONITORING}": ApiError(403, {"message": "no"}, f"GET {MONITORING}")}
    assert run(cluster(("chat",), [], **unseen), autoscalers("chat"), dry_run=True).warnings == []


def test_a_namespace_that_is_missing_is_assumed_to_come_in_a_dry_run_only() -> None:
    path = "PATCH /apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers/chat"
    rule = manifests(autoscalers("chat"), RULE_OPTIONS)[0]
    transport = cluster(("chat",), [rule], **{path: refusal(404, 'namespaces "ml" not found')})
    assert run(transport, autoscalers("chat"), dry_run=True).errors == []
    assert ["not found" in str(error) for error in run(transport, autoscalers("chat")).errors] == [True]


def test_targets_are_listed_by_namespace_or_where_there_are_many_in_the_cluster() -> None:
    few, many = ("a", "b"), tuple(f"team-{number}" for number in range(51))
    everywhere = {
        names: [
            replace(autoscaler, namespace=name)
            for autoscaler, name in zip(autoscalers(*["chat"] * len(names)), names, strict=True)
        ]
        for names in (few, many)
    }
    chats = [{**deployment("chat"), "metadata": {"name": "chat", "namespace": name}} for name in (*few, *many)]
    answers = {"GET /apis/apps/v1/deployments": {"items": chats}, "GET /api/v1/pods": {"items": []}}
    in_few = cluster((), manifests(everywhere[few], RULE_OPTIONS), **answers)
    assert not run(in_few, everywhere[few]).changed
    assert "GET /apis/apps/v1/deployments" not in in_few.asked
    in_many = cluster((), manifests(everywhere[many], RULE_OPTIONS), **answers)
    assert not run(in_many, everywhere[many]).changed
    assert [asked for asked in in_many.asked if "/deployments" in asked] == ["GET /apis/apps/v1/deployments"]
    # Where that is not allowed, each namespace may be.
    by_name = {
        f"GET /apis/apps/v1/namespaces/{name}/deployments": {
            "items": [pod for pod in chats if pod["metadata"]["namespace"] == name]
        }
        for name in many
    }
    forbidden = {"GET /apis/apps/v1/deployments": refusal(403, "no"), "GET /api/v1/pods": refusal(403, "no")}
    assert not run(
        cluster((), manifests(everywhere[many], RULE_OPTIONS), **by_name, **forbidden), everywhere[many]
    ).changed


def test_a_list_that_fails_is_an_error() -> None:
    everywhere = autoscalers("chat")
    with pytest.raises(ApiError):
        run(cluster((), [], **{f"GET {DEPLOYMENTS}": refusal(500, "broken")}), everywhere)


def own(query: str = "queue") -> list[Autoscaler]:
    metric = {"name": "queue", "query": query}
    params = {"namespace": "ml", "target": {"name": "chat"}, "metric": metric, "target_value": 1, "max_replicas": 1}
    return [Autoscaler.from_params(params)]


def found(*labels: dict[str, str]) -> dict[str, Any]:
    result = [{"metric": label_set, "value": [0, "1"]} for label_set in labels]
    return {f"GET {PROXY}/query": {"status": "success", "data": {"result": result}}}


@pytest.mark.parametrize(
    ("before", "told", "inventory", "jobs", "after"),
    [
        ({}, None, "default", ["dcgm"], {"job": "dcgm"}),
        ({}, None, "default", [], None),
        ({}, {}, "default", ["dcgm"], None),
        ({}, None, "staging", ["dcgm"], None),
        ({"job": "gone"}, None, "default", ["dcgm"], None),
    ],
    ids=["narrowed", "no rows yet", "the user says any", "another inventory", "narrow already"],
)
def test_a_rule_made_before_there_were_rows_is_narrowed_once_they_are_proven(
    before: dict[str, str], told: dict[str, str] | None, inventory: str, jobs: list[str], after: dict[str, str] | None
) -> None:
    """A second run then changes nothing."""

    def of_all(labels: dict[str, str]) -> dict[str, dict[str, str]]:
        return {"exporter": labels, "kube_state_metrics": labels}

    wanted, rules = autoscalers("chat"), RuleOptions(selectors={} if told is None else of_all(told))
    live = manifests(wanted, replace(rules, selectors=of_all(before), inventory=inventory))
    narrow = manifests(wanted, replace(rules, selectors=of_all({"job": "dcgm"})))[0]
    seen = found(*({"job": job, "kubegpu_input": name} for job in jobs for name in of_all({})))
    transport = cluster(("chat",), live, **seen, **{f"PATCH {RULES}/kubegpu-gpu": narrow})
    kube, outcome = KubeClient(transport), Outcome()
    prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service="prometheus", port=9090)
    narrow_rules(kube, prometheus, wanted, rules, outcome)
    sent = [request.body["metadata"]["annotations"] for request in transport.requests if request.method == "PATCH"]
    assert sent == ([{SELECTORS_ANNOTATION: json.dumps(of_all(after))}] if after else [])
    assert outcome.changed is bool(after)
    if after:
        assert not run(cluster(("chat",), [narrow, live[1]], **seen), wanted).changed


POD = {"namespace": "ml", "pod": "chat-0"}


@pytest.mark.parametrize(
    ("labels", "seen"),
    [
        ([{"pod": "chat-0"}], "a series has no label namespace"),
        ([{"namespace": "ml"}], "a series has no label pod"),
        ([{**POD, "gpu": "0"}, {**POD, "gpu": "1"}], "pod ml/chat-0 has 2 series"),
    ],
)
def test_a_query_gives_one_series_a_pod(labels: list[dict[str, str]], seen: str) -> None:
    with pytest.raises(HopError, match=seen):
        run(cluster(("chat",), [], **found(*labels)), own(), dry_run=True)


def test_a_query_that_gives_nothing_is_warned_of() -> None:
    (warning,) = run(cluster(("chat",), [], **found()), own(), dry_run=True).warnings
    assert "metric queue: its query returns nothing at the moment" in warning
    assert run(cluster(("chat",), [], **found(POD)), own(), dry_run=True).warnings == []


def test_what_the_nodes_cannot_hold_is_warned_of() -> None:
    wanted = [replace(autoscaler, max_replicas=65) for autoscaler in autoscalers("chat")]
    (warning,) = run(cluster(("chat",), []), wanted, dry_run=True).warnings
    assert "max_replicas is 65, but eligible nodes have room for only 64 replicas" in warning
    wanted = [replace(autoscaler, max_replicas=40) for autoscaler in autoscalers("chat", "embed")]
    (warning,) = run(cluster(("chat", "embed"), []), wanted, dry_run=True).warnings
    assert "all autoscalers at their maximum need 80 nvidia.com/gpu, the nodes have 64" in warning
    # One that does not even fit alone hides nothing of the others.
    wanted += [replace(autoscaler, max_replicas=65) for autoscaler in autoscalers("huge")]
    warnings = run(cluster(("chat", "embed", "huge"), []), wanted, dry_run=True).warnings
    for seen in ("max_replicas is 65", "at their maximum need 80 nvidia.com/gpu"):
        assert [seen in warning for warning in warnings].count(True) == 1
    assert len(warnings) == 2


def divided(transport: FakeTransport, wanted: list[Autoscaler]) -> Any:
    kube = KubeClient(transport, dry_run=True)
    prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service="prometheus", port=9090)
    return reconcile(kube, prometheus, wanted, RULE_OPTIONS, divides_gpus=True)


def test_gpus_are_divided_by_priority() -> None:
    wanted = [replace(autoscaler, max_replicas=40) for autoscaler in autoscalers("chat", "embed")]
    wanted[1] = replace(wanted[1], priority=1)
    rule = {f"PATCH {RULES}/kubegpu-gpu": manifests(wanted, RULE_OPTIONS)[0]}
    transport = cluster(("chat", "embed"), manifests(wanted, RULE_OPTIONS)[:1], **rule)
    outcome = divided(transport, wanted)
    assert outcome.warnings == []
    assert [(share["name"], share["wanted"], share["max_replicas"]) for share in outcome.result["shares"]] == [
        ("chat", 40, 24),
        ("embed", 40, 40),
    ]
    assert outcome.result["shares"][0]["summary"] == "ml/chat: at most 24 of 40 replicas, priority 0"
    sent = [
        request.body for request in transport.requests if request.method == "PATCH" and "horizontal" in request.path
    ]
    assert [hpa["spec"]["maxReplicas"] for hpa in sent] == [24, 40]


def test_a_workload_without_gpus_is_not_divided() -> None:
    chat = deployment("chat")
    chat["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    answers = {f"GET {DEPLOYMENTS}": {"items": [chat]}}
    wanted = [replace(autoscaler, max_replicas=99) for autoscaler in autoscalers("chat")]
    assert divided(cluster(("chat",), [], **answers), wanted).result["shares"] == []


def test_pods_with_claims_are_not_divided_and_that_is_told() -> None:
    chat = deployment("chat")
    chat["spec"]["template"]["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    chat["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    outcome = divided(cluster(("chat",), [], **{f"GET {DEPLOYMENTS}": {"items": [chat]}}), autoscalers("chat"))
    assert outcome.result["shares"] == []
    assert "the pods of ml/chat have resource claims" in outcome.warnings[0]


def pool(label: str) -> dict[str, Any]:
    return {"GET /api/v1/nodes": {"items": [{**NODE, "metadata": {"name": "n", "labels": {label: "g"}}}]}}


@pytest.mark.parametrize(
    ("answers", "seen"),
    [
        (pool("karpenter.sh/nodepool"), "nodes are added to this cluster on demand"),
        ({"GET /api/v1/nodes": refusal(403, "forbidden")}, "divide_gpus needs the nodes of the cluster: no right"),
        ({"GET /api/v1/nodes": {"items": []}}, "the minima together need 1 nvidia.com/gpu, and the nodes have 0"),
    ],
)
def test_gpus_that_cannot_be_counted_are_not_divided(answers: dict[str, Any], seen: str) -> None:
    transport = cluster(("chat",), [], **answers)
    with pytest.raises(HopError, match=seen):
        divided(transport, autoscalers("chat"))
    assert {request.method for request in transport.requests} == {"GET"}


def test_gpus_that_a_limit_gets_by_a_claim_are_counted() -> None:
    """By extendedResourceName of the driver's DeviceClass: no node has nvidia.com/gpu."""
    nodes = {"GET /api/v1/nodes": {"items": [{**NODE, "status": {"allocatable": {"cpu": "8"}}}]}}
    devices = [{"name": name, "attributes": {"type": {"string": "gpu"}}} for name in ("gpu-0", "gpu-1")]
    spec = {"driver": "gpu.nvidia.com", "nodeName": "gpu1", "devices": devices}
    slices = {"GET /apis/resource.k8s.io/v1/resourceslices": {"items": [{"metadata": {"name": "s"}, "spec": spec}]}}
    wanted = [replace(autoscaler, max_replicas=2) for autoscaler in autoscalers("chat")]
    assert run(cluster(("chat",), [], **nodes, **slices), wanted, dry_run=True).warnings == []
    assert divided(cluster(("chat",), [], **nodes, **slices), wanted).result["shares"][0]["max_replicas"] == 2
    (warning,) = run(cluster(("chat",), [], **nodes), wanted, dry_run=True).warnings
    assert "room for only 0 replicas" in warning
    nameless = {"metadata": {"name": "gpu.nvidia.com"}, "spec": {}}
    classes = {"GET /apis/resource.k8s.io/v1/deviceclasses": {"items": [nameless]}}
    warnings = run(cluster(("chat",), [], **nodes, **slices, **classes), wanted, dry_run=True).warnings
    assert "gpu.nvidia.com has no such extendedResourceName" in warnings[0]
    with pytest.raises(HopError, match="and the nodes have 0"):
        divided(cluster(("chat",), [], **nodes, **slices, **classes), wanted)


def groups_of_four(**scale: Any) -> dict[str, Any]:
    """A LeaderWorkerSet of four pods a replica, which keeps its selector in its scale subresource."""
    version = "/apis/leaderworkerset.x-k8s.io/v1"
    template = {"size": 4, "workerTemplate": deployment("chat")["spec"]["template"]}
    live = {"metadata": {"name": "chat", "namespace": "ml"}, "spec": {"replicas": 1, "leaderWorkerTemplate": template}}
    kinds = [
        {"name": "leaderworkersets", "kind": "LeaderWorkerSet"},
        {"name": "leaderworkersets/scale", "kind": "Scale"},
    ]
    return {
        f"GET {version}": {"resources": kinds},
        f"GET {version}/namespaces/ml/leaderworkersets": {"items": [live]},
        f"GET {version}/namespaces/ml/leaderworkersets/chat/scale": {"spec": {"replicas": 1}, "status": scale},
    }


def test_a_replica_of_a_leader_worker_set_is_a_group_of_pods() -> None:
    target = {"kind": "LeaderWorkerSet", "name": "chat"}
    wanted = [Autoscaler.from_params({"namespace": "ml", "target": target, "max_replicas": 17})]
    answers = {**groups_of_four(selector="app=chat"), f"GET {PODS}": {"items": [ready_pod("chat-0", 5)]}}
    outcome = run(cluster((), [], **answers), wanted, dry_run=True)
    (warning,) = outcome.warnings
    assert "max_replicas is 17, but eligible nodes have room for only 16 replicas" in warning
    # And its pods are found by the selector of its scale subresource.
    assert outcome.result["behaviors"][0]["measured"]


def test_a_prometheus_that_is_only_busy_is_asked_again() -> None:
    transport = cluster(("chat",), [])
    run(transport, autoscalers("chat"), dry_run=True)
    assert [request.retry for request in transport.requests if "group by (job," in request.query.get("query", "")] == [
        True
    ]


def ready_pod(
    name: str,
    ready_after: int,
    *,
    scheduled_after: int = 0,
    created: str = "2026-01-01T00:00:00Z",
    revision: str = "1",
    label: str = "pod-template-hash",
    **status: Any,
) -> Manifest:
    """A pod that was ready, and scheduled, so many seconds after midnight."""

    def condition(kind: str, seconds: int) -> Manifest:
        since = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
        return {"type": kind, "status": "True", "lastTransitionTime": since.isoformat()}

    labels = {"app": "chat", label: revision}
    metadata = {"name": name, "namespace": "ml", "labels": labels, "creationTimestamp": created}
    conditions = [condition("PodScheduled", scheduled_after), condition("Ready", ready_after)]
    return {"metadata": metadata, "status": {"conditions": conditions, **status}}


DAY = 86400
LATER = "2026-01-01T00:00:01Z"
ROLLOUTS = "rollouts-pod-template-hash"
DEAD_TIMES: dict[str, tuple[list[Manifest], int, bool]] = {
    "no pod": ([], 60, False),
    "one that starts fast": ([ready_pod("a", 5)], 75, True),
    "the fastest of several": ([ready_pod("a", 5), ready_pod("b", 100), ready_pod("c", 900)], 75, True),
    "one that was restarted": ([ready_pod("a", 500, containerStatuses=[{"restartCount": 1}])], 60, False),
    "one that waited for its node": ([ready_pod("a", 905, scheduled_after=900)], 75, True),
    "all flipped by a restart of the kubelet": ([ready_pod("a", 2 * DAY), ready_pod("b", 2 * DAY)], 60, False),
    "one flipped": ([ready_pod("a", 2 * DAY), ready_pod("b", 100)], 180, True),
    "the revision before was faster": (
        [ready_pod("a", 5), ready_pod("b", 100, created=LATER, revision="2")],
        180,
        True,
    ),
    "the revision of a Rollout before was faster": (
        [ready_pod("a", 5, label=ROLLOUTS), ready_pod("b", 100, created=LATER, revision="2", label=ROLLOUTS)],
        180,
        True,
    ),
}


@pytest.mark.parametrize(("pods", "dead_time", "measured"), DEAD_TIMES.values(), ids=DEAD_TIMES)
def test_the_dead_time_follows_from_how_pods_start(pods: list[Manifest], dead_time: int, measured: bool) -> None:
    """The exporter and its scrape have stock intervals, 30 s each; the rule that is written has 2 s."""
    for metric in ("gpu_memory", "gpu"):
        transport = cluster(("chat",), [], **{f"GET {PODS}": {"items": pods}})
        behavior = run(transport, autoscalers("chat", metric=metric), dry_run=True).result["behaviors"][0]
        assert (behavior["dead_time_s"], behavior["measured"]) == (dead_time, measured)
        assert f"2 pods in {dead_time} s" in behavior["scale_up"]


def test_a_slow_start_is_believed_as_far_as_startup_probes_allow_and_warned_of() -> None:
    chat = deployment("chat")
    chat["spec"]["template"]["spec"]["containers"][0]["startupProbe"] = {"periodSeconds": 10, "failureThreshold": 60}
    answers = {f"GET {DEPLOYMENTS}": {"items": [chat]}, f"GET {PODS}": {"items": [ready_pod("a", 1100)]}}
    for metric, warned in (("gpu_memory", 1), ("gpu", 1)):
        outcome = run(cluster(("chat",), [], **answers), autoscalers("chat", metric=metric), dry_run=True)
        assert outcome.result["behaviors"][0]["dead_time_s"] == 1200
        assert sum("dead_time_seconds" in warning for warning in outcome.warnings) == warned


def test_a_dead_time_that_is_given_is_neither_measured_nor_kept() -> None:
    (wanted,) = [replace(autoscaler, dead_time=400, is_given=True) for autoscaler in autoscalers("chat")]
    live = manifests([wanted.with_dead_time(1800)], RULE_OPTIONS)
    path = "PATCH /apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers/chat"
    transport = cluster(("chat",), live, **{path: manifests([wanted], RULE_OPTIONS)[1]})
    behavior = run(transport, [wanted]).result["behaviors"][0]
    assert (behavior["dead_time_s"], behavior["measured"]) == (400, False)
    assert f"GET {PODS}" not in transport.asked
    (sent,) = [request.body for request in transport.requests if request.method == "PATCH"]
    assert sent["metadata"]["annotations"] == {"kubegpu.autoscale/dead-time-seconds": "400 given"}


def test_a_dead_time_that_is_no_longer_given_is_measured() -> None:
    live = manifests(autoscalers("chat", dead_time_seconds=15), RULE_OPTIONS)
    pods = {f"GET {PODS}": {"items": [ready_pod("a", 5)]}}
    transport = cluster(("chat",), live, **pods, **{PATCH_CHAT: live[1]})
    behavior = run(transport, autoscalers("chat")).result["behaviors"][0]
    assert (behavior["dead_time_s"], behavior["measured"]) == (75, True)
    (sent,) = [request.body for request in transport.requests if request.method == "PATCH"]
    assert sent["metadata"]["annotations"] == {"kubegpu.autoscale/dead-time-seconds": "75"}


@pytest.mark.parametrize(("kept", "dead_time"), [(1800, 75), (60, 60)])
def test_a_long_dead_time_that_was_kept_is_measured_again_and_the_smaller_counts(kept: int, dead_time: int) -> None:
    (wanted,) = autoscalers("chat")
    live = manifests([wanted.with_dead_time(kept)], RULE_OPTIONS)
    path = "PATCH /apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers/chat"
    pods = {f"GET {PODS}": {"items": [ready_pod("a", 5)]}}
    transport = cluster(("chat",), live, **pods, **{path: manifests([wanted], RULE_OPTIONS)[1]})
    assert run(transport, [wanted]).result["behaviors"][0]["dead_time_s"] == dead_time
    assert f"GET {PODS}" in transport.asked


def test_a_dead_time_once_measured_is_kept() -> None:
    (wanted,) = autoscalers("chat")
    live = manifests([wanted.with_dead_time(30)], RULE_OPTIONS)
    transport = cluster(("chat",), live, **{f"GET {PODS}": {"items": [ready_pod("a", 5)]}})
    outcome = run(transport, [wanted])
    assert not outcome.changed
    assert outcome.result["behaviors"][0]["dead_time_s"] == 30
    assert f"GET {PODS}" not in transport.asked


def test_a_dry_run_takes_what_is_still_to_come_for_granted() -> None:
    transport = cluster((), [], **{f"GET {RULES}": refusal(404, ""), f"GET {APISERVICE}": refusal(404, "")})
    outcome = run(transport, autoscalers("chat"), dry_run=True)
    assert outcome.changed
    assert [entry["action"] for entry in outcome.result["rules"]] == ["created"]
    for missing in (
        "Deployment ml/chat: not found",
        "does not serve the kind PrometheusRule",
        "APIService v1beta1.custom.metrics.k8s.io: not found",
    ):
        assert [missing in warning for warning in outcome.warnings].count(True) == 1
    assert len(outcome.warnings) == 3


def test_a_dry_run_still_refuses_what_nothing_will_mend() -> None:
    other = {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": "ml", "name": "other"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"}},
    }
    with pytest.raises(HopError, match="Deployment ml/chat: HPA ml/chat, HPA ml/other"):
        run(cluster(("chat",), [other]), autoscalers("chat"), dry_run=True)


def test_all_reasons_to_refuse_are_named_at_once() -> None:
    transport = cluster((), [], **{f"GET {RULES}": refusal(404, ""), f"GET {APISERVICE}": refusal(404, "")})
    with pytest.raises(HopError) as caught:
        run(transport, autoscalers("chat"))
    for missing in (
        "Deployment ml/chat: not found",
        "does not serve the kind PrometheusRule",
        "APIService v1beta1.custom.metrics.k8s.io: not found",
    ):
        assert missing in str(caught.value)
    assert caught.value.hop == "rule"


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [
        (autoscalers("chat", "chat"), "2 autoscalers are called ml/chat"),
        (
            [
                Autoscaler.from_params(
                    {
                        "namespace": "ml",
                        "target": {"name": name},
                        "metric": {"name": "queue", "query": f"queue_of_{name}"},
                        "target_value": 1,
                        "max_replicas": 1,
                    }
                )
                for name in ("chat", "embed")
            ],
            "metric queue has 2 queries",
        ),
    ],
    ids=["one name", "one metric"],
)
def test_a_list_that_contradicts_itself(wanted: list[Autoscaler], seen: str) -> None:
    transport = cluster(("chat", "embed"), [])
    with pytest.raises(HopError, match=seen):
        run(transport, wanted)
    assert {request.method for request in transport.requests} == {"GET"}


@pytest.mark.parametrize(
    "metric",
    [
        lambda name: {"name": "s0-prometheus", "selector": {"scaledobject.keda.sh/name": name}},
        lambda name: {"name": "requests", "query": f'requests{{ingress="{name}"}}', "per": "workload"},
    ],
    ids=["served by somebody else", "of a workload"],
)
def test_a_name_of_no_shared_rule_may_be_there_twice(metric: Callable[[str], dict[str, Any]]) -> None:
    """KEDA calls the first trigger of each ScaledObject alike."""
    of_all = {"namespace": "ml", "metric_type": "External", "target_value": 5, "max_replicas": 1}
    wanted = [
        Autoscaler.from_params({**of_all, "target": {"name": name}, "metric": metric(name)})
        for name in ("chat", "embed")
    ]

    state = state_before(cluster(("chat", "embed"), []), wanted)

    assert list(one_query_each.judge(state)) == []


def test_removal_needs_neither_prometheus_nor_targets() -> None:
    rule, hpa = manifests(autoscalers("chat"), RULE_OPTIONS)
    paths = [
        "/apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers/chat",
        f"{RULES}/kubegpu-gpu",
    ]
    transport = FakeTransport(
        {f"GET {HPAS}": {"items": [hpa]}, f"GET {RULES}": {"items": [rule]}, **{f"DELETE {path}": {} for path in paths}}
    )
    kube = KubeClient(transport)
    outcome = remove(kube, [{"namespace": "ml", "name": "chat"}], RULE_OPTIONS)
    assert outcome.changed
    hpa_path, rule_path = (f"DELETE {path}" for path in paths)
    # Whether somebody has begun to use the rule meanwhile is looked at once more.
    keda = "GET /apis/keda.sh/v1alpha1/scaledobjects"
    assert transport.asked == [f"GET {RULES}", f"GET {HPAS}", keda, hpa_path, f"GET {HPAS}", keda, rule_path]


def test_a_removal_names_what_it_has_not_found() -> None:
    """It may be misspelled, or removed before: nothing changes, and nothing fails."""
    transport = cluster(("chat",), manifests(autoscalers("chat"), RULE_OPTIONS))
    names = [{"namespace": "ml", "name": "chatt"}, {"namespace": "web", "target": {"name": "chat"}}]
    outcome = remove(KubeClient(transport, dry_run=True), names, RULE_OPTIONS)

    assert (outcome.changed, outcome.errors) == (False, [])
    assert outcome.warnings == ["no HPA or ScaledObject found for ml/chatt, web/chat, so there was none to remove"]
    assert [entry["action"] for entry in outcome.result["autoscalers"]] == ["unchanged", "unchanged"]


PATCH_CHAT = "PATCH /apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers/chat"


def test_what_somebody_has_edited_of_ours_is_put_back_and_said() -> None:
    wanted = autoscalers("chat")
    rule, hpa = manifests(wanted, RULE_OPTIONS)
    edited = deepcopy(hpa)
    edited["spec"]["maxReplicas"] = 9
    edited["metadata"]["managedFields"] = [
        {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {"f:maxReplicas": {}}}},
        {"operation": "Update", "fieldsV1": {"f:status": {}}},
    ]
    transport = cluster(("chat",), [rule, edited], **{PATCH_CHAT: hpa})
    outcome = run(transport, wanted)
    (sent,) = [request for request in transport.requests if request.method == "PATCH"]
    assert sent.query["force"] == "true"
    assert ["kubectl-edit had changed is restored" in warning for warning in outcome.warnings] == [True]


def test_what_is_not_there_yet_is_not_forced() -> None:
    wanted = autoscalers("chat")
    rule, hpa = manifests(wanted, RULE_OPTIONS)
    transport = cluster(("chat",), [rule], **{PATCH_CHAT: hpa})
    run(transport, wanted)
    assert ["force" in request.query for request in transport.requests if request.method == "PATCH"] == [False]


def test_a_field_that_the_cluster_drops_is_said() -> None:
    wanted = [replace(autoscaler, given_scale_up={"tolerance": 0.05}) for autoscaler in autoscalers("chat")]
    rule, hpa = manifests(wanted, RULE_OPTIONS)
    kept = deepcopy(hpa)
    del kept["spec"]["behavior"]["scaleUp"]["tolerance"]
    (warning,) = run(cluster(("chat",), [rule], **{PATCH_CHAT: kept}), wanted).warnings
    assert "does not support spec.behavior.scaleUp.tolerance" in warning


def test_a_rule_that_another_run_has_just_begun_to_use_is_kept() -> None:
    wanted = autoscalers("chat")
    rule, hpa = manifests(wanted, RULE_OPTIONS)
    old = deepcopy(rule)
    old["metadata"]["name"] = "kubegpu-old"
    old["spec"]["groups"] = [{"name": "others"}, {"rules": [{"alert": "x", "expr": "y"}]}, *old["spec"]["groups"]]
    old["spec"]["groups"][2]["rules"] = [{"record": "namespace_pod:old:avg", "expr": "y"}]
    new = deepcopy(hpa)
    new["metadata"] |= {"name": "new", "namespace": "web"}
    new["spec"]["metrics"][0]["pods"]["metric"]["name"] = "old"
    deleted = {f"DELETE {RULES}/kubegpu-old": {}}
    transport = cluster(("chat",), [rule, old, hpa], **deleted)
    assert [entry["action"] for entry in run(transport, wanted).result["rules"]] == ["unchanged", "deleted"]
    transport = cluster(("chat",), [rule, old, hpa], **deleted)
    transport.answers[f"GET {HPAS}"] = iter([{"items": [hpa]}, {"items": [hpa, new]}])
    assert [entry["action"] for entry in run(transport, wanted).result["rules"]] == ["unchanged"]


def test_the_rule_of_a_workload_whose_metric_is_another_now_is_kept() -> None:
    """It keeps its name, and its live version records what nobody asks for any more."""
    per = {"name": "chat", "namespace": "ml", "target": {"name": "chat"}, "max_replicas": 4}
    before, after = (
        Autoscaler.from_params(
            {**per, "extra_metrics": [{"metric": {"name": name, "query": "x", "per": "workload"}, "target_value": 1}]}
        )
        for name in ("asked", "served")
    )
    live, desired = manifests([before], RULE_OPTIONS), manifests([after], RULE_OPTIONS)
    answers = {
        f"PATCH {RULES}/{rule['metadata']['name']}": rule for rule in desired if rule["kind"] == "PrometheusRule"
    }
    outcome = run(cluster(("chat",), live, **found(POD), **answers, **{PATCH_CHAT: desired[-1]}), [after])

    assert {entry["name"]: entry["action"] for entry in outcome.result["rules"]} == {
        "kubegpu-gpu": "unchanged",
        "kubegpu-ml.chat": "changed",
    }


@pytest.mark.parametrize("kind", ["Pods", "Object", "External"])
def test_a_query_that_others_scale_on_is_not_changed_under_them(kind: str) -> None:
    """The rule of a workload reads what is recorded of its pods."""
    mine = own()
    (theirs,) = [
        replace(
            autoscaler,
            name="other",
            target=replace(autoscaler.target, name="other"),
            metric_targets=tuple(replace(wanted, type=kind) for wanted in autoscaler.metric_targets),
        )
        for autoscaler in mine
    ]
    rule, hpa = manifests(mine, RULE_OPTIONS)
    other = manifests([theirs], RULE_OPTIONS)[-1]
    live = deepcopy(rule)
    live["spec"]["groups"][0]["rules"][0]["expr"] = "another"
    with pytest.raises(HopError) as raised:
        run(cluster(("chat",), [live, other], **found(POD)), mine)
    assert "HPA ml/other scales on it" in raised.value.seen
    # Where nobody else uses it, it is written.
    answers = {f"PATCH {RULES}/{rule['metadata']['name']}": rule, PATCH_CHAT: hpa}
    outcome = run(cluster(("chat",), [live], **found(POD), **answers), mine)
    assert [entry["action"] for entry in outcome.result["rules"]] == ["changed"]


OF_A = {"kubegpu.autoscale/inventory": "a"}
OPTIONS_OF_B = replace(RULE_OPTIONS, inventory="b")


def of_inventory_a(manifest: Manifest) -> Manifest:
    found = deepcopy(manifest)
    found["metadata"]["labels"] |= OF_A
    return found


def test_namespaces_record_a_metric_of_one_name_apart() -> None:
    """Neither can change the values of the other, whatever it may see."""
    mine, theirs = own("queue_of_ml"), own("queue_of_web")
    theirs = [replace(autoscaler, namespace="web") for autoscaler in theirs]
    names = [manifest["metadata"]["name"] for manifest in manifests([*mine, *theirs], RULE_OPTIONS)[:2]]
    assert names == ["kubegpu.ml.queue", "kubegpu.web.queue"]
    rule, hpa = manifests(mine, RULE_OPTIONS)
    other = manifests(theirs, RULE_OPTIONS)[0]
    answers = {
        f"GET {HPAS}": refusal(403, "no"),
        f"GET {HPAS.replace('v2/', 'v2/namespaces/ml/')}": {"items": []},
        f"PATCH {RULES}/kubegpu.ml.queue": rule,
        PATCH_CHAT: hpa,
    }
    transport = cluster(("chat",), [other], **found(POD), **answers)
    assert run(transport, mine).errors == []
    assert [asked for asked in transport.asked if not asked.startswith("GET")] == [
        f"PATCH {RULES}/kubegpu.ml.queue",
        PATCH_CHAT,
    ]
    state = state_before(cluster(("chat",), []), [*mine, *theirs])
    assert list(one_query_each.judge(state)) == []


def test_a_rule_of_a_namespace_goes_with_its_last_user_where_others_cannot_be_seen() -> None:
    mine = own()
    rule, hpa = manifests(mine, RULE_OPTIONS)
    elsewhere = manifests([replace(autoscaler, namespace="web") for autoscaler in mine], RULE_OPTIONS)[0]
    in_ml = f"GET {HPAS.replace('v2/', 'v2/namespaces/ml/')}"
    deletions = [f"{WRITTEN.replace('PATCH', 'DELETE')}/chat", f"DELETE {RULES}/kubegpu.ml.queue"]
    answers = {
        f"GET {HPAS}": ApiError(403, {"message": "no"}, f"GET {HPAS}"),
        in_ml: {"items": [hpa]},
        **{deletion: {} for deletion in deletions},
    }
    transport = cluster(("chat",), [rule, elsewhere], **answers)
    kube = KubeClient(transport)
    outcome = remove(kube, [{"namespace": "ml", "name": "chat"}], RULE_OPTIONS)
    assert [asked for asked in transport.asked if asked.startswith("DELETE")] == deletions
    assert len(outcome.warnings) == 1
    assert "PrometheusRule kubegpu.web.queue, which stays" in outcome.warnings[0]


def test_an_hpa_elsewhere_keeps_no_rule_of_a_namespace() -> None:
    """It has a metric of the same name, and reads another rule."""
    mine = own()
    rule, hpa = manifests(mine, RULE_OPTIONS)
    other_rule, other_hpa = manifests([replace(autoscaler, namespace="web") for autoscaler in mine], RULE_OPTIONS)
    deletions = [f"{WRITTEN.replace('PATCH', 'DELETE')}/chat", f"DELETE {RULES}/kubegpu.ml.queue"]
    answers = {deletion: {} for deletion in deletions}
    transport = cluster(("chat",), [rule, hpa, other_rule, other_hpa], **answers)
    kube = KubeClient(transport)
    remove(kube, [{"namespace": "ml", "name": "chat"}], RULE_OPTIONS)
    assert [asked for asked in transport.asked if asked.startswith("DELETE")] == deletions


def test_an_hpa_of_another_inventory_is_refused_until_it_is_adopted() -> None:
    wanted = autoscalers("chat")
    rule, hpa = manifests(wanted, OPTIONS_OF_B)
    transport = cluster(("chat",), [rule, of_inventory_a(hpa)], **{PATCH_CHAT: hpa})
    with pytest.raises(HopError) as caught:
        run(transport, wanted, rules=OPTIONS_OF_B)
    assert caught.value.seen == "autoscaler ml/chat: its HPA belongs to inventory a, and this run is for inventory b"
    assert "kubegpu_inventory_id" in caught.value.fix
    assert {request.method for request in transport.requests} == {"GET"}

    assert run(transport, [replace(wanted[0], adopt=True)], rules=OPTIONS_OF_B).changed
    assert transport.requests[-1].body["metadata"]["labels"]["kubegpu.autoscale/inventory"] == "b"


def test_inventories_share_a_rule_and_neither_changes_it_under_the_other() -> None:
    wanted = autoscalers("chat")
    rule, hpa = manifests(wanted, OPTIONS_OF_B)
    theirs = of_inventory_a(rule)
    outcome = run(cluster(("chat",), [theirs, hpa]), wanted, rules=OPTIONS_OF_B)
    assert (outcome.changed, outcome.errors) == (False, [])

    theirs["spec"]["groups"][0]["interval"] = "9s"
    transport = cluster(("chat",), [theirs, hpa])
    with pytest.raises(HopError) as caught:
        run(transport, wanted, rules=OPTIONS_OF_B)
    seen = "PrometheusRule kubegpu-gpu: it belongs to inventory a, and inventory b needs an evaluation every 1 s"
    assert caught.value.seen == seen
    command = "kubectl -n monitoring label --overwrite prometheusrule kubegpu-gpu kubegpu.autoscale/inventory=b"
    assert caught.value.fix.endswith(command)
    assert {request.method for request in transport.requests} == {"GET"}


def test_the_shared_rule_of_another_inventory_is_not_changed_where_nothing_is_checked() -> None:
    """shared_rules_only writes without the checks, and so does a run beside which the rule appears."""
    wanted = autoscalers("chat")
    theirs = of_inventory_a(manifests(wanted, OPTIONS_OF_B)[0])
    theirs["spec"]["groups"][0]["interval"] = "9s"
    transport = cluster(("chat",), [theirs])
    outcome = run(transport, wanted, rules=OPTIONS_OF_B, shared_rules_only=True)
    assert (outcome.changed, len(outcome.errors)) == (False, 1)
    assert "kubegpu-gpu belongs to inventory a" in str(outcome.errors[0])
    assert {request.method for request in transport.requests} == {"GET"}


def test_what_another_inventory_made_is_not_removed() -> None:
    rule, hpa = map(of_inventory_a, manifests(autoscalers("chat"), RULE_OPTIONS))
    transport = cluster(("chat",), [rule, hpa])
    kube = KubeClient(transport)
    outcome = remove(kube, [{"namespace": "ml", "name": "chat"}], OPTIONS_OF_B)
    assert not outcome.changed
    assert outcome.warnings == ["HPA ml/chat belongs to inventory a, not to b, and stays"]
    # Nor is a rule that nobody uses any more.
    transport = cluster(("embed",), [rule, *manifests(own_of("embed"), OPTIONS_OF_B)], **found(POD))
    assert not run(transport, own_of("embed"), rules=OPTIONS_OF_B).changed


def own_of(name: str) -> list[Autoscaler]:
    return [replace(autoscaler, name=name, target=replace(autoscaler.target, name=name)) for autoscaler in own()]


def test_a_list_of_hpas_that_is_not_served_does_not_mean_that_there_is_none() -> None:
    rule, _hpa = manifests(autoscalers("chat"), RULE_OPTIONS)
    transport = cluster(("chat",), [rule], **{f"GET {HPAS}": refusal(404, "not found")})
    kube = KubeClient(transport)
    with pytest.raises(HopError, match="so it is unknown which HPAs exist"):
        remove(kube, [{"namespace": "ml", "name": "chat"}], RULE_OPTIONS)
    assert {request.method for request in transport.requests} == {"GET"}


@pytest.mark.parametrize("written", ["86400", "0", "-5", "9" * 30, "\u0663\u0660", "30s"])
def test_a_dead_time_that_cannot_be_is_measured_again(written: str) -> None:
    (wanted,) = autoscalers("chat")
    rule, hpa = manifests([wanted.with_dead_time(30)], RULE_OPTIONS)
    hpa["metadata"]["annotations"]["kubegpu.autoscale/dead-time-seconds"] = written
    pods = {f"GET {PODS}": {"items": [ready_pod("a", 5)]}}
    transport = cluster(("chat",), [rule, hpa], **pods, **{PATCH_CHAT: hpa})
    assert run(transport, [wanted]).result["behaviors"][0]["dead_time_s"] == 75
    assert autoscaler_of(hpa, {}).dead_time <= 3600
    assert not autoscaler_of(hpa, {}).is_measured


def test_who_may_not_see_keda_is_told_and_served() -> None:
    scaled = {"GET /apis/keda.sh/v1alpha1/scaledobjects": refusal(403, "no")}
    wanted = autoscalers("chat")
    outcome = run(cluster(("chat",), manifests(wanted, RULE_OPTIONS), **scaled), wanted)
    assert ["may not list scaledobjects" in warning for warning in outcome.warnings] == [True]


PROMETHEUSES = "GET /apis/monitoring.coreos.com/v1/prometheuses"
CLUSTER_WIDE = (
    f"GET {HPAS}",
    "GET /api/v1/nodes",
    PROMETHEUSES,
    f"GET {APISERVICE}",
    "GET /apis/keda.sh/v1alpha1/scaledobjects",
)


def prometheus_object(**spec: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"release": "kube-prometheus-stack"}}
    return {"metadata": {"name": "k8s", "namespace": "monitoring"}, "spec": {"ruleSelector": selector, **spec}}


@pytest.mark.parametrize(
    ("spec", "warned"),
    [
        ({}, ""),
        (
            {"ruleSelector": {"matchLabels": {"role": "rules"}}},
            "ruleSelector of Prometheus monitoring/k8s is role=rules",
        ),
        (
            {"ruleSelector": {"matchExpressions": [{"key": "release", "operator": "NotIn", "values": ["x"]}]}},
            "",
        ),
        ({"ruleNamespaceSelector": {"matchLabels": {"rules": "yes"}}}, "ruleNamespaceSelector of Prometheus"),
        ({"ruleNamespaceSelector": {"matchLabels": {"watched": "yes"}}}, ""),
    ],
)
def test_rules_that_no_prometheus_would_select_are_warned_of(spec: dict[str, Any], warned: str) -> None:
    namespace = {"metadata": {"name": "monitoring", "labels": {"watched": "yes"}}}
    answers = {
        PROMETHEUSES: {"items": [prometheus_object(**spec)]},
        "GET /api/v1/namespaces": {"items": [namespace]},
    }
    warnings = run(cluster(("chat",), [], **answers), autoscalers("chat"), dry_run=True).warnings
    assert [warned in text for text in warnings] == ([True] if warned else [])
    assert all("they are created in namespace monitoring with labels release=" in text for text in warnings)


def test_who_has_the_rights_of_a_namespace_alone_is_told_and_served() -> None:
    """Of what may be somebody else's nothing is removed."""
    wanted = autoscalers("chat")
    live = manifests(wanted, RULE_OPTIONS)
    [rule] = [manifest for manifest in live if manifest["kind"] == "PrometheusRule"]
    unused = deepcopy(rule)
    unused["metadata"]["name"] = "kubegpu-other"
    unused["metadata"]["labels"]["kubegpu.autoscale/metric"] = "other"
    unused["spec"]["groups"][0]["rules"] = [{"record": "namespace_pod:other:avg", "expr": "vector(1)"}]
    denied = {request: ApiError(403, {"message": "no"}, request) for request in CLUSTER_WIDE}
    in_namespaces = {
        f"GET {HPAS.replace('/hori', '/namespaces/ml/hori')}": {
            "items": [manifest for manifest in live if manifest["kind"] == "HorizontalPodAutoscaler"]
        },
        "GET /apis/keda.sh/v1alpha1/namespaces/ml/scaledobjects": {"items": []},
    }
    transport = cluster(("chat",), [*live, unused], **denied, **in_namespaces)
    outcome = run(transport, wanted)
    assert (outcome.changed, outcome.errors) == (False, [])
    [warning] = outcome.warnings
    assert "no right to list nodes of apiGroup '' at the cluster scope" in warning

    kube = KubeClient(transport, dry_run=True)
    left = remove(kube, [{"namespace": "ml", "target": {"name": "chat"}}], RULE_OPTIONS)
    assert left.result["rules"] == []
    assert "an HPA elsewhere may use PrometheusRule kubegpu-gpu, kubegpu-other, which stays" in left.warnings[0]


def test_gpus_that_are_claimed_need_no_limit() -> None:
    chat = deployment("chat")
    chat["spec"]["template"]["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    answers = {f"GET {DEPLOYMENTS}": {"items": [chat]}}
    (warning,) = run(cluster(("chat",), [], **answers), autoscalers("chat"), dry_run=True).warnings
    assert "has a limit of nvidia.com/" in warning
    chat["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    assert run(cluster(("chat",), [], **answers), autoscalers("chat"), dry_run=True).warnings == []


@pytest.mark.parametrize("label", ["karpenter.sh/nodepool", "kubernetes.azure.com/agentpool"])
def test_nodes_that_are_added_when_needed_are_not_counted(label: str) -> None:
    wanted = [replace(autoscaler, max_replicas=65) for autoscaler in autoscalers("chat")]
    pool = {"GET /api/v1/nodes": {"items": [{**NODE, "metadata": {"name": "n", "labels": {label: "g"}}}]}}
    assert run(cluster(("chat",), [], **pool), wanted, dry_run=True).warnings == []


def test_a_shared_node_matters_to_those_that_may_run_there() -> None:
    labels = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "pool": "shared"}
    nodes = {"GET /api/v1/nodes": {"items": [NODE, {**NODE, "metadata": {"name": "gpu2", "labels": labels}}]}}
    (warning,) = run(cluster(("chat",), [], **nodes), autoscalers("chat"), dry_run=True).warnings
    assert "node gpu2 shares its GPUs" in warning
    chat = deployment("chat")
    chat["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "whole"}
    nodes["GET /api/v1/nodes"]["items"][0] = {**NODE, "metadata": {"name": "gpu1", "labels": {"pool": "whole"}}}
    answers = {**nodes, f"GET {DEPLOYMENTS}": {"items": [chat]}}
    assert run(cluster(("chat",), [], **answers), autoscalers("chat"), dry_run=True).warnings == []


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        (refusal(403, "no"), "allow the user to"),
        (refusal(404, "no"), "run the prometheus_stack role"),
        (refusal(503, "dial tcp: i/o timeout"), "prometheus.url"),
    ],
)
def test_a_prometheus_that_does_not_answer_is_refused_with_what_mends_it(error: ApiError, fix: str) -> None:
    with pytest.raises(HopError) as raised:
        run(cluster(("chat",), [], **{f"GET {PROXY}/query": error}), autoscalers("chat"))
    assert fix in raised.value.fix
