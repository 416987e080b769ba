"""The sample's load generator, a script that runs in a pod."""

from __future__ import annotations

import asyncio
import importlib.util
import statistics
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


def test_requests_come_at_random_and_the_same_with_each_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as asked for, and as irregular as independent users are: the deviation of a pause is its mean."""

    def pauses(seed: int) -> list[float]:
        load, found = script().Load("http://sample", cost_ms=20, gpus=1, seed=seed), []
        expovariate = load._chance.expovariate
        monkeypatch.setattr(load._chance, "expovariate", lambda rate: found.append(expovariate(rate)) or found[-1])
        monkeypatch.setattr(load, "_send", lambda: None)

        async def wait_for(waiting: Any, pause: float | None) -> None:
            waiting.close()
            raise TimeoutError if len(found) < 4000 else asyncio.CancelledError

        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "wait_for", wait_for)
            with pytest.raises(asyncio.CancelledError):
                asyncio.run(load.run())
        return found

    first = pauses(1)
    assert statistics.mean(first) == pytest.approx(0.02, rel=0.05)
    assert statistics.stdev(first) == pytest.approx(0.02, rel=0.1)
    assert pauses(1) == first != pauses(2)


def test_prometheus_reads_each_outcome() -> None:
    load = script().Load("http://sample", cost_ms=20, gpus=1)
    load.results["rejected"] += 3
    assert load.metrics().splitlines() == [
        "# TYPE load_requests_total counter",
        'load_requests_total{outcome="served"} 0',
        'load_requests_total{outcome="rejected"} 3',
        'load_requests_total{outcome="failed"} 0',
    ]
