"""The sample's load generator, a script that runs in a pod."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[3] / "roles" / "gpu_workload" / "files" / "load.py"


def script() -> Any:
    spec = importlib.util.spec_from_file_location("load_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_load_that_ends_while_a_request_falls_due(monkeypatch: pytest.MonkeyPatch) -> None:
    load, waits = script().Load("http://sample", cost_ms=20, gpus=1), []

    async def wait_for(waiting: Any, pause: float | None) -> None:
        waiting.close()
        waits.append(pause)
        if len(waits) == 1:
            load.demand(0)
            raise TimeoutError
        raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "wait_for", wait_for)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(load.run())
    assert waits[1] is None
    assert not load._in_flight


def test_prometheus_reads_each_outcome() -> None:
    load = script().Load("http://sample", cost_ms=20, gpus=1)
    load.results["rejected"] += 3
    assert load.metrics().splitlines() == [
        "# TYPE load_requests_total counter",
        'load_requests_total{outcome="served"} 0',
        'load_requests_total{outcome="rejected"} 3',
        'load_requests_total{outcome="failed"} 0',
    ]
