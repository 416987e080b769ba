"""From where helm is installed, and by which checksum."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.filter.roles import helm_archive
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.helm import platform as helm_platform

PINNED = {"version": "v3.21.4", "sha256": {"linux-amd64": "ab12", "darwin-arm64": "cd34"}}
NEWER = {**PINNED, "version": "3.22.0"}
URL = "https://get.helm.sh/helm-v3.22.0-linux-amd64.tar.gz"


@pytest.mark.parametrize(
    ("uname", "expected"),
    [
        ("Linux x86_64\n", "linux-amd64"),
        ("Linux aarch64", "linux-arm64"),
        ("Darwin arm64", "darwin-arm64"),
        ("Linux ppc64le", "linux-ppc64le"),
    ],
)
def test_the_platform_has_the_name_that_helm_gives_it(uname: str, expected: str) -> None:
    assert helm_platform(uname) == expected


@pytest.mark.parametrize(
    ("pin", "platform", "checksum"),
    [
        (PINNED, "linux-amd64", "ab12"),
        (PINNED, "darwin-arm64", "cd34"),
        (PINNED, "linux-ppc64le", "https://get.helm.sh/helm-v3.21.4-linux-ppc64le.tar.gz.sha256sum"),
        (NEWER, "linux-amd64", f"{URL}.sha256sum"),
        ({**NEWER, "sha256": {"linux-amd64": "ef56"}}, "linux-amd64", "ef56"),
    ],
    ids=["the pin", "on another platform", "one without digits", "another version", "with its own digits"],
)
def test_digits_are_those_of_the_release(pin: dict[str, Any], platform: str, checksum: str) -> None:
    assert helm_archive(pin, PINNED, platform)["checksum"] == f"sha256:{checksum}"


@pytest.mark.parametrize("mirror", ["http://mirror/charts", "http://mirror/charts/"])
def test_the_mirror_has_the_host_as_its_first_folder(mirror: str) -> None:
    found = helm_archive(NEWER, PINNED, "linux-amd64", mirror)
    assert found["url"] == "http://mirror/charts/get.helm.sh/helm-v3.22.0-linux-amd64.tar.gz"
    assert found["name"] == "helm-v3.22.0-linux-amd64.tar.gz"
