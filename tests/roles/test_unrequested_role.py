"""The tasks that change the toolkit's configuration, on a file of the test."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from driver_machines import DEBIAN

KEY = "accept-nvidia-visible-devices-envvar-when-unprivileged"
PACKAGED = (
    f"#accept-nvidia-visible-devices-as-volume-mounts = false\n#{KEY} = true\ndisable-require = false\n\n[nvidia-ctk]\n"
)
DENIED = PACKAGED.replace(f"#{KEY} = true", f"{KEY} = false")
MARK = "kubegpu-unrequested-gpus"
CREATED = {"record": {"name": "prod"}}
FREE: dict[str, Any] = {"__nvidia_container_toolkit_may_deny": True, "__nvidia_container_toolkit_dependent": []}
PLUGIN = {**FREE, "__nvidia_container_toolkit_dependent": ["gpus/plugin"]}


class Server:
    def __init__(self, folder: Path, text: str | None) -> None:
        self.folder, self.config = folder, folder / "config.toml"
        if text is not None:
            self.config.write_text(text)

    def run(self, *flags: str, **variables: Any) -> dict[str, int]:
        """The counts of the recap; `failed` and `changed`."""
        role = {"name": "kubegpu.autoscale.nvidia_container_toolkit", "tasks_from": "unrequested"}
        known = {
            "ansible_facts": DEBIAN,
            "_common_identity_self": CREATED,
            "__nvidia_container_toolkit_config": str(self.config),
            "__nvidia_container_toolkit_config_mark": str(self.folder / MARK),
            **variables,
        }
        facts = known.pop("ansible_facts")
        play = {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "tasks": [
                {"ansible.builtin.set_fact": {**facts, "cacheable": True}},
                {"ansible.builtin.include_role": role},
            ],
        }
        (self.folder / "play.yml").write_text(json.dumps([play]))
        done = ansible_playbook(
            "-i", "localhost,", *flags, "play.yml", "-e", json.dumps(known),
            cwd=self.folder, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH},
        )  # fmt: skip
        self.output = done.stdout + done.stderr
        recap = re.search(r"changed=(\d+) .*failed=(\d+)", self.output)
        assert recap, self.output
        return {"changed": int(recap[1]), "failed": int(recap[2])}

    @property
    def is_marked(self) -> bool:
        return (self.folder / MARK).exists()


def test_it_is_denied_once_and_undone(tmp_path: Path) -> None:
    server = Server(tmp_path, PACKAGED)
    assert server.run("--check", **FREE) == {"changed": 2, "failed": 0}
    assert (server.config.read_text(), server.is_marked) == (PACKAGED, False)

    assert server.run(**FREE) == {"changed": 2, "failed": 0}
    assert (server.config.read_text(), server.is_marked) == (DENIED, True)
    assert server.run(**FREE)["changed"] == 0

    assert server.run(kubegpu_unrequested_gpus="allow")["changed"] == 2
    assert (server.config.read_text(), server.is_marked) == (PACKAGED, False)
    assert server.run(kubegpu_unrequested_gpus="allow")["changed"] == 0


@pytest.mark.parametrize("state", ["present", "absent"])
def test_a_plugin_that_depends_on_the_variable_or_a_removal_undoes_it(tmp_path: Path, state: str) -> None:
    server = Server(tmp_path, PACKAGED)
    server.run(**FREE)
    given = PLUGIN if state == "present" else {}

    assert server.run(nvidia_container_toolkit_state=state, **given)["failed"] == 0
    assert (server.config.read_text(), server.is_marked) == (PACKAGED, False)
    assert ("gpus/plugin depends on it" in server.output.replace("\n    ", " ")) is (state == "present")


def test_a_run_that_was_killed_between_its_two_changes_goes_on_or_is_undone(tmp_path: Path) -> None:
    for final, wanted in ((DENIED, "auto"), (PACKAGED, "allow")):
        server = Server(tmp_path, PACKAGED)
        (tmp_path / MARK).touch()
        server.run(kubegpu_unrequested_gpus=wanted, **FREE)
        assert (server.config.read_text(), server.is_marked) == (final, wanted == "auto")


def test_what_others_have_set_or_have_not_installed_stays(tmp_path: Path) -> None:
    by_hand = Server(tmp_path, DENIED)
    assert by_hand.run(kubegpu_unrequested_gpus="allow") == {"changed": 0, "failed": 0}
    assert by_hand.config.read_text() == DENIED

    (tmp_path / "none").mkdir()
    without = Server(tmp_path / "none", None)
    assert without.run(kubegpu_unrequested_gpus="deny", **FREE) == {"changed": 0, "failed": 0}
    assert not without.config.exists()


def test_it_fails_if_it_is_asked_for_and_a_plugin_depends_on_the_variable(tmp_path: Path) -> None:
    server = Server(tmp_path, PACKAGED)
    assert server.run(kubegpu_unrequested_gpus="deny", **PLUGIN)["failed"] == 1
    assert server.config.read_text() == PACKAGED


def test_an_existing_cluster_is_not_changed_by_default(tmp_path: Path) -> None:
    server = Server(tmp_path, PACKAGED)
    assert server.run(**FREE, _common_identity_self={"record": {}})["changed"] == 0
