"""What the role gpu_loadtest takes, and what it refuses before anything is sent."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from collection import ROOT
from playbook import local, run_playbook
from role_values import RoleValues

LOAD: dict[str, Any] = {
    "gpu_loadtest_namespace": "ml",
    "gpu_loadtest_name": "chat",
    "gpu_loadtest_url": "http://chat:8000/",
    "gpu_loadtest_high": 40,
}
OWN = {"image": "docker.io/blazemeter/taurus:latest", "command": ["bzt", "/plan/plan.yml"]}
JOB = ROOT / "roles/gpu_loadtest/templates/job.yaml.j2"
NO_CLUSTER = "there is no kubeconfig at"


def said(folder: Path, **options: Any) -> str:
    role = {"ansible.builtin.include_role": {"name": "kubegpu.autoscale.gpu_loadtest"}}
    variables = {"kubegpu_kubeconfig": str(folder / "none"), **LOAD, **options}
    return " ".join(run_playbook(folder, local(role), variables).stdout.split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({}, NO_CLUSTER, id="defaults"),
        pytest.param({"gpu_loadtest_own": OWN, "gpu_loadtest_url": ""}, NO_CLUSTER, id="a generator of one's own"),
        pytest.param({"gpu_loadtest_own": {"image": "x"}}, "missing required arguments: command", id="half of one"),
        pytest.param(
            {"gpu_loadtest_url": "chat:8000"}, "gpu_loadtest_url is `chat:8000`, which is no address", id="url"
        ),
        pytest.param({"gpu_loadtest_low": "2", "gpu_loadtest_high": "40"}, NO_CLUSTER, id="text"),
        pytest.param({"gpu_loadtest_high": 1}, "that is no load to scale on", id="no load"),
        pytest.param({"gpu_loadtest_url": "grpc://chat:9000"}, "gpu_loadtest_grpc_method is ``", id="no method"),
    ],
)
def test_what_is_taken_and_what_is_refused(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    assert words in said(tmp_path, **options)


@pytest.mark.parametrize("form", [lambda number: number, str], ids=["numbers", "as the command line gives them"])
def test_numbers_may_be_text(form: Any) -> None:
    given = {"low": 2, "high": 40, "settle": 10, "rise": 5, "hold": 60, "fall": 90, "timeout": 3, "start_timeout": 30}
    options = {f"gpu_loadtest_{name}": form(number) for name, number in given.items()}

    looked = {"result": {"scale_down_window_s": 300}}
    told = {"__gpu_loadtest_looked": looked, "__gpu_loadtest_files": "{}"}

    role = RoleValues("gpu_loadtest", LOAD | options | {"gpu_loadtest_budget": form(12)}, told)

    assert [stage["seconds"] for stage in role["__gpu_loadtest_stages"]] == [10, 5, 60, 90]
    assert role["__gpu_loadtest_plan"]["scenario"]["maxVUs"] == 120
    assert role["__gpu_loadtest_budget"] == 12.0
    [_secret, job] = yaml.safe_load_all(role[f"lookup('ansible.builtin.template', '{JOB}')"])
    assert job["spec"]["activeDeadlineSeconds"] == 165 + 30 + 60


def test_the_plan_goes_with_the_job() -> None:
    """A killed run leaves its Secret else, with what gpu_loadtest_headers has: only the Job has a time to live."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "loadtest-chat", "uid": "u"}
    told = {"__gpu_loadtest_looked": {"result": {"scale_down_window_s": 300}}, "__gpu_loadtest_files": "{}"}

    def owners(**variables: Any) -> Any:
        role = RoleValues("gpu_loadtest", LOAD | {"gpu_loadtest_budget": 12}, told | variables)
        [secret, _job] = yaml.safe_load_all(role[f"lookup('ansible.builtin.template', '{JOB}')"])
        return secret["metadata"]["ownerReferences"]

    assert owners() == []
    assert owners(__gpu_loadtest_owners=[owner]) == [owner]


RUNS: dict[str, Any] = {"running": {"startedAt": "2026-11-26T01:00:00Z"}}


@pytest.mark.parametrize(
    ("load", "exits"),
    [({"terminated": {"exitCode": 0}}, [0]), ({"terminated": {"exitCode": 99}}, [99]), (RUNS, []), (None, [])],
    ids=["done", "failed", "running", "not started"],
)
def test_a_proxy_that_goes_on_beside_the_generator_is_not_waited_for(load: Any, exits: list[int]) -> None:
    """The Job does not end as long as a mesh's proxy runs in its pod."""
    statuses = [{"name": "istio-proxy", "state": RUNS}, {"name": "load", "state": load}]
    pod = {"status": {"containerStatuses": statuses} if load else {"phase": "Pending"}}

    role = RoleValues("gpu_loadtest", LOAD, {"__gpu_loadtest_pods": {"resources": [pod]}})

    assert role["__gpu_loadtest_exits"] == exits


def test_the_log_of_the_generator_is_read_and_of_no_proxy() -> None:
    """Where a pod has several containers the API server wants to be told which."""
    [_info, _clean, block, _judge] = yaml.safe_load((ROOT / "roles/gpu_loadtest/tasks/load.yml").read_text())
    [log] = [task["kubernetes.core.k8s_log"] for task in block["block"] if "kubernetes.core.k8s_log" in task]
    [container] = re.findall(r"^ +- name: (\S+)$", JOB.read_text(), re.MULTILINE)
    assert log["container"] == container


@pytest.mark.parametrize("name", ["chat", "meta-llama-3-1-70b-instruct-awq-int4-production-predictor", "x" * 63])
def test_the_job_of_an_autoscaler_with_a_long_name_has_a_valid_one(name: str) -> None:
    """A Job's name is a label of its pods: 63 characters, and no dash at the end."""
    part = RoleValues("gpu_loadtest", {"gpu_loadtest_name": name}, {})["__gpu_loadtest_part"]
    assert re.fullmatch("loadtest-[a-z0-9]([-a-z0-9.]{0,52}[a-z0-9])?", part)
    assert (part == f"loadtest-{name}") is (len(name) <= 54)
