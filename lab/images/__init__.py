"""The image mirror: an OCI layout that nginx serves as a registry, for what can be read from one is only files."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.artifacts import Artifact, Shell
from lab.versions import recipe

HERE = Path(__file__).parent
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PYTHON = "3.11"  # of the userland
LAYER = "application/vnd.oci.image.layer.v1.tar"  # uncompressed: it never leaves the machine


def pause() -> Artifact:
    def build(out: Path, run: Shell) -> None:
        run("cc", "-Os", "-static", "-o", out / "pause", HERE / "pause.c")

    return Artifact("pause", build, sources=(HERE / "pause.c",), expected=1)


def image_mirror(userland: Artifact, contents: Mapping[str, Artifact]) -> Artifact:
    """`blobs/sha256:<digest>` and `<registry>/<repository>/manifests/<tag or digest>`."""

    def build(out: Path, run: Shell) -> None:
        _lay_out(out, recipe(HERE / "images.yml"), contents, userland)

    return Artifact("images", build, sources=(HERE,), needs=(userland, *contents.values()), expected=10)


def python_packages(name: str, requirements: Path) -> Artifact:
    """`packages`: what a file pins, for the Python of the userland, which is not the one that the lab runs on."""

    def build(out: Path, run: Shell) -> None:
        of_userland = [f"--python-version={PYTHON}", "--implementation=cp", "--only-binary=:all:", "--no-deps"]
        platforms = [f"--platform={platform}_x86_64" for platform in ("manylinux_2_28", "manylinux2014")]
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*pip, *of_userland, *platforms, f"--target={out / 'packages'}", "--requirement", requirements)

    return Artifact(name, build, sources=(requirements,), facts=(PYTHON,), expected=15)


def added_names() -> list[str]:
    """Those of added.yml."""
    return list(recipe(HERE / "added.yml"))


def added_image(name: str, program: Artifact, userland: Artifact) -> Artifact:
    """The same of an image that a mirror gets later: one of added.yml."""
    added = recipe(HERE / "added.yml")[name]
    has_userland = any("userland" in row["layers"] for row in added["images"].values())

    def build(out: Path, run: Shell) -> None:
        recipes = recipe(HERE / "images.yml")
        recipes = {"layers": recipes["layers"] | added["layers"], "images": added["images"]}
        _lay_out(out, recipes, {program.name: program}, userland if has_userland else None)

    needs = (program, userland) if has_userland else (program,)
    return Artifact(f"image-{name}", build, sources=(HERE,), needs=needs, expected=2)


def serve(mirror: Path, added: Path) -> None:
    """Have a mirror's folder serve what another one has, too, by hard links."""
    for file in (path for path in added.rglob("*") if path.is_symlink() or path.is_file()):
        link = mirror / file.relative_to(added)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        os.link(file, link, follow_symlinks=False)


def _lay_out(
    out: Path, recipes: Mapping[str, Any], contents: Mapping[str, Artifact], userland: Artifact | None = None
) -> None:
    (out / "blobs").mkdir()
    used = {name for row in recipes["images"].values() for name in row["layers"]} - {"userland"}
    layers = {name: make_layer(out, name, recipes["layers"][name], contents) for name in sorted(used)}
    if userland:
        layers["userland"] = _blob(out, userland.path / "root.tar")
    for name, row in recipes["images"].items():
        _image(out, name, [layers[layer] for layer in row["layers"]], row)


def make_layer(out: Path, name: str, row: Mapping[str, Any], contents: Mapping[str, Artifact]) -> dict[str, Any]:
    archive = out / f".{name}.tar"
    with tarfile.open(archive, "w") as tar:
        for path, mode in row.get("folders", {}).items():
            tar.addfile(_entry(path, type=tarfile.DIRTYPE, mode=int(mode, 8)))
        for path, source in row.get("files", {}).items():
            artifact, _, inner = source.partition("/")
            origin = HERE / inner if artifact == "here" else contents[artifact].path / inner
            tar.add(origin, path, filter=_plain)
        for path, target in row.get("links", {}).items():
            tar.addfile(_entry(path, type=tarfile.SYMTYPE, linkname=target))
    blob = _blob(out, archive)
    archive.unlink()
    return blob


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Of a file, or of what is in a folder."""
    return _entry(entry.name, size=entry.size, mode=entry.mode, type=entry.type, linkname=entry.linkname)


def _entry(name: str, **fields: Any) -> tarfile.TarInfo:
    """A tar entry without time or owner, so that equal content has an equal digest."""
    entry = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(entry, field, value)
    return entry


def _blob(out: Path, file: Path) -> dict[str, Any]:
    with file.open("rb") as content:
        digest = f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}"
    os.link(file, out / "blobs" / digest)
    return {"mediaType": LAYER, "digest": digest, "size": file.stat().st_size}


def _image(out: Path, name: str, layers: list[dict[str, Any]], row: Mapping[str, Any]) -> None:
    repository, _, tag = name.rpartition(":")
    runs = {"Env": [f"PATH={PATH}", *row.get("env", [])]}
    if "entrypoint" in row:
        runs["Entrypoint"] = row["entrypoint"]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": runs,
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG} | write_json(out / "blobs", config),
        "layers": layers,
    }
    manifests = out / repository / "manifests"
    manifests.mkdir(parents=True)
    digest = write_json(manifests, manifest)["digest"]
    (manifests / tag).symlink_to(digest)


def write_json(folder: Path, document: dict[str, Any]) -> dict[str, Any]:
    """Write it under its digest."""
    text = json.dumps(document, sort_keys=True).encode()
    digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
    (folder / digest).write_bytes(text)
    return {"digest": digest, "size": len(text)}
