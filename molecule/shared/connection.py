"""Commands of tests reach a lab's server by its connection. testinfra would start an `ansible` for each."""

from __future__ import annotations

from typing import Any

from testinfra.backend.ansible import AnsibleBackend
from testinfra.backend.base import CommandResult

LAB_SERVER = "lab_server"


class ServerBackend(AnsibleBackend):
    """testinfra's own, which does not know the lab's connection."""

    def run(self, command: str, *args: str, **kwargs: Any) -> CommandResult:
        server = self.get_variables()
        if server.get("ansible_connection") != LAB_SERVER:
            return super().run(command, *args, **kwargs)
        asked = self.get_command(command, *args)
        podman = (server["ansible_podman_executable"], server["ansible_podman_extra_args"], "exec")
        words = (*podman, server["ansible_host"], "/bin/sh", "-c", asked)
        result = self.run_local(" ".join(["%s"] * len(words)), *words)
        result.command = self.encode(asked)
        return result
