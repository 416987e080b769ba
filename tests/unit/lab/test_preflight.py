"""What a machine lacks is said before anything is changed, each with the next step."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from lab import preflight


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which everything is fine."""
    monkeypatch.setattr(preflight.platform, "system", lambda: "Linux")
    monkeypatch.setattr(preflight.os, "geteuid", lambda: 0)
    monkeypatch.setattr(preflight.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: SimpleNamespace(free=100 * 2**30))
    monkeypatch.setattr(preflight, "CACHE", tmp_path / "not-there-yet")
    monkeypatch.setattr(preflight, "_memory_gib", lambda: 16.0)
    monkeypatch.setattr(preflight, "missing", lambda: ["podman"])


def test_a_machine_that_can_carry_the_lab_is_not_refused() -> None:
    assert preflight.refusals() == []


def test_another_system_is_refused_without_looking_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.platform, "system", lambda: "Darwin")

    assert preflight.refusals() == ["the lab needs Linux, this is Darwin: run it on a Linux machine or a virtual one"]


def test_one_who_is_not_root_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.os, "geteuid", lambda: 1000)

    (reason,) = preflight.refusals()
    assert "needs root" in reason
    assert "sudo" in reason


def test_no_podman_and_no_apt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.shutil, "which", lambda _: None)

    (reason,) = preflight.refusals()
    assert reason.startswith("podman not found, and no apt-get")


def test_too_little_disk_is_refused_with_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: SimpleNamespace(free=3 * 2**30))

    (reason,) = preflight.refusals()
    assert reason.startswith("20 GiB of disk are needed")
    assert "3 are free" in reason


def test_a_full_cache_needs_no_room_for_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: SimpleNamespace(free=3 * 2**30))
    monkeypatch.setattr(preflight, "CACHE", tmp_path)

    assert preflight.refusals() == []


def test_too_little_memory_is_refused_with_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_memory_gib", lambda: 2.5)

    assert preflight.refusals() == ["6 GiB of memory are needed, 2.5 are available: stop what uses it"]


def test_all_that_is_wrong_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(preflight, "_memory_gib", lambda: 2.5)

    assert len(preflight.refusals()) == 2
