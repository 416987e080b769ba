"""One run of a module in a separate process, as for each task of Ansible.

The process is a fork of one that has imported what modules import, which takes a second. That a module starts without
such help is shown where Ansible runs it on its own: in the lab.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import sys
import traceback
from contextlib import redirect_stdout
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from typing import Any
from unittest.mock import patch

import collection
from ansible.module_utils.testing import patch_module_args

PACKAGE = "ansible_collections.kubegpu.autoscale.plugins.modules."

collection.install()
import_module(PACKAGE + "gpu_autoscaler")
import_module(PACKAGE + "gpu_doctor")

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([__name__])


def start_forking() -> None:
    """Start the process that modules are forked from, before there are threads: these read the environment, too."""
    # Up to Python 3.12 the server looks for what it imports in PYTHONPATH alone.
    with patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):
        forkserver.ensure_running()


def run_module(name: str, options: dict[str, Any], *, check: bool = False) -> dict[str, Any]:
    """What the module answers. Raises AssertionError when it answers nothing."""
    args = {**options, "_ansible_check_mode": check, "_ansible_diff": True}
    answers, answer = _forks.Pipe(duplex=False)
    process = _forks.Process(target=_main, args=(name, args, answer))
    process.start()
    answer.close()
    wait([answers, process.sentinel])  # one that is killed may leave the pipe open
    try:
        assert answers.poll(), f"{name} ended without an answer"
        printed = answers.recv()
    except EOFError:
        raise AssertionError(f"{name} ended without an answer") from None
    finally:
        process.join()
    print(printed)  # pytest shows it when the test fails
    return json.loads(printed)


def _main(name: str, args: dict[str, Any], answer: Connection) -> None:
    printed = io.StringIO()
    try:
        with redirect_stdout(printed), patch_module_args(args):
            import_module(PACKAGE + name).main()
    except SystemExit:
        pass  # how a module ends
    except Exception:
        printed = io.StringIO(traceback.format_exc())
    answer.send(printed.getvalue())
