"""The folder for Flux and Argo CD is what the roles apply to a cluster: release by release, object by object."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.ownership import is_up_to_date
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import MANAGED_BY, MANAGER, RELEASE
from chart_site import CHARTS, ROLES, Site
from control_plane import STARTUP_S, eventually, free_port, running
from kubernetes import client
from kubernetes.dynamic import DynamicClient
from model_servers import listens
from playbook import changed
from programs import program

Object = dict[str, Any]
PARTS = (*ROLES, "gpu_alerts", "gpu_dashboards", "gpu_autoscaling")
# What an inventory may say, some of it in each role's own words.
INVENTORY: dict[str, Any] = {
    "nvidia_device_plugin_namespace": "gpus",
    "dcgm_exporter_collect_interval": 2,
    "dcgm_exporter_scrape_interval": 5,
    "dcgm_exporter_values": {"nodeSelector": {"pool": "inference"}},
    "prometheus_stack_retention": "7d",
    "prometheus_adapter_external_metrics": True,
    "metrics_server_state": "present",
    "gpu_alerts_disabled": ["GpuHot"],
    "gpu_autoscaling_verify": False,
    "gpu_autoscaling_autoscalers": [
        {"namespace": "default", "target": {"name": "chat"}, "max_replicas": 4},
        {"namespace": "default", "target": {"name": "train"}, "metric": "gpu_memory", "max_replicas": 2},
    ],
}
TOOLS = {"flux": {}, "argocd": {"gitops_repository": "https://git.example/fleet.git"}}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running(tmp_path_factory.mktemp("control-plane")) as plane:
        site = Site(tmp_path_factory.mktemp("site"), *plane)
        yield site
        site.stop()


@pytest.fixture(scope="module")
def prometheus(site: Site) -> dict[str, Any]:
    """As an inventory names it. No pod runs here, and before a rule is made Prometheus is asked whether it parses."""
    port, flags = free_port(), ("--config.file=prometheus.yml", "--storage.tsdb.path=tsdb")
    (site.plane.work / "prometheus.yml").write_text("{}")
    site.plane.run("prometheus", program("prometheus"), *flags, f"--web.listen-address=127.0.0.1:{port}")
    eventually(lambda: listens(port), "Prometheus listens", STARTUP_S)
    return {"url": f"http://127.0.0.1:{port}", "rule_labels": {"team": "ml"}, "evaluation_interval": 5}


@pytest.fixture(scope="module")
def folders(site: Site, prometheus: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Written without a look at the cluster, then the roles have run."""
    inventory = {**INVENTORY, "kubegpu_prometheus": prometheus}
    paths = {tool: tmp_path_factory.mktemp(tool) for tool in TOOLS}
    for tool, options in TOOLS.items():
        place = {"gitops_tool": tool, "gitops_folder": str(paths[tool]), "gitops_path": "clusters/gpus"}
        unreached = {"kubegpu_kubeconfig": "/there/is/none"}
        done = site.play("kubegpu.autoscale.gitops", **{**inventory, **options, **place, **unreached})
        assert done.returncode == 0
    containers = [{"name": "main", "image": "chat", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    for name in ("chat", "train"):
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        apps = client.AppsV1Api(site.kube)
        apps.create_namespaced_deployment("default", {"metadata": {"name": name}, "spec": spec})
    applied = site.bring(*PARTS, **inventory)
    assert applied.returncode == 0
    assert changed(applied.stdout) > 0
    return paths


def documents(folder: Path) -> list[Object]:
    texts = [file.read_text() for file in sorted(folder.rglob("*.yaml"))]
    return [manifest for text in texts for manifest in yaml.safe_load_all(text)]


def of_kind(folder: Path, kind: str) -> dict[str, Object]:
    return {
        manifest["metadata"]["name"]: manifest["spec"]
        for manifest in documents(folder)
        if manifest["kind"] == kind and "spec" in manifest
    }


def by_identity(manifests: Iterator[Object] | list[Object]) -> dict[tuple[str, str], Object]:
    return {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in manifests if manifest}


def without_crds(values: Object) -> Object:
    """The role applies them itself, and has the chart leave them out."""
    return {name: value for name, value in values.items() if name != "crds"}


def test_each_release_has_the_values_that_helm_got(site: Site, folders: dict[str, Path]) -> None:
    releases = of_kind(folders["flux"], "HelmRelease")
    rows = json.loads(site.helm("list", "--all-namespaces", "--output=json"))
    assert {row["name"] for row in rows} == set(releases) == set(CHARTS) - {"keda"}  # no autoscaler uses it
    for row in rows:
        spec = releases[row["name"]]
        chart = spec["chart"]["spec"]
        assert row["chart"] == f"{chart['chart']}-{chart['version']}"
        assert row["namespace"] == spec["targetNamespace"] == spec["storageNamespace"]
        values = json.loads(site.helm("get", "values", row["name"], "-n", row["namespace"], "--output=json"))
        assert without_crds(spec["values"]) == without_crds(values)


def test_each_release_has_the_objects_that_helm_made(site: Site, folders: dict[str, Path], tmp_path: Path) -> None:
    count = 0
    for name, spec in of_kind(folders["flux"], "HelmRelease").items():
        values = tmp_path / f"{name}.json"
        values.write_text(json.dumps(spec["values"]))
        where = ("-n", spec["targetNamespace"])
        rendered = site.helm(
            "template", name, site.chart(spec["chart"]["spec"]["chart"]), *where, "--validate", "--values", values
        )
        made = site.helm("get", "manifest", name, *where)
        ours, theirs = (by_identity(yaml.safe_load_all(text)) for text in (rendered, made))
        assert ours == theirs
        count += len(ours)
    assert count > 30


def test_the_chart_brings_the_crds_that_the_role_applies(site: Site, folders: dict[str, Path], tmp_path: Path) -> None:
    spec = of_kind(folders["flux"], "HelmRelease")["kube-prometheus-stack"]
    values = tmp_path / "values.json"
    values.write_text(json.dumps(spec["values"]))
    text = site.helm(
        "template",
        "r",
        site.chart("kube-prometheus-stack"),
        "--include-crds",
        "--kube-version=1.37.2",
        "--values",
        values,
    )
    brought = {
        manifest["spec"]["names"]["kind"]
        for manifest in yaml.safe_load_all(text)
        if manifest and "Custom" in manifest["kind"]
    }
    served = client.ApiextensionsV1Api(site.kube).list_custom_resource_definition().items
    assert brought == {crd.spec.names.kind for crd in served if crd.spec.group == "monitoring.coreos.com"}


def test_each_object_is_the_one_that_a_module_made(site: Site, folders: dict[str, Path]) -> None:
    kube = DynamicClient(site.kube)
    for folder in folders.values():
        wanted = by_identity(
            manifest for manifest in documents(folder) if MANAGED_BY in manifest.get("metadata", {}).get("labels", {})
        )
        found: dict[tuple[str, str], Object] = {}
        for api_version, kind in {(manifest["apiVersion"], manifest["kind"]) for manifest in wanted.values()}:
            listed = kube.resources.get(api_version=api_version, kind=kind).get(
                label_selector=f"{MANAGED_BY}={MANAGER}"
            )
            found |= by_identity({"kind": kind, **manifest.to_dict()} for manifest in listed.items)
        assert {kind for kind, _name in wanted} == {
            "ConfigMap",
            "HorizontalPodAutoscaler",
            "PrometheusRule",
            "RuntimeClass",
        }
        assert set(found) == set(wanted)
        assert [key for key in wanted if not is_up_to_date(found[key], wanted[key], MANAGER)] == []
        assert all(manifest["metadata"]["namespace"] for key, manifest in wanted.items() if key[0] != "RuntimeClass")


def test_both_tools_bring_the_same(folders: dict[str, Path]) -> None:
    flux = of_kind(folders["flux"], "HelmRelease")
    argocd = {
        name: spec for name, spec in of_kind(folders["argocd"], "Application").items() if "chart" in spec["source"]
    }
    assert flux.keys() == argocd.keys()
    for name, spec in argocd.items():
        source, chart = spec["source"], flux[name]["chart"]["spec"]
        assert source["helm"]["valuesObject"] == flux[name]["values"]
        assert (source["chart"], source["targetRevision"]) == (chart["chart"], chart["version"])
        assert spec["destination"]["namespace"] == flux[name]["targetNamespace"]
    assert not [
        manifest for folder in folders.values() for manifest in documents(folder) if manifest["kind"] == "Secret"
    ]


def test_nothing_of_the_folder_carries_the_mark_of_a_role_s_release(folders: dict[str, Path]) -> None:
    """The role does not change a release of Flux unless the user allows it."""
    assert not [path for folder in folders.values() for path in folder.rglob("*.yaml") if RELEASE in path.read_text()]
