"""What Flux and Argo CD are given: by the schemas of their own kinds, in the right order, and without a secret."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.filter.gitops_files import FilterModule
from jsonschema import Draft202012Validator
from planted import GENERATED, hides
from recorded_schemas import RECORDED, of_kind

gitops_files = FilterModule().filters()["gitops_files"]
Object = dict[str, Any]

PLACE = {
    "inventory": "prod",
    "path": "clusters/gpus",
    "namespace": "tools",
    "source": {"kind": "GitRepository", "name": "fleet"},
    "repository": "https://git.example/fleet.git",
    "revision": "main",
    "project": "platform",
    "interval": "1h",
    "timeout": "15m",
}


def release(name: str, **changes: Any) -> Object:
    place = {"repository": "https://charts.example/stable/", "release": name, "namespace": "monitoring"}
    return {"name": name, "version": "1.2.3", "values": {"replicas": 2}, **place, **changes}


RULE = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": {"name": "r", "namespace": "m"}}
CLASS = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}
PARTS = [
    {"name": "plugin", "release": release("plugin"), "objects": [CLASS]},
    {"name": "stack", "release": release("stack"), "crds": {"crds": {"enabled": True}}},
    {"name": "exporter", "needs": ["stack", "absent"], "release": release("exporter")},
    {"name": "rules", "part_of": "gpu-rules", "objects": [RULE]},
]


def made(tool: str, parts: list[Object] = PARTS) -> dict[str, list[Object]]:
    return {path: [*yaml.safe_load_all(text)] for path, text in gitops_files(parts, tool, PLACE).items()}


@pytest.mark.parametrize(
    ("given", "repository"),
    [
        ("https://charts.example/stable/", "https://mirror.example/charts/charts.example/stable"),
        ("oci://registry.example/charts", "oci://registry.example/charts"),
    ],
)
def test_charts_come_from_the_mirror_of_a_site_without_internet(given: str, repository: str) -> None:
    place = {**PLACE, "mirror": "https://mirror.example/charts/"}
    parts = [{"name": "plugin", "release": release("plugin", repository=given)}]
    [source, _release] = yaml.safe_load_all(gitops_files(parts, "flux", place)["releases/plugin.yaml"])
    [application] = yaml.safe_load_all(gitops_files(parts, "argocd", place)["applications/plugin.yaml"])
    assert source["spec"]["url"].startswith(repository)
    assert application["spec"]["source"]["repoURL"] == repository.removeprefix("oci://")


def wrong(manifest: Object) -> list[str]:
    schema = of_kind(manifest["apiVersion"], manifest["kind"])
    return [error.message for error in Draft202012Validator(schema).iter_errors(manifest["spec"])]


OCI = [{"name": "plugin", "release": release("plugin", repository="oci://registry.example/charts")}]


@pytest.mark.parametrize("tool", ["flux", "argocd"])
@pytest.mark.parametrize("parts", [PARTS, OCI], ids=["https", "oci"])
def test_the_tool_s_kinds_know_each_field(tool: str, parts: list[Object]) -> None:
    manifests = [manifest for found in made(tool, parts).values() for manifest in found]
    of_the_tool = [
        manifest for manifest in manifests if (RECORDED / f"{manifest['kind']}.yml").exists() and "spec" in manifest
    ]
    assert len(of_the_tool) >= 2
    assert {manifest["kind"]: wrong(manifest) for manifest in of_the_tool if wrong(manifest)} == {}


def test_a_field_that_a_kind_does_not_have_is_seen() -> None:
    [_source, helm_release] = made("flux")["releases/stack.yaml"]
    helm_release["spec"]["dependsOn"] = [{"nam": "x"}]
    helm_release["spec"]["timeout"] = "soon"
    assert len(wrong(helm_release)) == 3


def test_flux_waits_for_what_a_release_needs() -> None:
    files = made("flux")
    assert files["releases/exporter.yaml"][1]["spec"]["dependsOn"] == [{"name": "stack"}]
    assert "dependsOn" not in files["releases/stack.yaml"][1]["spec"]
    releases, objects = files["kubegpu.yaml"]
    assert (releases["spec"]["path"], releases["spec"]["wait"]) == ("./clusters/gpus/releases", True)
    assert objects["spec"]["dependsOn"] == [{"name": "kubegpu-releases"}]
    assert files["kustomization.yaml"][0]["resources"] == ["kubegpu.yaml"]


def test_argocd_goes_by_waves() -> None:
    waves = {
        manifest["metadata"]["name"]: int(manifest["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"])
        for found in made("argocd").values()
        for manifest in found
        if manifest["kind"] == "Application"
    }
    assert waves == {"kubegpu": 0, "plugin": 0, "stack": 0, "exporter": 1, "kubegpu-objects": 2}


@pytest.mark.parametrize(("path", "objects"), [("clusters/gpus", "clusters/gpus/objects"), ("", "objects")])
def test_the_folder_may_be_the_whole_repository(path: str, objects: str) -> None:
    """Argo CD refuses a path that begins with a slash."""
    files = gitops_files(PARTS, "argocd", {**PLACE, "path": path})
    [application] = yaml.safe_load_all(files["applications/objects.yaml"])
    assert application["spec"]["source"]["path"] == objects


@pytest.mark.parametrize("tool", ["flux", "argocd"])
def test_a_runtime_class_comes_beside_the_release_whose_pods_need_it(tool: str) -> None:
    folder = {"flux": "releases", "argocd": "applications"}[tool]
    *_own, runtime_class = made(tool)[f"{folder}/plugin.yaml"]
    assert runtime_class["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "kubegpu.autoscale",
        "kubegpu.autoscale/inventory": "prod",
    }
    [rule] = made(tool)["objects/rules.yaml"]
    assert rule["metadata"]["labels"]["app.kubernetes.io/part-of"] == "gpu-rules"


def test_objects_alone_need_no_release() -> None:
    for tool, files in ((tool, made(tool, PARTS[3:])) for tool in ("flux", "argocd")):
        assert "objects/rules.yaml" in files, tool
    [only] = made("flux", PARTS[3:])["kubegpu.yaml"]
    assert "dependsOn" not in only["spec"]


def test_an_oci_registry_is_named_as_each_tool_names_it() -> None:
    source, helm_release = made("flux", OCI)["releases/plugin.yaml"]
    assert (source["kind"], source["spec"]["url"]) == ("OCIRepository", "oci://registry.example/charts/plugin")
    assert helm_release["spec"]["chartRef"]["kind"] == "OCIRepository"
    [application] = made("argocd", OCI)["applications/plugin.yaml"]
    assert application["spec"]["source"]["repoURL"] == "registry.example/charts"


def test_a_secret_is_refused_by_its_place() -> None:
    told = {"name": "stack", "release": release("stack", values={"grafana": {"adminPassword": "hunter2"}})}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": "m"}}
    with pytest.raises(AnsibleFilterError, match=r"stack: grafana.adminPassword; rules: Secret login .*Next: ") as err:
        gitops_files([told, {"name": "rules", "objects": [secret]}], "flux", PLACE)
    assert "hunter2" not in str(err.value)


@pytest.mark.parametrize("name", GENERATED)
def test_no_secret_gets_into_a_folder(name: str) -> None:
    """One at a time: no other secret helps to find it."""
    with pytest.raises(AnsibleFilterError, match="Nothing was written") as err:
        gitops_files([{"name": "stack", "release": release("stack", values={"x": GENERATED[name]})}], "flux", PLACE)
    assert "stack: x" in str(err.value)
    assert hides(str(err.value))


def test_a_text_that_looks_random_needs_its_place_in_an_option() -> None:
    values = {"grafana": {"label": "c29tZQ9xT2fLk7Qm3Zp8"}, "digest": "sha256:" + 32 * "9f", "config": "a: b\nc: d\n"}
    parts = [{"name": "stack", "release": release("stack", values=values)}]
    with pytest.raises(AnsibleFilterError, match=r"stack: grafana\.label looks random.* gitops_public_values") as err:
        gitops_files(parts, "flux", PLACE)
    assert "c29tZQ9xT2fLk7Qm3Zp8" not in str(err.value)
    assert gitops_files(parts, "flux", {**PLACE, "public": ["stack: grafana.label"]})


@pytest.mark.parametrize("name", GENERATED)
def test_a_place_in_the_option_is_written(name: str) -> None:
    """Each refusal names places; with all of them in the option, nothing is refused."""
    parts = [{"name": "stack", "release": release("stack", values={"x": GENERATED[name]})}]
    public: list[str] = []
    for _refusal in range(3):
        try:
            assert gitops_files(parts, "flux", {**PLACE, "public": public})
            break
        except AnsibleFilterError as err:
            [told] = re.findall(r"repository: (.*) (?:would lie|looks random)", str(err))
            public += told.split("; ")
    else:
        pytest.fail(f"refused with {public}")


@pytest.mark.parametrize("tool", ["flux", "argocd"])
def test_an_address_with_a_login_gets_into_no_folder(tool: str) -> None:
    parts = [{"name": "plugin", "release": release("plugin")}]
    with pytest.raises(AnsibleFilterError, match=r"plugin\.yaml") as err:
        gitops_files(parts, tool, {**PLACE, "mirror": "https://bob:hunter2@mirror.example"})
    assert "hunter2" not in str(err.value)


def test_an_unknown_tool_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="fleet is not one of argocd, flux"):
        gitops_files([], "fleet", PLACE)
