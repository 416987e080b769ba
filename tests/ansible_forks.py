"""Runs ansible-playbook for a test: a separate process with its own folder, arguments and environment.

It is the fork of a process that has imported Ansible and its plugins. The forks share what Ansible builds of its
modules. Both take longer than all else that most of these runs do. That Ansible starts without such help is shown on
the lab.
"""

from __future__ import annotations

import atexit
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from python_forks import forked_python

# What Ansible looks at while it is imported: runs that differ in one of these have no process in common.
AT_IMPORT = ("ANSIBLE_", "HOME", "LANG", "LC_", "NO_COLOR", "PYTHON", "XDG_")
# What a run imports only once it needs it, and kinds of plugins that each run looks through.
IMPORTED = (
    *("ansible.executor.process.worker", "ansible.module_utils.connection", "ansible.playbook.handler"),
    *("ansible.playbook.included_file", "ansible.playbook.role_include", "multiprocessing.popen_fork"),
    *("multiprocessing.shared_memory", "multiprocessing.synchronize"),
)
COLLECTION = "kubegpu.autoscale"
PLUGINS = (
    *("action", "become", "cache", "callback", "connection", "filter", "inventory", "lookup", "shell", "strategy"),
    *("test", "vars"),
)


def ansible_playbook(
    *words: object, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs in `cwd`, with `env` besides what this process has. A run that wants another Python for modules names it."""
    argv = ["ansible-playbook", "-e", f"ansible_python_interpreter={forked_python()}", *map(str, words)]
    environment = {"ANSIBLE_PIPELINING": "true", **os.environ, **(env or {})}
    server = _free_server(cwd, environment)
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        status = server.run(argv, str(cwd), environment, out.name, err.name)
        return subprocess.CompletedProcess(argv, status, out.read(), err.read())


class _Server:
    """The process that has imported Ansible. It ends with this one."""

    def __init__(self, cwd: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            cwd=cwd,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._is_free = True
        atexit.register(self._end)

    def take(self) -> bool:
        """Whether it was free; runs may be side by side."""
        was_free, self._is_free = self._is_free, False
        return was_free

    def run(self, *request: object) -> int:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        self._is_free = True
        assert answer, "the process that ansible-playbook is forked from has ended"
        return int(answer)

    def _end(self) -> None:
        self._process.communicate()


_servers: dict[str, list[_Server]] = {}


def _free_server(cwd: Path, environment: Mapping[str, str]) -> _Server:
    settings = str(cwd) if (cwd / "ansible.cfg").exists() else ""
    at_import = sorted(item for item in environment.items() if item[0].startswith(AT_IMPORT))
    servers = _servers.setdefault(json.dumps([settings, at_import]), [])
    for server in servers:
        if server.take():
            return server
    server = _Server(cwd, environment)
    server.take()
    servers.append(server)
    return server


def _load_plugins() -> None:
    """Those of ansible-core, with their documentation: each run reads them else, and some of them each of its tasks.

    Of the collection its filters, which the worker of a task compiles all at once for the first one that it needs, and
    its action plugins.
    """
    from ansible import cli
    from ansible.plugins import loader

    for name in IMPORTED:
        import_module(name)
    loader.init_plugin_loader()
    cli.init_plugin_loader = lambda *_paths: None  # once is enough: what it reads is in AT_IMPORT
    import_module("ansible_collections.ansible.builtin")
    for kind in PLUGINS:
        list(getattr(loader, f"{kind}_loader").all(class_only=True))
    for file in (Path(__file__).parents[1] / "plugins" / "action").glob("[!_]*.py"):
        loader.action_loader.get(f"{COLLECTION}.{file.stem}", class_only=True)
    with suppress(KeyError):  # a run may lack the collection
        loader.filter_loader.get(f"{COLLECTION}.inventory_id")


def _serve() -> None:
    # Reads its settings from the folder and the environment that this process was started with.
    from ansible import constants
    from ansible.cli.playbook import main

    _load_plugins()
    for line in sys.stdin:
        argv, cwd, environment, out, err = json.loads(line)
        child = os.fork()
        if child:
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            continue
        status = 1
        try:
            for number, path in enumerate((os.devnull, out, err)):
                os.dup2(os.open(path, os.O_RDWR), number)
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(environment)
            tempfile.tempdir = None  # TMPDIR may be another
            random.seed()
            of_runs = Path(constants.DEFAULT_LOCAL_TMP).parent
            constants.DEFAULT_LOCAL_TMP = tempfile.mkdtemp(prefix=f"ansible-local-{os.getpid()}", dir=of_runs)
            sys.argv = argv
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        finally:
            shutil.rmtree(constants.DEFAULT_LOCAL_TMP, ignore_errors=True)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)  # what is removed at the end belongs to all


if __name__ == "__main__":
    _serve()
