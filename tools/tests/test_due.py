"""The weekly runs whose files have changed since they last passed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import due
import pytest
import yaml

RUN, OTHER = "true", "false"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs, one of which passes."""
    monkeypatch.setattr(due, "ROOT", tmp_path)
    monkeypatch.setattr(due, "TABLE", tmp_path / "due.yml")
    (tmp_path / "due.yml").write_text(yaml.safe_dump({RUN: {"files": ["a"]}, OTHER: {"files": ["b"]}}, sort_keys=False))
    git(tmp_path, "init", "--quiet")
    commit(tmp_path, "a")
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True)


def commit(folder: Path, name: str) -> None:
    (folder / name).write_text(f"{(folder / name).exists()}")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "change")


def test_each_weekly_run_has_files_that_exist() -> None:
    assert list(due.table()) == due.runs()
    tracked = due.git("ls-files").splitlines()
    for run, row in due.table().items():
        assert row["files"], run
        for path in row["files"]:
            assert any(name == path or name.startswith(f"{path}/") for name in tracked), path


def test_a_run_is_due_until_it_passes_and_after_its_files_change(checkout: Path) -> None:
    assert [*due.lines()] == [f"due   {run}: no pass is recorded" for run in (RUN, OTHER)]
    assert due.main([RUN]) == 0
    assert due.main([OTHER]) == 2, "the record is not committed"
    commit(checkout, "c")
    assert due.main([OTHER]) == 1
    assert [line[:4] for line in due.lines()] == ["    ", "due "]
    commit(checkout, "a")
    assert next(iter(due.lines())).endswith("1 commits since changed its files")


def test_an_unknown_run_is_named(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert due.main(["make nothing"]) == 2
    assert "'make nothing' is not a run" in capsys.readouterr().err
