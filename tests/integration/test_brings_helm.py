"""A single playbook on a controller without helm: it installs helm, and verifies its checksum."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chart_site import Site
from control_plane import running

# Of each playbook the part that installs one chart, and the release that is there then. Autoscaling needs no chart, and
# there is no Prometheus to create an autoscaler on.
PARTS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "gpu": ("nvidia_device_plugin_install", ["nvidia-device-plugin"], {}),
    "monitoring": ("dcgm_exporter_install", ["dcgm-exporter"], {}),
    "autoscaling": (
        "all",
        [],
        {"gpu_autoscaling_state": "absent", "gpu_autoscaling_autoscalers": [{"namespace": "default", "name": "none"}]},
    ),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running(tmp_path_factory.mktemp("control-plane")) as plane:
        site = Site(tmp_path_factory.mktemp("site"), *plane)
        yield site
        site.stop()


@pytest.fixture(scope="module")
def digits(site: Site) -> dict[str, Any]:
    """The archive of the mirror in place of the pinned one, which is another build."""
    return {"kubegpu_versions_override": {"archives": {"helm": {"sha256": {"linux-amd64": site.mirror_helm()}}}}}


@pytest.mark.parametrize("playbook", PARTS)
def test_a_playbook_alone_brings_helm_if_it_installs_a_chart(
    tmp_path: Path, site: Site, digits: dict[str, Any], playbook: str
) -> None:
    tag, releases, options = PARTS[playbook]
    options = {**digits, **options, "kubegpu_helm_folder": str(tmp_path / "kubegpu")}
    done = site.play(f"kubegpu.autoscale.{playbook}", "--tags", tag, **options)
    assert done.returncode == 0
    brought = [path.name for path in (tmp_path / "kubegpu").glob("*")]
    assert [name[:6] for name in brought] == ["helm-v"] * len(releases)
    assert set(releases) <= set(site.helm("list", "--all-namespaces", "--short").split())


def test_an_archive_with_other_digits_is_refused(tmp_path: Path, site: Site, digits: dict[str, Any]) -> None:
    folder = tmp_path / "kubegpu"
    done = site.play("kubegpu.autoscale.gpu", kubegpu_helm_folder=str(folder))
    said = " ".join(done.stdout.split())
    assert done.returncode == 2
    assert "The checksum for" in said
    assert "Nothing was changed. Next: `curl -I http://127.0.0.1" in said
    assert not folder.exists()
