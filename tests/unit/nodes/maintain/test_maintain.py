"""What is due on a node, and which kernel it does not reboot into."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.survey.host import Host
from planned import HOST, plan_of, said

FACTS: dict[str, Any] = {
    "gpus": [{"pci_address": "0000:01:00.0", "generation": "ada", "mig_capable": False, "bound_driver": "nvidia"}],
    "driver_flavour": "open",
    "driver_branch_max": None,
    "nvswitches": [],
    "fabric_manager_needed": False,
    "nvlsm_needed": False,
    "secure_boot": False,
    "driver_version_loaded": "580.95.05",
    "driver_version_installed": "580.95.05",
    "driver_origin": "package",
    "driver_problem": "",
    "reboot_reason": "",
    "kernel_pending": None,
    "next_boot_problem": "",
}
PENDING = {"kernel_pending": "6.1.0-41-amd64"}
NODE = replace(HOST, clusters=("/etc/kubernetes/kubelet.conf",))


def plan(host: Host = NODE, facts: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    given = {"gpu_facts": FACTS | (facts or {}), "in_cluster": True}
    return plan_of("maintain", given | more, host)


def test_nothing_is_due_on_a_node_that_is_up_to_date() -> None:
    made = plan()

    assert (made["due"], made["refused"], made["broken"]) == ([], [], [])
    assert not made["steps"]["maintain"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"runtime": True}, "containerd or the container toolkit has a newer release"),
        (
            {"upgrades": said("Inst linux-image-amd64 [6.1.1] (6.1.2 Debian)", "Conf x")},
            "apt has newer linux-image-amd64",
        ),
        ({"facts": PENDING}, "kernel 6.1.0-41-amd64 is installed, 6.1.0-40-amd64 runs"),
        ({"reboot_required": {"stat": {"exists": True}}}, "/run/reboot-required exists"),
        ({"facts": {"reboot_reason": "driver 570 is loaded, but 580 is installed"}}, "driver 570 is loaded"),
        ({"marked": True}, "an earlier run has not returned it to service"),
    ],
)
def test_what_is_due_is_named(given: dict[str, Any], words: str) -> None:
    made = plan(**given)

    assert made["steps"]["maintain"]
    assert [due for due in made["due"] if words in due]


def test_kernels_follow_their_meta_packages() -> None:
    rows = [
        *("linux-image-generic-hwe-24.04 installed", "linux-headers-generic-hwe-24.04 installed"),
        *("linux-generic-hwe-24.04 installed", "linux-modules-nvidia-580-server-open-generic installed"),
        *("linux-image-6.8.0-45-generic installed", "linux-headers-6.8.0-45 installed"),
        *("linux-firmware installed", "linux-libc-dev installed", "linux-image-amd64 config-files"),
    ]

    assert plan(packages=said(*rows))["packages"]["kernel"] == [
        "linux-image-generic-hwe-24.04",
        "linux-headers-generic-hwe-24.04",
        "linux-generic-hwe-24.04",
        "linux-modules-nvidia-580-server-open-generic",
    ]


def test_a_node_does_not_reboot_into_a_kernel_without_the_module() -> None:
    problem = "kernel 6.1.0-41-amd64 boots next, and driver 580.95.05 has no module for it"

    [broken] = plan(facts=PENDING | {"next_boot_problem": problem})["broken"]

    assert problem in broken
    assert "It stays cordoned" in broken
    assert "apt-get install linux-headers-6.1.0-41-amd64" in broken


def booted(image: float, boot: int, reboot_required: dict[str, Any] | None = None, **facts: Any) -> dict[str, Any]:
    text = b64encode(f"cpu 1 2\nbtime {boot}\nprocesses 3\n".encode()).decode()
    read = {"image": {"stat": {"exists": True, "ctime": image}}, "boot": {"content": text}}
    return plan(facts=PENDING | facts, reboot_required=reboot_required or {}, **read)


def test_a_node_does_not_reboot_again_for_a_kernel_that_the_boot_loader_skips() -> None:
    """GRUB_DEFAULT on an older kernel: each run would drain and reboot every node, and never come to an end."""
    made = booted(1000.5, 2000, next_boot_problem="no module")
    assert (made["due"], made["broken"]) == ([], [])
    assert not made["reboot"]["required"]
    assert not made["steps"]["maintain"]
    [notice] = made["notices"]
    assert "6.1.0-41-amd64 is installed, and the boot loader started 6.1.0-40-amd64" in notice
    assert "GRUB_DEFAULT" in notice


REASONS: dict[str, dict[str, Any]] = {
    "none": {},
    "a file of the system": {"reboot_required": {"stat": {"exists": True}}},
    "a driver that is not loaded": {"reboot_reason": "driver 570 is loaded, but 580 is installed"},
}


@pytest.mark.parametrize("is_skipped", [True, False], ids=["skipped", "next"])
@pytest.mark.parametrize("problem", ["", "no module"])
@pytest.mark.parametrize("reason", REASONS)
def test_no_reason_reboots_a_node_into_a_kernel_without_the_module(reason: str, problem: str, is_skipped: bool) -> None:
    """The boot loader may start the kernel that it skipped before: GRUB_DEFAULT may have been corrected since."""
    made = booted(1000.5 if is_skipped else 3000.5, 2000, next_boot_problem=problem, **REASONS[reason])
    assert made["reboot"]["required"] is (reason != "none" or not is_skipped)
    assert bool(made["broken"]) is (made["reboot"]["required"] and bool(problem))


@pytest.mark.parametrize(("image", "boot"), [(3000.5, 2000), (0, 2000), (1000.5, 0)])
def test_a_kernel_that_came_after_the_boot_is_due(image: float, boot: int) -> None:
    made = booted(image, boot)
    assert made["reboot"]["required"]
    assert made["notices"] == []


def test_a_server_that_cannot_be_drained_is_not_maintained() -> None:
    assert "it is no node of the cluster" in plan(in_cluster=False)["refused"][0]


def test_the_machine_that_ansible_runs_on_does_not_reboot() -> None:
    assert "a playbook does not reboot its own machine" in plan(replace(NODE, is_local=True), PENDING)["refused"][0]
    assert plan(replace(NODE, is_local=True))["refused"] == []
