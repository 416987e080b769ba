# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Starts a reboot, or waits for the end of one that was started. plugins/modules/server_reboot.py documents it.

ansible.builtin.reboot does both in one task, which holds one of Ansible's forks: with 5 forks and boots of 14 minutes,
200 servers take 9 hours. Everything else is that action's.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.plugins.action.reboot import ActionModule as Reboot

ARGUMENTS: dict[str, Any] = {
    "boot_id": {"type": "str", "default": ""},
    "msg": {"type": "str", "default": Reboot.DEFAULT_REBOOT_MESSAGE},
    "reboot_timeout": {"type": "int", "default": Reboot.DEFAULT_REBOOT_TIMEOUT},
}
# Its commands for Linux are those that it has for systems that it has no entry for.
_LINUX = {"name": "linux", "version": "", "family": "linux"}


class ActionModule(Reboot):  # type: ignore[misc]
    _VALID_ARGS = frozenset(ARGUMENTS)

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        self._supports_check_mode = True
        ActionBase.run(self, tmp, task_vars)
        _result, given = self.validate_argument_spec(ARGUMENTS)
        if self._connection.transport == "local":
            return {"failed": True, "msg": "The server is the controller, which this module does not reboot."}
        if self._task.check_mode:
            return {"changed": True, "boot_id": given["boot_id"]}
        return self._wait(given) if given["boot_id"] else self._start(task_vars or {})

    def _start(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        boot_id = self.get_system_boot_time(_LINUX)
        started = self.perform_reboot(task_vars, _LINUX)
        if started["failed"]:
            return {"failed": True, "msg": started["msg"]}
        return {"changed": True, "boot_id": boot_id}

    def _wait(self, given: dict[str, Any]) -> dict[str, Any]:
        waited = self.validate_reboot(_LINUX, action_kwargs={"previous_boot_time": given["boot_id"]})
        if waited.get("failed"):
            return {
                "failed": True,
                "msg": f"server -> boot: it has not answered with a new boot ID within {given['reboot_timeout']} s. "
                "Next: its console or `ipmitool sol activate` shows where the boot waits; then run this again.",
            }
        return {"changed": True, "boot_id": given["boot_id"]}
