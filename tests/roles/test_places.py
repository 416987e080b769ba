"""What the chart roles do by the state, the error and the warning that tests/unit/components shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
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
    Case,
    apis,
    found,
    prometheus,
)
from playbook import local, run_playbook
from role_values import RoleValues

ALERTS, DASHBOARDS = "gpu_alerts", "gpu_dashboards"


NO_PROMETHEUS = (
    "does not install one beside DaemonSet a/operator.",
    "kubegpu_prometheus",
)
BY_KEDA = {"gpu_autoscaling_autoscalers": [{"name": "a", "backend": "keda"}]}
ON_CPU = {"gpu_autoscaling_autoscalers": [{"name": "a"}, {"extra_metrics": [{"metric": "mig"}, {"type": "Resource"}]}]}
OF_THAT_NAME = found("monitoring/dcgm-exporter", release="monitoring/dcgm-exporter")
OURS = {**OF_THAT_NAME, "owned": True}
# One for each way through the roles' tasks.
CASES = {
    "nothing is there": Case(STACK, {}, ("present",)),
    "two operators": Case(
        STACK,
        {"prometheus_operator": [found("a/operator")]},
        (
            "DaemonSet a/operator was not created by this collection",
            "two operators overwrite the same objects",
        ),
        {"prometheus_stack_state": "present"},
    ),
    "an adapter beside two": Case(ADAPTER, SEVERAL, WHICH),
    "an exporter beside two": Case(EXPORTER, SEVERAL, WHICH),
    "an exporter of theirs beside two": Case(EXPORTER, {**SEVERAL, "exporter": [found("x/exporter")]}, ("existing",)),
    "alerts beside two": Case(ALERTS, SEVERAL, WHICH, {"gpu_alerts_state": "present"}),
    "alerts that nobody asked for beside two": Case(ALERTS, SEVERAL, ("unasked",)),
    "dashboards beside an operator alone": Case(DASHBOARDS, OPERATOR_ALONE, ("unasked",)),
    "alerts for an operator alone": Case(ALERTS, OPERATOR_ALONE, NO_PROMETHEUS, {"gpu_alerts_state": "present"}),
    "alerts where nothing is there": Case(ALERTS, {}, ("present",)),
    "somebody asks for CPU": Case(METRICS, {"metrics_apis": apis(custom=False)}, ("present",), ON_CPU),
    "an autoscaler uses KEDA": Case(KEDA, {"metrics_apis": apis(custom=True)}, ("present",), BY_KEDA),
    "an operator beside what may be there": Case(
        OPERATOR, {}, ("no right to list DaemonSet.",), {"gpu_operator_state": "present"}, unread=NO_RIGHT
    ),
}


# Where the adapter is to ask, by kubegpu_prometheus and what is there, and the label of rules and monitors.
ADDRESSES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "ours": ({}, {}, "http://kube-prometheus-stack-prometheus.monitoring.svc:9090 kube-prometheus-stack"),
    "outside": (
        {"url": "https://metrics.example/tenant/"},
        {},
        "https://metrics.example:443/tenant kube-prometheus-stack",
    ),
    "theirs, with TLS": (
        {},
        {"prometheus": [prometheus("x/theirs", scheme="https")]},
        "https://web.x.svc:9090/prom -",
    ),
}


def choosy(*namespaces: str) -> dict[str, Any]:
    """Theirs, which takes rules and monitors of these namespaces alone."""
    its = prometheus("x/theirs", rule_namespaces=namespaces, monitor_namespaces=namespaces)
    return {"components": {"prometheus": [its]}}


PLAIN = {"components": {"prometheus": [prometheus("x/plain")]}, "serves_monitors": False}


@dataclass(frozen=True)
class Warned:
    """seen: of the cluster. expected: words of the warning; empty for none."""

    role: str
    seen: dict[str, Any]
    expected: str = ""
    options: dict[str, Any] = field(default_factory=dict)


THEIR_ADAPTER = {"components": {"metrics_apis": apis(custom=False)}}
SWITCHES = {"prometheus_adapter_raw_metrics": True, "prometheus_adapter_external_metrics": True}
WARNED = {
    "a monitor in the namespace": Warned(EXPORTER, choosy("monitoring")),
    "a monitor elsewhere": Warned(
        EXPORTER, choosy("a", "b"), "x/theirs selects monitors of a, b, but not of monitoring"
    ),
    "a monitor of ours": Warned(EXPORTER, {}),
    "a monitor of ours, which is still to come": Warned(EXPORTER, {"serves_monitors": False}),
    "no monitor": Warned(
        EXPORTER,
        PLAIN,
        "none is created for the exporter. Next: configure x/plain to scrape port 9400",
    ),
    "alerts in the namespace": Warned(ALERTS, choosy("x")),
    "alerts elsewhere": Warned(ALERTS, choosy("a"), "x/theirs selects rules of a, but not of x"),
    "switches of ours": Warned(ADAPTER, {}, options=SWITCHES),
    "no switch for theirs": Warned(ADAPTER, THEIR_ADAPTER, options={"prometheus_adapter_state": "existing"}),
    "switches for theirs": Warned(
        ADAPTER,
        THEIR_ADAPTER,
        "prometheus_adapter_external_metrics: they configure the collection's adapter, but x/server",
        {"prometheus_adapter_state": "existing", **SWITCHES},
    ),
    "another feature discovery": Warned(
        PLUGIN,
        {"components": {"node_feature_discovery": [found("nfd/master", release="nfd/nfd")]}},
        "node-feature-discovery: another installation exists (nfd/nfd)",
    ),
    "ours goes, and has another name": Warned(
        EXPORTER,
        {"components": {"exporter": [found("gpus/ours", owned=True, release="gpus/dcgm")]}},
        "release gpus/dcgm, which this collection created, is kept. Next: to remove it, set "
        "dcgm_exporter_namespace=gpus and dcgm_exporter_release=dcgm too.",
        {"dcgm_exporter_state": "absent"},
    ),
}


@pytest.fixture(scope="module")
def warned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each role says in its preflight, all in one run."""
    blocks = []
    for name, case in WARNED.items():
        cluster = {"context": "test", "components": {}, **case.seen}
        variables = {f"{case.role}_state": "present", **case.options}
        variables |= {"kubegpu_cluster": cluster, "kubegpu_cluster_ready": True}
        asked = {"ansible.builtin.include_role": {"name": f"kubegpu.autoscale.{case.role}", "tasks_from": "preflight"}}
        blocks.append({"vars": variables, "block": [{"ansible.builtin.debug": {"msg": f"CASE {name}:"}}, asked]})
    done = run_playbook(tmp_path_factory.mktemp("play"), local(*blocks), {}, ANSIBLE_STDOUT_CALLBACK="minimal")
    parts = " ".join(done.stdout.split()).split("CASE ")[1:]
    return {name: part.split("WARNING: ", 1)[-1] for part in parts for name in WARNED if part.startswith(f"{name}:")}


@pytest.mark.parametrize("case", WARNED)
def test_what_would_have_no_effect_is_warned_of(case: str, warned: dict[str, str]) -> None:
    expected = WARNED[case].expected
    assert (expected in warned[case]) if expected else ("Next: " not in warned[case])


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
    labels = "".join(
        f" {{{{ (_common_prometheus.address.{labels} | default({{}})).release | default('-') }}}}"
        for labels in ("rule_labels", "monitor_labels")
    )
    for name, (where, components, _expected) in ADDRESSES.items():
        cluster = {"context": "test", "components": components}
        asks = {"ansible.builtin.debug": {"msg": f"CASE {name}: {of_adapter}{labels}"}}
        role = {"name": "kubegpu.autoscale.prometheus_adapter", "tasks_from": "preflight", "public": True}
        variables = {"kubegpu_prometheus": where, "kubegpu_cluster": cluster, "kubegpu_cluster_ready": True}
        blocks.append({"vars": variables, "block": [{"ansible.builtin.include_role": role}, asks]})
    plays = [play for block in blocks for play in local(block)]
    done = run_playbook(tmp_path_factory.mktemp("play"), plays, {}, ANSIBLE_STDOUT_CALLBACK="minimal")
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
    url, port, *path, of_rules, of_monitors = said[case].split()
    assert f"{url}:{port}{''.join(path)} {of_rules}" == ADDRESSES[case][2]
    assert of_monitors == of_rules


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("http://mimir.example:8080/prometheus", "http://mimir.example", 8080),
        ("https://mimir.example", "https://mimir.example", 443),
        ("http://[fd00::1]:9090", "http://[fd00::1]", 9090),
        ("http://bob:secret@prom.example:9090", "http://prom.example", 9090),
    ],
)
def test_the_adapter_asks_a_prometheus_outside_at_its_whole_address(url: str, host: str, port: int) -> None:
    values = RoleValues("prometheus_adapter", {"kubegpu_prometheus": {"url": url}}, {})

    assert values["prometheus_adapter_prometheus_url"] == host
    assert values["prometheus_adapter_prometheus_port"] == port
