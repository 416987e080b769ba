"""What is asked of a cluster: how often, with which rights, and of whose components."""

from __future__ import annotations

import json
import re
from collections import Counter
from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.examine import examine
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.dcgm_fields import in_1x
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.cluster import Place, Scope
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import PrometheusClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from clusters import (
    ADAPTER,
    ADAPTER_RULES,
    NOW,
    PROMETHEUS,
    SERIES,
    SOURCES,
    Cluster,
    at,
    deployment,
    hpa,
    ids,
    meta,
    node,
    pod,
)
from fake_cluster import FakeTransport, Request, refusal
from test_doctor_checks import JOIN, rejected, said, unmounted

SERVICE = "kube-prometheus-stack-prometheus"
PROXY = f"/api/v1/namespaces/monitoring/services/{SERVICE}:9090/proxy/api/v1"
CONFIG_MAP = "/api/v1/namespaces/monitoring/configmaps/prometheus-adapter"
RULES = json.dumps({"rules": ADAPTER_RULES})
MONITORING = "/apis/monitoring.coreos.com/v1"
PATHS = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "services": "/api/v1/services",
    "namespaces": "/api/v1/namespaces",
    "daemon_sets": "/apis/apps/v1/daemonsets",
    "service_monitors": f"{MONITORING}/servicemonitors",
    "prometheuses": f"{MONITORING}/prometheuses",
    "webhooks": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "rule_objects": f"{MONITORING}/prometheusrules",
    "hpas": "/apis/autoscaling/v2/horizontalpodautoscalers",
}


NAMESPACES = ("monitoring", "nvidia-device-plugin", "ml")


class LiveCluster(FakeTransport):
    """A healthy cluster behind an API server, with a Prometheus that knows the answers instead of the data."""

    def __init__(self, nodes: int = 2, autoscalers: int = 1) -> None:
        names = [f"chat-{n}" if n else "chat" for n in range(autoscalers)]
        cluster = Cluster(nodes=[node(f"gpu{n + 1}") for n in range(nodes)])
        self.pods = [manifest for name, manifest in cluster.pods.items() if not name.startswith("chat")]
        for n in range(2, nodes):
            self.pods += [
                pod(f"{kind}-gpu{n + 1}", place, f"gpu{n + 1}", {"app.kubernetes.io/name": label}, f"10.0.1.{n}")
                for kind, place, label in (
                    ("plugin", "nvidia-device-plugin", "nvidia-device-plugin"),
                    ("dcgm-exporter", "monitoring", "dcgm-exporter"),
                )
            ]
        self.pods += [pod(f"{name}-a", "ml", f"gpu{n % nodes + 1}", {"app": name}) for n, name in enumerate(names)]
        hpas = []
        for name in names:
            its = hpa(name)
            its["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "kubegpu.autoscale"}
            hpas.append(its)
        targets = [deployment(name) for name in names]
        for target in targets:
            target["spec"]["replicas"] = 1
        cluster.adapter["metadata"] = meta("prometheus-adapter", "monitoring")
        cluster.adapter["spec"]["template"]["metadata"] = {"labels": ADAPTER}
        api = cluster.api["service"]
        api["spec"] = {"service": {"namespace": "monitoring", "name": "prometheus-adapter"}}
        values = [
            {"describedObject": {"kind": "Pod", "namespace": "ml", "name": f"{name}-a"}, "value": "41"}
            for name in names
        ]
        lists = {name: getattr(cluster, name, None) for name in PATHS}
        lists |= {"pods": self.pods, "hpas": hpas}
        served = [{"name": "deployments", "kind": "Deployment"}, {"name": "deployments/scale", "kind": "Scale"}]
        custom = "/apis/custom.metrics.k8s.io"
        super().__init__(
            {
                **{f"GET {PATHS[name]}": {"items": items} for name, items in lists.items()},
                "GET /version": {"gitVersion": "v1.36.3"},
                "GET /apis/apps/v1": {"resources": served},
                "GET /apis/apps/v1/deployments": {"items": [*targets, cluster.adapter]},
                "GET /apis/apps/v1/namespaces/ml/deployments": {"items": targets},
                "GET /apis/apps/v1/namespaces/monitoring/deployments": {"items": [cluster.adapter]},
                "GET /apis/apiregistration.k8s.io/v1/apiservices/v1beta1.custom.metrics.k8s.io": api,
                f"GET {custom}": {"versions": [{"version": "v1beta1"}], "preferredVersion": {"version": "v1beta1"}},
                f"GET {custom}/v1beta1": {"resources": [{"name": "pods/gpu"}]},
                f"GET {custom}/v1beta1/namespaces/ml/pods/*/gpu": {"items": values},
                f"GET {CONFIG_MAP}": {
                    "metadata": meta("prometheus-adapter", "monitoring"),
                    "data": {"config.yaml": RULES},
                },
                f"GET {PROXY}/rules": {"data": {"groups": [{"interval": 2, "rules": [cluster.rule]}]}},
            }
        )
        self.names = names
        self.prometheus_error: ApiError | None = None
        self.proxies: dict[str, Any] = {}
        self.joined: list[str] = []
        self.gone: dict[str, float] = {}
        self.exporters = [manifest for manifest in self.pods if manifest["metadata"]["name"].startswith("dcgm")]

    def __call__(self, method: str, path: str, *, query: Any, **options: Any) -> Any:
        if path != f"{PROXY}/query" and path not in self.proxies:
            return super().__call__(method, path, query=query, **options)
        self.requests.append(Request(method, path, query))
        own = self.proxies.get(path)
        if isinstance(own, ApiError):
            raise own
        if own and (result := own(query["query"])) is not None:
            return {"data": {"resultType": "vector", "result": result}}
        if self.prometheus_error:
            raise self.prometheus_error
        kind = "scalar" if query["query"] == "time()" else "vector"
        return {"data": {"resultType": kind, "result": self._result(query["query"])}}

    def _result(self, promql: str) -> Any:
        pods = [{"namespace": "ml", "pod": f"{name}-a"} for name in self.names]
        if promql == "time()":
            return [NOW, str(NOW)]
        if promql.startswith("label_replace(group("):
            return [_sample({"label": label}) for label in self.joined]
        if promql.startswith("group by (__name__)"):
            return [_sample({"__name__": name}) for name in (SERIES, *SOURCES)]
        if promql == "up" or promql.startswith(("count by (instance)", "max_over_time(up[")):
            return [_sample({"instance": f"{exporter['status']['podIP']}:9400"}) for exporter in self.exporters]
        if promql.startswith("count by (__name__"):
            return [_sample({**labels, "__name__": SOURCES[0], "instance": "i"}) for labels in pods]
        if promql.startswith(SERIES):
            return [{"metric": labels, "values": [[NOW - 15, "40"], [NOW, "41"]]} for labels in pods] + [
                {"metric": {"namespace": "ml", "pod": name}, "values": [[NOW, str(value)]]}
                for name, value in self.gone.items()
            ]
        return []


def _sample(labels: dict[str, str]) -> dict[str, Any]:
    return {"metric": labels, "value": [NOW, "1"]}


def look(live: FakeTransport, **options: Any) -> dict[str, Any]:
    kube = KubeClient(live)
    prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service=SERVICE, port=9090)
    given = {"scope": Scope(), "facts": {}, "history_s": 900, "grace": True, "fail_on": "never", **options}
    given.setdefault("place", Place("gpus", "https://192.0.2.10:6443"))
    return examine(kube, prometheus, **given).result


def test_a_healthy_cluster_is_read_as_one() -> None:
    found = look(LiveCluster())
    assert ids(found) == []
    size = {"server_version": "v1.36.3", "nodes": 2, "gpu_nodes": 2}
    assert found["cluster"] == {"reached": True, "context": "gpus", "server": "https://192.0.2.10:6443", **size}
    [autoscaler] = found["autoscalers"]
    assert (autoscaler["verified"], autoscaler["replicas"], autoscaler["desired_replicas"]) == (True, 1, 2)
    assert autoscaler["history"]["value"] == [40, 41]
    assert autoscaler["budget"]["collect_s"] == 1


def test_the_number_of_requests_does_not_grow() -> None:
    few, many = LiveCluster(), LiveCluster(nodes=200, autoscalers=100)
    assert ids(look(few)) == []
    assert ids(look(many)) == ["ADAPTER_THROTTLED"]  # as its chart has it, it is too slow for so many
    assert len(many.requests) == len(few.requests) <= 63
    written = {request.path for request in many.requests if request.method != "GET"}
    assert written == {"/apis/authentication.k8s.io/v1/selfsubjectreviews"}  # asks who we are, and keeps nothing


def test_nothing_is_listed_twice() -> None:
    live = LiveCluster()
    look(live)
    lists = Counter(request.path for request in live.requests if request.path in PATHS.values())
    assert set(lists.values()) == {1}


@pytest.mark.parametrize(
    ("field", "right"),
    [
        ("nodes", "list nodes of apiGroup '' at the cluster scope"),
        ("daemon_sets", "list daemonsets of apiGroup 'apps' at the cluster scope"),
        ("services", "list services of apiGroup '' at the cluster scope"),
        ("prometheuses", "list prometheuses of apiGroup 'monitoring.coreos.com' at the cluster scope"),
        ("rule_objects", "list prometheusrules of apiGroup 'monitoring.coreos.com' at the cluster scope"),
        (
            "webhooks",
            "list validatingwebhookconfigurations of apiGroup 'admissionregistration.k8s.io' at the cluster scope",
        ),
        ("hpas", "list horizontalpodautoscalers of apiGroup 'autoscaling' at the cluster scope"),
    ],
)
def test_a_missing_right_is_named_and_the_rest_looked_at(field: str, right: str) -> None:
    live = LiveCluster()
    live.answers[f"GET {PATHS[field]}"] = ApiError(403, {"message": "forbidden"}, f"GET {PATHS[field]}")
    found = look(live)
    [finding] = found["findings"]
    assert (finding["id"], finding["seen"]) == ("RIGHTS_MISSING", [f"no right to {right}"])
    unmade = [unchecked for unchecked in found["not_checked"] if f"no right to {right}" in unchecked["reason"]]
    assert {unchecked["finding"] for unchecked in unmade} == {"RIGHTS_MISSING"}
    assert found["verdict"] == "partial"
    assert set(found["unchecked_hops"]) >= {unchecked["hop"] for unchecked in unmade}


def test_a_missing_right_to_the_adapters_rules_is_named() -> None:
    live = LiveCluster()
    live.answers[f"GET {CONFIG_MAP}"] = ApiError(403, {"message": "forbidden"}, f"GET {CONFIG_MAP}")
    found = look(live)
    assert ids(found) == ["RIGHTS_MISSING"]
    right = "no right to get configmaps of apiGroup '' in namespace monitoring"
    unmade = {unchecked["check"] for unchecked in found["not_checked"] if right in unchecked["reason"]}
    assert "the adapter's rules are valid" in unmade


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("rules: [", "while parsing a flow node"),
        ("- seriesQuery: x", "it is not a mapping of options"),
        ("custom: []", "unknown option custom"),
        ("", None),
        ("rules: {default: false}", "unknown option default"),
        ("externalRules: [{seriesQuery: 'x['}]", "rule 1 of 1, for `x[`: seriesQuery is not a selector"),
    ],
)
def test_the_adapters_rules_are_read(text: str, seen: str | None) -> None:
    live = LiveCluster()
    live.answers[f"GET {CONFIG_MAP}"]["data"]["config.yaml"] = text
    live.answers["GET /apis/custom.metrics.k8s.io/v1beta1"] = {"resources": []}
    [finding] = look(live)["findings"]
    assert finding["id"] == ("ADAPTER_RULE_WRONG" if seen else "ADAPTER_LISTS_NOTHING")
    assert (seen or "resources is empty") in finding["seen"][0]


def second_replica(live: LiveCluster, answer: Any) -> None:
    """prometheus-1, beside prometheus-0 behind the Service; each answers for itself."""
    live.pods.append(pod("prometheus-1", "monitoring", "cpu1", PROMETHEUS))
    place = "/api/v1/namespaces/monitoring/pods/prometheus-{}:9090/proxy/api/v1/query"
    live.proxies = {place.format(0): None, place.format(1): answer}


def test_a_series_that_one_replica_of_prometheus_lacks_is_said() -> None:
    live = LiveCluster()
    second_replica(live, None)
    assert ids(look(live)) == []
    second_replica(live, lambda promql: [] if SERIES in promql else None)
    [finding] = look(live)["findings"]
    assert finding["id"] == "PROMETHEUS_REPLICAS_DIFFER"
    assert "prometheus-1 has no namespace_pod:gpu:avg, which the other has" in finding["seen"]


def test_a_missing_right_to_ask_each_replica_is_named() -> None:
    live = LiveCluster()
    second_replica(
        live, ApiError(403, {"message": "forbidden"}, "GET /api/v1/namespaces/monitoring/pods/p:9090/proxy/x")
    )
    found = look(live)
    assert ids(found) == ["RIGHTS_MISSING"]
    unmade = {unchecked["check"]: unchecked["reason"] for unchecked in found["not_checked"]}
    right = "no right to get pods/proxy of apiGroup '' in namespace monitoring"
    assert unmade["the replicas of Prometheus have the same data"] == right


EVENTS = "/api/v1/namespaces/monitoring/events"


@pytest.mark.parametrize("answer", [{"items": []}, ApiError(403, {"message": "forbidden"}, f"GET {EVENTS}")])
def test_events_are_asked_for_where_an_exporter_waits(answer: Any) -> None:
    live = LiveCluster()
    live.answers[f"GET {EVENTS}"] = answer
    cluster = Cluster()
    unmounted(cluster, 900)
    live.pods[0] |= cluster.pods["dcgm-exporter-gpu1"]
    if isinstance(answer, dict):
        answer["items"] = cluster.events
    found = look(live)
    assert [request.query["fieldSelector"] for request in live.requests if request.path == EVENTS] == ["type=Warning"]
    right = "no right to list events of apiGroup '' in namespace monitoring"
    is_read = right not in {unchecked["reason"] for unchecked in found["not_checked"]}
    assert is_read == ("EXPORTER_MOUNT_FAILS" in ids(found)) == isinstance(answer, dict)


ALL_EVENTS = "/api/v1/events"
OF_ML = "/api/v1/namespaces/ml/events"


def rescaled() -> dict[str, Any]:
    message = "New size: 3; reason: pods metric gpu above target"
    return said("HorizontalPodAutoscaler", "ml/chat", "SuccessfulRescale", message, count=7)


def test_what_the_hpa_has_done_is_read_from_its_events() -> None:
    live = LiveCluster()
    live.answers[f"GET {ALL_EVENTS}"] = {"items": [rescaled()]}
    assert ids(look(live)) == ["WORKLOAD_SCALED_BY_ANOTHER"]


def test_who_may_read_events_of_one_namespace_alone_gets_those() -> None:
    live = LiveCluster()
    live.answers[f"GET {ALL_EVENTS}"] = ApiError(403, {"message": "forbidden"}, f"GET {ALL_EVENTS}")
    live.answers[f"GET {OF_ML}"] = {"items": [rescaled()]}
    assert ids(look(live, scope=Scope("ml"))) == ["WORKLOAD_SCALED_BY_ANOTHER"]
    [finding] = look(live)["findings"]
    assert finding["seen"] == ["no right to list events of apiGroup '' at the cluster scope"]


def test_a_controller_manager_that_is_away_is_seen_by_its_lease() -> None:
    live = LiveCluster()
    lease = {"metadata": meta("kube-controller-manager", "kube-system"), "spec": {"renewTime": at(900)}}
    live.answers["GET /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"] = lease
    assert ids(look(live)) == ["HPA_CONTROLLER_SILENT"]


def test_what_prometheus_says_of_itself_is_read() -> None:
    live = LiveCluster()
    live.answers[f"GET {PROXY}/status/runtimeinfo"] = {"data": {"reloadConfigSuccess": False}}
    assert ids(look(live)) == ["PROMETHEUS_RELOAD_FAILS"]


@pytest.mark.parametrize(("health", "findings"), [("up", ["PROMETHEUS_STORES_NOTHING"]), ("down", ["TARGET_MISSING"])])
def test_targets_that_are_up_without_a_sample_are_not_missing(health: str, findings: list[str]) -> None:
    live = LiveCluster()
    live.answers[f"GET {PROXY}/targets"] = {"data": {"activeTargets": [{"health": health, "labels": {}}]}}
    nothing = ("up", "max_over_time(up[", "count by", SERIES, "group by")
    live.proxies = {f"{PROXY}/query": lambda promql: [] if promql.startswith(nothing) else None}
    assert ids(look(live, grace=False))[:1] == findings


def test_labels_that_rules_join_are_asked_for_together() -> None:
    live = LiveCluster()
    rule = {"name": "app:gpu:use", "health": "ok", "query": JOIN}
    live.answers[f"GET {PROXY}/rules"]["data"]["groups"].append({"interval": 2, "rules": [rule]})
    live.joined = ["pod"]
    assert ids(look(live)) == ["RULE_POD_LABELS_MISSING"]
    live.joined = ["pod", "label_app"]
    assert ids(look(live)) == []
    [asked] = {query for request in live.requests if "kube_pod" in (query := (request.query or {}).get("query", ""))}
    assert asked.split(" or ")[1] == (
        'label_replace(group({__name__=~"kube_pod_labels",label_app!=""}), "label", "label_app", "", "")'
    )


def test_no_label_is_asked_for_where_no_rule_joins_any() -> None:
    live = LiveCluster()
    look(live)
    assert not [request for request in live.requests if "kube_pod" in (request.query or {}).get("query", "")]


def test_nothing_is_asked_of_events_where_all_exporters_run() -> None:
    live = LiveCluster()
    look(live)
    asked = [request.query["fieldSelector"] for request in live.requests if request.path.endswith("/events")]
    assert asked == ["reason=InvalidConfiguration", "reason=SuccessfulRescale"]


def test_without_a_right_to_pods_nothing_is_concluded_from_their_absence() -> None:
    live = LiveCluster()
    for path in ("/api/v1/pods", *(f"/api/v1/namespaces/{name}/pods" for name in NAMESPACES)):
        live.answers[f"GET {path}"] = ApiError(403, {"message": "forbidden"}, f"GET {path}")
    found = look(live)
    assert ids(found) == ["RIGHTS_MISSING"]
    reasons = " ".join(unchecked["reason"] for unchecked in found["not_checked"])
    assert "no right to list pods of apiGroup '' in namespace" in reasons
    assert next(hop["id"] for hop in found["hops"] if hop["status"] == "unknown") == "device_plugin"


def test_pods_that_are_gone_are_in_the_history() -> None:
    """By the names that a Deployment's ReplicaSets give; pods of others are not."""
    live = LiveCluster()
    live.gone = {"chat-5d9c7f88b-x2x4q": 99, "chat-web-5d9c7f88b-x2x4q": 5, "chatty-0": 5}
    [autoscaler] = look(live)["autoscalers"]
    assert autoscaler["history"]["value"] == [40, (41 + 99) / 2]


def test_an_api_server_that_does_not_answer_is_no_report() -> None:
    live = LiveCluster()
    live.answers["GET /api/v1/nodes"] = ApiError(0, "connection refused", "GET /api/v1/nodes")
    with pytest.raises(ApiError, match="connection refused"):
        look(live)


def test_pods_that_a_kubelet_refused_are_told_from_those_that_ended() -> None:
    live = LiveCluster()
    ended = pod("chat-ended", "ml", "gpu1", {"app": "chat"}, ready=False)
    ended["status"] = {"phase": "Failed", "reason": "Evicted"}
    live.pods += [rejected("chat-2", 300), ended]
    live.answers["GET /apis/apps/v1/namespaces/ml/deployments"]["items"][0]["spec"]["replicas"] = 2
    [finding] = look(live)["findings"]
    assert finding["id"] == "WORKLOAD_PODS_FAIL"
    assert finding["seen"][0].startswith("1 pods were rejected: ml/chat-2: UnexpectedAdmissionError")


def test_a_query_that_prometheus_refuses_ends_no_diagnosis() -> None:
    live = LiveCluster()

    def refuse(promql: str) -> None:
        if promql.startswith(("(min_over_time", SERIES)):
            raise ApiError(422, {"errorType": "execution", "error": "query timed out"}, "GET query")

    live.proxies[f"{PROXY}/query"] = refuse
    found = look(live)
    assert any("query timed out" in unchecked["reason"] for unchecked in found["not_checked"])
    assert [autoscaler["name"] for autoscaler in found["autoscalers"]] == ["chat"]


def test_credentials_that_have_expired_are_called_so() -> None:
    live = LiveCluster()
    live.answers[f"GET {PATHS['services']}"] = ApiError(401, {"message": "Unauthorized"}, f"GET {PATHS['services']}")
    reasons = {unchecked["reason"] for unchecked in look(live)["not_checked"]}
    assert any(reason.startswith("the credentials have expired or are wrong") for reason in reasons)


@pytest.mark.parametrize(
    ("series", "value", "findings"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", 130.0, []),  # of the processes that a pod has on a shared GPU
        ("DCGM_FI_DEV_GPU_UTIL", 2147483632.0, ["EXPORTER_LOSES_A_GPU"]),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1.03, []),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 9.2e18, ["EXPORTER_LOSES_A_GPU"]),
    ],
)
def test_a_value_that_the_rules_take_for_a_full_gpu_is_not_impossible(
    series: str, value: float, findings: list[str]
) -> None:
    live = LiveCluster()

    def answer(promql: str) -> Any:
        if not promql.startswith("topk(20"):
            return None
        above = dict(re.findall(r"(GPU_UTIL|_ACTIVE)[^<>]*> ([\d.]+)", promql))
        labels = {"__name__": series, "namespace": "ml", "pod": "chat-a"}
        is_found = value > float(next(limit for part, limit in above.items() if series.endswith(part)))
        return [{"metric": labels, "value": [NOW, str(value)]}] if is_found else []

    live.proxies[f"{PROXY}/query"] = answer
    assert ids(look(live)) == findings


def test_one_autoscaler_can_be_named() -> None:
    live = LiveCluster(autoscalers=3)
    assert [autoscaler["name"] for autoscaler in look(live, scope=Scope("ml", "chat-1"))["autoscalers"]] == ["chat-1"]
    with pytest.raises(HopError, match="unknown HPA ml/nobody"):
        look(live, scope=Scope("ml", "nobody"))


def test_a_namespace_that_does_not_exist_is_no_healthy_one() -> None:
    """Unless the user may not list namespaces."""
    live = LiveCluster()
    with pytest.raises(HopError, match="unknown namespace mll"):
        look(live, scope=Scope("mll", None))
    live.answers[f"GET {PATHS['namespaces']}"] = ApiError(403, {"message": "forbidden"}, "GET")
    assert look(live, scope=Scope("mll", None))["autoscalers"] == []


def test_autoscalers_that_are_not_about_gpus_are_left_alone() -> None:
    live = LiveCluster()
    web = hpa("web", metric="requests_per_second")
    web["status"] = {}
    live.answers[f"GET {PATHS['hpas']}"]["items"].append(web)
    assert [autoscaler["name"] for autoscaler in look(live)["autoscalers"]] == ["chat"]
    found = look(live, scope=Scope("ml", "web"))
    assert "HPA_NOT_SEEN" in ids(look(live, scope=Scope("ml", "web"), grace=False))
    assert [autoscaler["metric"] for autoscaler in found["autoscalers"]] == ["requests_per_second"]


def test_a_kind_that_may_not_be_read_is_missed_by_autoscalers_of_gpus_alone() -> None:
    """Anybody's HPA scales anything: the others are judged."""
    live = LiveCluster()
    theirs, path = hpa("queue", metric="messages"), "/apis/example.com/v1/namespaces/ml/fleets"
    theirs["spec"]["scaleTargetRef"] = {"apiVersion": "example.com/v1", "kind": "Fleet", "name": "queue"}
    live.answers[f"GET {PATHS['hpas']}"]["items"].append(theirs)
    live.answers["GET /apis/example.com/v1"] = {"resources": [{"name": "fleets", "kind": "Fleet"}]}
    live.answers[f"GET {path}"] = ApiError(403, {"message": "forbidden"}, f"GET {path}")

    def missed() -> set[str]:
        return {skipped["reason"] for skipped in look(live)["not_checked"] if "no right" in skipped["reason"]}

    assert missed() == set()
    theirs["spec"]["metrics"][0]["pods"]["metric"]["name"] = "gpu"
    assert missed() == {"no right to list fleets of apiGroup 'example.com' in namespace ml"}


def test_pods_that_no_right_tells_are_not_called_missing() -> None:
    """Only the scale subresource of such a kind says which pods are its."""
    live, version = LiveCluster(), "/apis/leaderworkerset.x-k8s.io/v1"
    groups = f"{version}/namespaces/ml/leaderworkersets"
    theirs = hpa("group", metric="gpu")
    reference = {"apiVersion": version.removeprefix("/apis/"), "kind": "LeaderWorkerSet", "name": "group"}
    theirs["spec"]["scaleTargetRef"] = reference
    live.answers[f"GET {PATHS['hpas']}"]["items"].append(theirs)
    live.answers[f"GET {version}"] = {
        "resources": [
            {"name": "leaderworkersets", "kind": "LeaderWorkerSet"},
            {"name": "leaderworkersets/scale", "kind": "Scale"},
        ]
    }
    group = {"metadata": meta("group", "ml"), "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 2}}}
    live.answers[f"GET {groups}"] = {"items": [group]}
    live.answers[f"GET {groups}/group/scale"] = ApiError(403, {"message": "no"}, f"GET {groups}/group/scale")
    found = look(live, grace=False)
    assert ids(found) == ["RIGHTS_MISSING"]
    missed = {skipped["reason"] for skipped in found["not_checked"]}
    assert any("get leaderworkersets/scale of apiGroup 'leaderworkerset.x-k8s.io'" in reason for reason in missed)


def test_who_may_list_hpas_of_one_namespace_alone_gets_a_report_of_it() -> None:
    live = LiveCluster()
    hpas = live.answers[f"GET {PATHS['hpas']}"]
    live.answers[f"GET {PATHS['hpas'].replace('/hori', '/namespaces/ml/hori')}"] = hpas
    live.answers[f"GET {PATHS['hpas']}"] = ApiError(403, {"message": "forbidden"}, f"GET {PATHS['hpas']}")
    assert look(live)["autoscalers"] == []
    found = look(live, scope=Scope("ml"))
    assert [(autoscaler["name"], autoscaler["verified"]) for autoscaler in found["autoscalers"]] == [("chat", True)]
    assert not any("autoscaling" in skipped["reason"] for skipped in found["not_checked"])


def test_a_prometheus_that_is_not_there_is_a_finding() -> None:
    live = LiveCluster()
    unserved = refusal(503, "no endpoints available for service")
    live.prometheus_error = unserved
    # Without Prometheus' clock the ages are those of this machine's.
    found = look(live, grace=False)
    assert ids(found) == ["PROMETHEUS_UNREACHABLE"]
    assert found["findings"][0]["seen"] == ["no endpoints available for service"]


@pytest.mark.parametrize(("fail_on", "errors"), [("never", 0), ("error", 1), ("warning", 2)])
def test_what_fails_the_task(fail_on: str, errors: int) -> None:
    live = LiveCluster()
    del live.answers["GET /apis/apps/v1/namespaces/ml/deployments"]["items"][0]["spec"]["template"]["spec"][
        "containers"
    ][0]["readinessProbe"]
    live.answers[f"GET {PATHS['nodes']}"]["items"][0]["status"]["conditions"][0]["status"] = "Unknown"
    kube = KubeClient(live)
    prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service=SERVICE, port=9090)
    outcome = examine(kube, prometheus, scope=Scope(), facts={}, history_s=0, grace=True, fail_on=fail_on)
    assert ids(outcome.result) == ["NODE_NOT_READY", "WORKLOAD_NO_READINESS_PROBE"]
    assert len(outcome.errors) == errors


ENDED, STAYED = "chat-1-a", "chat-a"
ML_PODS = "GET /api/v1/namespaces/ml/pods"


@pytest.mark.parametrize(
    ("without_value", "named"),
    [(ENDED, []), (STAYED, ["METRIC_WITHOUT_VALUE"])],
    ids=["it has ended", "it is there"],
)
@pytest.mark.parametrize("is_leaving", [False, True], ids=["is gone", "is being deleted"])
def test_a_pod_that_ends_before_values_are_read_needs_none(
    without_value: str, named: list[str], is_leaving: bool
) -> None:
    live = LiveCluster(autoscalers=2)
    values = live.answers["GET /apis/custom.metrics.k8s.io/v1beta1/namespaces/ml/pods/*/gpu"]
    values["items"] = [value for value in values["items"] if value["describedObject"]["name"] != without_value]
    listed = [manifest for manifest in live.pods if manifest["metadata"]["namespace"] == "ml"]
    later = deepcopy([manifest for manifest in listed if is_leaving or manifest["metadata"]["name"] != ENDED])
    for manifest in later:
        if manifest["metadata"]["name"] == ENDED:
            manifest["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    live.answers[ML_PODS] = iter([{"items": listed}, {"items": later}])
    assert ids(look(live)) == named


def test_values_stay_missing_where_pods_are_not_listed_again() -> None:
    live = LiveCluster()
    live.answers["GET /apis/custom.metrics.k8s.io/v1beta1/namespaces/ml/pods/*/gpu"]["items"] = []
    listed = [manifest for manifest in live.pods if manifest["metadata"]["namespace"] == "ml"]
    live.answers[ML_PODS] = iter([{"items": listed}, refusal(503, "overloaded")])
    assert ids(look(live)) == ["METRIC_WITHOUT_VALUE"]


def test_fields_are_found_by_their_names_in_1x() -> None:
    """A list of counters with the names of dcgm-exporter 1.x leads to the same report."""
    live = LiveCluster()
    asked: list[str] = []

    def with_old_names(promql: str) -> list[dict[str, Any]] | None:
        asked.append(promql)
        if not promql.startswith(("count by (__name__", "group by (__name__)")):
            return None
        rows = live._result(promql)
        return [{**row, "metric": {**row["metric"], "__name__": in_1x(row["metric"]["__name__"])}} for row in rows]

    live.proxies[f"{PROXY}/query"] = with_old_names
    assert ids(look(live, grace=False)) == []
    asking = [promql for promql in asked if re.search(r"\bDCGM_FI_", promql)]
    assert len(asking) >= 6
    assert [promql for promql in asking if "dcgm_" not in promql and in_1x(promql) not in asked] == []
