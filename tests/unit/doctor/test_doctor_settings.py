"""What people may well have set: it looks like a fault of a setting, and is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import PROFILES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.adapter_config import (
    adapter_config,
    config_map_of,
    fault_of,
    name_given,
    takes_all,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.health_report import health_report
from clusters import ADAPTER_RULES, EXPORTER, OLD, OPERATOR, Cluster, at, ids, metric, pod, service, turned, webhook
from hypothesis import example, given
from hypothesis import strategies as st
from test_doctor_checks import (
    FAULTS,
    JOIN,
    POD_ALONE,
    applied,
    configured,
    hostnames,
    own_rule,
    ratio,
    restarted,
    unmounted,
    written_by,
)

# As prometheus-adapter's chart has them with rules.default: true.
_CONTAINERS = '{__name__=~"^container_.*",container!="POD",namespace!="",pod!=""}'
_OTHERS = '{namespace!="",__name__!~"^container_.*"}'
STOCK_RULES = [
    {"seriesQuery": _CONTAINERS, "seriesFilters": [], "name": {"matches": "^container_(.*)_seconds_total$", "as": ""}},
    {"seriesQuery": _CONTAINERS, "seriesFilters": [{"isNot": "^container_.*_seconds_total$"}], "name": {"as": ""}},
    {"seriesQuery": _OTHERS, "seriesFilters": [{"isNot": ".*_total$"}], "resources": {"template": "<<.Resource>>"}},
    {"seriesQuery": _OTHERS, "name": {"matches": "^(.*)_total$", "as": ""}, "metricsQuery": "sum(<<.Series>>)"},
]


def a_manifest_that_was_applied_before_the_hpa_scaled(cluster: Cluster) -> None:
    cluster.hpa["status"]["lastScaleTime"] = at(3600)
    cluster.target["metadata"]["managedFields"] = [
        written_by("helm", 7200),
        written_by("kube-controller-manager", 3600, subresource="scale"),
    ]


def a_deployment_that_was_made_anew(cluster: Cluster) -> None:
    cluster.hpa["status"]["lastScaleTime"] = at(3600)
    cluster.target["metadata"] |= {"creationTimestamp": at(1800), "managedFields": [written_by("helm", 1800)]}


def a_workload_that_has_never_been_scaled(cluster: Cluster) -> None:
    cluster.target["metadata"]["managedFields"] = [written_by("kubectl-client-side-apply", 60)]


def an_upgrade_that_leaves_the_replicas_alone(cluster: Cluster) -> None:
    cluster.hpa["status"]["lastScaleTime"] = at(3600)
    fields = {"f:spec": {"f:template": {}}}
    cluster.target["metadata"]["managedFields"] = [{**written_by("helm", 60), "fieldsV1": fields}]


def somebody_who_scales_by_hand(cluster: Cluster) -> None:
    cluster.hpa["status"]["lastScaleTime"] = at(3600)
    cluster.target["metadata"]["managedFields"] = [written_by("kubectl", 60, subresource="scale")]


def a_ratio_that_is_made_percent(cluster: Cluster) -> None:
    ratio(cluster, "avg by (namespace, pod) (100 * DCGM_FI_PROF_GR_ENGINE_ACTIVE)")


def a_ratio_with_a_target_in_the_same_unit(cluster: Cluster) -> None:
    ratio(cluster, "avg by (namespace, pod) (DCGM_FI_PROF_GR_ENGINE_ACTIVE)")
    cluster.metric = metric(name="duty", series="", target_value=0.6, values={"chat-0": 0.4, "chat-1": 0.98})


def a_sum_over_the_gpus_of_a_pod(cluster: Cluster) -> None:
    ratio(cluster, "sum by (namespace, pod) (DCGM_FI_PROF_GR_ENGINE_ACTIVE)")
    cluster.target["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "4"
    cluster.hpa["spec"]["maxReplicas"] = 2
    cluster.metric = replace(cluster.metric, target_value=3.0)


def a_sum_over_all_pods(cluster: Cluster) -> None:
    ratio(cluster, "sum by (namespace) (DCGM_FI_PROF_GR_ENGINE_ACTIVE)")
    cluster.metric = replace(cluster.metric, type="Object", expected_objects=frozenset({"chat"}), values={"chat": 0.9})


def a_ratio_that_another_metric_is_made_of(cluster: Cluster) -> None:
    ratio(cluster, "")
    rule = {"seriesQuery": 'DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod!=""}', "name": {"as": "another"}}
    configured(cluster, [*ADAPTER_RULES, rule])


def a_metric_that_is_larger_than_its_text_allows(cluster: Cluster) -> None:
    ratio(cluster, "avg by (namespace, pod) (DCGM_FI_PROF_GR_ENGINE_ACTIVE)")
    cluster.metric = replace(cluster.metric, values={"chat-0": 41.0, "chat-1": 55.0})


def profiling_on_one_node_for_a_metric_that_can_do_without(cluster: Cluster) -> None:
    """The metric gpu falls back on the utilisation."""
    cluster.prometheus["rows"] = [
        row
        for row in cluster.prometheus["rows"]
        if row.labels["instance"] == "10.0.0.2:9400" or "PROF" not in row.labels["__name__"]
    ]


def a_wrong_rule_that_the_adapter_has_not_read_yet(cluster: Cluster) -> None:
    configured(cluster, [{"seriesQuery": "rate(x[1m])"}])


def rules_that_are_newer_than_the_adapter_while_nothing_is_missing(cluster: Cluster) -> None:
    configured(cluster, ADAPTER_RULES, written_s=600)


def rules_that_are_newer_than_the_adapter_while_pods_are_added(cluster: Cluster) -> None:
    cluster.pods["chat-2"] = pod("chat-2", "ml", "gpu1", {"app": "chat"}, age_s=20)
    cluster.metric = metric(expected_objects=frozenset({"chat-0", "chat-1", "chat-2"}))
    configured(cluster, ADAPTER_RULES, written_s=600)


def rules_that_are_newer_than_the_adapter_at_a_first_deployment(cluster: Cluster) -> None:
    FAULTS["METRIC_NOT_LISTED"](cluster)
    cluster.hpa["status"]["conditions"][1]["lastTransitionTime"] = at(20)
    for name in ("chat-0", "chat-1"):
        cluster.pods[name] = pod(name, "ml", "gpu1", {"app": "chat"}, age_s=20)
    configured(cluster, ADAPTER_RULES, written_s=600)


def an_update_of_all_exporters_that_have_just_begun(cluster: Cluster) -> None:
    FAULTS["EXPORTER_FIELD_MISSING"](cluster)
    for number in (1, 2):
        name = f"dcgm-exporter-gpu{number}"
        cluster.pods[name] = pod(name, "monitoring", f"gpu{number}", EXPORTER, f"10.0.0.{number}", age_s=60)


def default_rules_that_the_adapter_bears(cluster: Cluster) -> None:
    configured(cluster, STOCK_RULES)


def an_adapter_that_was_killed_with_few_rules(cluster: Cluster) -> None:
    restarted(cluster.pods["prometheus-adapter-0"], 4, 137, "OOMKilled")


def an_adapter_that_was_killed_long_ago(cluster: Cluster) -> None:
    restarted(cluster.pods["prometheus-adapter-0"], 4, 137, "OOMKilled")
    ended = cluster.pods["prometheus-adapter-0"]["status"]["containerStatuses"][0]["lastState"]["terminated"]
    ended["finishedAt"] = at(7200)
    configured(cluster, STOCK_RULES)


def a_rule_that_reads_the_label_as_it_is(cluster: Cluster) -> None:
    hostnames(cluster, "Hostname")
    own_rule(cluster, "max by (Hostname) (DCGM_FI_DEV_GPU_UTIL)")


def a_rule_that_reads_either_label(cluster: Cluster) -> None:
    hostnames(cluster, "hostname")
    own_rule(cluster, "max by (Hostname, hostname) (DCGM_FI_DEV_GPU_UTIL)")


def a_rule_that_makes_the_label(cluster: Cluster) -> None:
    hostnames(cluster, "Hostname")
    own_rule(cluster, 'sum by (hostname) (label_replace(DCGM_FI_DEV_GPU_UTIL, "hostname", "$1", "instance", "(.*)"))')


def a_rule_that_says_hostname_without_meaning_the_label(cluster: Cluster) -> None:
    hostnames(cluster, "Hostname")
    own_rule(cluster, 'max by (pod) (DCGM_FI_DEV_GPU_UTIL{job="hostname"})')


def a_rule_over_series_that_have_neither_label(cluster: Cluster) -> None:
    own_rule(cluster, "max by (Hostname) (DCGM_FI_DEV_GPU_UTIL)")


def a_rule_over_another_exporters_series(cluster: Cluster) -> None:
    hostnames(cluster, "Hostname")
    own_rule(cluster, "sum by (hostname) (rate(node_cpu_seconds_total[3s]))")


def a_join_of_labels_that_are_there(cluster: Cluster) -> None:
    own_rule(cluster, f'label_replace({JOIN}, "app", "$1", "label_app", "(.*)")')
    cluster.prometheus["joined"] = frozenset({"pod", "label_app"})


def a_join_while_kube_state_metrics_is_away(cluster: Cluster) -> None:
    own_rule(cluster, JOIN)
    cluster.prometheus["joined"] = frozenset()


def a_join_that_knows_of_exported_pod(cluster: Cluster) -> None:
    names = "exported_namespace, exported_pod"
    own_rule(cluster, f"max by ({names}) (DCGM_FI_DEV_GPU_UTIL) * on ({names}) kube_pod_info")
    cluster.prometheus["joined"] = frozenset({"pod", "exported_pod"})


def a_join_by_name_within_one_namespace(cluster: Cluster) -> None:
    own_rule(cluster, POD_ALONE.replace("dcgm_gpu_utilization", 'dcgm_gpu_utilization{namespace="ml"}'))
    cluster.prometheus["joined"] = frozenset({"pod", "label_app"})


def a_join_by_namespace_and_name_beside_one_of_nodes(cluster: Cluster) -> None:
    own_rule(cluster, f"{JOIN} * on (node) group_left () kube_node_info")
    cluster.prometheus["joined"] = frozenset({"pod", "label_app"})


def a_join_of_nodes_labels_too(cluster: Cluster) -> None:
    own_rule(cluster, f"{JOIN} * on (node) group_left (label_zone) kube_node_labels")
    cluster.prometheus["joined"] = frozenset({"pod", "label_app"})


def a_rate_of_a_counter(cluster: Cluster) -> None:
    own_rule(cluster, "sum by (pod) (rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[1m]))")


def a_window_of_two_scrapes(cluster: Cluster) -> None:
    own_rule(cluster, "avg by (pod) (avg_over_time(DCGM_FI_DEV_GPU_UTIL[4s]))")


def a_window_where_the_scrape_interval_is_not_known(cluster: Cluster) -> None:
    own_rule(cluster, "avg by (pod) (avg_over_time(DCGM_FI_DEV_GPU_UTIL[3s]))")
    cluster.budget["sources"] = {**cluster.budget["sources"], "scrape": "assumed"}


def the_rules_of_this_collection(cluster: Cluster) -> None:
    hostnames(cluster, "hostname")
    metrics = [metric for profile in PROFILES.values() for metric in profile.metrics]
    rules = {metric.series: [{**cluster.rule, "name": metric.series, "query": metric.query}] for metric in metrics}
    cluster.prometheus["rules"] = rules
    cluster.budget |= {"scrape_s": 60.0, "sync_s": 60.0}


def a_webhook_that_may_fail(cluster: Cluster) -> None:
    cluster.webhooks = [webhook(name="gone", failurePolicy="Ignore")]


def a_webhook_outside_of_the_cluster(cluster: Cluster) -> None:
    cluster.webhooks = [webhook(clientConfig={"url": "https://example.com/check"})]


def a_webhook_for_other_objects(cluster: Cluster) -> None:
    cluster.webhooks = [webhook(name="gone", rules=[{"apiGroups": ["apps"], "resources": ["deployments"]}])]


def a_webhook_in_a_namespace_whose_pods_are_not_read(cluster: Cluster) -> None:
    cluster.services.append(service("operator", "prometheus-operator", OPERATOR, 443, "https"))
    cluster.webhooks = [webhook("prometheus-operator")]


def a_webhook_whose_endpoints_somebody_else_keeps(cluster: Cluster) -> None:
    cluster.pods["stray"] = pod("stray", "web", "cpu1", {}, ready=False)
    cluster.services.append(service("elsewhere", "web", {}, 443, "https"))
    cluster.webhooks = [webhook("web", "elsewhere")]


def an_operator_that_is_replaced(cluster: Cluster) -> None:
    cluster.pods["operator-0"] = pod("operator-0", "monitoring", "cpu1", OPERATOR, ready=False, age_s=30)


def an_exporter_that_is_about_to_mount_its_volumes(cluster: Cluster) -> None:
    unmounted(cluster, 30)


def old_events_of_an_exporter_that_runs(cluster: Cluster) -> None:
    running, up = cluster.pods["dcgm-exporter-gpu1"], cluster.prometheus["up"][:]
    unmounted(cluster, 900)
    cluster.pods["dcgm-exporter-gpu1"], cluster.prometheus["up"] = running, up


def a_manifest_of_the_present_version(cluster: Cluster) -> None:
    applied(cluster, "autoscaling/v2")


def a_manifest_that_another_tool_has_replaced(cluster: Cluster) -> None:
    applied(cluster, "autoscaling/v2beta2")
    cluster.hpa["metadata"]["managedFields"].append(
        {"manager": "helm", "apiVersion": "autoscaling/v2", "fieldsV1": {"f:spec": {"f:maxReplicas": {}}}}
    )


HARMLESS: tuple[Callable[[Cluster], None], ...] = (
    a_manifest_that_was_applied_before_the_hpa_scaled,
    a_deployment_that_was_made_anew,
    a_workload_that_has_never_been_scaled,
    an_upgrade_that_leaves_the_replicas_alone,
    somebody_who_scales_by_hand,
    a_ratio_that_is_made_percent,
    a_ratio_with_a_target_in_the_same_unit,
    a_sum_over_the_gpus_of_a_pod,
    a_sum_over_all_pods,
    a_ratio_that_another_metric_is_made_of,
    a_metric_that_is_larger_than_its_text_allows,
    profiling_on_one_node_for_a_metric_that_can_do_without,
    a_wrong_rule_that_the_adapter_has_not_read_yet,
    rules_that_are_newer_than_the_adapter_while_nothing_is_missing,
    rules_that_are_newer_than_the_adapter_while_pods_are_added,
    rules_that_are_newer_than_the_adapter_at_a_first_deployment,
    an_update_of_all_exporters_that_have_just_begun,
    default_rules_that_the_adapter_bears,
    an_adapter_that_was_killed_with_few_rules,
    an_adapter_that_was_killed_long_ago,
    a_rule_that_reads_the_label_as_it_is,
    a_rule_that_reads_either_label,
    a_rule_that_makes_the_label,
    a_rule_that_says_hostname_without_meaning_the_label,
    a_rule_over_series_that_have_neither_label,
    a_rule_over_another_exporters_series,
    a_join_of_labels_that_are_there,
    a_join_while_kube_state_metrics_is_away,
    a_join_that_knows_of_exported_pod,
    a_join_by_name_within_one_namespace,
    a_join_by_namespace_and_name_beside_one_of_nodes,
    a_join_of_nodes_labels_too,
    a_rate_of_a_counter,
    a_window_of_two_scrapes,
    a_window_where_the_scrape_interval_is_not_known,
    the_rules_of_this_collection,
    a_webhook_that_may_fail,
    a_webhook_outside_of_the_cluster,
    a_webhook_for_other_objects,
    a_webhook_in_a_namespace_whose_pods_are_not_read,
    a_webhook_whose_endpoints_somebody_else_keeps,
    an_operator_that_is_replaced,
    an_exporter_that_is_about_to_mount_its_volumes,
    old_events_of_an_exporter_that_runs,
    a_manifest_of_the_present_version,
    a_manifest_that_another_tool_has_replaced,
)


@pytest.mark.parametrize("change", HARMLESS, ids=lambda change: change.__name__)
def test_what_looks_like_a_fault_and_is_none(change: Callable[[Cluster], None]) -> None:
    cluster = Cluster()
    change(cluster)
    assert ids(cluster.report()) == []


@pytest.mark.parametrize(
    ("fault", "quote"),
    [
        ("WORKLOAD_REPLICAS_OWNED", "helm wrote spec.replicas at 2027-01-15 07:30:00Z"),
        ("HPA_RATIO_AS_PERCENT", "made by `avg by (namespace, pod) (DCGM_FI_PROF_GR_ENGINE_ACTIVE)`"),
        ("RULE_LABEL_RENAMED", "it reads the label Hostname, the exporter's series have hostname: `max by (Hostname)"),
        ("RULE_POD_LABELS_MISSING", "no series of kube_pod_labels has label_app: `sum by"),
        ("RULE_JOINS_WRONG_POD", "have exported_pod, their pod is its own: `sum by"),
        ("RULE_JOINS_POD_ALONE", "no join has namespace: `avg(max by(node, pod, namespace)"),
        ("RULE_RATE_OF_GAUGE", "rate() of DCGM_FI_PROF_PCIE_TX_BYTES: `sum by (pod)"),
        ("RULE_WINDOW_TOO_SHORT", "DCGM_FI_DEV_GPU_UTIL[3s], it is scraped every 2 s: `avg by"),
        ("EXPORTER_MOUNT_FAILS", "hostPath type check failed: /home/kubernetes/bin/nvidia is not a directory"),
        ("RULE_WEBHOOK_UNSERVED no service", "there is no Service monitoring/gone"),
        ("RULE_WEBHOOK_UNSERVED no pod is ready", "Service monitoring/operator has 1 pods, none is ready"),
        ("HPA_MANIFEST_OUTDATED", "it was last applied as autoscaling/v2beta2, the API server is v1.36.3"),
        ("ADAPTER_RULE_WRONG", "rule 4 of 4, for `rate(requests_total"),
        ("ADAPTER_NOT_RESTARTED", "was written at 2027-01-15 07:50:00Z, the adapter's newest pod has run since"),
        ("ADAPTER_OVERLOADED", "OOMKilled 10 minutes ago, 4 restarts; 1 rules match series of any name"),
        ("EXPORTER_FIELD_MISSING", "no DCGM_FI_DEV_FB_USED or DCGM_FI_DEV_FB_FREE; exporter: dcgm-exporter:4.6.0"),
    ],
)
def test_a_finding_quotes_what_was_set(fault: str, quote: str) -> None:
    cluster = Cluster()
    FAULTS[fault](cluster)
    assert quote in cluster.report()["findings"][0]["seen"][0]


@pytest.mark.parametrize("held_first", [True, False])
def test_a_gpu_that_a_pod_holds_stands_for_the_free_ones(held_first: bool) -> None:
    cluster = Cluster()
    FAULTS["EXPORTER_LOSES_A_GPU"](cluster)
    held = cluster.prometheus["blanks"]
    FAULTS["EXPORTER_IMPOSSIBLE_VALUES"](cluster)
    free = cluster.prometheus["blanks"]
    cluster.prometheus["blanks"] = held + free if held_first else free + held
    assert ids(cluster.report()) == ["EXPORTER_LOSES_A_GPU"]


def test_a_scrape_over_its_limits_misses_no_field() -> None:
    cluster = Cluster()
    cluster.silence("chat-0", "chat-1")
    cluster.prometheus["rows"] = []
    cluster.prometheus["up"] = [replace(row, value=0.0) for row in cluster.prometheus["up"]]
    assert "TARGET_DOWN" in ids(cluster.report(grace=False))
    assert "EXPORTER_FIELD_MISSING" not in ids(cluster.report(grace=False))


def test_a_metric_that_has_values_misses_no_field() -> None:
    cluster = Cluster()
    cluster.metric = metric(name="gpu_memory", sources=("DCGM_FI_DEV_FB_USED",))
    assert "EXPORTER_FIELD_MISSING" not in ids(cluster.report())


@pytest.mark.parametrize("rule", [*ADAPTER_RULES, *STOCK_RULES], ids=str)
def test_rules_that_work_have_no_fault(rule: dict[str, Any]) -> None:
    assert fault_of(rule) == ""


@pytest.mark.parametrize(
    ("query", "more", "fault"),
    [
        ("", {}, "seriesQuery is empty"),
        ("rate(x[5m])", {}, "is not a selector"),
        ("x[5m]", {}, "is not a selector"),
        ('x{pod!=""', {}, "is not a selector"),
        ("x{pod!=''} > 0", {}, "is not a selector"),
        ("x{pod}", {}, "is not a selector"),
        ("x{pod=web}", {}, "is not a selector"),
        ('{pod=~".*"}', {}, "matches the empty string"),
        ('{pod=""}', {}, "matches the empty string"),
        ("{}", {}, "matches the empty string"),
        ('{__name__=~"^(gpu_.*"}', {}, "missing ), unterminated subpattern"),
        ('{__name__=~"(?!go_).*"}', {}, "uses lookaround"),
        ('{__name__=~"gpu_\\d"}', {}, "a backslash must be doubled"),
        ("x", {"name": {"matches": "^(a)_(b)$"}}, "there is no name.as"),
        ("x", {"name": {"matchs": "y"}}, "unknown option name.matchs"),
        ("x", {"name": "y"}, "name is not a mapping of options"),
        ("x", {"name": {"matches": "*"}}, "nothing to repeat"),
        ("x", {"seriesFilters": [{"is": "a", "isNot": "b"}]}, "needs `is` or `isNot`"),
        ("x", {"seriesFilters": [{"isNot": "["}]}, "unterminated character set"),
        ("x", {"metricsQuery": "sum(<<.Series>){}"}, "`<<` without `>>`"),
        ("x", {"metricQuery": "sum"}, "unknown option metricQuery"),
    ],
)
def test_a_rule_that_cannot_work(query: str, more: dict[str, Any], fault: str) -> None:
    assert fault in fault_of({"seriesQuery": query, **more})


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "query",
    [
        "x",
        "a:b:c{}",
        "x{}",
        "x{pod!='',}",
        '{__name__=~"a|b", pod =~ "web-\\\\d+" }',
        '{"gpu.use", namespace!=""}',
        "{__name__=~`\\pN+`}",
        '{__name__=~"(?i)gpu.*[[:alpha:]]"}',
    ],
)
def test_a_selector_that_prometheus_takes(query: str) -> None:
    assert fault_of({"seriesQuery": query}) == ""


_SCALARS = st.none() | st.booleans() | st.integers() | st.sampled_from(["", "x", "(", "<<", '{a="b"}', "{a"])
_KEYS = st.sampled_from(["rules", "externalRules", "seriesQuery", "seriesFilters", "name", "matches", "as", "is"])
_ANYTHING = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS | st.integers(), inner, max_size=4)
)


@example({"rules": [{"seriesQuery": "x", "seriesFilters": 1}, {"seriesQuery": "x", "name": "y"}]})
@given(_ANYTHING)
def test_whatever_the_file_says_is_judged(content: Any) -> None:
    config = adapter_config({}, content)
    assert isinstance(config.error, str)
    for rule in config.rules:
        assert isinstance(fault_of(rule), str)
        assert isinstance(name_given(rule), str)
        assert takes_all(rule) in (True, False)


def test_what_takes_series_of_any_name() -> None:
    takers = [rule["seriesQuery"] for rule in [*ADAPTER_RULES, *STOCK_RULES] if takes_all(rule)]
    assert takers == [_OTHERS, _OTHERS]
    assert [takes_all({"seriesQuery": selector}) for selector in ('{__name__=~".+"}', "x", "rate(", '{pod!=""}')] == [
        True,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({}, ("prometheus-adapter", "config.yaml")),
        ({"mountPath": "/etc/adapter/config.yaml", "subPath": "rules.yaml"}, ("prometheus-adapter", "rules.yaml")),
        ({"mountPath": "/etc/other"}, None),
    ],
)
def test_the_configmap_of_the_adapter(changes: dict[str, str], place: tuple[str, str] | None) -> None:
    adapter = Cluster().adapter
    adapter["spec"]["template"]["spec"]["containers"][0]["volumeMounts"][0] |= changes
    assert config_map_of(adapter) == place


def test_a_key_of_the_configmap_may_have_another_name() -> None:
    adapter = Cluster().adapter
    source = adapter["spec"]["template"]["spec"]["volumes"][0]["configMap"]
    source["items"] = [{"key": "rules", "path": "config.yaml"}]
    assert config_map_of(adapter) == ("prometheus-adapter", "rules")


def test_a_version_of_kubernetes_that_still_takes_the_manifest() -> None:
    cluster = Cluster()
    applied(cluster, "autoscaling/v2beta2")
    old = replace(cluster.state(), server_version="v1.25.16-gke.100")
    assert ids(health_report(old)) == []


@pytest.mark.parametrize("fault", ["EXPORTER_FIELD_MISSING", "PROFILING_MISSING one node"])
def test_an_exporter_that_was_added_hides_nothing(fault: str) -> None:
    """Where nodes come and go there is always a young one."""
    cluster = Cluster()
    FAULTS[fault](cluster)
    cluster.pods["new"] = pod("dcgm-exporter-gpu9", "monitoring", "gpu9", EXPORTER, "10.0.0.9", age_s=10)
    assert ids(cluster.report()) == [fault.split()[0]]


def test_one_pod_without_a_value_is_no_matter_of_the_adapters_rules() -> None:
    cluster = Cluster()
    FAULTS["METRIC_WITHOUT_VALUE"](cluster)
    configured(cluster, ADAPTER_RULES, written_s=600)
    assert ids(cluster.report()) == ["METRIC_WITHOUT_VALUE"]


@pytest.mark.parametrize("template", ["leaderTemplate", "workerTemplate"])
def test_an_hpa_asks_for_the_leaders_of_a_leader_worker_set(template: str) -> None:
    """Its selector is theirs. Workers serve nobody, and need no probe where leaders have one."""
    cluster = Cluster()
    assert cluster.target
    spec = cluster.target["spec"]["template"]["spec"]
    without = {"containers": [{"name": "main", "resources": spec["containers"][0]["resources"]}]}
    templates = {"leaderTemplate": {"spec": without}, "workerTemplate": {"spec": without}, template: {"spec": spec}}
    cluster.target["spec"] = {"replicas": 2, "leaderWorkerTemplate": {"size": 2, **templates}}
    reference = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "chat"}
    cluster.hpa["spec"]["scaleTargetRef"] = reference
    findings = [] if template == "leaderTemplate" else ["WORKLOAD_NO_READINESS_PROBE"]
    assert ids(cluster.report(grace=False)) == findings


def test_labels_that_a_node_lacks_are_those_that_it_is_to_have() -> None:
    """All of one term, or all of another. What a node must not have is no label to give it."""
    cluster = Cluster()
    spec = cluster.daemon_sets[0]["spec"]["template"]["spec"]
    del spec["nodeSelector"]
    terms = [
        [("pool", "In", ["gpu", "big"]), ("compute-type", "NotIn", ["fargate"]), ("zone", "Exists", [])],
        [("accelerator", "In", ["nvidia"])],
    ]
    selected = [
        {"matchExpressions": [{"key": key, "operator": operator, "values": values} for key, operator, values in term]}
        for term in terms
    ]
    required = {"nodeSelectorTerms": selected}
    spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    cluster.nodes[0]["metadata"]["labels"]["zone"] = "a"
    finding = next(found for found in cluster.report(grace=False)["findings"] if found["id"] == "NODE_LABEL_MISSING")
    assert finding["fix"].endswith("label the node: pool=gpu, zone=... or accelerator=nvidia")
    del selected[0], selected[0]["matchExpressions"][0]["values"]
    selected[0]["matchExpressions"][0] |= {"key": "zone", "operator": "DoesNotExist"}
    del cluster.pods["dcgm-exporter-gpu1"]
    finding = next(found for found in cluster.report(grace=False)["findings"] if found["hop"] == "exporter")
    assert "the DaemonSet's node affinity excludes the node" in finding["cause"]


@pytest.mark.parametrize("name", ["METRIC_WITHOUT_VALUE", "RULE_GIVES_NOTHING"])
@pytest.mark.parametrize(("ready_s", "is_found"), [(3, False), (OLD, True)])
def test_an_exporter_that_has_just_restarted_has_no_values_yet(name: str, ready_s: float, is_found: bool) -> None:
    """It is ready and scraped. The rule has forgotten the values from before."""
    cluster = Cluster()
    FAULTS[name](cluster)
    for exporter in ("dcgm-exporter-gpu1", "dcgm-exporter-gpu2"):
        cluster.pods[exporter]["status"]["conditions"] = [turned("Ready", age_s=ready_s)]
    assert ids(cluster.report()) == ([name] if is_found else [])
