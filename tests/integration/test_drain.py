"""What servers do with requests while they end: each as a process that gets SIGTERM, as the kubelet sends it.

A proxy learns of the end of a pod later than its server, so clients go on for a moment. A `preStop` hook delays the
signal until that moment is over.
"""

from __future__ import annotations

import http.client
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from control_plane import free_port
from model_servers import model_server, sample_server

REQUEST_MS, USERS = 100, 8
# Requests take turns: the last of eight waits for the others.
LONGEST_S = USERS * REQUEST_MS / 1000
WORK, INFER = f"/work?ms={REQUEST_MS}", "/v2/models/tiny/infer"
NO_DRAIN = ("--drain-quiet=0", "--drain-longest=0")


class Clients:
    """Users that each send one request after the other, on a new connection, until they are stopped.

    lost: why requests had no answer.
    """

    def __init__(self, port: int, path: str) -> None:
        self._port, self._path = port, path
        self.stopped = threading.Event()
        self.answered, self.lost = 0, list[str]()

    def go_on(self) -> None:
        while not self.stopped.is_set():
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
                connection.request("GET", self._path)
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 200
                self.answered += 1
            except (OSError, http.client.HTTPException) as error:
                self.lost.append(repr(error))
                self.stopped.wait(0.05)
            finally:
                connection.close()


@contextmanager
def clients(port: int, path: str) -> Iterator[Clients]:
    """Each has its last answer at the end."""
    asking = Clients(port, path)
    threads = [threading.Thread(target=asking.go_on) for _user in range(USERS)]
    with ExitStack() as stack:
        for thread in threads:
            stack.callback(thread.join)
            thread.start()
        stack.callback(asking.stopped.set)
        time.sleep(2 * LONGEST_S)  # all have a request in flight
        assert asking.answered
        yield asking


def ended(process: subprocess.Popen[bytes], port: int, path: str, clients_go_on_s: float) -> tuple[list[str], int]:
    """Requests that were lost, and the exit status. clients_go_on_s: after the signal; negative: stopped before it."""
    with clients(port, path) as asking:
        moments = [(0.0, lambda: process.send_signal(signal.SIGTERM)), (clients_go_on_s, asking.stopped.set)]
        began_s = min(0.0, clients_go_on_s)
        for at_s, act in sorted(moments, key=lambda moment: moment[0]):
            time.sleep(at_s - began_s)
            began_s = at_s
            act()
    return asking.lost, process.wait(20)


@pytest.mark.parametrize("options", [(), NO_DRAIN], ids=["drain", "no-drain"])
def test_the_sample_service_serves_on_until_no_request_comes(tmp_path: Path, options: tuple[str, ...]) -> None:
    port = free_port()
    with sample_server(tmp_path, port, "--queue=64", *options) as process:
        lost, status = ended(process, port, WORK, clients_go_on_s=1.5)
    assert status == 0
    assert bool(lost) == (options == NO_DRAIN), lost


@pytest.mark.parametrize("clients_go_on_s", [-0.05, 1.5], ids=["after-prestop", "no-prestop"])
def test_the_demonstration_answers_what_it_has_once_the_proxies_have_stopped(
    tmp_path: Path, clients_go_on_s: float
) -> None:
    """Eight requests are in flight when the signal comes after the preStop. Without one, others follow and are lost."""
    port = free_port()
    with model_server(tmp_path, "tiny", port, f"--milliseconds={REQUEST_MS}") as process:
        lost, status = ended(process, port, INFER, clients_go_on_s)
    assert status == 0
    assert bool(lost) == (clients_go_on_s > 0), lost
