from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from control_plane import ControlPlane, running
from kubernetes import client
from metric_chain import MetricChain
from module_process import run_module, start_forking
from prometheus_rules import remove_rules, serve_kind
from workloads import Workloads

Result = dict[str, Any]
_number = count(1)


@pytest.fixture(scope="session", autouse=True)
def forks() -> None:
    start_forking()


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, client.ApiClient]]:
    with running(tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane


@pytest.fixture(scope="session")
def kube(plane: tuple[ControlPlane, client.ApiClient]) -> client.ApiClient:
    return plane[1]


@pytest.fixture(scope="session")
def chain(plane: tuple[ControlPlane, client.ApiClient]) -> Iterator[MetricChain]:
    chain = MetricChain(*plane)
    chain.start()
    yield chain
    chain.stop()


@pytest.fixture
def crd(kube: client.ApiClient, chain: MetricChain) -> Iterator[None]:
    """The kind PrometheusRule, without an object of another test."""
    serve_kind(kube)
    yield
    remove_rules(kube)


@pytest.fixture
def workloads(kube: client.ApiClient, crd: None, request: pytest.FixtureRequest) -> Iterator[Workloads]:
    """A separate namespace for one test."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[:50].strip("-")
    workloads = Workloads(kube, namespace=f"{name}-{next(_number)}")
    yield workloads
    workloads.remove()


@pytest.fixture
def run(plane: tuple[ControlPlane, client.ApiClient]) -> Callable[..., Result]:
    """Runs a module; gpu_autoscaler without verification if a test does not ask for it."""

    def run(module: str = "gpu_autoscaler", *, check: bool = False, **options: Any) -> Result:
        unverified = {"verify": False} if module == "gpu_autoscaler" else {}
        result = run_module(module, {"kubeconfig": str(plane[0].kubeconfig), **unverified, **options}, check=check)
        return {**result, "warnings": [warning["event"]["msg"] for warning in result.get("warnings", [])]}

    return run
