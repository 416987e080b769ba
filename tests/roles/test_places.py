"""Which components the chart roles bring, which they leave to somebody else, and beside what they refuse to be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from playbook import local, run_playbook
from role_values import RoleValues

STACK, EXPORTER, PLUGIN, ADAPTER = "prometheus_stack", "dcgm_exporter", "nvidia_device_plugin", "prometheus_adapter"
METRICS, OPERATOR = "metrics_server", "gpu_operator"


def found(name: str, *, owned: bool = False, release: str = "") -> dict[str, Any]:
    return {"kind": "DaemonSet", "name": name, "owned": owned, "release": release}


ADDRESS = {"service": "web", "namespace": "x", "port": 9090, "path_prefix": "/prom"}


def prometheus(name: str, *, owned: bool = False) -> dict[str, Any]:
    return {**found(name, owned=owned), "kind": "Prometheus", **ADDRESS}


def apis(**servers: bool) -> dict[str, Any]:
    """By the first word of the API: whether the server is ours."""
    return {
        f"{api}.metrics.k8s.io": {"service": "x/server", "owned": owned, "release": "", "is_adapter": True}
        for api, owned in servers.items()
    }


@dataclass(frozen=True)
class Case:
    """expected: the state, or words of the refusal."""

    role: str
    components: dict[str, Any]
    expected: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)


NO_RIGHT = {kind: f"no right to list {kind}" for kind in ("DaemonSet", "APIService", "Prometheus")}


def resources(**server: Any) -> dict[str, Any]:
    """Who serves CPU and memory."""
    return {"metrics_apis": {"metrics.k8s.io": {"service": "x/server", "owned": False, "release": "", **server}}}


ON_CPU = {"gpu_autoscaling_autoscalers": [{"name": "a"}, {"extra_metrics": [{"metric": "mig"}, {"type": "Resource"}]}]}
OF_THAT_NAME = found("monitoring/dcgm-exporter", release="monitoring/dcgm-exporter")
CASES = {
    "nothing is there": Case(STACK, {}, ("present",)),
    "ours is there": Case(EXPORTER, {"exporter": [found("monitoring/ours", owned=True)]}, ("present",)),
    "an operator": Case(STACK, {"prometheus_operator": [found("a/operator")]}, ("existing",)),
    "two operators": Case(
        STACK,
        {"prometheus_operator": [found("a/operator")]},
        ("DaemonSet a/operator was not made by this collection", "two operators write the same objects for ever"),
        {"prometheus_stack_state": "present"},
    ),
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
    "an exporter": Case(EXPORTER, {"exporter": [found("gpu-operator/exporter")]}, ("existing",)),
    "two exporters that were made one after the other": Case(
        EXPORTER,
        {"exporter": [found("monitoring/ours", owned=True), found("gpu-operator/exporter")]},
        ("DaemonSet gpu-operator/exporter", "dcgm_exporter_state=absent removes ours"),
    ),
    "two exporters, and one is left": Case(
        EXPORTER,
        {"exporter": [found("monitoring/ours", owned=True), found("gpu-operator/exporter")]},
        ("absent",),
        {"dcgm_exporter_state": "absent"},
    ),
    "a second DCGM": Case(
        EXPORTER,
        {"host_engine": [found("gpu-operator/nvidia-dcgm")]},
        ("only one reads the profiling counters", "dcgm_exporter_host_engine connects ours to that DCGM"),
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
        ("-e dcgm_exporter_adopt=true takes its release over",),
        {"dcgm_exporter_state": "present"},
    ),
    "a release of that name that is taken over": Case(
        EXPORTER, {"exporter": [OF_THAT_NAME]}, ("present",), {"dcgm_exporter_adopt": True}
    ),
    "another release is not taken over": Case(
        EXPORTER,
        {"exporter": [found("gpu/dcgm", release="gpu/dcgm")]},
        ("DaemonSet gpu/dcgm was not made by this collection",),
        {"dcgm_exporter_adopt": True, "dcgm_exporter_state": "present"},
    ),
    "a device plugin": Case(PLUGIN, {"device_plugin": [found("kube-system/plugin")]}, ("existing",)),
    "two device plugins": Case(
        PLUGIN,
        {"device_plugin": [found("kube-system/plugin")]},
        ("two of them give out the same GPUs", "nvidia_device_plugin_state=existing uses theirs"),
        {"nvidia_device_plugin_state": "present"},
    ),
    "a DRA driver": Case(PLUGIN, {"dra_driver": [found("dra/driver")]}, ("existing",)),
    "the operator of the inventory has the exporter": Case(
        EXPORTER, {}, ("existing",), {"gpu_operator_state": "present"}
    ),
    "the operator of the inventory has the plugin": Case(PLUGIN, {}, ("existing",), {"gpu_operator_state": "present"}),
    "a plugin beside the operator of the inventory": Case(
        PLUGIN,
        {},
        ("gpu_operator_state is present, and the operator brings its own", "nvidia_device_plugin_state at auto"),
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
        ("DaemonSet x/ours is there", "gpu_operator_state=existing, nvidia_device_plugin_state=absent and dcgm"),
        {"gpu_operator_state": "present"},
    ),
    "an operator beside what others brought": Case(
        OPERATOR,
        {"exporter": [found("a/b")], "device_plugin": [found("a/c")]},
        ("DaemonSet a/c, DaemonSet a/b are there", "remove what is there first"),
        {"gpu_operator_state": "present"},
    ),
    "what our operator made": Case(
        OPERATOR,
        {"device_plugin": [{**found("gpu-operator/nvidia-device-plugin-daemonset"), "origin": "gpu-operator"}]},
        ("present",),
        {"gpu_operator_state": "present"},
    ),
    "what another operator made": Case(
        OPERATOR,
        {"device_plugin": [{**found("nvidia/nvidia-device-plugin-daemonset"), "origin": "gpu-operator"}]},
        ("DaemonSet nvidia/nvidia-device-plugin-daemonset is there",),
        {"gpu_operator_state": "present"},
    ),
    "another adapter": Case(ADAPTER, {"metrics_apis": apis(custom=False)}, ("existing",)),
    "two adapters": Case(
        ADAPTER,
        {"metrics_apis": apis(custom=False)},
        ("APIService custom.metrics.k8s.io was not made", "a metrics API has one server"),
        {"prometheus_adapter_state": "present"},
    ),
    "KEDA serves the other API": Case(ADAPTER, {"metrics_apis": apis(external=False)}, ("present",)),
    "KEDA serves the other API, which is wanted": Case(
        ADAPTER,
        {"metrics_apis": apis(external=False, custom=True)},
        ("APIService external.metrics.k8s.io", "prometheus_adapter_external_metrics=false leaves the other API alone"),
        {"prometheus_adapter_external_metrics": True},
    ),
    "nobody asks for CPU": Case(METRICS, {"metrics_apis": apis(custom=False)}, ("existing",)),
    "somebody asks for CPU": Case(METRICS, {"metrics_apis": apis(custom=False)}, ("present",), ON_CPU),
    "a metrics-server, and somebody asks for CPU": Case(METRICS, resources(), ("existing",), ON_CPU),
    "ours, and nobody asks any more": Case(
        METRICS, resources(owned=True, release="kube-system/metrics-server"), ("present",)
    ),
    "two metrics-servers": Case(
        METRICS,
        resources(),
        ("APIService metrics.k8s.io was not made", "metrics_server_state=existing uses theirs"),
        {"metrics_server_state": "present"},
    ),
    "a metrics-server of that name": Case(
        METRICS,
        resources(release="kube-system/metrics-server"),
        ("-e metrics_server_adopt=true takes its release over",),
        {"metrics_server_state": "present"},
    ),
    "an exporter that may be there": Case(
        EXPORTER,
        {},
        ("test -> dcgm_exporter: no right to list DaemonSet.", "dcgm_exporter_state=existing"),
        unread=NO_RIGHT,
    ),
    "a plugin that may be there": Case(
        PLUGIN,
        {},
        ("no right to list DaemonSet.",),
        {"nvidia_device_plugin_state": "present"},
        unread=NO_RIGHT,
    ),
    "an operator beside what may be there": Case(
        OPERATOR, {}, ("no right to list DaemonSet.",), {"gpu_operator_state": "present"}, unread=NO_RIGHT
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
    "a metrics-server is no adapter": Case(ADAPTER, resources(), ("present",)),
}


# Where the adapter is to ask, by kubegpu_prometheus and what is there.
ADDRESSES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "ours": ({}, {}, "http://kube-prometheus-stack-prometheus.monitoring.svc:9090"),
    "theirs": ({}, {"prometheus": [prometheus("x/theirs")]}, "http://web.x.svc:9090/prom"),
    "outside": ({"url": "https://metrics.example/tenant/"}, {}, "https://metrics.example:443/tenant"),
    "outside, by its port": ({"url": "http://192.0.2.7:8428"}, {}, "http://192.0.2.7:8428"),
}


def choosy(*namespaces: str) -> dict[str, Any]:
    """Theirs, which takes rules and monitors of these namespaces alone."""
    return {"prometheus": [{**prometheus("x/theirs"), "rule_namespaces": namespaces, "monitor_namespaces": namespaces}]}


# Role, and what is there: whether the role warns that Prometheus would not read what it brings.
SELECTED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a monitor in the namespace": (EXPORTER, choosy("monitoring"), ""),
    "a monitor elsewhere": (EXPORTER, choosy("a", "b"), "x/theirs takes monitors of a, b, and not of monitoring"),
    "a monitor of nowhere": (EXPORTER, choosy(), "x/theirs takes monitors of no namespace, and not of monitoring"),
    "a monitor of ours": (EXPORTER, {}, ""),
    "another feature discovery": (
        PLUGIN,
        {"node_feature_discovery": [found("nfd/master", release="nfd/nfd")]},
        "node-feature-discovery: somebody else's is there (nfd/nfd)",
    ),
    "a feature discovery of ours": (PLUGIN, {}, ""),
    "alerts in the namespace": ("gpu_alerts", choosy("x"), ""),
    "alerts elsewhere": ("gpu_alerts", choosy("a"), "x/theirs takes rules of a, and not of x"),
}


@pytest.fixture(scope="module")
def warned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each role says in its preflight, all in one run."""
    blocks = []
    for name, (role, components, _expected) in SELECTED.items():
        cluster = {"context": "test", "components": components}
        variables = {f"{role}_state": "present", "kubegpu_cluster": cluster, "kubegpu_cluster_ready": True}
        asked = {"ansible.builtin.include_role": {"name": f"kubegpu.autoscale.{role}", "tasks_from": "preflight"}}
        blocks.append({"vars": variables, "block": [{"ansible.builtin.debug": {"msg": f"CASE {name}:"}}, asked]})
    done = run_playbook(tmp_path_factory.mktemp("play"), local(*blocks), {}, ANSIBLE_STDOUT_CALLBACK="minimal")
    parts = " ".join(done.stdout.split()).split("CASE ")[1:]
    return {name: part.split("WARNING: ", 1)[-1] for part in parts for name in SELECTED if part.startswith(f"{name}:")}


@pytest.mark.parametrize("case", SELECTED)
def test_what_prometheus_would_not_read_is_warned_of(case: str, warned: dict[str, str]) -> None:
    expected = SELECTED[case][2]
    assert (expected in warned[case]) if expected else ("Next: set" not in warned[case])


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each case ends in, all in one run."""
    blocks = []
    for name, case in CASES.items():
        cluster = {"context": "test", "components": case.components, "not_looked_at": case.unread}
        role = {"name": f"kubegpu.autoscale.{case.role}", "tasks_from": "preflight", "public": True}
        state = {"ansible.builtin.debug": {"msg": f"CASE {name}: {{{{ __{case.role}_state }}}}"}}
        refusal = {"ansible.builtin.debug": {"msg": f"CASE {name}: {{{{ ansible_failed_result.msg }}}}"}}
        blocks.append(
            {
                "vars": {**case.options, "kubegpu_cluster": cluster, "kubegpu_cluster_ready": True},
                "block": [{"ansible.builtin.include_role": role}, state],
                "rescue": [refusal],
            }
        )
    parts = ("url", "port", "path")
    of_adapter = "".join(f"{{{{ __prometheus_adapter_values.prometheus.{part} }}}} " for part in parts)
    for name, (where, components, _expected) in ADDRESSES.items():
        cluster = {"context": "test", "components": components}
        asks = {"ansible.builtin.debug": {"msg": f"CASE {name}: {of_adapter}"}}
        role = {"name": "kubegpu.autoscale.prometheus_adapter", "tasks_from": "preflight", "public": True}
        variables = {"kubegpu_prometheus": where, "kubegpu_cluster": cluster, "kubegpu_cluster_ready": True}
        blocks.append({"vars": variables, "block": [{"ansible.builtin.include_role": role}, asks]})
    done = run_playbook(tmp_path_factory.mktemp("play"), local(*blocks), {}, ANSIBLE_STDOUT_CALLBACK="minimal")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines() if "CASE " in line]
    return dict(line.partition("CASE ")[2].rstrip('"').split(": ", 1) for line in lines)


@pytest.mark.parametrize("case", CASES)
def test_who_has_a_place(case: str, said: dict[str, str]) -> None:
    expected = CASES[case].expected
    if len(expected) == 1 and " " not in expected[0]:
        assert said[case] == expected[0]
    else:
        assert [words for words in expected if words not in said[case]] == []
        assert "Nothing was changed. Next: " in said[case]


@pytest.mark.parametrize("case", ADDRESSES)
def test_the_adapter_asks_the_prometheus_that_is_meant(case: str, said: dict[str, str]) -> None:
    url, port, *path = said[case].split()
    assert f"{url}:{port}{''.join(path)}" == ADDRESSES[case][2]


@pytest.mark.parametrize(
    ("options", "roles"),
    [
        ({}, []),
        ({"gpu_operator_state": "present"}, []),
        (
            {"gpu_operator_state": "present", "gpu_operator_driver": "operator"},
            ["nvidia_driver", "nvidia_container_toolkit"],
        ),
        ({"gpu_operator_state": "existing", "gpu_operator_driver": "operator"}, []),
    ],
)
def test_the_operator_stands_in_for_roles_of_servers(options: dict[str, Any], roles: list[str]) -> None:
    assert RoleValues("nvidia_driver", options, {})["_common_operator_brings"] == roles


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("http://mimir.example:8080/prometheus", "http://mimir.example", 8080),
        ("https://mimir.example", "https://mimir.example", 443),
        ("http://[fd00::1]:9090", "http://[fd00::1]", 9090),
        ("http://bob:secret@prom.example:9090", "http://bob:secret@prom.example", 9090),
    ],
)
def test_the_adapter_asks_a_prometheus_outside_at_its_whole_address(url: str, host: str, port: int) -> None:
    values = RoleValues("prometheus_adapter", {"kubegpu_prometheus": {"url": url}}, {})

    assert values["prometheus_adapter_prometheus_url"] == host
    assert values["prometheus_adapter_prometheus_port"] == port
