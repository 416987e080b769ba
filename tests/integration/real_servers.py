"""Triton and vLLM themselves as processes, clients that keep a number of requests in flight, and pods that have them.

Their environments are those of lab/server_env.py. Pods are objects only: Prometheus scrapes the process of each.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from collection import ROOT
from control_plane import ControlPlane, eventually, free_port
from kubernetes import client
from metric_chain import MetricChain

from lab import server_env

SCRIPTS = Path(__file__).with_name("servers")
# On two processors that others use as well. vLLM spends most of it on imports.
TRITON_STARTS_S, VLLM_STARTS_S = 180, 900
ANSWERED_S = 300


def installed(name: str) -> Path:
    found = server_env.python(name)
    assert found, f"python -m lab.server_env {name} installs it"
    return found


@contextmanager
def triton(folder: Path) -> Iterator[tuple[int, int]]:
    """Ports: of requests, and of metrics."""
    python, ports = installed("triton"), [free_port() for _ in range(3)]
    # Its Python backend links the library of this Python, which need not be among those of the system.
    libraries = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    environment = {"LD_LIBRARY_PATH": ":".join(filter(None, (libraries, os.environ.get("LD_LIBRARY_PATH"))))}
    command = [python, SCRIPTS / "triton_server.py", *map(str, ports)]
    with _process(folder, "triton", command, environment) as process:
        _listens(process, lambda: _status(ports[0], "/v2/health/ready") == 200, TRITON_STARTS_S)
        yield ports[0], ports[2]


@contextmanager
def vllm(folder: Path, model: Path, *options: str) -> Iterator[int]:
    """The port of requests and of metrics, on each address: a pod has one of its own. options: of `vllm serve`."""
    with vllm_process(folder, model, *options) as (port, _process):
        yield port


@contextmanager
def vllm_process(folder: Path, model: Path, *options: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Its port and the process that the kubelet would signal."""
    port = free_port()
    words = ["serve", model, "--served-model-name", "tiny", "--host", "0.0.0.0", "--port", str(port)]
    shape = ["--enforce-eager", "--max-num-seqs", "4", "--max-model-len", "1024"]
    quiet = ["--disable-uvicorn-access-log"]  # each scrape has a line in it
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    command = [installed("vllm"), "-m", "vllm.entrypoints.cli.main", *words, *shape, *quiet, *options]
    with _process(folder, "vllm", command, environment) as process:
        _listens(process, lambda: _status(port, "/health") == 200, VLLM_STARTS_S)
        yield port, process


def tiny_model(folder: Path) -> Path:
    pages = sorted((ROOT / "docs").glob("*.md"))
    subprocess.run([installed("vllm"), SCRIPTS / "tiny_model.py", folder, *pages], check=True)
    return folder


@contextmanager
def _process(folder: Path, name: str, command: list[Any], more: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """With all processes that it starts: Triton's server outlives its parent otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            list(map(str, command)), cwd=folder, env={**os.environ, **more}, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            print((folder / f"{name}.log").read_text()[-3000:])  # pytest shows it when the test fails


def _listens(process: subprocess.Popen[bytes], answers: Callable[[], bool], seconds: float) -> None:
    def look() -> bool:
        assert process.poll() is None, f"the server has ended with {process.returncode}"
        return answers()

    eventually(look, "the server listens", seconds)


def _status(port: int, path: str) -> int:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0


Ask = Callable[[], int]


def infer(port: int, model: str) -> Ask:
    """One request to Triton."""
    tensor = {"name": "x", "datatype": "FP32", "data": [0.0]}
    shape = [1] if model == "plain" else [1, 1]
    return _posting(port, f"/v2/models/{model}/infer", {"inputs": [{**tensor, "shape": shape}]})


def completion(tokens: int = 24, **more: Any) -> dict[str, Any]:
    """The body of a request to vLLM, for so many tokens."""
    prompt = list(range(3, 67))
    return {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}


def complete(port: int, tokens: int = 24) -> Ask:
    """One request to vLLM, for so many tokens."""
    return _posting(port, "/v1/completions", completion(tokens))


def _posting(port: int, path: str, body: Any) -> Ask:
    def ask() -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWERED_S)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    return ask


class Streamed:
    """A stream of vLLM that a client reads.

    events: with a token. finish_reason: "length" of an answer that is complete. is_done: it ended by its protocol.
    """

    def __init__(self, port: int, tokens: int, silence_s: float) -> None:
        """silence_s: the client gives up after so long without a byte."""
        self._port, self._tokens, self._silence_s = port, tokens, silence_s
        self.events, self.finish_reason, self.is_done = 0, "", False

    def read(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._silence_s)
        with suppress(OSError, http.client.HTTPException):
            body = json.dumps(completion(self._tokens, stream=True))
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            while line := answer.readline():
                self.is_done |= line.strip() == b"data: [DONE]"
                if line.startswith(b"data: {"):
                    self.events += 1
                    [choice] = json.loads(line.removeprefix(b"data: "))["choices"]
                    self.finish_reason = choice["finish_reason"] or ""
        connection.close()


@contextmanager
def users(number: int, ask: Ask) -> Iterator[Counter[int]]:
    """So many clients, each of which asks again when it was answered. Counts the statuses."""
    stopped, statuses = threading.Event(), Counter[int]()

    def go_on() -> None:
        while not stopped.is_set():
            statuses[ask()] += 1

    threads = [threading.Thread(target=go_on, daemon=True) for _ in range(number)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        stopped.set()
        for thread in threads:
            thread.join(ANSWERED_S)


class ServersChain(MetricChain):
    """Prometheus scrapes each server under the names that a PodMonitor gives its pod.

    ports: of metrics, by namespace/pod.
    """

    def __init__(self, plane: ControlPlane, kube: client.ApiClient, ports: Mapping[str, int]) -> None:
        super().__init__(plane, kube)
        self._ports = ports

    def scrape_configs(self) -> list[dict[str, Any]]:
        pods = [
            {
                "targets": [f"127.0.0.1:{port}"],
                "labels": {**dict(zip(("namespace", "pod"), place.split("/"), strict=True)), "container": "main"},
            }
            for place, port in self._ports.items()
        ]
        return [*super().scrape_configs(), {"job_name": "ml/servers", "static_configs": pods}]

    def value(self, metric: str, pod: str) -> float | None:
        """What is recorded now; None if nothing is."""
        found = json.loads(self.answer(f'namespace_pod:{metric}:avg{{pod="{pod}"}}'))["data"]["result"]
        return float(found[0]["value"][1]) if found else None

    def values(self, metric: str, pod: str, seconds: int) -> list[float]:
        """One in each second from now on."""
        found = []
        for _second in range(seconds):
            value = self.value(metric, pod)
            assert value is not None
            found.append(value)
            time.sleep(1)
        return found
