"""What the task files of apt get of a set of packages."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.apt.sources import AptSet, Pin

SET = AptSet(
    name="toolkit",
    url="https://x",
    suite="/",
    key_url="https://x/key",
    fingerprint="AB",
    packages=("a", "b"),
    version="1",
)


def test_a_pin_names_the_packages_unless_patterns_are_given() -> None:
    """apt rejects a pin without a package, and then reads no list at all."""
    assert SET.describe()["pinned"] == ["a", "b"]
    assert replace(SET, pinned=("libnvidia-*",)).describe()["pinned"] == ["libnvidia-*"]


def test_it_is_described_in_lists_and_maps_alone() -> None:
    described = replace(SET, also_pinned=(Pin(("c",), "2"),)).describe()
    assert described["also_pinned"] == [{"packages": ["c"], "version": "2"}]
    assert described["packages"] == ["a", "b"]
