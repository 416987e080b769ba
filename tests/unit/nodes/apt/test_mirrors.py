"""Addresses of repositories and mirrors."""

from __future__ import annotations

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.apt.mirrors import hostname, mirrored


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://Mirror.example:5000/images", "mirror.example"),
        ("http://user:word@mirror.example/apt", "mirror.example"),
        ("http://[fd00::1]:8080/apt", "fd00::1"),
        ("http://10.0.0.1", "10.0.0.1"),
        ("https://mirror.example?path", "mirror.example"),
        ("file:/srv/apt", ""),
        ("", ""),
    ],
)
def test_a_proxy_is_named_by_host(address: str, host: str) -> None:
    assert hostname(address) == host


@pytest.mark.parametrize("mirror", ["http://mirror:8080/apt", "http://mirror:8080/apt/"])
def test_a_mirror_has_upstreams_host_as_its_first_folder(mirror: str) -> None:
    assert mirrored("https://pkgs.example/core:/deb", mirror) == "http://mirror:8080/apt/pkgs.example/core:/deb"
    assert mirrored("https://pkgs.example", "") == "https://pkgs.example"
    assert mirrored("", mirror) == ""
