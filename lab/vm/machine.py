"""The virtual machine: with KVM if that boots Debian's kernel, otherwise emulated."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

DISKS = ("boot.img", "root.img", "swap.img")
MEMORY_MIB = {"kvm": 6144, "tcg": 1536}
# When emulated, a minimal processor boots fastest: no modules are loaded and tested for its features.
PROCESSOR = {"kvm": "host", "tcg": "Nehalem"}
# Seconds until ssh answers. Emulated on two idle cores it takes one minute; on a busy machine several.
BOOTS_WITHIN = {"kvm": 120, "tcg": 900}


class NoBoot(Exception):
    """The virtual machine did not start: the reason, with the end of its console."""


@dataclass(frozen=True)
class Machine:
    """A running machine. `acceleration` is kvm or tcg; ssh answers on `port` of this one."""

    acceleration: str
    port: int


@contextmanager
def booted(disks: Path, folder: Path) -> Iterator[Machine]:
    """Runs a machine on a copy of these disks; its console is written to `console` in the folder.

    Raises NoBoot.
    """
    ways = [way for way in ("kvm", "tcg") if way == "tcg" or os.access("/dev/kvm", os.W_OK)]
    for way in ways:
        port = _free_port()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with (
            (folder / "qemu.log").open("w") as log,
            subprocess.Popen(_qemu(way, disks, folder, port), stderr=log) as qemu,
        ):
            try:
                reason = _wait(qemu, port, folder, BOOTS_WITHIN[way])
                if not reason:
                    yield Machine(way, port)
                    return
            finally:
                qemu.kill()
        print(f"{way} does not boot Debian's kernel here: {reason}", flush=True)
    console = (folder / "console").read_text(errors="replace").splitlines()[-20:]
    raise NoBoot("\n".join(["the virtual machine did not come up; the end of its console:", *console]))


def _qemu(way: str, disks: Path, folder: Path, port: int) -> list[str]:
    cpus = min(os.cpu_count() or 1, 4) if way == "kvm" else 2
    return [
        "qemu-system-x86_64",
        *("-machine", f"q35,accel={way}", "-cpu", PROCESSOR[way], "-smp", str(cpus), "-m", str(MEMORY_MIB[way])),
        *("-display", "none", "-nodefaults", "-serial", f"file:{folder / 'console'}"),
        "-snapshot",  # its changes are discarded
        *(word for disk in DISKS for word in ("-drive", f"if=virtio,format=raw,file={disks / disk}")),
        *("-netdev", f"user,id=lan,hostfwd=tcp:127.0.0.1:{port}-:22", "-device", "virtio-net-pci,netdev=lan"),
    ]


def _wait(qemu: subprocess.Popen[bytes], port: int, folder: Path, seconds: int) -> str:
    """Wait until ssh answers. Returns why it does not, or an empty text."""
    console, errors = folder / "console", folder / "qemu.log"
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if qemu.poll() is not None:
            return f"qemu ended: {errors.read_text().strip()}"
        if failed := [line for line in errors.read_text().splitlines() if "internal error" in line]:
            return failed[0]
        if console.exists() and "You are in emergency mode" in console.read_text(errors="replace"):
            return "it booted into the emergency mode of systemd"
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                if connection.recv(4) == b"SSH-":
                    return ""
        except OSError:
            pass
        time.sleep(1)  # between two attempts
    return f"no ssh within {seconds} seconds"


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
