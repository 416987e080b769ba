"""The doctor is silent about what is healthy, and about what is only on its way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import nan

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.exporter_options import given_collect_interval_s
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.health_report import health_report
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.demand import DemandState
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.prometheus import (
    PrometheusState,
    ReplicaState,
    Row,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.targets import exporter_targets
from clusters import (
    EXPORTER,
    OLD,
    PLUGIN,
    SERIES,
    SOURCES,
    Cluster,
    at,
    exporter_daemon_set,
    ids,
    meta,
    metric,
    node,
    pod,
    rows,
    turned,
)


def test_a_healthy_cluster_has_no_finding() -> None:
    found = Cluster().report()
    assert ids(found) == []
    assert found["verdict"] == "ok"
    assert {hop["status"] for hop in found["hops"]} == {"ok"}
    assert found["not_checked"] == []


def test_a_prometheus_that_ends_was_well_until_now() -> None:
    """It may be called ready yet, when it answers no more."""
    cluster = Cluster()
    cluster.prometheus = {"error": "no endpoints available for service", "rules": None}
    cluster.silence("chat-0", "chat-1")
    ending = cluster.pods["prometheus-0"]["metadata"]
    ending |= {"deletionTimestamp": at(-590), "deletionGracePeriodSeconds": 600}
    assert ids(cluster.report(grace=True)) == []
    ending["deletionTimestamp"] = at(590)
    assert ids(cluster.report(grace=True)) == ["PROMETHEUS_UNREACHABLE"]


def test_workloads_with_a_rule_each_record_a_series_once_each() -> None:
    cluster = Cluster()
    own = [{**cluster.rule, "labels": {"namespace": "ml", "deployment": name}} for name in ("chat", "embed")]
    cluster.prometheus["rules"] = {cluster.rule["name"]: own}
    assert ids(cluster.report()) == []
    cluster.prometheus["rules"] = {cluster.rule["name"]: [*own, own[0]]}
    assert ids(cluster.report()) == ["RULE_TWICE"]


@pytest.mark.parametrize(
    "demand",
    [
        # Nothing is asked: a night, or no pod yet.
        DemandState({"busy": 1.0, "counters": 2.0, "sum": 1.0}, is_steady=False),
        DemandState({}, is_steady=False),
        # The first requests, of which nothing can be learned yet.
        DemandState({"busy": 90.0, "counters": 2.0, "offered": 12.0, "sum": 90.0}, is_steady=False),
        # A step, whose pods are still to start.
        DemandState({"busy": 199.0, "counters": 2.0, "offered": 100.0, "cost": 0.05, "sum": 500.0}, is_steady=True),
    ],
)
def test_a_demand_that_is_well_or_new_is_no_finding(demand: DemandState) -> None:
    assert ids(Cluster(demand=demand).report()) == []


def test_gpus_that_are_claimed_need_no_device_plugin() -> None:
    cluster = Cluster(nodes=[node("gpu1"), node("gpu2")])
    for gpu_node in cluster.nodes:
        gpu_node["status"]["allocatable"] = {"cpu": "8"}
        gpu_node["status"]["capacity"] = {"cpu": "8"}
    plugin = next(daemon_set for daemon_set in cluster.daemon_sets if "plugin" in daemon_set["metadata"]["name"])
    cluster.daemon_sets.remove(plugin)
    assert "DEVICE_PLUGIN_MISSING" in ids(cluster.report())
    container = {"name": "gpus", "image": "nvcr.io/nvidia/k8s-dra-driver-gpu:v25.3.0"}
    driver = {"metadata": meta("nvidia-dra-driver-gpu-kubelet-plugin", "nvidia-dra-driver-gpu")}
    cluster.daemon_sets.append(
        {**plugin, **driver, "spec": {**plugin["spec"], "template": {"spec": {"containers": [container]}}}}
    )
    assert "DEVICE_PLUGIN_MISSING" not in ids(cluster.report())


@pytest.mark.parametrize("layout", ["exported_", ""])
def test_each_layout_of_labels_is_understood(layout: str) -> None:
    cluster = Cluster()
    cluster.prometheus["rows"] = rows({"ml/chat-0": "10.0.0.1:9400", "ml/chat-1": "10.0.0.2:9400"}, layout=layout)
    found = cluster.report()
    assert ids(found) == []
    summary = next(hop["summary"] for hop in found["hops"] if hop["id"] == "labels")
    assert summary == f"2 pods named by {layout}namespace, {layout}pod"


def test_a_target_that_names_the_namespace_only() -> None:
    cluster = Cluster()
    names = {"chat-0": "10.0.0.1:9400", "chat-1": "10.0.0.2:9400"}
    cluster.prometheus["rows"] = [
        Row({"__name__": "DCGM_FI_DEV_GPU_UTIL", "namespace": "monitoring", "exported_namespace": "ml", "pod": name})
        for name in names
    ]
    found = cluster.report()
    assert ids(found) == []
    assert "exported_namespace, pod" in next(hop["summary"] for hop in found["hops"] if hop["id"] == "labels")


def young(cluster: Cluster, name: str, age_s: float, *, ready: bool = True) -> None:
    """A pod that was made some seconds ago, in the place of the one of that name."""
    old = cluster.pods[name]
    new = pod(
        name,
        old["metadata"]["namespace"],
        old["spec"]["nodeName"],
        old["metadata"]["labels"],
        old["status"]["podIP"],
        ready,
        age_s,
    )
    cluster.pods[name] = new


def a_scale_up(cluster: Cluster) -> None:
    """Three more pods, of which one is ready, but not seen yet, one starts, and one waits for its image."""
    cluster.pods["chat-2"] = pod("chat-2", "ml", "gpu1", {"app": "chat"}, age_s=20)
    cluster.pods["chat-3"] = pod("chat-3", "ml", "gpu1", {"app": "chat"}, ready=False, age_s=60)
    pending = pod("chat-4", "ml", "", {"app": "chat"}, ready=False, age_s=60)
    pending["status"]["conditions"] = [turned("PodScheduled", "False", 60, message="Insufficient nvidia.com/gpu")]
    cluster.pods["chat-4"] = pending
    cluster.metric = metric(expected_objects=frozenset({"chat-0", "chat-1", "chat-2"}))


def an_update_that_ends_the_old_pods_first(cluster: Cluster) -> None:
    """For a moment there is none."""
    del cluster.pods["chat-0"], cluster.pods["chat-1"]
    cluster.metric = metric(expected_objects=frozenset(), values={}, recorded={})
    cluster.target["metadata"]["managedFields"] = [
        {"manager": "kubectl", "time": at(3600)},
        {"manager": "kube-controller-manager", "subresource": "status", "time": at(1)},
    ]


def a_first_deployment(cluster: Cluster) -> None:
    """Nothing of it is in the chain yet, and the HPA says so."""
    for name in ("chat-0", "chat-1"):
        young(cluster, name, 30)
    cluster.prometheus["rows"] = [Row({"__name__": SOURCES[0], "instance": "10.0.0.1:9400"})]  # GPUs are idle
    cluster.rule_objects[0]["metadata"] = meta("kubegpu-gpu", "monitoring", 30, release="kube-prometheus-stack")
    cluster.prometheus["rules"] = {}
    cluster.api["listed"] = frozenset()
    cluster.silence("chat-0", "chat-1", listed=False)
    cluster.hpa["status"]["conditions"][1] = turned("ScalingActive", "False", 30, reason="FailedGetPodsMetric")


def an_update_of_the_exporter(cluster: Cluster) -> None:
    """One pod at a time is replaced, and is not ready for its probe's first 45 s."""
    young(cluster, "dcgm-exporter-gpu1", 30, ready=False)
    cluster.prometheus["up"][0] = Row({"job": "dcgm-exporter", "instance": "10.0.0.1:9400"}, 0.0)
    cluster.prometheus["rows"] = rows({"ml/chat-1": "10.0.0.2:9400"})
    cluster.silence("chat-0")


def a_scrape_that_fails_once(cluster: Cluster) -> None:
    """All series of the target are stale until the next one."""
    cluster.prometheus["up"][0] = Row({"job": "dcgm-exporter", "instance": "10.0.0.1:9400"}, 0.0)
    cluster.prometheus |= {
        "rows": rows({"ml/chat-1": "10.0.0.2:9400"}),
        "rows_lately": named("chat-0", "chat-1"),
        "up_lately": [Row({"job": "dcgm-exporter", "instance": f"10.0.0.{n}:9400"}) for n in (1, 2)],
    }
    cluster.silence("chat-0")


def a_monitor_that_is_read_anew(cluster: Cluster) -> None:
    cluster.prometheus["up_lately"] = cluster.prometheus["up"]
    cluster.prometheus["up"] = cluster.prometheus["up"][1:]


def an_exporter_that_has_just_come_back(cluster: Cluster) -> None:
    young(cluster, "dcgm-exporter-gpu1", 10)
    del cluster.prometheus["up"][0]
    cluster.prometheus["rows"] = rows({"ml/chat-1": "10.0.0.2:9400"})
    cluster.silence("chat-0")


def a_restart_of_prometheus(cluster: Cluster) -> None:
    """It replays its log: nothing answers, and the HPA soon says so."""
    young(cluster, "prometheus-0", 60, ready=False)
    cluster.prometheus = {"error": "no endpoints available", "rules": None}
    cluster.silence("chat-0", "chat-1")


def a_prometheus_that_has_just_come_back(cluster: Cluster) -> None:
    young(cluster, "prometheus-0", 15)
    cluster.prometheus = {"rows": [], "up": [], "rules": {}}
    cluster.api["listed"] = frozenset()
    cluster.silence("chat-0", "chat-1", listed=False)


def a_replica_of_prometheus_that_has_just_come_back(cluster: Cluster) -> None:
    """It has not scraped anything yet; the other one has all."""
    second = pod("prometheus-1", "monitoring", "cpu1", {}, age_s=30)
    first = ReplicaState(frozenset({SERIES, *SOURCES}), cluster.prometheus["up"])
    replicas = {"prometheus-0": first, "prometheus-1": ReplicaState()}
    cluster.prometheus |= {"pods": [cluster.pods["prometheus-0"], second], "replicas": replicas}


def a_restart_of_the_adapter(cluster: Cluster) -> None:
    young(cluster, "prometheus-adapter-0", 20, ready=False)
    service = cluster.api["service"]
    service["status"]["conditions"] = [turned("Available", "False", 20, reason="MissingEndpoints")]
    cluster.api |= {"unavailable": "MissingEndpoints: no addresses", "listed": None}
    cluster.metric = metric(values={}, listed=None)
    cluster.hpa["status"]["conditions"][1] = turned("ScalingActive", "False", 10, reason="FailedGetPodsMetric")


def an_adapter_that_has_just_come_back(cluster: Cluster) -> None:
    """It lists metrics after its first relist only."""
    young(cluster, "prometheus-adapter-0", 25)
    cluster.api["listed"] = frozenset()
    cluster.metric = metric(values={}, listed=False)


def a_restart_of_a_foreign_adapter(cluster: Cluster) -> None:
    """It serves what ours would, and does not list it."""
    cluster.api |= {"owner": "service metrics/adapter", "is_prometheus_adapter": False, "listed": frozenset({"pods/x"})}
    young(cluster, "prometheus-adapter-0", 25)
    cluster.metric = metric(values={}, listed=False)


def a_scale_up_with_a_foreign_adapter(cluster: Cluster) -> None:
    a_scale_up(cluster)
    cluster.api |= {"owner": "service metrics/adapter", "is_prometheus_adapter": False, "listed": frozenset({"pods/x"})}
    cluster.metric = replace(cluster.metric, listed=False)


def changed(cluster: Cluster, age_s: float) -> None:
    """The rule is old, and somebody has changed it since; what wrote it last counts."""
    cluster.rule_objects[0]["metadata"]["managedFields"] = [
        {"manager": "helm", "time": at(86_000)},
        {"manager": "kubegpu.autoscale", "time": at(age_s)},
    ]


def a_changed_rule_that_cannot_be_evaluated_yet(cluster: Cluster) -> None:
    """The series that it now asks for are not there once yet as they have to be."""
    changed(cluster, 20)
    cluster.rule |= {"health": "err", "lastError": "many-to-many matching not allowed"}
    cluster.silence("chat-0", "chat-1", listed=False)


def a_changed_rule_without_a_whole_window(cluster: Cluster) -> None:
    changed(cluster, 20)
    cluster.metric = metric(recorded={"chat-0": (nan,), "chat-1": (55.0,)}, values={"chat-0": 0.0, "chat-1": 55.0})


def a_changed_rule_that_the_adapter_does_not_know_yet(cluster: Cluster) -> None:
    changed(cluster, 20)
    cluster.metric = metric(values={"chat-0": 90.0, "chat-1": 55.0})


def a_prometheus_without_a_whole_window(cluster: Cluster) -> None:
    young(cluster, "prometheus-0", 60)
    cluster.metric = metric(recorded={"chat-0": (nan,), "chat-1": (55.0,)}, values={"chat-0": 0.0, "chat-1": 55.0})


def a_prometheus_that_disagrees_with_what_it_was(cluster: Cluster) -> None:
    young(cluster, "prometheus-0", 60)
    cluster.metric = metric(values={"chat-0": 90.0, "chat-1": 55.0})


def a_prometheus_that_evaluates_for_the_first_time(cluster: Cluster) -> None:
    young(cluster, "prometheus-0", 20)
    cluster.rule |= {"health": "err", "lastError": "many-to-many matching not allowed"}
    cluster.silence("chat-0", "chat-1", listed=False)


def a_new_node(cluster: Cluster) -> None:
    """It has joined, and its DaemonSets' pods pull their images."""
    new = node("gpu3", 0)
    new["metadata"]["creationTimestamp"] = at(90)
    new["status"]["conditions"] = [turned("Ready", age_s=40)]
    cluster.nodes.append(new)
    cluster.pods["plugin-gpu3"] = pod("plugin-gpu3", "nvidia-device-plugin", "gpu3", PLUGIN, ready=False, age_s=40)
    cluster.pods["exporter-gpu3"] = pod("exporter-gpu3", "monitoring", "gpu3", EXPORTER, ready=False, age_s=40)


def a_node_whose_driver_is_being_installed(cluster: Cluster) -> None:
    a_new_node(cluster)
    for name in ("plugin-gpu3", "exporter-gpu3"):
        status = cluster.pods[name]["status"]["containerStatuses"][0]
        status["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": "could not load NVML library"}}


def an_update_of_the_device_plugin(cluster: Cluster) -> None:
    """The kubelet offers no GPU until the plugin has registered again."""
    young(cluster, "plugin-gpu1", 15)
    cluster.nodes[0]["status"]["allocatable"]["nvidia.com/gpu"] = "0"


def named(*pods: str) -> list[Row]:
    """What Prometheus remembers of the last minutes, besides the exporter's own name."""
    own = {"namespace": "monitoring", "pod": "dcgm-exporter-gpu1"}
    return [Row(own), *(Row({**own, "exported_namespace": "ml", "exported_pod": pod}) for pod in pods)]


def a_kubelet_that_does_not_answer(cluster: Cluster) -> None:
    """The exporter asks it who holds the GPUs, and the cluster calls its node ready for another 40 s."""
    cluster.prometheus |= {"rows": rows({"ml/chat-1": "10.0.0.2:9400"}), "rows_lately": named("chat-0", "chat-1")}
    cluster.silence("chat-0")


def all_kubelets_that_do_not_answer(cluster: Cluster) -> None:
    cluster.prometheus |= {
        "rows": [Row({"__name__": SOURCES[0], "instance": "10.0.0.1:9400"})],
        "rows_lately": named("chat-0", "chat-1"),
    }
    cluster.silence("chat-0", "chat-1", listed=False)


def a_burst(cluster: Cluster) -> None:
    cluster.hpa["status"]["conditions"][2] = turned("ScalingLimited", age_s=600, reason="TooManyReplicas")


def a_burst_of_one_that_was_at_its_minimum_for_days(cluster: Cluster) -> None:
    """From TooFewReplicas to TooManyReplicas the condition stays True, and keeps its time."""
    cluster.hpa["status"]["conditions"][2] = turned("ScalingLimited", age_s=300_000, reason="TooManyReplicas")
    cluster.hpa["status"]["lastScaleTime"] = at(20)


def an_autoscaler_that_has_just_got_another_metric(cluster: Cluster) -> None:
    """The controller looks at it in its next period."""
    cluster.hpa["spec"]["metrics"].append({"type": "Resource", "resource": {"name": "cpu", "target": {}}})
    gpu = {"type": "Pods", "pods": {"metric": {"name": "gpu"}, "current": {"averageValue": "40"}}}
    cluster.hpa["status"]["currentMetrics"] = [gpu]
    cluster.hpa["metadata"]["managedFields"] = [
        {"manager": "kubegpu.autoscale", "time": at(4)},
        {"manager": "kube-controller-manager", "subresource": "status", "time": at(9)},
    ]


def a_new_autoscaler(cluster: Cluster) -> None:
    cluster.hpa["metadata"] = meta("chat", "ml", 5)
    cluster.hpa["status"] = {}


PASSING: tuple[Callable[[Cluster], None], ...] = (
    a_scale_up,
    an_update_that_ends_the_old_pods_first,
    a_first_deployment,
    an_update_of_the_exporter,
    a_scrape_that_fails_once,
    a_monitor_that_is_read_anew,
    an_exporter_that_has_just_come_back,
    a_restart_of_prometheus,
    a_prometheus_that_has_just_come_back,
    a_replica_of_prometheus_that_has_just_come_back,
    a_restart_of_the_adapter,
    an_adapter_that_has_just_come_back,
    a_restart_of_a_foreign_adapter,
    a_scale_up_with_a_foreign_adapter,
    a_changed_rule_that_cannot_be_evaluated_yet,
    a_changed_rule_without_a_whole_window,
    a_changed_rule_that_the_adapter_does_not_know_yet,
    a_prometheus_without_a_whole_window,
    a_prometheus_that_disagrees_with_what_it_was,
    a_prometheus_that_evaluates_for_the_first_time,
    a_new_node,
    a_node_whose_driver_is_being_installed,
    an_update_of_the_device_plugin,
    a_kubelet_that_does_not_answer,
    all_kubelets_that_do_not_answer,
    a_burst,
    a_burst_of_one_that_was_at_its_minimum_for_days,
    a_new_autoscaler,
    an_autoscaler_that_has_just_got_another_metric,
)


@pytest.mark.parametrize("change", PASSING, ids=lambda change: change.__name__)
def test_what_passes_by_itself_gives_no_alarm(change: Callable[[Cluster], None]) -> None:
    cluster = Cluster()
    change(cluster)
    assert ids(cluster.report()) == []


@pytest.mark.parametrize("change", PASSING, ids=lambda change: change.__name__)
def test_it_is_seen_all_the_same(change: Callable[[Cluster], None]) -> None:
    cluster = Cluster()
    change(cluster)
    found = cluster.report(grace=False)
    assert ids(found)
    assert all(finding["grace_s"] > 0 for finding in found["findings"])


SLOW = (
    ("FailedScheduling", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."),
    ("Failed", "Error: ErrImagePull"),
    ("FailedMount", 'MountVolume.SetUp failed for volume "model": timed out waiting for the condition'),
)


def loading(cluster: Cluster, reason: str, message: str, age_s: float) -> None:
    """A third pod that has got over what a warning told, and loads its model."""
    third = pod("chat-2", "ml", "gpu1", {"app": "chat"}, ready=False, age_s=age_s)
    third["status"]["containerStatuses"][0]["state"] = {"running": {"startedAt": at(200)}}
    cluster.pods["chat-2"], cluster.replicas = third, 3
    about = {"kind": "Pod", "namespace": "ml", "name": "chat-2"}
    event = {"involvedObject": about, "reason": reason, "message": message, "eventTime": at(900)}
    cluster.events = [{**event, "series": {"count": 7, "lastObservedTime": at(230)}}]


@pytest.mark.parametrize(("reason", "message"), SLOW)
def test_a_warning_is_over_once_the_containers_run(reason: str, message: str) -> None:
    cluster = Cluster()
    loading(cluster, reason, message, age_s=500)
    assert ids(cluster.report()) == []
    loading(cluster, reason, message, age_s=700)
    [finding] = cluster.report()["findings"]
    assert (finding["id"], finding["seen"]) == ("WORKLOAD_PODS_FAIL", ["1 of 3 pods are not ready: ml/chat-2"])


@pytest.mark.parametrize(
    ("kind", "name", "ago_s"),
    [("StatefulSet", "chat-worker", 10), ("StatefulSet", "chat", 10), ("ReplicaSet", "chat-5d9c7b8f6", 2000)],
)
def test_pods_that_could_not_be_made_for_others_or_once_are_no_finding(kind: str, name: str, ago_s: float) -> None:
    """A third replica is just being made. A quota kept others' pods from it, or these before the second was made."""
    cluster = Cluster(replicas=3)
    young(cluster, "chat-1", 1000)
    about = {"kind": kind, "namespace": "ml", "name": name}
    times = {"firstTimestamp": at(2600), "lastTimestamp": at(ago_s)}
    event = {"involvedObject": about, "reason": "FailedCreate", "message": "exceeded quota", **times}
    cluster.events = [event]
    assert ids(cluster.report()) == []
    event |= {"involvedObject": {**about, "kind": "ReplicaSet", "name": "chat-5d9c7b8f6"}, "lastTimestamp": at(900)}
    assert ids(cluster.report()) == ["WORKLOAD_PODS_NOT_CREATED"]


def test_a_probe_that_has_the_container_restarted_is_no_past() -> None:
    cluster = Cluster()
    loading(cluster, "Unhealthy", "Startup probe failed: HTTP probe failed with statuscode: 503", age_s=700)
    ended = {"terminated": {"reason": "Completed", "exitCode": 0, "startedAt": at(500), "finishedAt": at(220)}}
    cluster.pods["chat-2"]["status"]["containerStatuses"][0]["lastState"] = ended
    [finding] = cluster.report()["findings"]
    assert finding["cause"] == "the kubelet restarts the container, because its startupProbe fails"


def test_a_workload_that_gets_no_pods() -> None:
    """For longer than it takes to make one."""
    cluster = Cluster()
    an_update_that_ends_the_old_pods_first(cluster)
    cluster.target["metadata"]["managedFields"][1]["time"] = at(3600)
    [finding] = cluster.report()["findings"]
    assert (finding["id"], finding["seen"]) == ("WORKLOAD_NOT_READY", ["0 of 0 pods are ready"])


@pytest.mark.parametrize(("field", "passes"), [({}, True), ({"subresource": "status"}, False)])
def test_a_change_of_its_status_is_no_change_of_a_rule(field: dict[str, str], passes: bool) -> None:
    cluster = Cluster()
    a_changed_rule_that_cannot_be_evaluated_yet(cluster)
    cluster.rule_objects[0]["metadata"]["managedFields"][1] |= field
    assert ids(cluster.report()) == ([] if passes else ["RULE_FAILS"])


def test_answers_that_only_others_gave_lately_excuse_nothing() -> None:
    cluster = Cluster()
    a_scrape_that_fails_once(cluster)
    del cluster.prometheus["up_lately"][0]
    assert ids(cluster.report()) == ["TARGET_DOWN"]


def test_names_that_only_others_had_lately_excuse_nothing() -> None:
    cluster = Cluster()
    a_kubelet_that_does_not_answer(cluster)
    cluster.prometheus["rows_lately"] = named("chat-1")
    assert ids(cluster.report()) == ["POD_WITHOUT_SERIES"]


def test_an_exporter_that_only_names_itself_names_no_pod() -> None:
    cluster = Cluster()
    all_kubelets_that_do_not_answer(cluster)
    cluster.prometheus["rows_lately"] = named()
    assert ids(cluster.report()) == ["EXPORTER_NO_POD_LABELS"]


def test_a_restart_of_kube_state_metrics_is_nobodys_business() -> None:
    """No hop reads it: only the history does."""
    cluster = Cluster()
    cluster.prometheus["up"].append(Row({"job": "kube-state-metrics", "instance": "10.0.0.9:8080"}, 0.0))
    assert ids(cluster.report()) == []


def test_a_cluster_without_gpus_and_autoscalers_proves_nothing() -> None:
    cluster = Cluster(nodes=[node("cpu1", 0)], daemon_sets=[])
    del cluster.nodes[0]["metadata"]["labels"]["nvidia.com/gpu.present"]
    state = cluster.state()
    bare = replace(
        state, facts={}, autoscalers=(), apis=(), component_pods=(), prometheus=PrometheusState("p", rules={})
    )
    found = health_report(bare)
    assert (ids(found), found["verdict"]) == ([], "unknown")
    assert {hop["status"] for hop in found["hops"] if hop["id"] != "access"} == {"unknown"}


def none_of_the_plugin(cluster: Cluster) -> None:
    """As with GPUs by dynamic resource allocation."""
    del cluster.daemon_sets[1]


def no_exporter_in_the_cluster(cluster: Cluster) -> None:
    """It runs on the hosts, as a service of theirs: its series are judged, where it should run is not."""
    del cluster.daemon_sets[0]


def no_exporter_at_all(cluster: Cluster) -> None:
    no_exporter_in_the_cluster(cluster)
    cluster.nodes = []
    cluster.metric = metric(sources=(), reporter="")
    cluster.prometheus |= {"rows": [], "up": []}


def no_recorded_metric(cluster: Cluster) -> None:
    cluster.metric = metric(series="")


def rules_that_are_not_said(cluster: Cluster) -> None:
    cluster.prometheus["rules"] = None


def a_workload_that_starts(cluster: Cluster) -> None:
    for name in ("chat-0", "chat-1"):
        young(cluster, name, 10, ready=False)
    cluster.metric = metric(expected_objects=frozenset(), values={}, recorded={})


@pytest.mark.parametrize(
    ("change", "summaries"),
    [
        (none_of_the_plugin, {"device_plugin": "no pod of a device plugin is known"}),
        (no_exporter_in_the_cluster, {"node_labels": "no dcgm-exporter is known"}),
        (
            no_exporter_at_all,
            {
                "node": "no node is known to have GPUs",
                "node_labels": "no dcgm-exporter is known",
                "exporter": "no dcgm-exporter is known",
                "scrape": "no dcgm-exporter is known",
                "labels": "no series names a pod",
            },
        ),
        (no_recorded_metric, {"rule": "no checked metric is recorded by a rule"}),
        (rules_that_are_not_said, {"rule": "Prometheus does not list its rules"}),
        (a_workload_that_starts, {"metric": "no autoscaler has ready pods that need a value"}),
    ],
)
def test_where_nothing_is_there_to_judge_nothing_is_called_well(
    change: Callable[[Cluster], None], summaries: dict[str, str]
) -> None:
    cluster = Cluster(facts={})
    change(cluster)
    found = cluster.report()
    is_proven = found["autoscalers"][0]["verified"] and cluster.metric.is_of_gpus
    assert (ids(found), found["verdict"]) == ([], "ok" if is_proven else "partial")
    assert found["unchecked_hops"] == ([] if is_proven else list(summaries))
    assert {hop["id"]: hop["summary"] for hop in found["hops"] if hop["status"] != "ok"} == summaries
    assert {hop["status"] for hop in found["hops"]} == {"ok", "unknown"}


def test_without_a_right_the_rest_is_looked_at() -> None:
    cluster = Cluster(nodes=[], unavailable={"nodes": "no right to list nodes of apiGroup '' at the cluster scope"})
    found = cluster.report()
    assert ids(found) == []
    assert {unchecked["hop"] for unchecked in found["not_checked"]} == {
        "node",
        "device_plugin",
        "node_labels",
        "exporter",
        "scrape",
        "workload",
    }
    statuses = {hop["id"]: hop["status"] for hop in found["hops"]}
    assert {hop for hop, status in statuses.items() if status == "unknown"} == {"node", "device_plugin", "node_labels"}
    summary = next(hop["summary"] for hop in found["hops"] if hop["id"] == "node")
    assert summary == "no node is known to have GPUs: no right to list nodes of apiGroup '' at the cluster scope"
    assert "list nodes" in found["not_checked"][0]["reason"]


def test_series_whose_exporter_cannot_be_told() -> None:
    """A relabeling that puts another instance on them, not an exporter that has none."""
    cluster = Cluster()
    cluster.prometheus["serving"] = [Row({"instance": "gpu-metrics"})]
    assert ids(cluster.report()) == []


def test_a_node_that_is_cordoned() -> None:
    """For an upgrade say: its GPUs come back, so the maximum is not blamed."""
    cluster = Cluster()
    cluster.hpa["spec"]["maxReplicas"] = 8
    cluster.nodes[0]["spec"]["unschedulable"] = True
    assert ids(cluster.report(grace=False)) == []


@pytest.mark.parametrize("mig_capable", [True, None])
def test_instances_that_are_offered_as_gpus_are_no_shared_gpus(mig_capable: bool | None) -> None:
    """As with MIG strategy single: more are offered than the server has boards."""
    cluster = Cluster()
    cluster.nodes[0]["status"] |= {"capacity": {"nvidia.com/gpu": "14"}, "allocatable": {"nvidia.com/gpu": "14"}}
    cluster.facts["gpu1"]["gpus"] = [{"mig_capable": mig_capable}] * 2
    assert ids(cluster.report(grace=False)) == []


def test_network_cards_are_no_gpus() -> None:
    """As NVIDIA's network operator offers them, on nodes with GPUs and without."""
    cards = {"nvidia.com/hostdev": "8", "nvidia.com/sriov_ib": "8"}
    cluster = Cluster()
    cluster.nodes.append(node("cpu1", 0))
    cluster.nodes[-1]["metadata"]["labels"] = {}
    for machine in cluster.nodes:
        for amounts in (machine["status"]["capacity"], machine["status"]["allocatable"]):
            amounts |= cards
    limits = cluster.target["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    limits["nvidia.com/hostdev"] = "1"
    assert ids(cluster.report(grace=False)) == []
    # A device plugin that gives out no GPU is seen all the same.
    for amounts in (cluster.nodes[0]["status"]["capacity"], cluster.nodes[0]["status"]["allocatable"]):
        del amounts["nvidia.com/gpu"]
    assert "NODE_WITHOUT_GPUS" in ids(cluster.report(grace=False))


def test_instances_that_gke_offers_as_gpus_are_measured_as_mig() -> None:
    cluster = Cluster(metric=metric(name="mig"))
    assert ids(cluster.report(grace=False)) == []
    cluster.metric = metric(name="mig", values={})
    assert "METRIC_BLANK_ON_WHOLE_GPUS" in ids(cluster.report(grace=False))
    cluster.nodes[0]["metadata"]["labels"]["cloud.google.com/gke-gpu-partition-size"] = "1g.5gb"
    assert "METRIC_BLANK_ON_WHOLE_GPUS" not in ids(cluster.report(grace=False))


@pytest.mark.parametrize("host", ["10.0.0.1", "[fd00::1]"])
def test_an_exporter_on_its_nodes_network_is_not_taken_for_the_kubelet(host: str) -> None:
    """All three have the node's address, and the job names no pods."""
    cluster = Cluster()
    exporter = cluster.pods["dcgm-exporter-gpu1"]
    exporter["spec"]["hostNetwork"] = True
    exporter["status"]["podIP"] = host.strip("[]")
    others = [row for row in cluster.prometheus["up"] if not row.labels["instance"].startswith("10.0.0.1:")]
    own = [Row({"job": "nodes", "instance": f"{host}:{port}"}) for port in (9400, 10250, 9100)]
    assert exporter_targets([exporter], [*others, *own])["monitoring/dcgm-exporter-gpu1"] is own[0]
    assert exporter_targets([exporter], [*others, *own[1:]]) == {}


@pytest.mark.parametrize("up", [1.0, 0.0])
@pytest.mark.parametrize("layout", ["by its name", "by its address"])
def test_a_proxy_beside_the_exporter_is_not_taken_for_it(layout: str, up: float) -> None:
    """A mesh has its proxies scraped, too, at ports of their own."""
    cluster = Cluster()
    ports = {"dcgm-exporter": 9400, "envoy-stats-monitor": 15090}
    cluster.prometheus["up"] = [
        Row(
            {
                "job": job,
                "instance": f"10.0.0.{number}:{port}",
                **({"namespace": "monitoring", "pod": f"dcgm-exporter-gpu{number}"} if "name" in layout else {}),
            },
            1.0 if port == 9400 else up,
        )
        for number in (1, 2)
        for job, port in ports.items()
    ]
    assert ids(cluster.report(grace=False)) == []
    for row in cluster.prometheus["up"][::2]:
        cluster.prometheus["up"].remove(row)
        cluster.prometheus["up"].append(Row(row.labels, 0.0))
    assert ids(cluster.report(grace=False)) == ["TARGET_DOWN"]


@pytest.mark.parametrize(("up_again_s", "findings"), [(590, []), (OLD, ["EXPORTER_PROBES_KILL"])])
def test_a_reboot_of_the_node_is_no_fault_of_a_probe(up_again_s: float, findings: list[str]) -> None:
    """The third since the pod was made, months ago; each ends the exporter as a probe would."""
    cluster = Cluster()
    ended = {"exitCode": 143, "reason": "Completed", "startedAt": at(OLD), "finishedAt": at(700)}
    status = {"restartCount": 3, "lastState": {"terminated": ended}, "state": {"running": {"startedAt": at(600)}}}
    cluster.pods["dcgm-exporter-gpu1"]["status"]["containerStatuses"][0] |= status
    cluster.nodes[0]["status"]["conditions"] = [turned("Ready", age_s=up_again_s)]
    assert ids(cluster.report()) == findings


@pytest.mark.parametrize(
    ("label", "value", "resource"),
    [
        ("nvidia.com/gpu.deploy.operands", "false", ""),
        ("nvidia.com/gpu.workload.config", "vm-passthrough", ""),
        ("nvidia.com/gpu.workload.config", "vm-passthrough", "nvidia.com/GA102GL_A10"),
        ("nvidia.com/gpu.workload.config", "vm-vgpu", "nvidia.com/NVIDIA_A10-24Q"),
    ],
)
def test_a_node_that_the_gpu_operator_is_told_to_leave_alone_has_no_gpus(label: str, value: str, resource: str) -> None:
    """GPUs of virtual machines, or of whoever keeps the node to itself: no pod gets one, and no exporter sees one."""
    cluster = Cluster()
    left = node("vm1", gpus=0)
    left["metadata"]["labels"] = {"feature.node.kubernetes.io/pci-10de.present": "true", label: value}
    for kind in ("capacity", "allocatable") if resource else ():
        left["status"][kind][resource] = "2"
    cluster.nodes.append(left)
    assert ids(cluster.report(grace=False)) == []
    del left["metadata"]["labels"][label]
    assert len(ids(cluster.report(grace=False))) == 1


@pytest.mark.parametrize(
    ("label", "value", "nodes"),
    [
        ("cloud.google.com/gke-accelerator", "nvidia-l4", 1),
        ("k8s.amazonaws.com/accelerator", "nvidia-l4", 1),
        ("kubernetes.azure.com/accelerator", "nvidia", 1),
        ("kubernetes.azure.com/accelerator", "amd", 0),
        ("karpenter.k8s.aws/instance-gpu-manufacturer", "nvidia", 1),
    ],
)
def test_the_label_of_a_cloud_tells_of_gpus_that_nobody_offers_yet(label: str, value: str, nodes: int) -> None:
    bare = node("gpu1", gpus=0)
    bare["metadata"]["labels"] = {label: value}
    assert Cluster(nodes=[bare], facts={}).report()["cluster"]["gpu_nodes"] == nodes


def test_an_exporter_that_nobody_scrapes_beside_one_that_is() -> None:
    """The GPU operator brings one that needs no monitor, where another reports the same GPUs."""
    cluster = Cluster()
    cluster.daemon_sets.append(exporter_daemon_set("nvidia-dcgm-exporter", "gpu-operator"))
    for number in (1, 2):
        name = f"nvidia-dcgm-exporter-{number}"
        cluster.pods[name] = pod(name, "gpu-operator", f"gpu{number}", EXPORTER, f"10.0.1.{number}")
    assert ids(cluster.report(grace=False)) == []
    del cluster.prometheus["up"][0]
    [finding] = cluster.report(grace=False)["findings"]
    assert (finding["id"], finding["object"].count("on node gpu1")) == ("TARGET_MISSING", 2)


def test_an_interval_behind_a_shell() -> None:
    container = {
        "command": ["/bin/bash", "-c"],
        "args": ["hostname $NODE_NAME; dcgm-exporter"],
        "env": [{"name": "DCGM_EXPORTER_INTERVAL", "value": "1000"}],
    }
    assert given_collect_interval_s(container) == 1


def test_resources_of_pods_that_scale_on_something_else_need_no_name() -> None:
    cluster = Cluster(metric=metric(name="rps", reporter="", sources=()))
    limits = cluster.target["spec"]["template"]["spec"]["containers"][0]["resources"]
    limits["limits"] = {"nvidia.com/gpu.shared": "1"}
    cluster.prometheus["rows"] = []
    assert "EXPORTER_RESOURCE_NAMES" not in ids(cluster.report(grace=False))
