"""What is written, installed and removed for a set of packages from one repository."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha1
from pathlib import PurePosixPath
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.apt.checks import REPOSITORY
from planned import entry, plan_of, said, unseen

URL = "https://download.example/linux/debian"
SET = {
    "name": "docker",
    "url": URL,
    "suite": "bookworm",
    "components": "stable",
    "packages": ["containerd.io"],
    "version": "2.1-*",
    "fingerprint": "ABC",
    "key_url": f"{URL}/gpg",
}
PATHS = {
    "key": "/etc/apt/keyrings/kubegpu-docker.asc",
    "source": "/etc/apt/sources.list.d/kubegpu-docker.sources",
    "pin": "/etc/apt/preferences.d/kubegpu-docker.pref",
    "before": "/etc/apt/kubegpu-docker.before",
    "config": "/etc/apt/apt.conf.d/60kubegpu-docker.conf",
    "needrestart": "/etc/needrestart/conf.d/kubegpu-docker.conf",
}
INDEX = "/var/lib/apt/lists/download.example_linux_debian_dists_bookworm_InRelease"
MIRROR = {"apt_mirror": "http://mirror:8080/apt/", "apt_mirror_key": "a key"}


def plan(survey: dict[str, Any] | None = None, apt: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    return plan_of("_common.apt", {"set": SET | (apt or {}), "paths": PATHS, **(survey or {})}, **options)


def contents(**options: Any) -> dict[str, str]:
    """What is written on a bare server, by the ending of the file."""
    return {PurePosixPath(file["path"]).suffix: file["content"] for file in plan(**options)["files"]["differing"]}


def configured(**options: Any) -> list[dict[str, Any]]:
    """Files of a server that is as it should be."""
    files = plan(**options)["files"]["differing"]
    return [*(entry(file["path"], file["content"], file["mode"]) for file in files), entry(PATHS["key"]), entry(INDEX)]


def source(*components: str, **fields: str) -> dict[str, Any]:
    """An existing source of the repository."""
    return {
        "uri": URL,
        "suite": "bookworm",
        "file": "/etc/apt/sources.list.d/docker.list",
        "components": [*components],
    } | fields


def test_the_source_trusts_one_key() -> None:
    assert contents()[".sources"].splitlines() == [
        "# Written by kubegpu.autoscale. Key: ABC",
        "Types: deb",
        f"URIs: {URL}",
        "Suites: bookworm",
        "Components: stable",
        f"Signed-By: {PATHS['key']}",
    ]


def test_a_flat_repository_has_no_components() -> None:
    flat = {"suite": "/", "components": ""}
    assert "Components" not in contents(apt=flat)[".sources"]
    assert plan(apt=flat, **MIRROR)["key"]["url"].endswith("/linux/debian/InRelease")


def test_a_mirror_has_the_host_in_its_path_and_a_key_of_its_own() -> None:
    text = contents(**MIRROR)[".sources"]

    assert "URIs: http://mirror:8080/apt/download.example/linux/debian\n" in text
    assert f"Key: {sha1(b'a key').hexdigest()}\n" in text
    assert plan(**MIRROR)["key"]["url"] == (
        "http://mirror:8080/apt/download.example/linux/debian/dists/bookworm/InRelease"
    )
    assert plan()["key"] == {"url": f"{URL}/gpg", "fingerprint": "ABC"}


def test_a_set_of_the_distribution_is_pinned_alone() -> None:
    made = plan(apt={"url": ""})

    assert [*contents(apt={"url": ""})] == [".pref"]
    assert not made["steps"]["bring_key"]
    assert made["steps"]["install"]


def test_the_whole_set_is_pinned() -> None:
    pins = [{"packages": ["runc", "cri-tools"], "version": "1.*"}]
    text = contents(apt={"also_pinned": pins, "pinned": ["containerd*"]})[".pref"]

    assert text.split("\n", 1)[1] == (
        "Package: containerd*\nPin: version 2.1-*\nPin-Priority: 1000\n\n"
        "Package: runc cri-tools\nPin: version 1.*\nPin-Priority: 1000\n"
    )
    assert "Package: containerd.io\n" in contents()[".pref"]


@pytest.mark.parametrize(("proxy", "mode"), [("http://proxy:1", "0644"), ("http://user:word@proxy:1", "0600")])
def test_a_proxy_is_for_the_hosts_of_the_repository(proxy: str, mode: str) -> None:
    """apt asks by each host's name, also by those that it is sent to."""
    hosts = {"hosts": ["cdn.example"]}
    [file] = [
        file for file in plan(apt=hosts, apt_proxy=proxy)["files"]["differing"] if file["path"] == PATHS["config"]
    ]

    for host in ("download.example", "cdn.example"):
        for scheme in ("http", "https"):
            assert f'Acquire::{scheme}::Proxy::{host} "{proxy}";\n' in file["content"]
    assert (file["mode"], file["validate"]) == (mode, "apt-config --config-file %s dump")
    assert contents(apt={"url": ""}, apt_proxy=proxy).keys() == {".pref"}


def test_unattended_upgrades_leave_the_set_alone() -> None:
    text = contents(apt={"unattended": ["^containerd", "runc"]})[".conf"]
    assert 'Package-Blacklist {\n    "^containerd";\n    "runc";\n};\n' in text


@pytest.mark.parametrize("options", [{}, {"apt": {"unattended": ["x"]}, "proxy": "http://a:b@p"}], ids=["plain", "all"])
def test_what_is_there_as_it_should_be_is_not_written(options: dict[str, Any]) -> None:
    files = configured(**options)
    made = plan({"found": {"files": files}}, **options)

    assert made["files"]["differing"] == []
    assert not any(made["steps"][step] for step in ("write", "bring_key", "update_cache", "source_is_new"))
    for needed in (PATHS["source"], PATHS["key"], INDEX):
        partly = plan({"found": {"files": [file for file in files if file["path"] != needed]}}, **options)
        assert partly["steps"]["bring_key"], needed
        assert partly["steps"]["update_cache"] or partly["steps"]["write"], needed


def test_a_file_that_is_no_longer_wanted_goes() -> None:
    made = plan({"found": {"files": [*configured(), entry(PATHS["config"])]}})
    assert (made["files"]["unwanted"], made["steps"]["write"]) == ([PATHS["config"]], True)


def test_an_existing_source_is_used_if_it_is_complete() -> None:
    made = plan({"sources": [source("edge", "stable")], "found": {"files": [entry(PATHS["source"])]}})

    assert made["refused"] == []
    assert [file["path"] for file in made["files"]["differing"]] == [PATHS["pin"]]
    assert made["files"]["unwanted"] == [PATHS["source"]]
    assert not made["steps"]["bring_key"]


@pytest.mark.parametrize("change", [{"suite": "trixie"}, {"uri": "https://other.example"}, {"file": PATHS["source"]}])
def test_a_source_of_something_else_does_not_count(change: dict[str, str]) -> None:
    made = plan({"sources": [source("test", **change)]})
    assert (made["refused"], made["steps"]["bring_key"]) == ([], True)


def test_a_source_that_lacks_a_component_is_not_configured_again() -> None:
    [refusal] = plan({"sources": [source("test")]})["refused"]

    seen = f"apt: gpu1 has {URL} bookworm in /etc/apt/sources.list.d/docker.list, without the component stable."
    assert refusal.startswith(seen)
    assert "Nothing was changed. Next: on the node: add the component stable to" in refusal
    assert unseen(REPOSITORY, [refusal]) == []


ASKED = {"packages": ["containerd.io", "runc"], "extra": ["iptables", "nvlsm=1.2-*"]}
# dpkg's rows, and what is missing.
ROWS: dict[str, tuple[list[str], list[str]]] = {
    "none": ([], ["containerd.io=2.1-*", "runc=2.1-*", "iptables", "nvlsm=1.2-*"]),
    "all": (
        ["containerd.io=2.1-3 installed", "runc=2.1-1 installed", "iptables=1 installed", "nvlsm=1.2-9 installed"],
        [],
    ),
    "another version": (
        ["containerd.io=2.0-1 installed", "runc=2.1-1 installed", "iptables=1 installed", "nvlsm=1.3-1 installed"],
        ["containerd.io=2.1-*", "nvlsm=1.2-*"],
    ),
    "removed": (
        [
            "containerd.io=2.1-1 config-files",
            "runc=2.1-1 installed",
            "iptables= not-installed",
            "nvlsm=1.2-1 installed",
        ],
        ["containerd.io=2.1-*", "iptables"],
    ),
    "longer names": (
        ["containerd.io=2.1-1 installed", "runc=2.1-1 installed", "iptables-dev=1 installed", "nvlsm=1.2-1 installed"],
        ["iptables"],
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_dpkg_does_not_have_so_is_installed(name: str) -> None:
    rows, missing = ROWS[name]
    made = plan({"packages": said(*rows, rc=1)}, apt=ASKED)

    assert made["packages"]["missing"] == missing
    assert made["packages"]["asked"] == ["containerd.io=2.1-*", "runc=2.1-*", "iptables", "nvlsm=1.2-*"]
    assert made["steps"]["install"] is bool(missing)


@pytest.mark.parametrize(
    ("check", "rows", "is_known", "installs", "pretends"),
    [
        (False, [], False, True, False),
        (True, [], False, False, True),
        (True, [], True, True, True),
        (True, ["containerd.io=2.0-1 installed"], True, True, False),
        (True, ["containerd.io=2.1-1 config-files"], True, True, True),
        (True, ["containerd.io=2.1-1 installed"], True, False, False),
    ],
)
def test_check_mode_asks_apt_only_for_what_it_knows(
    check: bool, rows: list[str], is_known: bool, installs: bool, pretends: bool
) -> None:
    found = {"files": configured() if is_known else []}
    made = plan({"found": found, "packages": said(*rows), "check_mode": check})["steps"]
    assert (made["install"], made["pretend"]) == (installs, pretends)


PINNED = {"pinned": ["libnvidia-*", "cuda-drivers"], "also_pinned": [{"packages": ["nvlsm"], "version": "1"}]}
THERE = said(
    "libnvidia-ml1=570 installed", "nvlsm=1 installed", "cuda-drivers=1 config-files", "linux-headers=6 installed"
)


def test_what_is_installed_before_the_pin_is_recorded() -> None:
    """At the first run alone: later, what is there belongs to the set."""
    record = plan({"packages": THERE}, apt=PINNED)["files"]["record"]

    assert record.splitlines()[1:] == ["libnvidia-ml1", "nvlsm"]
    assert plan({"packages": THERE, "found": {"files": [entry(PATHS["pin"])]}}, apt=PINNED)["files"]["record"] == ""
    assert plan({"packages": said("linux-headers=6 installed")}, apt=PINNED)["files"]["record"] == ""


@pytest.mark.parametrize(
    ("pinned", "before", "purged", "kept"),
    [
        (True, "", ["a", "b"], []),
        (True, "# Written\nb\nc\n", ["a"], ["b"]),
        (False, "b\n", [], []),
        (True, "a\nb\n", [], ["a", "b"]),
    ],
)
def test_only_what_the_set_has_installed_is_purged(
    pinned: bool, before: str, purged: list[str], kept: list[str]
) -> None:
    survey = {"pin": {"exists": pinned}, "before": {"content": b64encode(before.encode()).decode()}}
    made = plan(survey, apt={"packages": ["a", "b"]})["packages"]
    assert (made["purged"], made["kept"]) == (purged, kept)


def complete(installed: str = "containerd.io=2.1-5", files: list[dict[str, Any]] | None = None) -> list[Any]:
    """The sets of which a server has all, by what was read of all sets at the start of a run."""
    answer = {
        "missing": [],
        "failures": [],
        "installed": [installed],
        "files": configured() if files is None else files,
    }
    params = {
        "plans": {"containerd": {"refused": [], "packages": {"sources": [SET]}}},
        "paths": {use: path.replace("docker", "%s") for use, path in PATHS.items()},
        "answer": {"result": answer},
    }
    return plan_of("_common.apt_offer", params)["complete"]


def test_a_set_of_which_a_server_has_all_is_not_read_again() -> None:
    [known] = complete()

    assert known["set"] == SET
    steps = plan({"found": {"files": configured()}, "packages": said("containerd.io=2.1-5 installed")})["steps"]
    assert known["plan"]["steps"] == steps
    assert not any(steps.values())


@pytest.mark.parametrize("missing", [*PATHS.values(), INDEX])
def test_a_set_with_a_missing_file_is_not_complete(missing: str) -> None:
    files = [file for file in configured() if file["path"] != missing]
    assert bool(complete(files=files)) is (len(files) == len(configured())), "a file that the set does not have"


@pytest.mark.parametrize("installed", ["containerd.io=2.2.0-1", "containerd=2.1-5"])
def test_a_set_without_its_packages_is_not_complete(installed: str) -> None:
    assert complete(installed) == []


def test_a_changed_file_is_not_complete() -> None:
    assert complete(files=[entry(file["path"], "changed") for file in configured()]) == []
