"""The servers of the demonstration's chart as processes. Their GPU is a stand-in that sleeps."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collection import ROOT
from control_plane import eventually

DEMO = ROOT / "docs" / "demos" / "models"
GPU = """
import time
class CudaError(Exception): pass
class Gpu:
    name = "a stand-in"
    def use(self): pass
    def spin(self, milliseconds): time.sleep(milliseconds / 1000)
"""


@contextmanager
def model_server(folder: Path, model: str, port: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """One that listens. options: of serve.py."""
    (folder / "cuda.py").write_text(GPU)
    (folder / "serve.py").write_text((DEMO / "chart" / "files" / "serve.py").read_text())
    with subprocess.Popen([sys.executable, folder / "serve.py", model, f"--port={port}", *options]) as process:
        try:
            eventually(lambda: listens(port), f"{model} listens", 20)
            yield process
        finally:
            process.kill()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def metric(port: int, name: str) -> float:
    """What the server says of itself."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    [value] = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{name}{{")]
    return float(value)
