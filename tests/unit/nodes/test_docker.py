"""What the role docker does, and how the runtime nvidia gets into Docker's settings."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.docker import with_runtime
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.checks.docker import AFTER, BEFORE, DAEMON
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.docker_plan import (
    DOCKER,
    DOCKER_DAEMON,
    docker_daemon_plan,
    docker_plan,
)
from driver_machines import node_facts
from planned import planned, said, unseen

from lab.versions import versions

PIN = {**versions(), "packages": {**versions()["packages"], "docker-ce": "5:28.1.1-*"}}
NEWER, OLDER = "5:29.0.0-1~debian.12~bookworm", "5:27.5.1-1~debian.12~bookworm"
SAME = "5:28.1.1-2~debian.12~bookworm"  # a later build, or one of the pattern


def plan(survey: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    given = {"state": "present", "versions": PIN, "verify_container": True, **options}
    return planned(docker_plan, DOCKER, {"options": given, "survey": survey or {}})


def installed(version: str, name: str = "docker-ce", state: str = "installed") -> dict[str, Any]:
    return {"packages": said(f"{name} {state} {version}", rc=1)}


def test_both_packages_come_at_one_version() -> None:
    [source] = plan()["packages"]["sources"]

    assert (source["packages"], source["version"]) == (["docker-ce", "docker-ce-cli"], "5:28.1.1-*")
    assert source["url"] == "https://download.docker.com/linux/debian"


@pytest.mark.parametrize("is_there", [True, False])
def test_the_repository_has_one_source(is_there: bool) -> None:
    """apt rejects two of one repository with different keys."""
    apt = plan({"source": {"exists": is_there}})["packages"]["apt"]
    assert (apt["name"], apt["url"] == "") == ("docker-ce", is_there)


@pytest.mark.parametrize("state", ["existing", "absent"])
def test_nothing_comes_that_is_not_asked_for(state: str) -> None:
    made = plan(installed("1", "docker.io"), state=state)
    assert (made["refused"], made["packages"]["sources"], made["steps"]["install"]) == ([], [], False)
    assert made["steps"]["remove"] is (state == "absent")


def test_a_newer_release_is_not_brought_down() -> None:
    [refusal] = plan(installed(NEWER))["refused"]

    assert f"gpu1 has docker-ce {NEWER}, newer than 5:28.1.1-* of the version file" in refusal
    assert (
        'Nothing was changed. Next: set docker_version: "5:29.0.0-*" to keep it, or docker_version: "5:28.1.1-*"'
        in refusal
    )


ALLOWED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "asked for": (installed(NEWER), {"version": "5:28.1.1-*"}),
    "older": (installed(OLDER), {}),
    "same": (installed(SAME), {}),
    "removed": (installed(NEWER, state="config-files"), {}),
    "a whole branch": (installed(NEWER), {"versions": {**PIN, "packages": {"docker-ce": "5:29.*"}}}),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_asked_for_and_what_goes_up_comes(name: str) -> None:
    survey, options = ALLOWED[name]
    assert plan(survey, **options)["refused"] == []


def test_a_version_may_be_a_number() -> None:
    assert plan(version=29.1)["packages"]["apt"]["version"] == "29.1"


@pytest.mark.parametrize(("state", "refused"), [("installed", 1), ("config-files", 0)])
@pytest.mark.parametrize("name", ["docker.io", "docker-cli", "podman-docker"])
def test_a_docker_of_the_distribution_is_not_replaced(name: str, state: str, refused: int) -> None:
    sentences = plan(installed("20.10", name, state))["refused"]
    assert [f"has a Docker that is not managed by this collection ({name})" in text for text in sentences] == [
        True
    ] * refused


@pytest.mark.parametrize(("state", "ids"), [("present", ["DOCKER_OTHER_INSTALLED"]), ("existing", [])])
def test_the_doctor_gets_what_keeps_docker_from_its_installation(state: str, ids: list[str]) -> None:
    found = plan(installed("20.10", "docker.io"), state=state)
    assert (found["hop"], [finding["id"] for finding in found["findings"]]) == ("runtime", ids)


USABLE: dict[str, Any] = {
    "gpu_facts": node_facts(2, driver_version_loaded="580.1"),
    "runtimes": ["containerd", "docker"],
}
GUESTS = USABLE["gpu_facts"] | {"gpus": [gpu | {"bound_driver": "vfio-pci"} for gpu in USABLE["gpu_facts"]["gpus"]]}
# What is read or set, and whether nvidia-smi runs in a container.
RUNS: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "GPUs that can be used": (USABLE, {}, True),
    "left out": (USABLE, {"verify_container": "false"}, False),
    "an existing Docker": (USABLE, {"state": "existing"}, False),
    "no runtime of Docker": (USABLE | {"runtimes": ["containerd"]}, {}, False),
    "the operator's toolkit": (USABLE | {"operator_roles": ["nvidia_container_toolkit"]}, {}, False),
    "no driver": (USABLE | {"gpu_facts": node_facts(2, driver_version_loaded=None)}, {}, False),
    "a reboot is due": (
        USABLE | {"gpu_facts": USABLE["gpu_facts"] | {"reboot_reason": "nouveau is loaded"}},
        {},
        False,
    ),
    "GPUs of virtual machines": (USABLE | {"gpu_facts": GUESTS}, {}, False),
    "no GPU": (USABLE | {"gpu_facts": node_facts(0, driver_version_loaded="580.1")}, {}, False),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_container_is_run_where_it_can_see_a_gpu(name: str) -> None:
    survey, options, runs = RUNS[name]
    assert plan(survey, **options)["steps"]["run_container"] is runs


@pytest.mark.parametrize(("shown", "fits"), [(2, True), (1, False), (3, False)])
def test_a_container_sees_all_gpus(shown: int, fits: bool) -> None:
    result = {"gpus": [{}] * shown, "output": "no devices"}
    broken = plan(USABLE | {"shown": {"result": result}})["broken"]

    assert [f"showed {shown} of 2 GPUs: no devices" in sentence for sentence in broken] == [True] * (not fits)


PATH = "/etc/docker/daemon.json"
RUNTIME = ("nvidia", "/usr/bin/nvidia-container-runtime")
EXISTING = '{\n  "log-driver": "journald"\n}\n'
OURS = with_runtime("", *RUNTIME)


def daemon(text: str | None, **more: Any) -> dict[str, Any]:
    """For a server with these settings. more: what else is read, or options."""
    read = {} if text is None else {"file": {"exists": True, "uid": 7, "gid": 8, "mode": "0600"}}
    given = {"state": "present", "default_runtime": False, "path": PATH}
    given |= {name: value for name, value in more.items() if name in given}
    survey = read | {"text": {"content": b64encode((text or "").encode()).decode()}}
    survey |= {name: value for name, value in more.items() if name not in given}
    return planned(docker_daemon_plan, DOCKER_DAEMON, {"options": given, "survey": survey})


def test_settings_are_merged_with_owner_and_mode_as_they_were() -> None:
    made = daemon(EXISTING, has_docker=True)
    file = made["files"]["daemon"]

    assert json.loads(file["content"]) == {
        "log-driver": "journald",
        "runtimes": {"nvidia": {"path": RUNTIME[1], "args": []}},
    }
    assert [file[name] for name in ("owner", "group", "mode")] == ["7", "8", "0600"]
    assert file["validate"].startswith("dockerd --validate")
    assert made["steps"] == {"make_folder": False, "forget": False, "write": True, "remove": False}


def test_without_a_docker_there_is_nothing_to_validate_by() -> None:
    made = daemon(None)
    file = made["files"]["daemon"]

    assert [file[name] for name in ("owner", "group", "mode", "validate")] == ["root", "root", "0644", ""]
    assert made["steps"] == {"make_folder": True, "forget": False, "write": True, "remove": False}


@pytest.mark.parametrize(("text", "state"), [(OURS, "present"), (EXISTING, "absent"), (None, "absent")])
def test_what_is_as_it_should_be_is_left(text: str | None, state: str) -> None:
    assert not any(daemon(text, state=state, runs=True)["steps"].values())


@pytest.mark.parametrize(
    ("text", "write", "remove"), [(OURS, False, True), (with_runtime(EXISTING, *RUNTIME), True, False)]
)
@pytest.mark.parametrize("runs", [True, False])
def test_a_docker_that_runs_is_told_what_goes(text: str, write: bool, remove: bool, runs: bool) -> None:
    made = daemon(text, state="absent", runs=runs)

    assert made["steps"] == {"make_folder": False, "forget": runs, "write": write, "remove": remove}
    assert made["forgotten"] == ({"default": "", "runtime": "nvidia"} if runs else {"default": "", "runtime": ""})


@pytest.mark.parametrize("asked", ["false", True])
def test_the_default_runtime_is_one_if_it_is_asked_for(asked: Any) -> None:
    made = daemon(with_runtime("", *RUNTIME, default=True), default_runtime=asked, runs=True)

    assert made["steps"]["write"] is (asked == "false")
    assert made["forgotten"] == {"default": "runc" if asked == "false" else "", "runtime": ""}


UNMERGEABLE = {
    "no JSON": ('{"log-driver": }\n', False, "Expecting value"),
    "no table": ("[]", False, "it is not an object with settings"),
    "another default": ('{"default-runtime": "kata"}\n', True, "its default-runtime is kata"),
}


@pytest.mark.parametrize("name", UNMERGEABLE)
@pytest.mark.parametrize("runs", [True, False])
def test_settings_that_cannot_be_merged_are_left(name: str, runs: bool) -> None:
    """Docker does not start with what is half written."""
    text, default, reason = UNMERGEABLE[name]
    made = daemon(text, default_runtime=default, runs=runs)

    assert f"runtime: gpu1 has {PATH}, into which the runtime nvidia cannot be merged: {reason}" in made["refused"][0]
    assert not any(made["steps"].values())


def test_each_finding_happens() -> None:
    sentences = [
        *plan(installed("1", "docker.io"))["refused"],
        *plan(installed(NEWER))["refused"],
        *plan(USABLE | {"shown": {"result": {"gpus": [], "output": ""}}})["broken"],
        *daemon("[]")["refused"],
    ]
    assert unseen((*BEFORE, *AFTER, *DAEMON), sentences) == []
