"""Artifacts are built once, whole or not at all."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from lab import artifacts
from lab.artifacts import Artifact, BuildError, Shell


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(artifacts, "CACHE", tmp_path / "cache")
    return tmp_path / "cache"


def write(out: Path, _: Shell) -> None:
    (out / "content").write_text("made")


def test_the_key_is_made_of_sources_facts_and_needs(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("one")
    need = Artifact("need", write, facts=("1",))
    before = Artifact("a", write, sources=(source,), facts=("f",), needs=(need,)).key

    assert Artifact("a", write, sources=(source,), facts=("f",), needs=(need,)).key == before
    assert Artifact("a", write, sources=(source,), facts=("g",), needs=(need,)).key != before
    assert (
        Artifact("a", write, sources=(source,), facts=("f",), needs=(Artifact("need", write, facts=("2",)),)).key
        != before
    )
    source.write_text("two")
    assert Artifact("a", write, sources=(source,), facts=("f",), needs=(need,)).key != before


def test_a_failed_build_leaves_no_artifact_and_can_be_made_again(cache: Path) -> None:
    def fail(out: Path, run: Shell) -> None:
        write(out, run)
        run("false")

    with pytest.raises(BuildError, match="false ended with 1"):
        Artifact("a", fail).make()
    assert not Artifact("a", fail).is_built()

    Artifact("a", write).make()
    assert (Artifact("a", write).path / "content").read_text() == "made"


def test_what_is_there_is_not_built_again() -> None:
    Artifact("a", write).make()

    def never(out: Path, run: Shell) -> None:
        raise AssertionError("built twice")

    Artifact("a", never).make()


def test_sweep_clears_what_a_killed_build_left_and_spares_what_is_being_built(cache: Path) -> None:
    (cache / ".dead-0123456789ab.partial").mkdir(parents=True)
    (cache / ".live-0123456789ab.partial").mkdir()
    locked, done = multiprocessing.Event(), multiprocessing.Event()

    def hold() -> None:
        with artifacts._lock("live"):
            locked.set()
            done.wait(10)

    holder = multiprocessing.get_context("fork").Process(target=hold)
    holder.start()
    locked.wait(10)
    artifacts.sweep()
    done.set()
    holder.join()

    assert [left.name for left in cache.glob("*.partial")] == [".live-0123456789ab.partial"]
