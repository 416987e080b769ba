"""A lab server in the hands of its owner: playbooks are run on it, cards are put in, it reboots."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from testinfra.host import Host

SCENARIO = Path(os.environ["MOLECULE_SCENARIO_DIRECTORY"])
EPHEMERAL = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
PLAYBOOKS = SCENARIO.parents[1] / "playbooks"
PLAY = (Path(sys.executable).with_name("ansible-playbook"), "-i", EPHEMERAL / "inventory")
ENVIRONMENT = os.environ | {"ANSIBLE_FORCE_COLOR": "false", "ANSIBLE_NOCOLOR": "true", "ANSIBLE_PIPELINING": "true"}
# Settings of molecule/base.yml that a user does not have.
CHECKOUT_SETTINGS = {"ANSIBLE_CONFIG", "ANSIBLE_STDOUT_CALLBACK", "ANSIBLE_LOG_PATH"}
USER_ENVIRONMENT = {name: value for name, value in ENVIRONMENT.items() if name not in CHECKOUT_SETTINGS}
SYSTEM = os.environ.get("LAB_SYSTEM") or "debian-12"
VERSIONS = yaml.safe_load((SCENARIO.parents[1] / "roles/_common/defaults/main/versions.yml").read_text())
TASK = ("TASK [", "RUNNING HANDLER [")  # how a line begins that announces one
NVSWITCH = {"vendor": "0x10de", "device": "0x22a3", "class": "0x068000"}
B200 = {"vendor": "0x10de", "device": "0x2901", "class": "0x030200"}
L4 = {"vendor": "0x10de", "device": "0x27b8", "class": "0x030200"}
# A ConnectX that manages the switches of NVLink 5.
BRIDGE = {"vendor": "0x15b3", "device": "0x1021", "class": "0x020700", "vpd": "SW_MNG"}


def pinned(name: str, system: str = "") -> str:
    """Upstream's part of a package's pin; `system`, debian-13 for instance, may have its own."""
    versions = VERSIONS["kubegpu_pinned_versions"]
    own = {key.lower().replace(" ", "-"): pins for key, pins in versions["packages_by_system"].items()}
    return (own.get(system, {}).get(name) or versions["packages"][name]).partition("-")[0]


@dataclass(frozen=True)
class Run:
    """One run of ansible-playbook. `returned` is what the play kept of the role's facts, if it succeeded and did."""

    succeeded: bool
    changed: int
    output: str
    returned: dict[str, Any]

    @property
    def text(self) -> str:
        """The output without its line breaks: messages are wrapped."""
        return re.sub(r"\s+", " ", self.output).replace("''", "'")


def run(playbook: Path, *flags: str, **variables: Any) -> Run:
    """Run a playbook on the scenario's servers."""
    returned = EPHEMERAL / "returned.json"
    command = [*PLAY, playbook, "--extra-vars", json.dumps(variables), *flags]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    print(done.stdout, done.stderr)  # pytest shows it when the test fails
    return Run(
        succeeded=done.returncode == 0,
        changed=sum(int(count) for count in re.findall(r"\bchanged=(\d+)", done.stdout)),
        output=done.stdout,
        returned=json.loads(returned.read_text()) if done.returncode == 0 and returned.exists() else {},
    )


def kill(playbook: Path, *, changes: int) -> str:
    """Run a playbook until so many tasks have reported a change, then kill it with all that it started.

    Returns number and name of the last of them. Raises AssertionError when the run ends before.
    """
    tasks = [""]
    changed: set[int] = set()
    with subprocess.Popen([*PLAY, playbook], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as play:
        assert play.stdout
        while len(changed) < changes:
            line = play.stdout.readline()
            assert line, f"ended in {tasks[-1]}"
            tasks += [line] if line.startswith(TASK) else []
            changed |= {len(tasks)} if line.startswith("changed: ") else set()
        for process in [play.pid, *_descendants(play.pid)]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    print("killed at", len(tasks), tasks[-1])
    return f"{len(tasks)} {tasks[-1]}"


def _descendants(process: int) -> list[int]:
    found = subprocess.run(["pgrep", "--parent", str(process)], capture_output=True, text=True).stdout
    return [descendant for child in found.split() for descendant in (int(child), *_descendants(int(child)))]


def driver_packages(host: Host) -> dict[str, str]:
    """Version of each installed package of the driver, whatever the system calls them."""
    rows = host.check_output(r"dpkg-query --show --showformat '${db:Status-Abbrev} ${Package} ${Version}\n'")
    return dict(re.findall(r"^.i +(\S*(?:nvidia|libcuda)\S*) (\d{3}\.\S+)", rows, re.MULTILINE))


class Server:
    """`name` is the host in the inventory, `container` podman's word for it."""

    def __init__(self, host: Host) -> None:
        variables = host.ansible.get_variables()
        self.host = host
        self.name = variables["inventory_hostname"]
        self.container = variables["ansible_host"]
        self.pci = Path(variables["ansible_podman_extra_args"]).with_suffix("") / "pci"

    def sh(self, command: str) -> str:
        """What a command prints. Raises AssertionError when it fails."""
        return self.host.check_output(command)

    @contextmanager
    def plugged(self, *cards: dict[str, str], instead: bool = False) -> Iterator[None]:
        """The server with these PCI functions beside its own, or instead of them."""
        own = [] if not instead else sorted(self.pci.iterdir())
        hidden = EPHEMERAL / "unplugged"
        hidden.mkdir(exist_ok=True)
        for device in own:
            device.rename(hidden / device.name)
        slots = [self.pci / f"0000:{0x80 + slot:02x}:00.0" for slot in range(len(cards))]
        for slot, card in zip(slots, cards, strict=True):
            slot.mkdir()
            for name, text in card.items():
                (slot / name).write_text(f"{text}\n")
        try:
            yield
        finally:
            for slot in slots:
                subprocess.run(["rm", "-r", slot], check=True)
            for device in own:
                (hidden / device.name).rename(device)

    @contextmanager
    def bootable(self) -> Iterator[list[str]]:
        """While this lasts, the server comes back when it shuts down. Gives the times at which it did."""
        networks = json.loads(_inspect(self.container, "{{json .NetworkSettings.Networks}}"))
        ((network, at),) = networks.items()
        shutdowns: list[str] = []
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.5):
                if _inspect(self.container, "{{.State.Status}}") == "exited":
                    shutdowns.append(_inspect(self.container, "{{.State.FinishedAt}}"))
                    _start(self.container, network, at["IPAddress"])

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield shutdowns
        finally:
            over.set()
            watcher.join()


def _start(container: str, network: str, address: str) -> None:
    """podman gives a container another address at each start unless it is told one."""
    for argv in (
        ("network", "disconnect", network, container),
        ("network", "connect", "--ip", address, network, container),
        ("start", container),
    ):
        subprocess.run(("podman", *argv), check=True, capture_output=True)


def _inspect(container: str, form: str) -> str:
    command = ("podman", "inspect", "--type", "container", "--format", form, container)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
