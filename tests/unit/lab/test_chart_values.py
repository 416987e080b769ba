"""The charts get values that upstream's charts know, and no others: Helm itself takes any name, and does nothing."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from charts_check import LAB_VALUES, releases
from jsonschema import Draft7Validator, Draft202012Validator
from programs import program
from record_charts import read
from recorded_schemas import of_kind

from lab.charts import HERE, copy_with_schema
from lab.charts.values import known_in_lab, of_the_lab, pinned, recorded, schema
from lab.versions import CHECKOUT, versions

SWITCHES = (
    "prometheus_stack_alertmanager",
    "prometheus_stack_grafana",
    "prometheus_stack_control_plane_metrics",
    "prometheus_adapter_external_metrics",
    "prometheus_adapter_raw_metrics",
    "nvidia_device_plugin_feature_discovery",
    "gpu_operator_feature_discovery",
    "gpu_operator_profiling",
)
# What all roles of a cluster read.
CLUSTER = {"kubegpu_kubeconfig", "kubegpu_context", "kubegpu_prometheus"}
# What else changes the values that the roles make.
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything-on": dict.fromkeys(SWITCHES, True),
    "everything-off": dict.fromkeys(SWITCHES, False),
    "the-operator's-driver": {"gpu_operator_state": "present", "gpu_operator_driver": "operator"},
    "shared-by-MPS": {"nvidia_device_plugin_sharing": "mps", "nvidia_device_plugin_sharing_replicas": 4},
    "without-CDI": {"nvidia_device_plugin_device_list_strategy": "envvar"},
    **{
        f"inventory-{file.parent.parent.name}": yaml.safe_load(file.read_text()) or {}
        for file in sorted(LAB_VALUES.parents[2].glob("*/group_vars/all.yml"))
    },
}
for page in sorted((CHECKOUT / "docs" / "clusters").glob("*.md")):
    blocks = re.findall(r"```yaml\n# (?:[\w-]+/)?group_vars/all.yml\n(.*?)```", page.read_text(), re.DOTALL)
    # A second block is what another image of the nodes needs besides.
    VARIANTS |= {
        f"page-{page.stem}-{number}": yaml.safe_load("".join(blocks[: number + 1])) for number in range(len(blocks))
    }
VARIANTS["inventory-lab-with-one-real-GPU"] = VARIANTS["inventory-lab"] | {"lab_real_gpus": 1}


def test_a_page_sets_what_a_role_has() -> None:
    specs = [yaml.safe_load(path.read_text()) for path in CHECKOUT.glob("roles/*/meta/argument_specs.yml")]
    options = {name for spec in specs for entry in spec["argument_specs"].values() for name in entry.get("options", ())}
    given = {name: values.keys() for name, values in VARIANTS.items() if name.startswith("page-")}
    assert len(given) == 12
    assert {name: keys - options - CLUSTER for name, keys in given.items() if keys - options - CLUSTER} == {}


def wrong(name: str, values: dict[str, Any], of: Callable[[str], dict[str, Any]] = recorded) -> list[str]:
    found = Draft7Validator(schema(of(name))).iter_errors(values)
    return sorted(f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in found)


@pytest.fixture(scope="module")
def given_by_roles() -> dict[str, dict[str, Any]]:
    return releases(VARIANTS)


def test_roles_give_values_that_the_charts_know(given_by_roles: dict[str, dict[str, Any]]) -> None:
    for variant, given in given_by_roles.items():
        assert given.keys() == pinned().keys()
        found = {name: wrong(name, release["values"]) for name, release in given.items()}
        assert found == {name: [] for name in given}, variant


def test_the_operator_knows_what_its_chart_hands_on(given_by_roles: dict[str, dict[str, Any]]) -> None:
    """The chart gives `serviceMonitor` to the ClusterPolicy as a whole, whatever is in it."""
    exporter = given_by_roles["defaults"]["gpu-operator"]["values"]["dcgmExporter"]
    known = of_kind("nvidia.com/v1", "ClusterPolicy")["properties"]["dcgmExporter"]
    handed_on = {**exporter, "config": {"name": exporter["config"]["name"]}}
    assert exporter["serviceMonitor"]["interval"] == "2s"
    assert [error.message for error in Draft202012Validator(known).iter_errors(handed_on)] == []


@pytest.mark.parametrize("name", versions()["charts"])
def test_the_charts_of_the_lab_know_no_value_of_their_own(name: str) -> None:
    for values in HERE.joinpath(name).rglob("values.yaml"):
        inside = values.parent.name
        of_the_lab = yaml.safe_load(values.read_text())
        assert wrong(name, of_the_lab if inside == name else {inside: of_the_lab}) == []


# Defaults of the lab's charts that no template reads by its name, and what reads them instead.
READ_OTHERWISE = {
    "kube-prometheus-stack": {"alertmanager.enabled", "grafana"}  # refused when they are on
    | {"crds.enabled", "kubeStateMetrics.enabled", "nodeExporter.enabled"},  # conditions of the charts inside
    # The lab has no other way.
    "keda": {"rbac.create", "serviceAccount.metricServer.create", "serviceAccount.operator.create"},
    # Of GPU feature discovery, which is refused; and the only configuration is the default one.
    "nvidia-device-plugin": {"noTimestamp", "config.default"},
}


def leaves(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(values, dict) and values:
        for key, inner in values.items():
            yield from leaves(inner, (*path, key))
    else:
        yield path


@pytest.mark.parametrize("name", versions()["charts"])
def test_the_lab_takes_a_value_only_if_it_renders_it(name: str, tmp_path: Path) -> None:
    """Of all values that upstream's chart knows. The templates are read again without the defaults."""
    copy = copy_with_schema(name, tmp_path)
    for values in copy.rglob("values.yaml"):
        values.unlink()
    by_templates = known_in_lab(copy)
    above = {path[:length] for path in by_templates for length in range(len(path) + 1)}
    taken = {path for path in leaves(of_the_lab(name)) if path[-1] != "global"}
    assert len(taken) > 15
    unread = {
        ".".join(path)
        for path in taken
        if path not in above and not any(path[:length] in by_templates for length in range(1, len(path)))
    }
    assert unread == READ_OTHERWISE.get(name, set())


def test_the_lab_s_inventories_give_only_what_the_lab_renders(given_by_roles: dict[str, dict[str, Any]]) -> None:
    inventories = [variant for variant in given_by_roles if variant.startswith("inventory-")]
    assert len(inventories) == 6
    for variant in ["defaults", *inventories]:
        for name in versions()["charts"]:
            values = given_by_roles[variant][name]["values"]
            assert wrong(name, values, of_the_lab) == [], (variant, name)


@pytest.mark.parametrize(
    ("name", "values", "rendered"),
    [
        (
            "kube-prometheus-stack",
            {
                "prometheus": {
                    "additionalPodMonitors": [
                        {"name": "mine", "selector": {}, "podMetricsEndpoints": [{"port": "metrics", "interval": "5s"}]}
                    ]
                },
                "alertmanager": {"enabled": False},
                "grafana": {"enabled": False},
                "prometheusOperator": {"admissionWebhooks": {"enabled": False}, "tls": {"enabled": False}},
            },
            {"selector": {}, "podMetricsEndpoints": [{"port": "metrics", "interval": "5s"}]},
        ),
        ("nvidia-device-plugin", {"securityContext": {"privileged": True}}, {"privileged": True}),
        ("kube-prometheus-stack", {"prometheus": {"prometheusSpec": {"probeInterval": "5s"}}}, None),
        ("kube-prometheus-stack", {"additionalPrometheusRulesMap": {}}, None),
        ("dcgm-exporter", {"hostNetwork": True}, None),
    ],
)
def test_a_value_is_rendered_or_refused(name: str, values: dict[str, Any], rendered: Any, tmp_path: Path) -> None:
    """By the chart as it is in the mirror. None: refused."""
    given = tmp_path / "values.yml"
    given.write_text(yaml.safe_dump(values))
    argv = [program("helm"), "template", "x", copy_with_schema(name, tmp_path), "--values", given]
    cluster = ["--kube-version", "1.36.0"]
    done = subprocess.run([*argv, *cluster], capture_output=True, text=True)
    if rendered is None:
        assert "not allowed" in done.stderr
        return
    assert not done.returncode, done.stderr
    objects = [found for found in yaml.safe_load_all(done.stdout) if found]
    found = [one["spec"] for one in objects if one["metadata"]["name"] == "mine"] or [
        one["spec"]["template"]["spec"]["containers"][0]["securityContext"]
        for one in objects
        if one["kind"] == "DaemonSet"
    ]
    assert found == [rendered]


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("dcgm-exporter", {"serviceMonitor": {"intervall": "1s"}}, "'intervall' was unexpected"),
        ("dcgm-exporter", {"readinessProbe": {"periodSeconds": 1}}, "'periodSeconds' was unexpected"),
        ("nvidia-device-plugin", {"gfd": {"enabled": "false"}}, "'false' is not of type 'boolean', 'null'"),
        ("prometheus-adapter", {"replica": 2}, "'replica' was unexpected"),
        ("kube-prometheus-stack", {"prometheus": {"prometheusSpec": {"scrapeInterva": "5s"}}}, "'scrapeInterva'"),
        ("kube-prometheus-stack", {"kube-state-metrics": {"replicaCount": 2}}, "'replicaCount' was unexpected"),
        ("gpu-operator", {"dcgmExporter": {"extraEnv": []}}, "'extraEnv' was unexpected"),
    ],
)
def test_a_value_that_upstream_does_not_know_is_refused(name: str, values: dict[str, Any], message: str) -> None:
    [found] = wrong(name, values)
    assert message in found


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("dcgm-exporter", {"nodeSelector": {"pool": "gpu"}, "securityContext": {"privileged": True}}),
        ("kube-prometheus-stack", {"grafana": {"persistence": {"enabled": True}}, "global": {"imageRegistry": "here"}}),
    ],
)
def test_a_map_that_is_handed_on_as_a_whole_takes_any_name(name: str, values: dict[str, Any]) -> None:
    assert wrong(name, values) == []


def test_names_are_read_from_defaults_templates_and_the_charts_inside(tmp_path: Any) -> None:
    inner = tmp_path / "charts" / "inner"
    (tmp_path / "ours" / "charts" / "inner").mkdir(parents=True)
    for chart in (tmp_path, inner):
        (chart / "templates").mkdir(parents=True)
    (tmp_path / "Chart.yaml").write_text(
        "dependencies: [{name: inner, condition: parts.inner}, {name: absent, condition: absent.enabled}]"
    )
    (tmp_path / "values.yaml").write_text(
        "port: 1\nlimits: {cpu: 1}\nprobe: {delay: 1}\nnode: {}\ninner: {replicas: 2}"
    )
    (tmp_path / "templates" / "one.yaml").write_text(
        "{{ toYaml .Values.limits }} {{ .Values.probe.delay }} {{ .Values.custom }} {{ .Values.node }}"
    )
    (inner / "Chart.yaml").write_text("name: inner")
    (inner / "values.yaml").write_text("replicas: 1\nname: ''")
    assert read(tmp_path, tmp_path / "ours") == {
        "absent": "map",
        "custom": "any",
        "global": "map",
        "inner": {"global": "map", "name": "string", "replicas": "number"},
        "limits": "map",
        "node": "map",
        "parts": {"inner": "bool"},
        "port": "number",
        "probe": {"delay": "number"},
    }


def test_what_is_recorded_is_of_the_pinned_versions() -> None:
    assert {path.stem for path in (CHECKOUT / "lab/upstream/charts").iterdir()} == set(pinned())
