# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
name: phases
type: stdout
short_description: Show one line for each play and each change
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Prints each play with the time since the start, each task that changed something or took long, each failure once,
    and the messages of M(ansible.builtin.debug) without quotes. The last play's messages are the last lines of the run.
  - Messages that begin with C(WARNING) are in colour. They and the warnings of modules are repeated as the last lines.
  - The output of the plugin P(ansible.builtin.default#callback) goes to the log file of C(log_path). With C(-v) it is
    also printed, instead of the short lines.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
requirements:
  - C(stdout_callback = kubegpu.autoscale.phases) in C(ansible.cfg)
"""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible import constants, context
from ansible.errors import AnsibleError
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.callback.default import CallbackModule as Default
from ansible.release import __version__ as ansible_version

# A task that changed nothing is shown only if it took this many seconds.
_LONG_S = 10
_DEBUG = ("debug", "ansible.builtin.debug", "ansible.legacy.debug")
_INDENT = " " * 8
# With this begins what was not found, proven or done, but did not end the run.
_WARNING = "WARNING"


# Since this version, results have public attributes.
_OLDEST = (2, 19)


class CallbackModule(Default):
    """The default callback writes to the log, and this one to the screen."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "kubegpu.autoscale.phases"

    def __init__(self) -> None:
        super().__init__()
        _check_version(ansible_version)
        self._screen = self._display
        self._is_verbose = self._screen.verbosity > 0
        if not self._is_verbose:
            self._display = _Log(self._screen)
        self._began = time.monotonic()
        self._phase = ""
        self._task = _Task()
        self._failed_items: dict[str, list[dict[str, Any]]] = {}
        self._messages: list[str] = []
        self._warnings: list[str] = []

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._end_task()
        self._show_messages()
        self._phase = play.get_name().strip()
        super().v2_playbook_on_play_start(play)

    def v2_playbook_on_task_start(self, task: Any, is_conditional: Any) -> None:
        self._begin_task(task)
        super().v2_playbook_on_task_start(task, is_conditional)

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        self._begin_task(task)
        super().v2_playbook_on_handler_task_start(task)

    def v2_runner_on_ok(self, result: Any) -> None:
        if not isinstance(result.task, TaskInclude):
            self._show_phase()
            self._task.has_run = True
            if result.result.get("changed"):
                self._task.changed.append(self.host_label(result))
            if result.task.action in _DEBUG:
                lines = _lines(result.result.get(result.task.args.get("var") or "msg") or [])
                self._messages += lines
                self._warnings += [line for line in lines if line.startswith(_WARNING)]
            self._warnings += [f"{_WARNING}: {text}" for text in result.result.get("warnings") or [] if text]
        super().v2_runner_on_ok(result)

    def v2_runner_item_on_failed(self, result: Any) -> None:
        """Keeps the item for the task's failure, in whose results ansible-core 2.21 does not say which have failed."""
        self._failed_items.setdefault(result.host.name, []).append(dict(result.result))
        super().v2_runner_item_on_failed(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        items = self._failed_items.pop(result.host.name, [])
        if not ignore_errors:
            self._show_failure("FAILED", result, items)
        super().v2_runner_on_failed(result, ignore_errors)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._show_failure("UNREACHABLE", result, self._failed_items.pop(result.host.name, []))
        super().v2_runner_on_unreachable(result)

    def v2_on_file_diff(self, result: Any) -> None:
        """Shows the diff that the user requested."""
        self._show_phase()
        log, self._display = self._display, self._screen
        try:
            super().v2_on_file_diff(result)
        finally:
            self._display = log

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._end_task()
        super().v2_playbook_on_stats(stats)
        self._show("")
        for line in self._totals(stats):
            self._show(line)
        self._messages = [line for line in self._messages if not line.startswith(_WARNING)]
        self._show_messages()
        for line in dict.fromkeys(self._warnings):
            self._show(line, constants.COLOR_WARN)

    def _begin_task(self, task: Any) -> None:
        self._end_task()
        self._task = _Task(_name(task))

    def _end_task(self) -> None:
        task, self._task = self._task, _Task()
        seconds = time.monotonic() - task.began
        if task.changed:
            would = "would change" if context.CLIARGS.get("check") else "changed"
            self._show(f"{_INDENT}{would}: {task.name} ({', '.join(task.changed)})", constants.COLOR_CHANGED, seconds)
        elif task.has_run and seconds >= _LONG_S:
            self._show(f"{_INDENT}ok: {task.name}", constants.COLOR_OK, seconds)

    def _show_phase(self) -> None:
        if self._phase:
            self._show(f"{_clock(time.monotonic() - self._began):>6}  {self._phase}")
            self._phase = ""

    def _show_failure(self, word: str, result: Any, items: Sequence[Mapping[str, Any]] = ()) -> None:
        """Shows the error of each failed item, or of the task."""
        self._show_phase()
        for row in items or (result.result,):
            line = f"{_INDENT}{word}: {_name(result.task)} ({self.host_label(result)}): {_reason(row)}"
            self._show(line, constants.COLOR_ERROR)

    def _show_messages(self) -> None:
        for line in self._messages:
            self._show(line, constants.COLOR_WARN if line.startswith(_WARNING) else None)
        self._messages = []

    def _show(self, line: str, color: str | None = None, seconds: float = 0) -> None:
        """Prints to the screen only, because the log has the default callback's output."""
        if not self._is_verbose:
            took = f"  {_clock(seconds)}" if seconds >= 1 else ""
            self._screen.display(line + took, color=color, screen_only=True)

    def _totals(self, stats: Any) -> Iterator[str]:
        hosts = {host: stats.summarize(host) for host in sorted(stats.processed)}
        changed = sum(counts["changed"] for counts in hosts.values())
        on = f"{len(hosts)} host{'' if len(hosts) == 1 else 's'}"
        would = "would change" if context.CLIARGS.get("check") else "changed"
        log = f" Log: {constants.DEFAULT_LOG_PATH}" if constants.DEFAULT_LOG_PATH else ""
        yield f"{changed} {would} on {on} in {_clock(time.monotonic() - self._began)}.{log}"
        for key, word in (("failures", "Failed"), ("unreachable", "Unreachable")):
            if failed := [host for host, counts in hosts.items() if counts[key]]:
                yield f"{word}: {', '.join(failed)}"
        if not hosts:
            nothing = "nothing ran, because the inventory has none of the hosts. Next: check -i and --limit"
            self._warnings.append(f"{_WARNING}: {nothing}")


class _Task:
    """changed: hosts on which it changed something. has_run: whether it ran on any host."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.began = time.monotonic()
        self.changed: list[str] = []
        self.has_run = False


class _Log:
    """A display whose output goes to the log file. Warnings still reach the screen; the callback shows failures."""

    def __init__(self, screen: Any) -> None:
        self._screen = screen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._screen, name)

    def display(self, msg: str, *_args: Any, screen_only: bool = False, **_options: Any) -> None:
        if not screen_only:
            self._screen.display(msg, log_only=True)

    def banner(self, msg: str, *_args: Any, **_options: Any) -> None:
        self.display(f"\n{msg} {'*' * 3}")

    def _error(self, *_args: Any, **_options: Any) -> None:
        return


def _check_version(version: str) -> None:
    """Raises: AnsibleError with the words of the role _common. An older ansible-core would not show them here."""
    if tuple(map(int, version.split(".")[:2])) < _OLDEST:
        raise AnsibleError(
            "controller -> Ansible: kubegpu.autoscale needs ansible-core 2.19 or later, with Python 3.11 or later, and "
            f"this is ansible-core {version} of {sys.executable}. Nothing was changed. Next: install ansible-core 2.19 "
            "or later, in a virtual environment for instance"
        )


def _name(task: Any) -> str:
    """Without the collection: `nvidia_driver : Install`."""
    return str(task.get_name()).strip().removeprefix("kubegpu.autoscale.")


def _lines(message: Any) -> list[str]:
    return [str(line) for line in message] if isinstance(message, list) else str(message).splitlines()


def _reason(result: Mapping[str, Any]) -> str:
    text = str(result.get("msg") or result.get("censored") or "no message; -v shows the result").strip()
    standard_error = str(result.get("stderr") or "").strip()
    return f"{text.removesuffix('.')}: {standard_error}" if standard_error and standard_error not in text else text


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
