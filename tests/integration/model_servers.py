"""The demonstration's servers and the sample service as processes. Their GPU is a stand-in that sleeps."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from collection import ROOT
from control_plane import eventually

DEMO = ROOT / "docs" / "demos" / "models"
GPU = """
import time
class CudaError(Exception): pass
class Gpu:
    name = uuid = "a stand-in"
    def use(self): pass
    def spin(self, milliseconds): time.sleep(milliseconds / 1000)
"""


def model_server(folder: Path, model: str, port: int, *options: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """One that listens. options: of serve.py."""
    return _server(folder, DEMO / "chart" / "files" / "serve.py", port, model, *options)


def sample_server(folder: Path, port: int, *options: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """options: of sample_service.py."""
    return _server(folder, ROOT / "roles" / "gpu_workload" / "files" / "sample_service.py", port, *options)


@contextmanager
def _server(folder: Path, script: Path, port: int, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    (folder / "cuda.py").write_text(GPU)
    (folder / script.name).write_text(script.read_text())
    with subprocess.Popen([sys.executable, folder / script.name, f"--port={port}", *words]) as process:
        try:
            eventually(lambda: listens(port), f"{script.name} listens", 20)
            yield process
        finally:
            process.kill()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def metric(port: int, name: str) -> float:
    """The server's own status."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    [value] = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{name}{{")]
    return float(value)
