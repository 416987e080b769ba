"""Which components the chart roles install, which existing ones they use, and beside which they fail."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.decisions import places
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.decisions import prometheus as meant
from existing_components import (
    ADAPTER,
    EXPORTER,
    KEDA,
    METRICS,
    NO_RIGHT,
    OPERATOR,
    OPERATOR_ALONE,
    PLUGIN,
    SEVERAL,
    STACK,
    WHICH,
    B,
    Case,
    apis,
    found,
    of_team,
    prometheus,
)


def resources(**server: Any) -> dict[str, Any]:
    """Who serves CPU and memory."""
    return {"metrics_apis": {"metrics.k8s.io": {"service": "x/server", "owned": False, "release": "", **server}}}


def external(**server: Any) -> dict[str, Any]:
    """Who serves external metrics."""
    return {"metrics_apis": {"external.metrics.k8s.io": {"service": "x/keda", "owned": False, "release": "", **server}}}


BY_KEDA = {"gpu_autoscaling_autoscalers": [{"name": "a"}, {"name": "b", "backend": "keda"}]}
ON_CPU = {"gpu_autoscaling_autoscalers": [{"extra_metrics": [{"type": "Resource"}]}]}
OF_THAT_NAME = found("monitoring/dcgm-exporter", release="monitoring/dcgm-exporter")
OURS = {**OF_THAT_NAME, "owned": True}
IDLE_OPERATOR = {"gpu_operator": [found("nvidia/gpu-operator")]}
OUR_OPERATOR = {"gpu_operator": [found("gpu-operator/gpu-operator", owned=True)]}
OF_AN_OPERATOR = {**found("nvidia/nvidia-device-plugin-daemonset"), "origin": "gpu-operator"}
CASES = {
    "ours is there": Case(EXPORTER, {"exporter": [found("monitoring/ours", owned=True)]}, ("present",)),
    "an operator": Case(STACK, {"prometheus_operator": [found("a/operator")]}, ("existing",)),
    "a Prometheus without an operator": Case(STACK, {"prometheus": [prometheus("a/plain")]}, ("existing",)),
    "ours beside a Prometheus without an operator": Case(
        STACK, {"prometheus": [prometheus("a/plain")]}, ("present",), {"prometheus_stack_state": "present"}
    ),
    "a Prometheus of theirs under our operator": Case(
        STACK,
        {
            "prometheus": [prometheus("a/theirs"), prometheus("monitoring/ours", owned=True)],
            "prometheus_operator": [found("monitoring/operator", owned=True)],
        },
        ("present",),
    ),
    "an adapter beside two, and something else is said": Case(
        ADAPTER, SEVERAL, WHICH, {"kubegpu_prometheus": {"evaluation_interval": 15}}
    ),
    "an adapter beside two, and one outside is meant": Case(
        ADAPTER, SEVERAL, ("present",), {"kubegpu_prometheus": {"url": "https://metrics.example"}}
    ),
    "an adapter beside an operator alone, for a Thanos": Case(
        ADAPTER, OPERATOR_ALONE, ("present",), {"kubegpu_prometheus": {"namespace": "a", "service": "thanos-query"}}
    ),
    "an adapter, and a Prometheus that nobody sees": Case(
        ADAPTER, {}, ("the cluster has no Prometheus that answers queries.",), {"prometheus_stack_state": "existing"}
    ),
    "an exporter beside an operator alone": Case(EXPORTER, OPERATOR_ALONE, ("present",)),
    "an exporter": Case(EXPORTER, {"exporter": [found("gpu-operator/exporter")]}, ("existing",)),
    "two exporters that were made one after the other": Case(
        EXPORTER,
        {"exporter": [found("monitoring/ours", owned=True), found("gpu-operator/exporter")]},
        ("DaemonSet gpu-operator/exporter", "set dcgm_exporter_state=absent to remove the collection's"),
    ),
    "two exporters, and one is left": Case(
        EXPORTER,
        {"exporter": [found("monitoring/ours", owned=True), found("gpu-operator/exporter")]},
        ("absent",),
        {"dcgm_exporter_state": "absent"},
    ),
    "ours under its name": Case(
        EXPORTER,
        {"exporter": [found("gpus/ours", owned=True, release="gpus/dcgm")]},
        ("present",),
        {"dcgm_exporter_namespace": "gpus", "dcgm_exporter_release": "dcgm"},
    ),
    "ours in another namespace": Case(
        PLUGIN,
        {"device_plugin": [found("gpus/ours", owned=True, release="gpus/nvidia-device-plugin")]},
        ("two of them allocate the same GPUs", "with these two and nvidia_device_plugin_state=absent"),
        {"nvidia_device_plugin_state": "present"},
    ),
    "ours in another namespace, and it is to go": Case(
        PLUGIN,
        {"device_plugin": [found("gpus/ours", owned=True, release="gpus/nvidia-device-plugin")]},
        ("absent",),
        {"nvidia_device_plugin_state": "absent"},
    ),
    "a second DCGM": Case(
        EXPORTER,
        {"host_engine": [found("gpu-operator/nvidia-dcgm")]},
        ("only one reads the profiling counters", "set dcgm_exporter_host_engine to connect the exporter to that DCGM"),
    ),
    "the DCGM that is there": Case(
        EXPORTER,
        {"host_engine": [found("gpu-operator/nvidia-dcgm")]},
        ("present",),
        {"dcgm_exporter_host_engine": "nvidia-dcgm.gpu-operator:5555"},
    ),
    "a release of that name": Case(
        EXPORTER,
        {"exporter": [OF_THAT_NAME]},
        ("adopt its release with `-e dcgm_exporter_adopt=true`",),
        {"dcgm_exporter_state": "present"},
    ),
    "a release of that name that is taken over": Case(
        EXPORTER, {"exporter": [OF_THAT_NAME]}, ("present",), {"dcgm_exporter_adopt": True}
    ),
    "another release is not taken over": Case(
        EXPORTER,
        {"exporter": [found("gpu/dcgm", release="gpu/dcgm")]},
        ("DaemonSet gpu/dcgm was not created by this collection",),
        {"dcgm_exporter_adopt": True, "dcgm_exporter_state": "present"},
    ),
    "a device plugin": Case(PLUGIN, {"device_plugin": [found("kube-system/plugin")]}, ("existing",)),
    "two device plugins": Case(
        PLUGIN,
        {"device_plugin": [found("kube-system/plugin")]},
        ("two of them allocate the same GPUs", "set nvidia_device_plugin_state=existing to use it"),
        {"nvidia_device_plugin_state": "present"},
    ),
    "a DRA driver": Case(PLUGIN, {"dra_driver": [found("dra/driver")]}, ("existing",)),
    "an operator of theirs whose pool is at zero has the exporter": Case(EXPORTER, IDLE_OPERATOR, ("existing",)),
    "an operator of theirs whose pool is at zero has the plugin": Case(PLUGIN, IDLE_OPERATOR, ("existing",)),
    "an operator of theirs that brings no exporter": Case(
        EXPORTER, {**IDLE_OPERATOR, "device_plugin": [OF_AN_OPERATOR]}, ("present",)
    ),
    "ours beside an operator of theirs without an exporter, whose pool is at zero": Case(
        EXPORTER, {**IDLE_OPERATOR, "exporter": [found("monitoring/ours", owned=True)]}, ("present",)
    ),
    "an operator of ours whose pool is at zero has the plugin": Case(PLUGIN, OUR_OPERATOR, ("existing",)),
    "an operator of ours that goes": Case(PLUGIN, OUR_OPERATOR, ("present",), {"gpu_operator_state": "absent"}),
    "an operator beside one of theirs whose pool is at zero": Case(
        OPERATOR, IDLE_OPERATOR, ("DaemonSet nvidia/gpu-operator exists",), {"gpu_operator_state": "present"}
    ),
    "the operator of the inventory has the exporter": Case(
        EXPORTER, {}, ("existing",), {"gpu_operator_state": "present"}
    ),
    "the operator of the inventory has the plugin": Case(PLUGIN, {}, ("existing",), {"gpu_operator_state": "present"}),
    "a plugin beside the operator of the inventory": Case(
        PLUGIN,
        {},
        ("gpu_operator_state is present, and the operator installs its own", "nvidia_device_plugin_state at auto"),
        {"gpu_operator_state": "present", "nvidia_device_plugin_state": "present"},
    ),
    "ours goes before the operator comes": Case(
        PLUGIN,
        {"device_plugin": [found("x/ours", owned=True)]},
        ("absent",),
        {"gpu_operator_state": "present", "nvidia_device_plugin_state": "absent"},
    ),
    "an operator on a cluster without": Case(OPERATOR, {}, ("present",), {"gpu_operator_state": "present"}),
    "an operator beside our own plugin": Case(
        OPERATOR,
        {"device_plugin": [found("x/ours", owned=True)]},
        ("DaemonSet x/ours exists", "gpu_operator_state=existing, nvidia_device_plugin_state=absent and dcgm"),
        {"gpu_operator_state": "present"},
    ),
    "an operator beside what others brought": Case(
        OPERATOR,
        {"exporter": [found("a/b")], "device_plugin": [found("a/c")]},
        ("DaemonSet a/c, DaemonSet a/b exist", "remove what exists first"),
        {"gpu_operator_state": "present"},
    ),
    "an operator beside two Prometheus": Case(OPERATOR, SEVERAL, WHICH, {"gpu_operator_state": "present"}),
    "what our operator made": Case(
        OPERATOR,
        {"device_plugin": [{**found("gpu-operator/nvidia-device-plugin-daemonset"), "origin": "gpu-operator"}]},
        ("present",),
        {"gpu_operator_state": "present"},
    ),
    "what another operator made": Case(
        OPERATOR,
        {"device_plugin": [{**found("nvidia/nvidia-device-plugin-daemonset"), "origin": "gpu-operator"}]},
        ("DaemonSet nvidia/nvidia-device-plugin-daemonset exists",),
        {"gpu_operator_state": "present"},
    ),
    "another adapter": Case(ADAPTER, {"metrics_apis": apis(custom=False)}, ("existing",)),
    "KEDA serves the other API": Case(ADAPTER, {"metrics_apis": apis(external=False)}, ("present",)),
    "KEDA serves the other API, which is wanted": Case(
        ADAPTER,
        {"metrics_apis": apis(external=False, custom=True)},
        (
            "APIService external.metrics.k8s.io",
            "set prometheus_adapter_external_metrics=false to leave the other API alone",
        ),
        {"prometheus_adapter_external_metrics": True},
    ),
    "no autoscaler uses KEDA": Case(KEDA, {"metrics_apis": apis(custom=False)}, ("existing",)),
    "an autoscaler uses KEDA": Case(KEDA, {"metrics_apis": apis(custom=True)}, ("present",), BY_KEDA),
    "an autoscaler uses the KEDA of others": Case(KEDA, external(), ("existing",), BY_KEDA),
    "managed, and no autoscaler uses KEDA any more": Case(
        KEDA, external(owned=True, release="keda/keda"), ("present",)
    ),
    "two KEDAs": Case(
        KEDA,
        external(),
        ("APIService external.metrics.k8s.io was not created", "set keda_state=existing to use it"),
        {"keda_state": "present"},
    ),
    "a KEDA of that name": Case(
        KEDA,
        external(release="keda/keda"),
        ("adopt its release with `-e keda_adopt=true`",),
        {"keda_state": "present"},
    ),
    "a KEDA of that name is adopted": Case(
        KEDA, external(release="keda/keda"), ("present",), {"keda_state": "present", "keda_adopt": True}
    ),
    "KEDA under another name": Case(
        KEDA,
        external(owned=True, release="scaling/other"),
        ("release scaling/other", "keda_namespace=scaling and keda_release=other"),
        BY_KEDA,
    ),
    "KEDA beside a managed adapter that still serves its API": Case(
        KEDA,
        external(owned=True, release="monitoring/prometheus-adapter"),
        (
            "release monitoring/prometheus-adapter of this collection serves external.metrics.k8s.io",
            "run the role prometheus_adapter with prometheus_adapter_external_metrics=false first",
        ),
        BY_KEDA,
    ),
    "an adapter beside a managed KEDA that still serves its API": Case(
        ADAPTER,
        external(owned=True, release="keda/keda"),
        ("release keda/keda of this collection serves external.metrics.k8s.io", "run this once with keda_state=absent"),
        {"prometheus_adapter_external_metrics": True, "keda_state": "absent"},
    ),
    "KEDA and an adapter that is to serve its API": Case(
        KEDA,
        {},
        ("prometheus_adapter_external_metrics is true, and KEDA serves external.metrics.k8s.io too",),
        {"prometheus_adapter_external_metrics": True, **BY_KEDA},
    ),
    "an adapter that is to serve the API of KEDA": Case(
        ADAPTER,
        {},
        ("inventory -> prometheus_adapter", "set prometheus_adapter_external_metrics to false"),
        {"prometheus_adapter_external_metrics": True, **BY_KEDA},
    ),
    "an adapter beside KEDA": Case(ADAPTER, external(owned=True, release="keda/keda"), ("present",), BY_KEDA),
    "KEDA is removed, independent of what serves its API": Case(
        KEDA, external(owned=True, release="monitoring/prometheus-adapter"), ("absent",), {"keda_state": "absent"}
    ),
    "nobody asks for CPU": Case(METRICS, {"metrics_apis": apis(custom=False)}, ("existing",)),
    "a metrics-server, and somebody asks for CPU": Case(METRICS, resources(), ("existing",), ON_CPU),
    "ours, and nobody asks any more": Case(
        METRICS, resources(owned=True, release="kube-system/metrics-server"), ("present",)
    ),
    "two metrics-servers": Case(
        METRICS,
        resources(),
        ("APIService metrics.k8s.io was not created", "set metrics_server_state=existing to use it"),
        {"metrics_server_state": "present"},
    ),
    "a metrics-server of that name": Case(
        METRICS,
        resources(release="kube-system/metrics-server"),
        ("adopt its release with `-e metrics_server_adopt=true`",),
        {"metrics_server_state": "present"},
    ),
    "a plugin that may be there": Case(
        PLUGIN,
        {},
        ("no right to list DaemonSet.",),
        {"nvidia_device_plugin_state": "present"},
        unread=NO_RIGHT,
    ),
    "an adapter that may be there": Case(ADAPTER, {}, ("no right to list APIService.",), unread=NO_RIGHT),
    "a Prometheus that may be there": Case(
        STACK, {}, ("no right to list DaemonSet; no right to list Prometheus.",), unread=NO_RIGHT
    ),
    "what may be there is used": Case(
        EXPORTER, {}, ("existing",), {"dcgm_exporter_state": "existing"}, unread=NO_RIGHT
    ),
    "what may be there is not wanted": Case(METRICS, {}, ("existing",), unread=NO_RIGHT),
    "ours goes, whatever may be there": Case(
        EXPORTER, {}, ("absent",), {"dcgm_exporter_state": "absent"}, unread=NO_RIGHT
    ),
    "what there is no right to is not needed": Case(EXPORTER, {}, ("present",), unread={"APIService": "no right"}),
    "an adapter beside two, of which one is meant": Case(ADAPTER, SEVERAL, ("present",), {"kubegpu_prometheus": B}),
    "an adapter beside an operator alone": Case(
        ADAPTER,
        OPERATOR_ALONE,
        ("does not install one beside DaemonSet a/operator.", "kubegpu_prometheus"),
    ),
    "another name of a managed release": Case(
        EXPORTER,
        {"exporter": [found("gpus/ours", owned=True, release="gpus/dcgm")]},
        (
            "this collection created release gpus/dcgm, and of two DCGMs on a node only one reads the profiling",
            "dcgm_exporter_namespace=gpus and dcgm_exporter_release=dcgm",
        ),
    ),
    "two adapters": Case(
        ADAPTER,
        {"metrics_apis": apis(custom=False)},
        ("APIService custom.metrics.k8s.io was not created", "a metrics API has one server"),
        {"prometheus_adapter_state": "present"},
    ),
    "KEDA beside another adapter that serves its API": Case(
        KEDA,
        {"metrics_apis": apis(external=False)},
        ("APIService external.metrics.k8s.io was not created", "a metrics API has one server"),
        {"keda_state": "present"},
    ),
    "an exporter that cannot be listed": Case(
        EXPORTER,
        {},
        ("test -> dcgm_exporter: no right to list DaemonSet.", "dcgm_exporter_state=existing"),
        unread=NO_RIGHT,
    ),
    "a metrics-server is no adapter": Case(ADAPTER, resources(), ("present",)),
}


def inventory(case: Case) -> dict[str, Any]:
    """Variables of the inventory, and what was read of the cluster."""
    cluster = {"context": "test", "components": case.components, "not_looked_at": case.unread}
    return {**case.options, "kubegpu_cluster": cluster}


@pytest.mark.parametrize("case", CASES)
def test_a_role_has_its_state_or_fails_with_the_reason(case: str) -> None:
    expected, role = CASES[case].expected, CASES[case].role
    values = inventory(CASES[case])
    its, choice = places(values)[role], meant(values)
    if len(expected) == 1 and " " not in expected[0]:
        assert (its["state"], its["refused"]) == (expected[0], "")
    else:
        error = its["refused"] or choice["several"] or choice["missing"]
        assert [words for words in expected if words not in error] == []
        assert "Nothing was changed. Next: " in error


# By kubegpu_prometheus and the Prometheus objects of the cluster: the URL, and the label of rules and monitors.
ADDRESSES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "existing": ({}, {"prometheus": [prometheus("x/theirs")]}, "http://web.x.svc:9090/prom -"),
    "outside": ({"url": "http://192.0.2.7:8428"}, {}, "http://192.0.2.7:8428 kube-prometheus-stack"),
    "the second of two": (B, SEVERAL, "http://b-prometheus.team-b.svc:9090 b"),
    "by its Service alone": ({"service": "b-prometheus"}, SEVERAL, "http://b-prometheus.team-b.svc:9090 b"),
    "another Service of the second": (
        {"namespace": "team-b", "service": "prometheus-operated"},
        SEVERAL,
        "http://prometheus-operated.team-b.svc:9090 b",
    ),
    "the first of two": (
        {"namespace": "team-a", "service": "a-prometheus"},
        SEVERAL,
        "http://a-prometheus.team-a.svc:9091/a a",
    ),
    "an existing one beside the managed one": (
        B,
        {"prometheus": [prometheus("monitoring/ours", owned=True), of_team("b", path_prefix="/b")]},
        "http://b-prometheus.team-b.svc:9090/b b",
    ),
    "with TLS by an option": ({"scheme": "https", **B}, SEVERAL, "https://b-prometheus.team-b.svc:9090 b"),
}


@pytest.mark.parametrize("case", ADDRESSES)
def test_the_selected_prometheus_gives_the_address_and_the_labels(case: str) -> None:
    given, components, expected = ADDRESSES[case]
    choice = meant({"kubegpu_prometheus": given, "kubegpu_cluster": {"context": "test", "components": components}})
    address = choice["address"]
    assert address.get("rule_labels") == address.get("monitor_labels")
    assert f"{choice['url']} {address.get('rule_labels', {}).get('release', '-')}" == expected


def test_alerts_follow_the_selected_prometheus() -> None:
    """Not the managed one beside it: its `is_ours` decides about `gpu_alerts_state: auto`."""
    components = {"prometheus": [prometheus("monitoring/ours", owned=True), of_team("b")]}
    cluster = {"context": "test", "components": components}
    assert meant({"kubegpu_prometheus": B, "kubegpu_cluster": cluster})["is_ours"] is False
    assert meant({"kubegpu_cluster": cluster})["is_ours"] is True


def test_intervals_of_a_large_fleet_are_told_to_the_modules() -> None:
    large = {"kubegpu_fleet": {"nodes": 2500}}
    assert meant(large)["options"]["evaluation_interval"] == 9
    own = {"kubegpu_prometheus": {"evaluation_interval": 3}}
    assert meant(large | own)["options"]["evaluation_interval"] == 3
    assert "evaluation_interval" not in meant({})["options"]
    assert "monitor_labels" not in meant({})["options"]
