"""Servers that have to reboot do so at the same time, with any number of forks. Each is a folder of this machine."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH

# A server that reboots: it is silent until its boot is over, and has another boot ID then.
CONNECTION = """
import time
from pathlib import Path
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.local import Connection as Local, DOCUMENTATION

DOCUMENTATION = DOCUMENTATION.replace("name: local", "name: played")

class Connection(Local):
    transport = "played"

    def exec_command(self, cmd, in_data=None, sudoable=True):
        folder = Path(self._play_context.remote_addr)
        if "boot_id" in cmd:
            began = (folder / "began")
            if not began.exists():
                return 0, b"first", b""
            passed = time.time() - float(began.read_text())
            if passed < BOOT_S:
                raise AnsibleConnectionFailure("it boots")
            return 0, b"second", b""
        if "shutdown" in cmd and "-r" in cmd:
            if not STUCK in str(folder):
                (folder / "began").write_text(str(time.time()))
            raise AnsibleConnectionFailure("closed by the reboot")
        return super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
"""
BOOT_S = 4


def run(folder: Path, tasks: list[dict[str, Any]], *, servers: int, stuck: str = "none", words: Any = ()) -> Any:
    plugins = folder / "connections"
    plugins.mkdir()
    source = CONNECTION.replace("BOOT_S", str(BOOT_S)).replace("STUCK", repr(stuck))
    (plugins / "played.py").write_text(source)
    hosts = {}
    for number in range(servers):
        (folder / f"gpu{number}").mkdir()
        hosts[f"gpu{number}"] = {"ansible_host": str(folder / f"gpu{number}"), "ansible_connection": "played"}
    (folder / "hosts.yml").write_text(json.dumps({"all": {"hosts": hosts}}))
    play = {"hosts": "all", "gather_facts": False, "tasks": tasks}
    (folder / "play.yml").write_text(json.dumps([play]))
    environment = {"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH, "ANSIBLE_CONNECTION_PLUGINS": str(plugins)}
    return ansible_playbook("-i", "hosts.yml", "play.yml", *words, cwd=folder, env=environment)


START = {"kubegpu.autoscale.server_reboot": {"msg": "nouveau is loaded"}, "register": "begun"}
WAIT = {"kubegpu.autoscale.server_reboot": {"boot_id": "{{ begun.boot_id }}", "reboot_timeout": 30}, "register": "done"}
CHECK = {"ansible.builtin.assert": {"that": ["begun is changed", "done is changed", "begun.boot_id == 'first'"]}}


def test_eight_servers_boot_at_the_same_time_with_two_forks(tmp_path: Path) -> None:
    """One task that reboots and waits takes four rounds of a boot."""
    began = time.monotonic()
    done = run(tmp_path, [START, WAIT, CHECK], servers=8, words=("--forks", "2"))

    assert done.returncode == 0, done.stdout
    times = [float((tmp_path / f"gpu{number}" / "began").read_text()) for number in range(8)]
    assert max(times) - min(times) < 2 * BOOT_S, "the last is told to boot before the first ones have waited"
    assert time.monotonic() - began < 4 * BOOT_S


def test_a_server_that_does_not_come_back_is_named_with_what_to_do(tmp_path: Path) -> None:
    wait = {"kubegpu.autoscale.server_reboot": {"boot_id": "{{ begun.boot_id }}", "reboot_timeout": 2}}
    done = run(tmp_path, [START, wait], servers=1, stuck="gpu0")

    assert done.returncode != 0
    assert "server -> boot: it has not answered with a new boot ID within 2 s. Next: its console" in done.stdout


def test_check_mode_reboots_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, [START], servers=1, words=("--check",))
    assert done.returncode == 0, done.stdout
    assert not (tmp_path / "gpu0" / "began").exists()


@pytest.mark.parametrize("words", [(), ("--check",)])
def test_the_controller_is_never_rebooted(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run(tmp_path, [START], servers=1, words=(*words, "-e", "ansible_connection=local"))

    assert done.returncode != 0
    assert "The server is the controller, which this module does not reboot." in done.stdout
