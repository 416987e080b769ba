"""Machines for the role nvidia_driver: what Ansible, PCI, firmware, dpkg and mokutil say, and what is planned for them.

A machine is a folder, which gpu_facts and server_info read as it is. Programs answer as `Machine` says: in `play` they
are scripts in the path of the role's own tasks. For `plan` their words are handed to the planner.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.survey.host import Host
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.gpu_node import GpuNode
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.host import read_host
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.machine import read_gpu_node
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.pci import NVIDIA, PciDevice
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from planned import plan_of

from lab.versions import versions

L4, H100, B200, V100, K80 = "10de:27b8", "10de:2330", "10de:2901", "10de:1db1", "10de:102d"
NVSWITCH, BRIDGE = "10de:22a3", "15b3:1021"  # the bridge is a ConnectX that manages switches of NVLink 5
RUBIN, LOST = "10de:3fff", "10de:????"  # newer than the table counts as its newest; one that fell off the bus
MUTE = "15b3:1023"  # a ConnectX that cannot be asked
CLASSES = {NVSWITCH: "0x068000", BRIDGE: "0x020700", MUTE: "0x020700"}
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

FACTS = (
    "distribution",
    "distribution_version",
    "distribution_major_version",
    "architecture",
    "kernel",
    "hostname",
    "user_uid",
    "user_id",
    "gpu_facts",
)


NOW = 1795737600  # 27 November 2026, for the ends of driver branches


@dataclass(frozen=True)
class Machine:
    """One server.

    system:    distribution and version.
    devices:   PCI functions, `vendor:device`.
    bound:     kernel driver that holds them; empty for none.
    installed: packages, `name wish state version` each.
    loaded:    release of the loaded driver; empty for none.
    enrolled:  whether the firmware knows the key that DKMS signs with.
    options:   the role's variables.
    components: those of the distribution that apt uses.
    member:    whether it is a node, by the file `sign`.
    local:     whether Ansible runs on it.
    shows:     nvidia-smi's lines.
    device_files: in /dev; none where nobody looks there.
    compiler:  of the running kernel, as Ubuntu's names it; empty where it names none.
    """

    system: str = "Debian 12"
    kernel: str = "6.1.0-40-amd64"
    devices: Sequence[str] = (L4,)
    bound: str = ""
    installed: Sequence[str] = ()
    loaded: str = ""
    secure_boot: bool | None = None
    enrolled: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    components: Sequence[str] = (
        *("main", "contrib", "non-free", "non-free-firmware"),
        *("restricted", "universe", "multiverse"),
    )
    member: bool = False
    sign: str = "etc/kubernetes/kubelet.conf"
    local: bool = False
    shows: Sequence[str] = ()
    device_files: Sequence[str] = ()
    compiler: str = ""


def plan(folder: Path, machine: Machine, **survey: Any) -> dict[str, Any]:
    """What is planned for a machine after all questions that the role asks. survey: what its tasks read besides."""
    facts = _facts(folder, machine)
    words = _words(machine)
    read = {"gpu_facts": facts["gpu_facts"], "packages": words["dpkg-query"]}
    host = Host(
        name=folder.name,
        system=machine.system,
        kernel=machine.kernel,
        architecture="x86_64",
        is_local=machine.local,
        clusters=tuple(read_host(folder / "root")[0]["clusters"]),
        now=NOW,
    )
    made = _plan(host, machine, read)
    if made["steps"]["ask_components"]:
        survey["components"] = [words["apt-get"]]
    if made["steps"]["ask_key"]:
        survey["key_test"] = words["mokutil"]
    return _plan(host, machine, read | survey) if survey else made


def _plan(host: Host, machine: Machine, survey: Mapping[str, Any]) -> dict[str, Any]:
    return plan_of("nvidia_driver", survey, host, nvlsm_version=versions()["packages"]["nvlsm"], **machine.options)


def play(
    folder: Path, machines: Mapping[str, Machine], *flags: str, tasks: str = "preflight"
) -> dict[str, dict[str, Any]]:
    """Run tasks of the role for all machines. Returns by the machine's name its plan, refusal and returned facts."""
    hosts = {name: machine_host(folder / name, machine) for name, machine in machines.items()}
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    (folder / "play.yml").write_text(json.dumps([_play(tasks)]))
    settings = {"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH}
    done = ansible_playbook("-i", "hosts.json", "play.yml", "--forks", "2", *flags, cwd=folder, env=settings)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, dict[str, Any]] = json.loads((folder / "seen.json").read_text())
    return found


def machine_host(folder: Path, machine: Machine) -> dict[str, Any]:
    facts = _facts(folder, machine)
    programs = folder / "bin"
    programs.mkdir()
    for name, said in _words(machine).items():
        (programs / name).write_text(_program(name, said["stdout"]))
        (programs / name).chmod(0o755)
    return {
        "ansible_connection": "local",
        "machine_facts": facts,
        "_common_gpu_facts": {},
        "_common_server": {"result": read_host(folder / "root")[0]},
        "machine_folder": str(folder),
        **machine.options,
    }


def node_facts(gpus: int, **facts: Any) -> dict[str, Any]:
    """gpu_facts of a node with GPUs of one kind."""
    devices = tuple(PciDevice(f"0000:{slot:02x}:00.0", NVIDIA, 0x2330, 0x0302, driver="nvidia") for slot in range(gpus))
    return GpuNode(devices=devices).facts() | facts


# What else a plan reads of a host, as facts of Ansible.
DEBIAN = {
    "distribution": "Debian",
    "distribution_version": "12.11",
    "distribution_major_version": "12",
    "architecture": "x86_64",
    "kernel": "6.1.0-40-amd64",
}
BARE: dict[str, Any] = {"result": {"clusters": [], "runtimes": [], "apt_sources": []}}


def _program(name: str, said: str) -> str:
    """A script that answers. Of dpkg the role _common asks for name, version and state alone."""
    short = "awk 'NF { print $1 \"=\" $4, $3 }'" if name == "dpkg-query" else "cat"
    choice = f"case $* in *Want*) form=cat ;; *) form={shlex.quote(short)} ;; esac"
    return f"#!/bin/sh\n{choice}\neval $form <<'END'\n{said}\nEND\n"


def _words(machine: Machine) -> dict[str, dict[str, Any]]:
    """What each program says, as the result of a command."""
    lines = {
        "dpkg-query": machine.installed,
        "mokutil": [f"{{}} is {'already' if machine.enrolled else 'not'} enrolled"],
        "apt-get": [f"{machine.system.partition(' ')[0]}/{component}" for component in machine.components],
        "nvidia-smi": machine.shows,
    }
    return {name: {"rc": 0, "stdout": "\n".join(said), "stdout_lines": list(said)} for name, said in lines.items()}


def machine_facts(folder: Path, machine: Machine) -> dict[str, Any]:
    """gpu_facts of a machine."""
    found: dict[str, Any] = _facts(folder, machine)["gpu_facts"]
    return found


def _facts(folder: Path, machine: Machine) -> dict[str, Any]:
    """Those of FACTS, of a machine whose files are in the folder, or are written to it."""
    if not (folder / "root").exists():
        _write(folder / "root", machine)
    distribution, _, version = machine.system.partition(" ")
    release = version.partition(".")[0]
    found = read_gpu_node(folder / "root").facts()
    values = (distribution, version, release, "x86_64", machine.kernel, folder.name, 0, "root", found)
    return dict(zip(FACTS, values, strict=True))


def _write(root: Path, machine: Machine) -> None:
    for slot, device in enumerate(machine.devices):
        pci = root / "sys" / "bus" / "pci" / "devices" / f"0000:{slot:02x}:00.0"
        pci.mkdir(parents=True)
        vendor, _, number = device.partition(":")
        attributes = {"vendor": f"0x{vendor}", "device": f"0x{number}", "class": CLASSES.get(device, "0x030200")}
        for name, text in attributes.items():
            (pci / name).write_text(f"{text}\n")
        if machine.bound:
            (pci / "driver").symlink_to(f"../../../bus/pci/drivers/{machine.bound}")
        if device == BRIDGE:
            (pci / "vpd").write_text("SW_MNG")
        if device == MUTE:
            (pci / "vpd").mkdir()
    for name in machine.device_files:
        (root / "dev").mkdir(exist_ok=True)
        (root / "dev" / name).touch()
    status = root / "var" / "lib" / "dpkg" / "status"
    status.parent.mkdir(parents=True)
    status.write_text("".join(_status(row) for row in machine.installed))
    if machine.compiler:
        (root / "proc").mkdir(exist_ok=True)
        built_by = f"x86_64-linux-gnu-{machine.compiler} (Ubuntu 12.3.0)"
        (root / "proc" / "version").write_text(f"Linux version 6.8.0 ({built_by}")
    if machine.loaded:
        version = root / "proc" / "driver" / "nvidia" / "version"
        version.parent.mkdir(parents=True)
        version.write_text(
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {machine.loaded}  Release Build\n"
        )
    if machine.member:
        sign = root / machine.sign
        sign.parent.mkdir(parents=True, exist_ok=True)
        sign.touch()
    if machine.secure_boot is not None:
        variable = root / SECURE_BOOT
        variable.parent.mkdir(parents=True)
        variable.write_bytes(b"\x06\0\0\0" + bytes([machine.secure_boot]))


def _status(row: str) -> str:
    """dpkg-query also has rows of packages that others only name."""
    name, _, state, *version = row.split()
    return "".join(
        f"Package: {name.partition(':')[0]}\nStatus: install ok {state}\nArchitecture: amd64\nVersion: {number}\n\n"
        for number in version
    )


def _play(tasks: str) -> dict[str, Any]:
    role = {"name": "kubegpu.autoscale.nvidia_driver", "tasks_from": tasks, "public": True}
    return {
        # With a filter and a test: so Ansible loads all there are once, not in each process of a task.
        "hosts": "{{ 'all' | string if 'all' is string else '' }}",
        "gather_facts": False,
        "module_defaults": {"kubegpu.autoscale.gpu_facts": {"root": "{{ machine_folder }}/root"}},
        "environment": {"PATH": "{{ machine_folder }}/bin:{{ lookup('ansible.builtin.env', 'PATH') }}"},
        "tasks": [
            {
                "ansible.builtin.set_fact": {name: f"{{{{ machine_facts.{name} }}}}" for name in FACTS}
                | {"cacheable": True},
                "tags": ["always"],
            },
            {
                "block": [{"ansible.builtin.include_role": role, "tags": ["always"]}, _remember("''")],
                "rescue": [_remember("ansible_failed_result.msg")],
            },
            {
                "ansible.builtin.copy": {
                    "content": "{{ dict(play | zip(play | map('extract', hostvars, 'seen'))) | to_json }}",
                    "dest": "{{ playbook_dir }}/seen.json",
                    "mode": "0600",
                },
                "vars": {"play": "{{ ansible_play_hosts }}"},
                "run_once": True,
                "check_mode": False,
                "tags": ["always"],
            },
        ],
    }


def _remember(refusal: str) -> dict[str, Any]:
    """A task that keeps why the role stopped, and its plan as far as there is one."""
    reboot = "nvidia_driver_reboot_required | default(none)"
    seen = f"{{'refusal': {refusal}, 'plan': __nvidia_driver_plan | default({{}}), 'reboot': {reboot}}}"
    return {"ansible.builtin.set_fact": {"seen": f"{{{{ {seen} }}}}"}, "tags": ["always"]}
