"""The objects of the sample workload, what is asked of the cluster for them, and what stops the role."""

from __future__ import annotations

from typing import Any

import pytest
from planned import plan_of

OPTIONS: dict[str, Any] = {
    "name": "sample",
    "namespace": "gpus",
    "image": "python:3",
    "runtime_class": "",
    "node_selector": {},
    "tolerations": [],
    "monitor_labels": {},
    "scrape_interval": 2,
    **dict.fromkeys(("check", "service", "load", "monitor"), False),
    "queue": 8,
    "request_ms": 20,
    "load_gpus": 0.0,
}
SCRIPTS = {"sample_service.py": "print()", "vector_add.py": "add()"}
ALL = {"check": True, "service": True, "load": True}
NAMESPACE = {"kind": "Namespace", "metadata": {"name": "gpus"}}


def sample(found: Any = None, state: str = "present", **options: Any) -> dict[str, Any]:
    return planned(SCRIPTS, found, **options, state=state)


def planned(scripts: dict[str, str], found: Any = None, **options: Any) -> dict[str, Any]:
    return plan_of("gpu_workload", {"scripts": scripts, "found": found}, **OPTIONS | options, inventory_id="prod")


def names(objects: list[dict[str, Any]]) -> list[str]:
    return [f"{obj['kind']} {obj['metadata']['name']}" for obj in objects]


def pod(obj: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = obj["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, []),
        ({"service": True}, ["Deployment sample", "Service sample"]),
        ({"service": False, "monitor": True}, []),
        (
            {"service": True, "monitor": True},
            ["Deployment sample", "Service sample", "PodMonitor sample"],
        ),
        ({"load": True}, ["Deployment sample-load", "Service sample-load"]),
    ],
    ids=["nothing", "the service", "no monitor without the service", "with its monitor", "the load"],
)
def test_what_is_asked_for_is_made(options: dict[str, Any], expected: list[str]) -> None:
    found = sample(**options)
    assert names(found["objects"]) == expected
    assert found["deployments"] == [name.split()[1] for name in expected if name.startswith("Deployment")]
    assert found["is_wanted"] is bool(expected)


def test_a_gpu_is_asked_for_where_one_is_needed() -> None:
    placed = {"node_selector": {"pool": "a"}, "tolerations": [{"key": "t"}], "runtime_class": "nvidia"}
    found = sample(**ALL, **placed)
    service, _service, load, _load = found["objects"]

    for obj in (found["check"], service):
        assert pod(obj)["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
        assert (pod(obj)["nodeSelector"], pod(obj)["runtimeClassName"]) == ({"pool": "a"}, "nvidia")
        assert pod(obj)["tolerations"] == [{"key": "t"}]
    assert "nvidia.com/gpu" not in pod(load)["containers"][0]["resources"]["limits"]
    assert {"nodeSelector", "tolerations", "runtimeClassName"} & pod(load).keys() == set()
    assert "replicas" not in service["spec"]  # they are the autoscaler's


def test_without_a_runtime_class_the_pods_name_none() -> None:
    assert "runtimeClassName" not in pod(sample(**ALL)["check"])


def test_the_namespace_belongs_to_whoever_made_it() -> None:
    assert [obj["kind"] for obj in sample()["base"]] == ["Namespace", "ConfigMap"]
    found = sample([NAMESPACE])
    assert ([obj["kind"] for obj in found["base"]], found["namespace_exists"]) == (["ConfigMap"], True)


def test_another_script_or_image_is_another_check() -> None:
    first, again = sample(**ALL), sample(**ALL)
    other = planned({**SCRIPTS, "vector_add.py": "more()"}, **ALL)
    image = sample(**ALL, image="python:4")

    assert first["check_name"] == again["check_name"]
    assert len({first["check_name"], other["check_name"], image["check_name"]}) == 3
    assert first["base"][1]["metadata"]["name"] != other["base"][1]["metadata"]["name"]
    assert first["base"][1]["metadata"]["name"] == image["base"][1]["metadata"]["name"]


def test_what_is_not_wanted_any_more_is_removed() -> None:
    before = sample(**ALL)
    seen = [NAMESPACE, before["base"][1], before["check"], *before["objects"]]
    now = sample(seen, service=True)

    assert names(now["left"]) == [f"Job {before['check_name']}", "Deployment sample-load", "Service sample-load"]
    assert sample(seen, **ALL)["checked"] == before["check"]
    assert now["checked"] == before["check"]  # it is found, and removed
    assert names(sample(seen, "absent", **ALL)["left"]) == names(seen[1:])
    assert names(sample(seen)["left"]) == names(seen[1:])


def test_objects_of_others_are_in_the_way() -> None:
    theirs = {"kind": "Service", "metadata": {"name": "sample"}}
    found = sample([NAMESPACE, theirs], service=True)
    assert found["left"] == []
    assert found["refused"] == [
        "sample -> cluster: Service sample in namespace gpus was not created by this collection. Nothing was changed."
        " Next: set gpu_workload_namespace or gpu_workload_name to another name."
    ]
    assert sample([NAMESPACE, theirs], "absent", service=True)["refused"] == []


CRD = {"kind": "CustomResourceDefinition", "metadata": {"name": "podmonitors.monitoring.coreos.com"}}


@pytest.mark.parametrize(
    ("options", "found", "words"),
    [
        ({"monitor": True}, [NAMESPACE], "the kind PodMonitor, which the cluster does not serve."),
        ({"monitor": True}, [CRD], ""),
        ({"monitor": True}, None, ""),
    ],
    ids=["no operator", "served", "no cluster"],
)
def test_what_nobody_reads_is_an_error(options: dict[str, Any], found: Any, words: str) -> None:
    refusals = sample(found, service=True, **options)["refused"]
    assert [words in said for said in refusals] == ([True] if words else [])


def test_only_what_is_needed_is_asked() -> None:
    kinds = [query["kind"] for query in sample()["queries"]]
    assert kinds[0] == "Namespace"
    assert "CustomResourceDefinition" not in kinds
    assert sample(service=True, monitor=True)["queries"][-1]["name"] == CRD["metadata"]["name"]
