"""Looks at the cluster between two playbooks of site.yml, so that the run is that of a user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ansible import context
from ansible.playbook.play import Play
from ansible.plugins.callback import CallbackBase

REMEMBER = Path(__file__).parents[1] / "remember.yml"
# The first playbook that installs something in the cluster.
FIRST_INTO_THE_CLUSTER = "gpu.yml"


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "empty_cluster"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._looked = bool(context.CLIARGS.get("check"))  # a check makes no cluster

    def v2_playbook_on_play_start(self, play: Play) -> None:
        playbook, _, _line = play.get_path().rpartition(":")
        if not self._looked and Path(playbook).name == FIRST_INTO_THE_CLUSTER:
            self._looked = True
            inventory = [word for source in context.CLIARGS["inventory"] for word in ("--inventory", source)]
            command = [Path(sys.executable).with_name("ansible-playbook"), *inventory, REMEMBER]
            environment = {name: value for name, value in os.environ.items() if name != "ANSIBLE_CALLBACKS_ENABLED"}
            done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode:
                self._display.error(f"nobody has looked at the empty cluster: {done.stdout}{done.stderr}")
