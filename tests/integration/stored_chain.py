"""Adapter and modules ask a store by its own address, and never the Prometheus that scrapes and evaluates."""

from __future__ import annotations

import json
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from control_plane import ControlPlane, free_port
from kubernetes import client
from metric_chain import MetricChain
from module_process import run_module


class StoredChain(MetricChain, ABC):
    def __init__(self, plane: ControlPlane, kube: client.ApiClient) -> None:
        super().__init__(plane, kube)
        self.plane, self.store = plane, free_port()

    @abstractmethod
    def run_store(self) -> None:
        """Start the store on its port."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.store}"

    def adapter_flags(self) -> Sequence[str]:
        return *super().adapter_flags(), f"--prometheus-url={self.url}"

    def start(self) -> None:
        self.run_store()
        super().start()

    def stored(self, what: str) -> Any:
        """What the store itself answers."""
        with urllib.request.urlopen(f"{self.url}/api/v1/{what}") as answer:
            return json.load(answer)["data"]

    def runner(self) -> Callable[..., dict[str, Any]]:
        """Runs a module that asks the store, and expects that it does not fail."""
        options = {"kubeconfig": str(self.plane.kubeconfig), "prometheus": {"url": self.url}}

        def run(module: str, **given: Any) -> dict[str, Any]:
            result = run_module(module, options | given)
            assert not result.get("failed"), result.get("msg")
            return result

        return run
