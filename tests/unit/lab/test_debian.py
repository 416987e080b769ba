"""A program that Debian compiled is of the release that it is called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.artifacts import BuildError
from lab.debian import check_release


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package, as a dpkg-deb that is before all others in the path shows it: prometheus, with Debian's suffixes."""
    (tmp_path / "dpkg-deb").write_text("#!/bin/sh\nprintf 'prometheus 3.5.0+ds~rc1'\n")
    (tmp_path / "dpkg-deb").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "prometheus_3.5.0+ds~rc1-2_amd64.deb"


@pytest.mark.parametrize("wanted", [{"prometheus": "3.5.0"}, {"prometheus": ""}, {"promtool": "3.4.0"}, {}], ids=str)
def test_the_release_of_the_version_file_is_taken(archive: Path, wanted: dict[str, str]) -> None:
    check_release(archive, wanted, "forky")


def test_another_release_is_refused_with_the_next_step(archive: Path) -> None:
    with pytest.raises(
        BuildError, match=r"prometheus in Debian forky is 3\.5\.0 now, .* says 3\.4\.2\. Next: write 3\.5\.0 "
    ):
        check_release(archive, {"prometheus": "3.4.2"}, "forky")
