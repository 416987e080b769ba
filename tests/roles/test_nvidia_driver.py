"""The role's tasks read what the planner needs, and stop on its errors. tests/unit/nodes has the plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from driver_machines import B200, H100, L4, NVSWITCH, V100, Machine, plan, play

UBUNTU = Machine(system="Ubuntu 24.04", kernel="6.8.0-79-generic")
PREBUILT = {"nvidia_driver_source": "ubuntu_prebuilt"}
AT_590 = {"nvidia_driver_version": "590.0.1-*"}
OLDER = ("libnvidia-ml1 install installed 570.172.08-1",)

# Of each reason to ask a program, or not to, and of each end.
PLAYED = {
    "nothing refused": Machine(devices=(H100, NVSWITCH)),
    "prebuilt": replace(UBUNTU, kernel="6.8.0-1036-aws", options=PREBUILT),
    "to another set": replace(
        UBUNTU, installed=("nvidia-dkms-580-open install installed 580.178.04-0ubuntu1",), options=PREBUILT
    ),
    "all at once": Machine(
        devices=(V100,),
        secure_boot=True,
        installed=("nvidia-driver-cuda hold installed 570.172.08-1",),
        options=AT_590,
    ),
    "without contrib": Machine(components=("main", "non-free-firmware")),
    "with an enrolled key": Machine(secure_boot=True, enrolled=True),
    "with a driver in use": Machine(secure_boot=True, loaded="570.172.08", installed=OLDER),
    "under pods, by a text": Machine(
        loaded="570.172.08", installed=OLDER, member=True, options={"nvidia_driver_reboot_ok": "false"}
    ),
    "an existing driver": Machine(loaded="570.172.08", options={"nvidia_driver_state": "existing"}),
    "on the way out": Machine(installed=OLDER, options={"nvidia_driver_state": "absent"}),
    "without a GPU": Machine(devices=(), secure_boot=True, installed=OLDER),
    "with options of its own": Machine(
        devices=(B200,),
        options={
            "nvidia_driver_packages": "nvidia-driver-cuda,nvidia-open",
            "nvidia_driver_kernel_headers": [],
            "nvidia_driver_version": 590,
        },
    ),
}
UNKNOWN = Machine(system="Rocky 9.4")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What one play makes of PLAYED and UNKNOWN."""
    folder = tmp_path_factory.mktemp("played")
    return play(folder, {host(name): machine for name, machine in [*PLAYED.items(), ("unknown", UNKNOWN)]})


def host(name: str) -> str:
    return name.replace(" ", "-").replace(",", "")


@pytest.mark.parametrize("name", PLAYED)
def test_the_tasks_read_what_the_plan_needs(played: dict[str, dict[str, Any]], tmp_path: Path, name: str) -> None:
    expected = plan(tmp_path / host(name), replace(PLAYED[name], local=True))
    made = played[host(name)]

    assert {key: made["plan"][key] for key in expected} == expected
    assert made["refusal"] == "\n".join(expected["refused"])


def test_a_system_that_nobody_tested_is_refused(played: dict[str, dict[str, Any]]) -> None:
    assert "runs Rocky 9, which is not supported" in played["unknown"]["refusal"]
    assert played["unknown"]["plan"] == {}


SHOWN = "00000000:00:00.0, {}, {}"
RELEASE = "570.172.08"
EXISTING = Machine(
    loaded=RELEASE, options={"nvidia_driver_state": "existing"}, shows=[SHOWN.format(RELEASE, "Disabled")]
)
INSTALLED = Machine(
    loaded=RELEASE,
    installed=OLDER,
    shows=[SHOWN.format(RELEASE, "Enabled")],
    options={"nvidia_driver_version": RELEASE},
)
# Machines whose driver is verified: with the words that end the role, if it fails.
VERIFIED = {
    "an existing driver": (EXISTING, ""),
    "an existing driver with older libraries": (
        replace(EXISTING, shows=[SHOWN.format("570.1.1", "Enabled")]),
        "driver_existing_unusable",
    ),
    "a driver in use": (INSTALLED, ""),
    "a GPU that is not shown": (replace(INSTALLED, devices=(L4, L4)), "driver_gpus_not_shown"),
    "a driver that is not kept loaded": (
        replace(INSTALLED, shows=[SHOWN.format(RELEASE, "Disabled")]),
        "driver_not_persistent",
    ),
    "a driver that waits for a reboot": (replace(INSTALLED, loaded="560.1.1", shows=["no answer"]), ""),
    "no GPU": (Machine(devices=()), ""),
}


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    machines = {host(name): machine for name, (machine, _words) in VERIFIED.items()}
    return play(tmp_path_factory.mktemp("verified"), machines, "--tags", "nvidia_driver_verify", tasks="main")


@pytest.mark.parametrize("name", VERIFIED)
def test_a_driver_is_judged_by_what_it_shows(verified: dict[str, dict[str, Any]], name: str) -> None:
    machine, words = VERIFIED[name]
    seen = verified[host(name)]

    assert words in seen["refusal"], seen["refusal"]
    assert bool(seen["refusal"]) is bool(words)
    assert seen["reboot"] == (False if machine == EXISTING else None)


MODULES = "linux-modules-nvidia-580-server-open-generic install installed 6.8.0-79.79"
LIBRARIES = ("libnvidia-compute", "libnvidia-cfg1", "nvidia-compute-utils", "nvidia-utils")
CHECKED = {
    "a driver that is there": replace(
        UBUNTU,
        installed=(
            MODULES,
            "nvidia-modprobe install installed 580.1.1-0ubuntu1",
            *(f"{name}-580-server install installed 580.1.1-0ubuntu0.24.04.1" for name in LIBRARIES),
        ),
        options=PREBUILT,
    ),
    "an upgrade": replace(
        UBUNTU,
        installed=(MODULES, "libnvidia-compute-570-server install installed 570.172.08-0ubuntu0.24.04.1"),
        options=PREBUILT,
    ),
    "on the way out": replace(UBUNTU, installed=OLDER, loaded=RELEASE, options={"nvidia_driver_state": "absent"}),
}


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    machines = {host(name): machine for name, machine in CHECKED.items()}
    return play(
        tmp_path_factory.mktemp("checked"), machines, "--check", "--diff",
        "--tags", "nvidia_driver_install,nvidia_driver_remove", tasks="main",
    )  # fmt: skip


@pytest.mark.parametrize("name", CHECKED)
def test_check_mode_comes_to_the_end(checked: dict[str, dict[str, Any]], name: str) -> None:
    seen = checked[host(name)]

    assert seen["refusal"] == ""
    assert seen["reboot"] == (False if name == "on the way out" else None)
