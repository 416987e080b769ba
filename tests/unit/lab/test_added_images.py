"""An image that a lab is asked for is served beside its own, by the name that roles ask for."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from lab import artifacts, debian
from lab.artifacts import Artifact
from lab.graph import added_images
from lab.images import HERE, PYTHON, added_image, serve
from lab.programs import added_programs
from lab.versions import fill


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That of metrics-server, with another program in it."""
    monkeypatch.setattr(artifacts, "CACHE", tmp_path / "cache")
    name = "metrics-server"
    program = Artifact(f"programs-{name}", lambda out, _run: (out / name).write_text("a program") and None)
    made = added_image(name, program, debian.userland())
    program.make()
    made.make()
    return made.path


def test_it_is_found_by_the_name_that_the_version_file_has(image: Path, tmp_path: Path) -> None:
    repository, tag = "registry.k8s.io/metrics-server/metrics-server", fill("{metrics-server}")

    serve(tmp_path / "mirror", image)

    manifest = json.loads((tmp_path / "mirror" / repository / "manifests" / tag).read_text())
    config = json.loads((tmp_path / "mirror" / "blobs" / manifest["config"]["digest"]).read_text())
    assert config["config"]["Entrypoint"] == ["/metrics-server"]
    assert all((tmp_path / "mirror" / "blobs" / layer["digest"]).is_file() for layer in manifest["layers"])


def test_it_is_added_twice_and_other_images_stay(image: Path, tmp_path: Path) -> None:
    other = tmp_path / "mirror" / "blobs" / "sha256:other"
    other.parent.mkdir(parents=True)
    other.write_text("of another image")

    serve(tmp_path / "mirror", image)
    serve(tmp_path / "mirror", image)

    assert other.read_text() == "of another image"


def test_a_program_may_have_another_name_than_what_it_is_asked_for_by() -> None:
    asked = added_programs()
    assert asked["traefik"][1] == ("traefik",)
    assert asked["argo-cd"][1] == ("argocd",)
    assert set(asked) > set(added_images()) - {"locust"}


def test_an_image_of_python_packages_lies_on_the_userland(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its folders: an entry of a layer without a type is a file."""
    monkeypatch.setattr(artifacts, "CACHE", tmp_path / "cache")

    def packages(out: Path, _run: object) -> None:
        (out / "packages" / "locust").mkdir(parents=True)
        (out / "packages" / "locust" / "__init__.py").write_text("here = True\n")

    content = Artifact("locust", packages)
    userland = Artifact("userland", lambda out, _run: (out / "root.tar").write_bytes(b"\0" * 1024) and None)
    image = added_image("locust", content, userland)
    for artifact in (content, userland, image):
        artifact.make()

    repository, _, tag = fill("{image/locust}").rpartition(":")
    manifest = json.loads((image.path / repository / "manifests" / tag).read_text())
    assert len(manifest["layers"]) == 2
    with tarfile.open(image.path / "blobs" / manifest["layers"][1]["digest"]) as tar:
        found = {entry.name: entry.isdir() for entry in tar}
    root = f"usr/local/lib/python{PYTHON}/dist-packages"
    assert found == {root: True, f"{root}/locust": True, f"{root}/locust/__init__.py": False}


def test_the_packages_of_the_image_are_those_of_its_version() -> None:
    pinned = (HERE / "locust.txt").read_text().splitlines()
    assert f"locust=={fill('{image/locust}').rpartition(':')[2]}" in pinned
    assert all("==" in line for line in pinned if not line.startswith("#"))


def test_what_a_lab_can_be_asked_for_has_an_image() -> None:
    assert {name: image.name for name, (_program, image) in added_images().items()} == {
        "argo-rollouts": "image-argo-rollouts",
        "keda": "image-keda",
        "kwok": "image-kwok",
        "locust": "image-locust",
        "metrics-server": "image-metrics-server",
    }
