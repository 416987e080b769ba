"""What `make demo` says before, between and after its steps, and what its picture shows of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab import demo
from lab.load.recording import shown

MAKEFILE = (Path(__file__).parents[3] / "Makefile").read_text()
STEPS = (*demo.FIRST, demo.SECOND[""])


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that prints its target, and fails for the one in the file `fails`. No demo has run in its folder."""
    program = tmp_path / "make"
    program.write_text('#!/bin/sh\necho "output of $2"\ngrep -qsx "$2" fails && exit 3 || exit 0\n')
    program.chmod(0o755)
    monkeypatch.setenv("MAKE", str(program))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["demo", *arguments])
    demo.main()


@pytest.mark.parametrize("step", [*demo.FIRST, *demo.SECOND.values()], ids=lambda step: step.target)
def test_each_step_is_a_target(step: demo.Step) -> None:
    assert re.search(rf"^{step.target}:", MAKEFILE, re.MULTILINE)


def test_each_step_prints_what_it_does_and_its_seconds(
    make: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, "keda")
    run(monkeypatch)

    first, second = capfd.readouterr().out.split("make demo: from bare")[1:]
    assert "The first run takes" in first
    assert "output of demo-adapter" in first
    assert "The first run takes" in second, "it was a run with other steps"
    for number, step in enumerate(STEPS, 1):
        place = rf"\[{number}/4\] {step.title}"
        assert re.search(rf"^{place}: {step.does}\noutput of {step.target}\n{place}: 0:00$", second, re.MULTILINE)
    run(monkeypatch)
    assert "The last run took 0:00" in capfd.readouterr().out


def test_it_ends_with_the_step_that_fails(
    make: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (make / "fails").write_text("demo-load\n")
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch)

    assert ended.value.code == 3
    *_, last = capfd.readouterr().out.strip().splitlines()
    assert last == "[3/4] load step: failed after 0:00. Log: build/ansible.log. Next: make demo-load"
    assert not demo.SECONDS.exists()


def test_the_picture_has_the_site_and_the_last_load_step(
    make: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch)
    picture = shown(capfd.readouterr().out)

    assert [line for line in picture if line.startswith("output of")] == [
        "output of demo-site",
        "output of demo-demand",
    ]
    left_out = [line for line in picture if line.startswith("…")]
    assert [line.partition(": ")[0] for line in left_out] == ["… 4 lines", "… 4 lines"]
    assert picture[0] == "$ make demo"
