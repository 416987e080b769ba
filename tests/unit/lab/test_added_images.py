"""An image that a lab is asked for is served beside its own, by the name that roles ask for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab import artifacts
from lab.artifacts import Artifact
from lab.graph import added_images
from lab.images import added_image, serve
from lab.programs import added_programs
from lab.versions import fill


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That of metrics-server, with another program in it."""
    monkeypatch.setattr(artifacts, "CACHE", tmp_path / "cache")
    name = "metrics-server"
    program = Artifact(f"programs-{name}", lambda out, _run: (out / name).write_text("a program") and None)
    made = added_image(name, program)
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
    assert set(asked) > set(added_images())


def test_what_a_lab_can_be_asked_for_has_an_image() -> None:
    assert {name: image.name for name, (_program, image) in added_images().items()} == {
        "argo-rollouts": "image-argo-rollouts",
        "keda": "image-keda",
        "kwok": "image-kwok",
        "metrics-server": "image-metrics-server",
    }
