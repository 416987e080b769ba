"""From recorded series to what is replayed. Its PromQL is run in tests/integration/test_gpu_autoscaler_plan.py."""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Mapping
from dataclasses import replace
from math import isnan, nan
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions import plan_autoscalers
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.load_history import Recorded, Window, read_loads
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.plan_autoscalers import (
    PlanOptions,
    _gpus_per_replica,
    _planned,
    _total,
    _trace,
    make_plans,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import (
    RuleOptions,
    horizontal_pod_autoscaler,
    prometheus_rules,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.scaled_object import hpa_of, scaled_object
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import QueryError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import Series
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.objects import Key, Manifest
from fake_cluster import FakeTransport, refusal

WINDOW = Window(end_s=1007, length_s=60, step_s=15)
OPTIONS = {
    "history": 3600, "step": 15, "recent": 0, "pod_start": None, "overload": None, "overload_minutes": 15,
    "settings": [], "load": None,
}  # fmt: skip


def autoscaler(name: str = "chat", **given: object) -> Autoscaler:
    target = {"kind": given.pop("kind", "Deployment"), "name": name}
    return Autoscaler.from_params({"namespace": "ml", "target": target, "max_replicas": 8, **given})


def template(gpus: int) -> dict[str, object]:
    return {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": gpus}}}]}}


class Recording:
    """A Prometheus that remembers what it was asked, and gives the first answer whose words are in the query."""

    service = ("monitoring", "prometheus")

    def __init__(self, answers: Mapping[str, list[Series] | QueryError]) -> None:
        self.asked: list[str] = []
        self._answers = answers

    def query(self, promql: str) -> list[Series]:
        self.asked.append(promql)
        found = next((found for words, found in self._answers.items() if words in promql), [])
        if isinstance(found, QueryError):
            raise found
        return found


def test_samples_stand_at_whole_multiples_of_the_step() -> None:
    assert (WINDOW.start_s, WINDOW.steps) == (960, 4)
    found = WINDOW.array(Series({}, (1.0, 2.0), (960.0, 1005.0)))
    assert (found[0], found[3]) == (1, 2)
    assert isnan(found[1])


def test_what_is_read_belongs_to_whom_it_names() -> None:
    of_chat, times = {"namespace": "ml", "workload": "chat"}, (975.0,)
    prometheus = Recording(
        {
            "sum by": [Series(of_chat, (186.0,), times), Series({**of_chat, "workload": "other"}, (5.0,), times)],
            "count by": [Series(of_chat, (2.0,), times)],
            "kube_horizontalpodautoscaler": [
                Series({"exported_namespace": "ml", "horizontalpodautoscaler": "chat"}, (3.0,), times)
            ],
        }
    )
    found = read_loads(prometheus, [autoscaler()], WINDOW)["ml", "chat"]  # type: ignore[arg-type]
    assert found.loads["namespace_pod:gpu:avg"][1] == 186
    assert found.speaking["namespace_pod:gpu:avg"][1] == 2
    assert found.desired is not None
    assert found.desired[1] == 3


@pytest.mark.parametrize("metric_type", ["Pods", "Object"])
def test_a_value_that_the_adapter_drops_spoils_no_sum(metric_type: str) -> None:
    prometheus, chat = Recording({}), autoscaler(metric_type=metric_type)
    read_loads(prometheus, [chat], WINDOW)  # type: ignore[arg-type]
    values = [query for query in prometheus.asked if chat.metric_targets[0].series in query]
    assert values
    assert all("} > -Inf < Inf" in query for query in values)


def test_many_are_asked_for_some_at_a_time_and_by_kind() -> None:
    many = [autoscaler(f"chat-{number}") for number in range(30)] + [autoscaler("db.main", kind="StatefulSet")]
    prometheus = Recording({})
    read_loads(prometheus, many, WINDOW)  # type: ignore[arg-type]
    sums = [query for query in prometheus.asked if query.startswith("(sum by")]
    assert len(sums) == 3
    assert "(db[.]main)-[0-9]+" in sums[-1]
    assert all(query.endswith("[60s:15s]") for query in prometheus.asked)


@pytest.mark.parametrize(
    ("kind", "names", "pod", "expected"),
    [
        ("Deployment", ("chat", "chat-api"), "chat-api-5d9c7f6b8-x2x4q", "chat-api"),
        ("Rollout", ("chat",), "chat-5d9c7f6b8-x2x4q", "chat"),
        ("Deployment", ("chat",), "chat-finetune-x7k2p", None),  # of a Job
        ("Deployment", ("chat",), "chat-x7k2p", None),  # of a DaemonSet
        ("ReplicaSet", ("chat",), "chat-x7k2p", "chat"),
        ("ReplicaSet", ("chat",), "chat-agent", None),
        ("StatefulSet", ("llama-3",), "llama-3-1", "llama-3"),
        ("StatefulSet", ("llama-3", "llama-3-1"), "llama-3-1-0", "llama-3-1"),
        ("StatefulSet", ("llama-3",), "llama-3-1-0", None),
        ("LeaderWorkerSet", ("llama",), "llama-0", "llama"),
        ("LeaderWorkerSet", ("llama",), "llama-0-3", None),  # a worker, whose value the HPA does not see
    ],
)
def test_whose_a_pod_is(kind: str, names: tuple[str, ...], pod: str, expected: str | None) -> None:
    prometheus = Recording({})
    read_loads(prometheus, [autoscaler(name, kind=kind) for name in names], WINDOW)  # type: ignore[arg-type]
    (pattern,) = re.findall(r'pod=~"(.*?)"}', prometheus.asked[0])
    found = re.fullmatch(pattern, pod)
    assert (found and found[1]) == expected


@pytest.mark.parametrize(
    ("template", "gpus"),
    [
        ({"workerTemplate": template(8)}, 8),
        ({"size": 4, "workerTemplate": template(8)}, 32),
        ({"size": 4, "leaderTemplate": template(1), "workerTemplate": template(8)}, 25),
    ],
)
def test_gpus_of_a_group(template: dict[str, object], gpus: int) -> None:
    assert _gpus_per_replica({"spec": {"leaderWorkerTemplate": template}}) == gpus


def test_gpus_of_a_pod() -> None:
    assert _gpus_per_replica({"spec": {"template": template(2)}}) == 2


def test_demand_stands_in_for_what_full_gpus_hide() -> None:
    chat = autoscaler()
    recorded = Recorded(
        {
            "namespace_pod:gpu:avg": array("d", [100, 100, 60, nan]),
            "namespace_workload:gpu_demand:sum": array("d", [250, nan, 50, 70]),
        },
        desired=array("d", [1] * 4),
    )
    trace, has_demand = _trace(chat, recorded, chat.metric_targets, WINDOW)
    assert has_demand
    loads = [*trace.loads["namespace_pod:gpu:avg"]]
    assert loads[:3] == [250, 100, 60]


def test_a_demand_shares_the_target_of_the_gpus() -> None:
    chat = autoscaler(demand={"source": "istio"}, extra_metrics=[{"metric": "gpu_memory", "target_value": 60}])
    planned = [_planned(metric_target, chat) for metric_target in chat.metric_targets]
    assert [(metric.form, metric.shares_target) for metric in planned] == [
        ("pods", False),
        ("pods", False),
        ("total", True),
    ]


def test_an_average_counts_for_all_replicas() -> None:
    target = autoscaler(metric_type="Object").metric_targets[0]
    recorded = Recorded({target.series: array("d", [50, 50, 50])})
    found = [*_total(target, recorded, array("d", [2, nan, 3]))]
    assert (found[0], found[2]) == (100, 150)
    assert isnan(found[1])


@pytest.mark.parametrize(
    ("changed", "seen"),
    [
        ({"step": 0}, "step is 0"),
        ({"history": 10}, "less than a step"),
        ({"recent": -1}, "recent is -1"),
        ({"overload": 0}, "overload is 0"),
        ({"load": []}, "load has no value"),
        ({"settings": [{"target_value": 0}]}, "target_value is 0"),
        ({"settings": [{"max_replicas": 0}]}, "max_replicas is 0"),
        ({"settings": [{"name": "today", "max_replicas": 3}]}, "a setting is called today"),
        ({"settings": [{"scale_up": {"policies": []}}]}, "policies of scale_up are empty"),
        ({"settings": [{"scale_down": {"policies": []}}]}, "policies of scale_down are empty"),
        ({"settings": [{"min_replicas": 3, "max_replicas": 2}]}, "max_replicas 2 is below min_replicas 3"),
    ],
)
def test_what_cannot_be_is_refused(changed: dict[str, object], seen: str) -> None:
    with pytest.raises(HopError, match=seen):
        PlanOptions.from_params({**OPTIONS, **changed})


def test_the_rest_is_taken() -> None:
    assert PlanOptions.from_params(OPTIONS).history_s == 3600


MANAGER = "kube-controller-manager"
HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
TIME = {"time()": [Series({}, (1007.0,), (1007.0,))]}


def planned(
    chat: Autoscaler,
    answers: Mapping[str, list[Series]],
    hpa: Manifest | None = None,
    place: str = "",
    keys: Collection[Key] = (),
    **options: object,
) -> dict[str, Any]:
    """The result for an HPA on a control plane of ours, which decides every 5 s.

    place: namespace, as in a path, that the HPA may be listed in; empty for the whole cluster.
    """
    rules = [*prometheus_rules([chat], RuleOptions())]
    manager = {"spec": {"containers": [{"command": [MANAGER, "--horizontal-pod-autoscaler-sync-period=5s"]}]}}
    served = {
        HPAS: refusal(403, "forbidden"),
        HPAS.replace("v2/", f"v2/{place}"): {"items": [hpa or horizontal_pod_autoscaler(chat)]},
        "/apis/monitoring.coreos.com/v1/prometheusrules": {"items": rules},
        "/apis/apps/v1": {"resources": [{"name": "deployments", "kind": "Deployment"}]},
        "/apis/apps/v1/deployments": {"items": []},
        "/api/v1/namespaces/kube-system/pods": {"items": [manager]},
    }
    outcome = make_plans(
        KubeClient(FakeTransport({f"GET {path}": answer for path, answer in served.items()})),
        Recording({**TIME, **answers}),  # type: ignore[arg-type]
        namespace=None,
        keys=keys,
        options=PlanOptions.from_params({**OPTIONS, **options}),
    )
    return outcome.result


def test_a_step_is_a_look_of_the_controller_unless_it_is_given() -> None:
    load = {"sum by": [Series({"namespace": "ml", "workload": "chat"}, (186.0,), (990.0,))]}
    for given, expected in ((None, 5), (30, 30)):
        (plan,) = planned(autoscaler(), load, step=given)["plans"]
        assert plan["history"]["step_s"] == expected


@pytest.mark.parametrize(
    ("letters", "why"), [(46, "Prometheus has recorded none"), (47, "such a long name is truncated")]
)
def test_pods_whose_names_are_cut_are_not_told(letters: int, why: str) -> None:
    """Prometheus has recorded them, and nobody knows whose they are."""
    (left_out,) = planned(autoscaler("x" * letters), {})["not_planned"]
    assert why in left_out["reason"]


def test_a_load_of_ones_own_is_that_of_the_demand_too() -> None:
    """All that is asked for at once: full GPUs alone would ask for one more."""
    chat = autoscaler(demand={"source": "istio"})
    (plan,) = planned(chat, {}, load=[20.0, 270.0, 270.0, 270.0])["plans"]
    assert plan["settings"][0]["replicas"] == [1, 1, 5, 5]
    assert plan["notes"] == []


def test_of_several_replicas_the_one_with_most_of_it_tells_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Service asks any of them, each time anew, and one that has lost its disk begins anew."""
    load = {"sum by": [Series({"namespace": "ml", "workload": "chat"}, (186.0,), (990.0,))], **TIME}
    count = "max(count_over_time(kube_horizontalpodautoscaler_status_desired_replicas[3600s]))"
    full, fresh, away = (
        Recording({count: found, **load}) for found in ([Series({}, (120.0,), (1007.0,))], [], QueryError("busy"))
    )
    monkeypatch.setattr(plan_autoscalers, "read_replicas", lambda _kube, _client: [fresh, full, away])

    (made,) = planned(autoscaler(), {count: [Series({}, (20.0,), (1007.0,))]})["plans"]

    assert 186.0 in made["history"]["load"]
    assert (fresh.asked, away.asked) == ([count], [count])


def test_who_may_see_one_namespace_names_its_autoscalers() -> None:
    load = {"sum by": [Series({"namespace": "ml", "workload": "chat"}, (186.0,), (990.0,))]}
    (plan,) = planned(autoscaler(), load, place="namespaces/ml/", keys=[("ml", "chat")])["plans"]
    assert plan["name"] == "chat"


def test_a_load_of_ones_own_is_none_of_an_hpa_of_cpu_alone() -> None:
    hpa = horizontal_pod_autoscaler(autoscaler())
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    hpa["spec"]["metrics"] = [{"type": "Resource", "resource": cpu}]
    (left_out,) = planned(autoscaler(), {}, hpa, load=[20.0])["not_planned"]
    assert left_out["name"] == "chat"


def test_an_hpa_of_keda_is_planned_with_the_tolerance_that_its_rules_apply() -> None:
    """Its own tolerance is 0. A load at 1.15 times the target would then add a pod."""
    chat = replace(autoscaler(scale_up={"tolerance": 0.2}), backend="keda")
    hpa = hpa_of(scaled_object(chat, RuleOptions()))
    load = [69.0] * 4
    (by_keda,) = planned(chat, {}, hpa, load=load)["plans"]
    (by_adapter,) = planned(replace(chat, backend="adapter"), {}, load=load)["plans"]
    assert by_keda["settings"] == by_adapter["settings"]
    assert by_keda["settings"][0]["replicas"] == [1, 1, 1, 1]
