from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from control_plane import ControlPlane, eventually
from kubernetes import client
from metric_chain import MetricChain
from workloads import Workloads

HERE = Path(__file__).parent
CRD = yaml.safe_load((HERE / "prometheusrule-crd.yml").read_text())
RULES = ("monitoring.coreos.com", "v1", "monitoring", "prometheusrules")

Result = dict[str, Any]
_number = count(1)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, client.ApiClient]]:
    plane = ControlPlane(tmp_path_factory.mktemp("control-plane"))
    try:
        yield plane, plane.start()
    finally:
        plane.stop()


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
    """The kind PrometheusRule for one test; removed with whatever it left."""
    definitions = client.ApiextensionsV1Api(kube)
    definitions.create_custom_resource_definition(CRD)
    eventually(lambda: rules_served(kube), "PrometheusRule is served", 20)
    yield
    remove_crd(kube)


def remove_crd(kube: client.ApiClient) -> None:
    definitions = client.ApiextensionsV1Api(kube)
    name = CRD["metadata"]["name"]
    if any(each.metadata.name == name for each in definitions.list_custom_resource_definition().items):
        definitions.delete_custom_resource_definition(name)
    eventually(lambda: not rules_served(kube), "PrometheusRule is gone", 20)


def rules_served(kube: client.ApiClient) -> bool:
    return "monitoring.coreos.com" in {group.name for group in client.ApisApi(kube).get_api_versions().groups}


@pytest.fixture
def workloads(kube: client.ApiClient, crd: None, request: pytest.FixtureRequest) -> Iterator[Workloads]:
    """A namespace of its own for one test."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[:50].strip("-")
    workloads = Workloads(kube, namespace=f"{name}-{next(_number)}")
    yield workloads
    workloads.remove()


@pytest.fixture
def run(plane: tuple[ControlPlane, client.ApiClient]) -> Callable[..., Result]:
    """Runs a module; gpu_autoscaler without verification if a test does not ask for it."""

    def run(module: str = "gpu_autoscaler", *, check: bool = False, **options: Any) -> Result:
        unverified = {"verify": False} if module == "gpu_autoscaler" else {}
        args = {"kubeconfig": str(plane[0].kubeconfig), **unverified, **options}
        args |= {"_ansible_check_mode": check, "_ansible_diff": True}
        done = subprocess.run(
            [sys.executable, HERE / "module_process.py", module], input=json.dumps(args), text=True, capture_output=True
        )
        print(done.stdout, done.stderr)  # pytest shows it when the test fails
        result = json.loads(done.stdout)
        return {**result, "warnings": [warning["event"]["msg"] for warning in result.get("warnings", [])]}

    return run
