"""The chart mirror: small charts with upstream's names and values, and the archive that helm comes in."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from pathlib import Path

from lab.artifacts import Artifact, Shell
from lab.charts.values import RECORDED, recorded, schema
from lab.programs import HERE as PROGRAMS
from lab.programs import go_env
from lab.versions import names, versions

HERE = Path(__file__).parent
CRD_TYPES = "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring"


def operator_crds(programs: Artifact) -> Artifact:
    """`*.yaml`: the operator's CRDs, made from its Go types."""

    def build(out: Path, run: Shell) -> None:
        # Without AlertmanagerConfig and ScrapeConfig (v1alpha1) the operator logs an error for ever.
        types = [f"paths={CRD_TYPES}/{version}" for version in ("v1", "v1alpha1")]
        run(
            programs.path / "controller-gen",
            "crd:maxDescLen=0",
            *types,
            f"output:crd:dir={out}",
            cwd=PROGRAMS / "kubernetes",
            env=go_env(),
        )

    return Artifact("operator-crds", build, needs=(programs,), expected=10)


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
    """The chart's folder, which takes the values that upstream's chart takes and no others."""
    copy = folder / name
    shutil.copytree(HERE / name, copy)
    (copy / "values.schema.json").write_text(json.dumps(schema(recorded(name))))
    return copy


def _helm_archive(helm: Path, folder: Path) -> None:
    """The release archive and its checksum, named as helm's own releases are."""
    folder.mkdir()
    archive = folder / f"helm-{names()['helm']}-linux-amd64.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(helm, "linux-amd64/helm")
    checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
    archive.with_name(f"{archive.name}.sha256sum").write_text(f"{checksum}  {archive.name}\n")
