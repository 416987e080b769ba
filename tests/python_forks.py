"""Python for the modules that Ansible runs on this machine: the fork of one that has imported what most of them need.

That takes five times as long as what most modules do. Of collections nothing is imported before: a module brings its
own, and each runs in a process of its own. That one starts without such help is shown on the lab.
"""

from __future__ import annotations

import atexit
import gc
import marshal
import os
import random
import runpy
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

LIBRARIES = (
    *("kubernetes.client", "kubernetes.config", "kubernetes.dynamic", "yaml", "requests"),
    # A module finds those of the controller here in any case, behind the same files that it brings.
    *("ansible.module_utils.basic", "ansible.module_utils._internal._ansiballz._loader", "ansible.module_utils.urls"),
    *("ansible.module_utils.facts.ansible_collector", "ansible.module_utils.facts.default_collectors"),
)
# What these look at while they are imported: who has it otherwise gets a Python that starts from nothing.
AT_IMPORT = ("KUBECONFIG", "HOME", "LANG", "PYTHONPATH", "SSL_CERT_FILE")
LENGTH_BYTES = 4

# Python's -I and -S spare it all that a few lines do not need.
CLIENT = """#!{python} -IS
import os, sys
words = sys.argv[1:]
if words and (words[1:] or words[0].startswith("-")) or [os.environ.get(name) for name in {names!r}] != {values!r}:
    os.execv({python!r}, [{python!r}, *words])
import _socket, array, marshal
server = _socket.socket(_socket.AF_UNIX)
server.connect({address!r})
request = marshal.dumps((words, os.getcwd(), dict(os.environb)))
files = array.array("i", [0, 1, 2])
length = len(request).to_bytes({bytes}, "big")
server.sendmsg([length], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
server.sendall(request)
os._exit((server.recv(1) or b"\\1")[0])
"""


@cache
def forked_python() -> str:
    """Path of a program that takes a script, or its text as input, as Python does. It works as long as this process."""
    folder = tempfile.TemporaryDirectory(prefix="kubegpu-python-")
    address = f"{folder.name}/socket"
    values = [os.environ.get(name) for name in AT_IMPORT]
    program = Path(folder.name) / "python"
    parts = {"python": sys.executable, "names": AT_IMPORT, "values": values, "address": address, "bytes": LENGTH_BYTES}
    program.write_text(CLIENT.format(**parts))
    program.chmod(0o755)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    # It ends with its standard input.
    server = subprocess.Popen(
        [sys.executable, __file__, str(listener.fileno())], stdin=subprocess.PIPE, pass_fds=[listener.fileno()]
    )
    listener.close()

    def end() -> None:
        server.communicate()
        folder.cleanup()

    atexit.register(end)
    return str(program)


def _serve(listener: socket.socket) -> tuple[list[str], str, dict[bytes, bytes], list[int]] | None:
    """What a module's process is to run, as words, folder, environment and files; None at the end of the server."""
    with selectors.DefaultSelector() as events:
        events.register(listener, selectors.EVENT_READ)
        events.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _mask in events.select():
                if key.fileobj is sys.stdin:
                    return None
                if key.fileobj is not listener:
                    _answer(events, key)
                    continue
                client, _address = listener.accept()
                length, files, *_ = socket.recv_fds(client, LENGTH_BYTES, 3)
                with client.makefile("rb") as text:
                    request = marshal.loads(text.read(int.from_bytes(length, "big")))
                child = os.fork()
                if not child:
                    client.close()
                    return *request, files
                for file in files:
                    os.close(file)
                events.register(os.pidfd_open(child), selectors.EVENT_READ, (child, client))


def _answer(events: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    """Tell a module's status to the one who has asked for it."""
    child, client = key.data
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    events.unregister(key.fd)
    os.close(key.fd)
    with client:
        client.sendall(bytes([status & 255]))


def _become(words: list[str], folder: str, environment: dict[bytes, bytes], files: list[int]) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(environment)
    tempfile.tempdir = None  # TMPDIR may be another
    random.seed()
    sys.argv = words or [""]
    sys.path[0] = str(Path(words[0]).parent) if words else ""
    if words:
        runpy.run_path(words[0], run_name="__main__")
    else:
        sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(sys.stdin.buffer.read(), "<stdin>", "exec"), vars(sys.modules["__main__"]))


def _run(*asked: Any) -> NoReturn:
    """As Python runs it, without taking apart at its end all that was imported: that takes as long as most modules."""
    status = 0
    try:
        _become(*asked)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException:
        status = 1
        traceback.print_exc()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 255)


def main() -> None:
    for name in LIBRARIES:
        import_module(name)
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        asked = _serve(listener)
    if asked:
        _run(*asked)


if __name__ == "__main__":
    main()
