"""Artifacts are built once, whole or not at all."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest

from lab import artifacts, programs
from lab.artifacts import Artifact, BuildError, Shell
from lab.progress import next_steps


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


UNREACHABLE = "ERROR: HTTPSConnectionPool(host='index.example'): Max retries exceeded\nERROR: nothing found"


def test_a_command_that_the_build_reads_itself_tells_its_reason() -> None:
    def fail(out: Path, run: Shell) -> None:
        script = ["sh", "-c", 'echo "$SAID" >&2; exit 3']
        subprocess.run(script, env={"SAID": UNREACHABLE}, check=True, capture_output=True, text=True)

    with pytest.raises(BuildError, match=r"^sh ended with 3: ERROR: nothing found$"):
        Artifact("a", fail).make()
    log = Artifact("a", fail).log.read_text()
    assert UNREACHABLE in log
    assert next_steps(log.splitlines())


@pytest.mark.parametrize(
    ("cores", "memory_gib", "at_once"), [(2, 6.0, 2), (2, 24.0, 2), (16, 16.0, 13), (16, 128.0, 16), (8, 2.0, 1)]
)
def test_as_many_packages_are_compiled_at_once_as_memory_allows(cores: int, memory_gib: float, at_once: int) -> None:
    assert programs.at_once(cores, memory_gib) == at_once


def test_a_go_that_cannot_be_had_tells_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").write_text(f'#!/bin/sh\necho "{UNREACHABLE}" >&2\nexit 1\n')
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(programs.shutil, "which", lambda _: None)

    with pytest.raises(BuildError, match=r"python ended with 1: ERROR: nothing found$"):
        Artifact("a", lambda out, run: run(programs.go.__wrapped__(), "version")).make()


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
