"""Options of the role gpu_loadtest that are accepted, and those that are rejected before anything is sent."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.job import CONTAINER
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
FIND = {"gpu_loadtest_find_target": "true", "gpu_loadtest_goals": {"p95_ms": "500"}, "gpu_loadtest_high": 0}
STREAM = '{"model": "m", "prompt": "Hello", "stream": true}'
HERE = {"role_path": str(ROOT / "roles" / "gpu_loadtest")}
NO_CLUSTER = "there is no kubeconfig at"


# Options, and what the run ends with; each option that is accepted ends with NO_CLUSTER.
OPTIONS = {
    "defaults": ({}, NO_CLUSTER),
    "a generator of one's own": ({"gpu_loadtest_own": OWN, "gpu_loadtest_url": ""}, NO_CLUSTER),
    "half of one": ({"gpu_loadtest_own": {"image": "x"}}, "missing required arguments: command"),
    "url": ({"gpu_loadtest_url": "chat:8000"}, "gpu_loadtest_url is `chat:8000`, which is not a URL"),
    "text": ({"gpu_loadtest_low": "2", "gpu_loadtest_high": "40"}, NO_CLUSTER),
    "no load": ({"gpu_loadtest_high": 1}, "that is no load to scale on"),
    "grpc": ({"gpu_loadtest_url": "grpc://chat:9000"}, "which is not a URL of http or https"),
    "find a target": (FIND, NO_CLUSTER),
    "no goal": (FIND | {"gpu_loadtest_goals": {"rejected_percent": 1}}, "no goal of a time is given"),
    "a pod by https": (FIND | {"gpu_loadtest_url": "https://chat/"}, "which no certificate has"),
    "a target by another": (FIND | {"gpu_loadtest_own": OWN}, "its number of users cannot be raised"),
    "goals": ({"gpu_loadtest_goals": {"p95_ms": "2000", "rejected_percent": 1}}, NO_CLUSTER),
    "a goal of a stream": ({"gpu_loadtest_goals": {"ttft_p95_ms": 500}, "gpu_loadtest_body": STREAM}, NO_CLUSTER),
    "a goal of a stream without one": (
        {"gpu_loadtest_goals": {"ttft_p95_ms": 500}, "gpu_loadtest_body": "{}"},
        "gpu_loadtest_body asks for no stream",
    ),
    "an unknown goal": ({"gpu_loadtest_goals": {"p95": 1}}, "p95. Supported parameters include"),
    "a goal for a generator of one's own": (
        {"gpu_loadtest_own": OWN, "gpu_loadtest_goals": {"p95_ms": 1}},
        "the latency of its requests is unknown",
    ),
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each case ends with, all in one run."""
    folder = tmp_path_factory.mktemp("options")
    role = {"ansible.builtin.include_role": {"name": "kubegpu.autoscale.gpu_loadtest"}}
    blocks = [
        {
            "block": [{"ansible.builtin.debug": {"msg": f"CASE {name}:"}}, role],
            "rescue": [{"ansible.builtin.meta": "noop"}],
            "vars": {**LOAD, **options},
        }
        for name, (options, _words) in OPTIONS.items()
    ]
    done = run_playbook(folder, local(*blocks), {"kubegpu_kubeconfig": str(folder / "none")})
    cases = " ".join(done.stdout.split()).split("CASE ")[1:]
    return dict(case.split(":", 1) for case in cases)


@pytest.mark.parametrize("name", OPTIONS)
def test_what_is_taken_and_what_is_refused(said: dict[str, str], name: str) -> None:
    assert OPTIONS[name][1] in said[name]


[_CLEAN, LOADING, _FIGURES] = yaml.safe_load((ROOT / "roles/gpu_loadtest/tasks/generator.yml").read_text())
START = next(task for task in LOADING["block"] if "kubegpu.autoscale.objects" in task)
# As the task gives them that creates the Secret, when the Job exists.
OBJECTS = START["kubegpu.autoscale.objects"]["objects"].strip("{} ").replace("__gpu_loadtest_owners", "[{'uid': 'u'}]")


@pytest.mark.parametrize("form", [lambda number: number, str], ids=["numbers", "as the command line gives them"])
def test_numbers_may_be_text(form: Any) -> None:
    given = {"low": 2, "high": 40, "settle": 10, "rise": 5, "hold": 60, "fall": 90, "timeout": 3, "start_timeout": 30}
    options = {f"gpu_loadtest_{name}": form(number) for name, number in given.items()}

    told = {"__gpu_loadtest_looked": {"result": {"scale_down_window_s": 300}}, **HERE}

    role = RoleValues("gpu_loadtest", LOAD | options | {"gpu_loadtest_budget": form(12)}, told)

    assert [stage["seconds"] for stage in role["__gpu_loadtest_stages"]] == [10, 5, 60, 90]
    assert role["__gpu_loadtest_budget"] == 12.0
    [secret, job] = role[OBJECTS]
    plan = json.loads(b64decode(secret["data"]["plan.json"]))
    assert [stage["seconds"] for stage in plan["stages"]] == [10, 5, 60, 90]
    assert (plan["timeout_s"], plan["most_users"], plan["url"]) == (3, 1000, "http://chat:8000/")
    assert b64decode(secret["data"]["locustfile.py"]).startswith(b"#")
    assert b64decode(secret["data"]["pace.py"]).startswith(b"#")
    assert job["spec"]["activeDeadlineSeconds"] == 165 + 30 + 60


@pytest.mark.parametrize(
    ("ports", "options", "url"),
    [
        pytest.param([8000], {}, "http://10.244.1.7:8000/v1?a=b", id="its only port"),
        pytest.param([9000, 80], {}, "http://10.244.1.7:80/v1?a=b", id="the URL's"),
        pytest.param([9000, 80], {"gpu_loadtest_pod_port": "9000"}, "http://10.244.1.7:9000/v1?a=b", id="given"),
    ],
)
def test_a_search_for_a_target_asks_one_pod(ports: list[int], options: dict[str, Any], url: str) -> None:
    pod = {"name": "chat-a", "uid": "u", "address": "10.244.1.7", "ports": ports}
    told = {"__gpu_loadtest_looked": {"result": {"scale_down_window_s": 300, "ready_pods": [pod]}}, **HERE}
    given = LOAD | {"gpu_loadtest_url": "http://chat/v1?a=b", "gpu_loadtest_budget": 11.5} | FIND | options
    role = RoleValues("gpu_loadtest", given, told)
    [secret, _job] = role[OBJECTS]
    plan = json.loads(b64decode(secret["data"]["plan.json"]))
    assert plan["url"] == url
    assert plan["sweep"] == {
        "settle_s": 11.5,
        "level_s": 20,
        "users": [],
        "goals": {"rejected_percent": 1, "p95_ms": 500},
    }


def test_a_pod_with_several_ports_and_none_of_the_url_is_asked_for_one() -> None:
    pod = {"name": "chat-a", "uid": "u", "address": "10.244.1.7", "ports": [1, 2]}
    told = {"__gpu_loadtest_looked": {"result": {"ready_pods": [pod]}}}
    assert int(RoleValues("gpu_loadtest", LOAD | FIND, told)["__gpu_loadtest_pod_port"]) == 0


def test_a_generator_of_one_s_own_has_its_files(tmp_path: Path) -> None:
    (tmp_path / "plan.yml").write_text("rate: 5\n")
    own = OWN | {"files": {"plan.yml": str(tmp_path / "plan.yml")}}
    told = {"__gpu_loadtest_looked": {"result": {"scale_down_window_s": 300}}}

    [secret, job] = RoleValues("gpu_loadtest", LOAD | {"gpu_loadtest_own": own}, told)[OBJECTS]

    [container] = job["spec"]["template"]["spec"]["containers"]
    assert {name: b64decode(data) for name, data in secret["data"].items()} == {"plan.yml": b"rate: 5\n"}
    assert (container["image"], container["command"]) == (OWN["image"], OWN["command"])
    assert "args" not in container


def test_the_log_of_the_generator_is_read_and_of_no_proxy() -> None:
    """Where a pod has several containers the API server wants to be told which."""
    [log] = [task["kubernetes.core.k8s_log"] for task in LOADING["block"] if "kubernetes.core.k8s_log" in task]
    assert log["container"] == CONTAINER


@pytest.mark.parametrize("name", ["chat", "meta-llama-3-1-70b-instruct-awq-int4-production-predictor", "x" * 63])
def test_the_job_of_an_autoscaler_with_a_long_name_has_a_valid_one(name: str) -> None:
    """A Job's name is a label of its pods: 63 characters, and no dash at the end."""
    part = RoleValues("gpu_loadtest", {"gpu_loadtest_name": name}, {})["__gpu_loadtest_part"]
    assert re.fullmatch("loadtest-[a-z0-9]([-a-z0-9.]{0,52}[a-z0-9])?", part)
    assert (part == f"loadtest-{name}") is (len(name) <= 54)
