"""What the role nvidia_container_toolkit does: which release comes, and which devices a specification has to have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.survey.host import Host
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.toolkit.checks import AFTER, BEFORE
from driver_machines import node_facts
from planned import plan_of

from lab.versions import versions

PIN = versions()["packages"]["nvidia-container-toolkit"]
HOST = Host("gpu1", "Debian 12", "6.1.0-40-amd64", "x86_64")
LOADED = "580.178.04"


def plan(
    facts: dict[str, Any], survey: dict[str, Any] | None = None, host: Host = HOST, **options: Any
) -> dict[str, Any]:
    return plan_of("nvidia_container_toolkit", {"gpu_facts": facts, **(survey or {})}, host, **options)


def gpus(count: int, **facts: Any) -> dict[str, Any]:
    return node_facts(count, **{"driver_version_loaded": LOADED, **facts})


def said(*lines: str, rc: int = 0) -> dict[str, Any]:
    return {"rc": rc, "stdout": "\n".join(lines)}


def installed(version: str, state: str = "installed") -> dict[str, Any]:
    return {"installed": said(f"nvidia-container-toolkit-base {state} {version}")}


def devices(*names: str) -> dict[str, Any]:
    return said(*(f"nvidia.com/gpu={name}" for name in (*names, "all")))


def test_a_newer_release_is_not_brought_down() -> None:
    [refusal] = plan(gpus(1), installed("1.99.0-1"))["refused"]

    assert f"gpu1 has nvidia-container-toolkit-base 1.99.0-1, newer than {PIN} of the version file" in refusal
    assert 'Nothing was changed. Next: set nvidia_container_toolkit_version: "1.99.0-*" to keep it' in refusal


NEWER = {"installed": said("nvidia-container-toolkit-base installed 1.99.0-1")}
ALLOWED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "asked for": (NEWER, {"version": "1.18.0-1"}),
    "older": (installed("1.17.8-1"), {}),
    "same, a later build": (installed(PIN.partition("-")[0] + "-9"), {}),
    "removed": (installed("1.99.0-1", "config-files"), {}),
    "a whole branch": (NEWER, {"versions": {**versions(), "packages": {"nvidia-container-toolkit": "1.*"}}}),
    "on the way out": (NEWER, {"state": "absent"}),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_asked_for_and_what_goes_up_comes(name: str) -> None:
    survey, options = ALLOWED[name]
    assert plan(gpus(1), survey, **options)["refused"] == []


MEMBER = replace(HOST, clusters=("/etc/kubernetes/kubelet.conf",))


@pytest.mark.parametrize(
    ("host", "version", "options", "refused"),
    [
        (MEMBER, "1.17.8-1", {}, True),
        (MEMBER, "1.17.8-1", {"upgrade_ok": True}, False),
        (MEMBER, "1.17.8-1", {"version": "1.17.8-*"}, False),
        (MEMBER, PIN.partition("-")[0] + "-9", {}, False),
        (HOST, "1.17.8-1", {}, False),
    ],
)
def test_a_node_in_service_keeps_its_release(host: Host, version: str, options: dict[str, Any], refused: bool) -> None:
    made = plan(gpus(1), installed(version), host, **options)

    assert ["`ansible-playbook kubegpu.autoscale.maintain`" in text for text in made["refused"]] == [True] * refused
    assert made["steps"]["upgrade"] is (version == "1.17.8-1" and "version" not in options)


def test_without_a_gpu_nothing_comes() -> None:
    made = plan(gpus(0), NEWER)
    assert (made["refused"], made["packages"]["sources"], made["steps"]["install"]) == ([], [], False)


def test_four_packages_come_at_one_version() -> None:
    [source] = plan(gpus(1))["packages"]["sources"]

    assert source["version"] == PIN
    assert source["url"] == "https://nvidia.github.io/libnvidia-container/stable/deb/amd64"
    assert len(source["packages"]) == 4


@pytest.mark.parametrize(("default", "names_it"), [("false", False), (True, True)])
@pytest.mark.parametrize(
    ("version", "plugin"), [("2", "io.containerd.grpc.v1.cri"), ("3", "io.containerd.cri.v1.runtime")]
)
def test_containerd_gets_the_runtime_nvidia(default: Any, names_it: bool, version: str, plugin: str) -> None:
    made = plan(gpus(1), default_runtime=default, systemd_cgroup="false")["drop_in"]
    section = made["settings"][version]["plugins"][plugin]["containerd"]

    assert made["name"] == "20-kubegpu-nvidia.toml"
    assert section["runtimes"]["nvidia"] == {
        "runtime_type": "io.containerd.runc.v2",
        "options": {"BinaryName": "/usr/bin/nvidia-container-runtime", "SystemdCgroup": False},
    }
    assert section.get("default_runtime_name") == ("nvidia" if names_it else None)


@pytest.mark.parametrize("version", ["1.18", 1.18])
def test_a_version_may_be_a_number(version: str | float) -> None:
    assert plan(gpus(1), version=version)["packages"]["apt"]["version"] == "1.18"


@pytest.mark.parametrize(
    ("facts", "offers"),
    [
        (gpus(1), True),
        (gpus(1, driver_version_loaded=None), False),
        (gpus(1, reboot_reason="nouveau is loaded"), False),
        (gpus(0), False),
    ],
    ids=["a loaded driver", "none", "a reboot is due", "no GPU"],
)
def test_devices_are_offered_where_the_gpus_can_be_used(facts: dict[str, Any], offers: bool) -> None:
    assert plan(facts)["steps"]["offer_devices"] is offers


ONE_SPLIT = {
    "modes": said("0, [N/A]", "1, Enabled"),
    "listed": said("GPU 0: H100 (UUID: GPU-0)", "GPU 1: H100 (UUID: GPU-1)", "  MIG 1g.10gb     Device  0: (UUID: M)"),
}
ONE_BARE = {
    "modes": said("0, [N/A]", "1, Enabled"),
    "listed": said("GPU 0: H100 (UUID: GPU-0)", "GPU 1: H100 (UUID: GPU-1)"),
}
ALL_BARE = {"modes": said("0, Enabled", "1, Enabled"), "listed": ONE_BARE["listed"]}
SPEC = {"spec": {"matched": 1}}
# Survey; whether the specification is written; whether what it offers is what is to be offered.
SPECIFICATIONS: dict[str, tuple[dict[str, Any], bool, bool]] = {
    "none yet": ({"devices": devices()}, True, False),
    "of another driver": ({"devices": devices("0", "1")}, True, True),
    "whole": ({**SPEC, "devices": devices("0", "1")}, False, True),
    "a GPU too few": ({**SPEC, "devices": devices("0")}, True, False),
    "split": ({**SPEC, **ONE_SPLIT, "devices": devices("0", "1:0")}, False, True),
    "split since": ({**SPEC, **ONE_SPLIT, "devices": devices("0", "1")}, True, True),
    "a part more": ({**SPEC, **ONE_SPLIT, "devices": devices("0", "1:0", "1:1")}, True, True),
    "waiting for instances": ({**SPEC, **ONE_BARE, "devices": devices("0")}, False, True),
    "all waiting for instances": ({**ALL_BARE, "devices": devices()}, False, True),
    "modes that nobody tells": (
        {**SPEC, "modes": said(rc=9), "listed": said(rc=9), "devices": devices("0", "1")}, False, True
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_a_specification_is_written_when_it_does_not_fit(name: str) -> None:
    survey, writes, fits = SPECIFICATIONS[name]
    made = plan(gpus(2), survey)

    assert made["steps"]["write_spec"] is writes
    assert made["steps"]["read_modes_again"] is not fits
    assert (made["broken"] == []) is fits


@pytest.mark.parametrize(("capable", "reads"), [(True, True), (None, True), (False, False)])
def test_modes_are_read_where_a_gpu_may_be_split(capable: bool | None, reads: bool) -> None:
    """The GPUs are as many as before, so their number says nothing."""
    facts = gpus(1)
    facts["gpus"][0]["mig_capable"] = capable

    assert plan(facts, {"devices": devices("0")})["steps"]["read_modes"] is reads
    assert plan(facts, {"devices": devices()})["steps"]["read_modes"]


@pytest.mark.parametrize(
    ("options", "survey", "runs"),
    [
        ({}, {}, True),
        ({"verify_container": "false"}, {}, False),
        ({"runtimes": []}, {}, False),
        ({"runtimes": "containerd"}, {}, True),
        ({}, ALL_BARE, False),
    ],
)
def test_a_container_is_run_where_it_can_see_a_gpu(options: dict[str, Any], survey: dict[str, Any], runs: bool) -> None:
    """A text of the command line counts as what it says."""
    assert plan(gpus(2), survey, **options)["steps"]["run_container"] is runs


@pytest.mark.parametrize(("shown", "fits"), [(2, True), (1, True), (0, False)])
def test_a_container_sees_all_gpus_or_those_with_devices(shown: int, fits: bool) -> None:
    result = {"gpus": [{}] * shown, "output": "no devices"}
    broken = plan(gpus(2), {**SPEC, **ONE_BARE, "shown": {"result": result}})["broken"]

    assert [
        sentence for sentence in broken if "nvidia-smi in a container showed 0 of 2 GPUs: no devices" in sentence
    ] == broken
    assert bool(broken) is not fits


@pytest.mark.parametrize(
    ("names", "strategy", "told"),
    [(("0:0", "0:1"), "none", True), (("0:0", "0:1"), "mixed", False), (("0:0",), "", False), (("0",), "none", False)],
    ids=["instances", "offered as themselves", "left to the operator", "whole GPUs"],
)
def test_instances_that_pods_do_not_get_are_named(names: tuple[str, ...], strategy: str, told: bool) -> None:
    notices = plan(gpus(1), {"devices": devices(*names), "strategy": strategy})["notices"]

    assert ["migStrategy: mixed" in sentence for sentence in notices] == [True] * told


def test_each_finding_happens() -> None:
    sentences = [
        *plan(gpus(1), NEWER)["refused"],
        *plan(gpus(1), installed("1.17.8-1"), MEMBER)["refused"],
        *plan(gpus(1), {"devices": devices()})["broken"],
        *plan(gpus(1), {"devices": devices("0:0"), "strategy": "none"})["notices"],
        *plan(gpus(1), {"shown": {"result": {"gpus": [], "output": ""}}})["broken"],
    ]
    types = [kind for check in (*BEFORE, *AFTER) for kind in check.types]

    assert [kind.id for kind in types if not any(f"({kind.doc})" in sentence for sentence in sentences)] == []
    assert len(sentences) == len(types)
