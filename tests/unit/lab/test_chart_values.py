"""The charts get values that upstream's charts know, and no others: Helm itself takes any name, and does nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from charts_check import LAB_VALUES, releases
from jsonschema import Draft7Validator, Draft202012Validator
from record_charts import read
from recorded_schemas import of_kind

from lab.charts import HERE
from lab.charts.values import pinned, recorded, schema
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
    blocks = re.findall(r"```yaml\n# group_vars/all.yml\n(.*?)```", page.read_text(), re.DOTALL)
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


def wrong(name: str, values: dict[str, Any]) -> list[str]:
    found = Draft7Validator(schema(recorded(name))).iter_errors(values)
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
