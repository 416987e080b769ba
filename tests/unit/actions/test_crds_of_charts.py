from __future__ import annotations

import tarfile
from pathlib import Path

from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.crds import read_crds

CRD = """
kind: CustomResourceDefinition
metadata: {{name: {name}}}
spec:
  operators:
  - =
  - "!="
"""


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_crds_of_sub_charts_are_read_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "crds" / "own.yaml", CRD.format(name="own") + "---\n" + CRD.format(name="second"))
    write(tmp_path / "charts" / "sub" / "crds" / "sub.yml", CRD.format(name="sub"))
    write(tmp_path / "charts" / "crds" / "values.yaml", "upgradeJob: {enabled: false}")
    write(tmp_path / "templates" / "crd.yaml", "{{ not yaml }}")
    assert [crd["metadata"]["name"] for crd in read_crds(tmp_path)] == ["sub", "own", "second"]


def test_a_bare_equals_sign_is_text(tmp_path: Path) -> None:
    write(tmp_path / "crds" / "own.yaml", CRD.format(name="own"))
    [crd] = read_crds(tmp_path)
    assert crd["spec"]["operators"] == ["=", "!="]


def test_crds_of_a_packed_sub_chart_are_read(tmp_path: Path) -> None:
    write(tmp_path / "nfd" / "crds" / "nfd.yaml", CRD.format(name="packed"))
    write(tmp_path / "nfd" / "values.yaml", CRD.format(name="no"))
    (tmp_path / "chart" / "charts").mkdir(parents=True)
    with tarfile.open(tmp_path / "chart" / "charts" / "nfd-1.tgz", "w:gz") as archive:
        archive.add(tmp_path / "nfd", "nfd")
    assert [crd["metadata"]["name"] for crd in read_crds(tmp_path / "chart")] == ["packed"]
