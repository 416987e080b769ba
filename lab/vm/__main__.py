"""`make test-vm`: tests what the roles do to a kernel, on a virtual machine over ssh, as a user with sudo.

kernel.yml runs only the parts of the roles that containers cannot test: emulated, Python takes 45 times as long.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import yaml

from lab.artifacts import CACHE, sweep
from lab.preflight import CHECKOUT
from lab.preflight import program as find
from lab.vm.image import USER, image
from lab.vm.machine import Machine, NoBoot, booted

PLAYBOOK = CHECKOUT / "lab" / "vm" / "kernel.yml"
PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "qemu-system-x86_64": "qemu-system-x86",
    "syslinux": "syslinux",
    "mcopy": "mtools",
    "mkfs.vfat": "dosfstools",
    "ssh": "openssh-client",
}


def inventory(machine: Machine, disks: Path) -> dict[str, object]:
    """The machine as a server of both groups, with the product's own defaults."""
    ssh = {
        "HostKeyAlias": "vm1",
        "UserKnownHostsFile": disks / "known_hosts",
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
        "ControlMaster": "auto",
        "ControlPersist": "10m",
    }
    host = {
        "ansible_host": "127.0.0.1",
        "ansible_port": machine.port,
        "ansible_user": USER,
        "ansible_ssh_private_key_file": str(disks / "key"),
        "ansible_ssh_args": " ".join(f"-o {name}={value}" for name, value in ssh.items()),
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_timeout": 120,
    }
    groups = {"kube_control_plane": {"hosts": {"vm1": host}}, "kube_node": {"hosts": {"vm1": None}}}
    return {"all": {"children": groups}}


def main() -> None:
    if absent := [package for program, package in PROGRAMS.items() if not find(program)]:
        sys.exit(
            f"test-vm: {', '.join(absent)} not found: `apt-get install --no-install-recommends {' '.join(absent)}`"
        )
    if os.geteuid():
        sys.exit("test-vm: the machine's disks are made by mmdebstrap, which needs root: run it with sudo or as root")
    disks = image()
    if not disks.is_built():
        print(f"  building {disks.name}, about {disks.expected} seconds", flush=True)
        sweep()
        disks.make()
    folder = CACHE / "labs" / f"{os.environ['LAB']}-vm"
    started = time.monotonic()
    try:
        with booted(disks.path, folder) as machine:
            print(f"up by {machine.acceleration} after {time.monotonic() - started:.0f} s", flush=True)
            hosts = folder / "hosts.yml"
            hosts.write_text(yaml.safe_dump(inventory(machine, disks.path)))
            play: list[str | Path] = [Path(sys.prefix) / "bin" / "ansible-playbook", "-i", hosts, PLAYBOOK]
            ended = subprocess.run([*play, *sys.argv[1:]], cwd=CHECKOUT)
    except NoBoot as failed:
        sys.exit(f"test-vm: {failed}")
    print(f"test-vm took {time.monotonic() - started:.0f} s; the machine's console: {folder / 'console'}")
    sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
