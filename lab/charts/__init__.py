"""The chart mirror: small charts with upstream's names and values, and the archive that helm comes in."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import yaml

from lab.artifacts import Artifact, Shell
from lab.charts.values import RECORDED, of_the_lab, schema
from lab.versions import names, versions

HERE = Path(__file__).parent


class Loader(yaml.CSafeLoader):
    """With `=` as a string, as YAML 1.2 and Kubernetes read it: an AlertmanagerConfig's matcher may be one."""


def _text(_: Loader, node: yaml.ScalarNode) -> str:
    return str(node.value)


Loader.add_constructor("tag:yaml.org,2002:value", _text)


def operator_crds(programs: Artifact) -> Artifact:
    """`*.yaml`: the operator's CRDs as its module has them, without descriptions.

    Without AlertmanagerConfig and ScrapeConfig (v1alpha1) the operator logs an error for ever.
    """

    def build(out: Path, run: Shell) -> None:
        for file in sorted((programs.path / "crds").glob("*.yaml")):
            crd = yaml.load(file.read_text(), Loader)
            for version in crd["spec"]["versions"]:
                remove_descriptions(version["schema"]["openAPIV3Schema"])
            (out / file.name).write_text(json.dumps(crd))

    return Artifact("operator-crds", build, sources=(Path(__file__),), needs=(programs,), expected=10)


def remove_descriptions(schema: dict[str, Any]) -> None:
    """Of a schema and all below it; a property that is called `description` stays."""
    schema.pop("description", None)
    below = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    for inner in [*below, *schema.get("anyOf", []), *schema.get("oneOf", []), *schema.get("allOf", [])]:
        if isinstance(inner, dict):
            remove_descriptions(inner)


def chart_mirror(programs: Artifact, crds: Artifact) -> Artifact:
    """`<upstream host>/<path>`: a chart repository each, and `get.helm.sh`."""

    def build(out: Path, run: Shell) -> None:
        helm = programs.path / "helm"
        repositories = set()
        for name, chart in versions()["charts"].items():
            repository = out / chart["repository"].removeprefix("https://")
            repositories.add(repository)
            source = copy_with_schema(name, out / ".source")
            if name == "kube-prometheus-stack":
                shutil.copytree(crds.path, source / "charts" / "crds" / "crds", dirs_exist_ok=True)
            run(helm, "package", source, "--version", chart["version"], "--destination", repository)
        for repository in repositories:
            run(helm, "repo", "index", repository)
        shutil.rmtree(out / ".source")
        _helm_archive(helm, out / "get.helm.sh")

    return Artifact(
        "charts",
        build,
        sources=(HERE, RECORDED),
        facts=(repr(versions()["charts"]),),
        needs=(programs, crds),
        expected=3,
    )


def copy_with_schema(name: str, folder: Path) -> Path:
    """The chart's folder, which takes those values of upstream's chart that it knows, and no others."""
    copy = folder / name
    shutil.copytree(HERE / name, copy)
    (copy / "values.schema.json").write_text(json.dumps(schema(of_the_lab(name))))
    return copy


def _helm_archive(helm: Path, folder: Path) -> None:
    """The release archive and its checksum, named as helm's own releases are."""
    folder.mkdir()
    archive = folder / f"helm-{names()['helm']}-linux-amd64.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(helm, "linux-amd64/helm")
    checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
    archive.with_name(f"{archive.name}.sha256sum").write_text(f"{checksum}  {archive.name}\n")
