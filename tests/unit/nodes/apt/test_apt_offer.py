"""What a server reports of packages that apt will not find."""

from __future__ import annotations

from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.apt.checks import OFFER
from planned import plan_of, unseen

URI = "https://download.example/linux"
KEY = {"key_url": f"{URI}/gpg", "fingerprint": "ABC"}
PATHS = dict.fromkeys(("key", "source", "pin", "before", "config", "needrestart"), "/etc/apt/kubegpu-%s")
DOCKER = {"name": "docker", "url": URI, "suite": "bookworm", "components": "stable", **KEY}
BRINGS = {
    "containerd": [{**DOCKER, "packages": ["containerd.io"], "version": "2"}],
    "kubernetes": [
        {
            "name": "kubernetes",
            "url": URI,
            **KEY,
            "suite": "/",
            "packages": ["kubelet", "kubeadm"],
            "version": "1.*",
            "extra": ["iptables"],
            "hosts": ["cdn"],
        }
    ],
    "nvidia_driver": [],
}


PLANS = {role: {"refused": [], "packages": {"sources": sets}} for role, sets in BRINGS.items()}


def plan(
    *missing: dict[str, Any], failures: tuple[str, ...] = (), plans: dict[str, Any] = PLANS, **options: Any
) -> dict[str, Any]:
    answer = {"result": {"missing": [*missing], "failures": [*failures]}} if missing else {}
    return plan_of("_common.apt_offer", {"plans": plans, "paths": PATHS, "answer": answer}, **options)


def row(package: str, *offered: str, role: str = "containerd", uri: str = URI) -> dict[str, Any]:
    return {"repository": role, "uri": uri, "package": package, "offered": [*offered]}


def test_apt_is_asked_for_all_that_roles_install() -> None:
    containerd, kubernetes = plan(apt_mirror="http://mirror/apt")["repositories"]

    assert containerd == {
        "name": "containerd",
        "uri": "http://mirror/apt/download.example/linux",
        "suite": "bookworm",
        "components": "stable",
        "packages": ["containerd.io=2"],
        "hosts": [],
    }
    assert kubernetes["packages"] == ["kubelet=1.*", "kubeadm=1.*", "iptables"]
    assert (kubernetes["components"], kubernetes["hosts"], kubernetes["uri"]) == (
        "",
        ["cdn"],
        "http://mirror/apt/download.example/linux",
    )
    assert plan()["repositories"][0]["uri"] == URI


def test_nothing_is_asked_if_nothing_is_installed() -> None:
    assert not plan(plans={"nvidia_driver": PLANS["nvidia_driver"]})["steps"]["ask"]
    assert not plan(plans={"nvidia_driver": {}, "kubernetes": {"skipped": True}})["steps"]["ask"], "no plan was made"
    assert plan()["steps"]["ask"]
    assert plan()["refused"] == []


def test_versions_that_there_are_are_named() -> None:
    [refusal] = plan(row("containerd.io=2", "2.3-1", "2.2-1"))["refused"]

    assert f"gpu1 would get containerd.io=2 from {URI}, and apt finds 2.3-1, 2.2-1 there. Cause" in refusal
    assert "Next: set containerd_version to an available version" in refusal


def test_a_repository_that_cannot_be_read_is_named_with_apts_error() -> None:
    error = f"Failed to fetch {URI}/InRelease 404"
    [refusal] = plan(row("a=1"), row("b=1"), failures=(error, "https://other.example"))["refused"]

    assert f"would get a=1, b=1 from {URI}, and apt finds none of that name there ({error}). Cause" in refusal
    assert "`curl -I` that address" in refusal


def test_headers_that_are_gone_are_not_expected_in_the_drivers_repository() -> None:
    [refusal] = plan(row("linux-headers-6.1.0-1", role="nvidia_driver"))["refused"]

    assert "gpu1 would get linux-headers-6.1.0-1, and none of its own repositories has it." in refusal
    assert "curl" not in refusal


def test_a_role_that_fails_anyway_reports_nothing_more() -> None:
    plans = PLANS | {"containerd": {**PLANS["containerd"], "refused": ["it is not managed by this collection"]}}
    [refusal] = plan(row("a"), row("b", role="kubernetes"), plans=plans)["refused"]
    assert "kubernetes_version" in refusal


def test_each_finding_happens() -> None:
    rows = (row("linux-headers-1"), row("a", "2"), row("b", role="kubernetes", uri=""))
    assert unseen(OFFER, plan(*rows)["refused"]) == []
    assert "from its repositories" in plan(rows[-1])["refused"][0]
