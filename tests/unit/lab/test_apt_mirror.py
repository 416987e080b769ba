"""A system's mirror is made on top of the default one's."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from lab import artifacts, packages
from lab.artifacts import Artifact, Shell


def nothing(out: Path, run: Shell) -> None:
    """Builds an empty folder."""


@pytest.mark.parametrize(("suite", "added"), [("bookworm", []), ("trixie", ["trixie"])])
def test_a_suite_that_the_first_mirror_has_is_not_added_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suite: str, added: list[str]
) -> None:
    """Its files are hard links: what is written over them is written into the first mirror."""
    monkeypatch.setattr(artifacts, "CACHE", tmp_path)
    asked: list[str] = []
    monkeypatch.setattr(packages, "_add_distribution", lambda out, suite, *_: asked.append(suite))
    first, empty = Artifact("first", nothing), Artifact("empty", nothing)
    release = first.path / packages.DEBIAN / "dists" / "bookworm" / "InRelease"
    release.parent.mkdir(parents=True)
    release.touch()

    mirror = packages.apt_mirror("second", [], empty, {}, distribution=empty, suite=suite, first=first)
    mirror.build(tmp_path / "out", Shell(io.StringIO()))

    assert asked == added
