"""The Job of a load test: how long it lives, what it runs, and when it has ended."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.filter.roles import loadtest_longest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.kube_names import short_name
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.job import exits as loadtest_exits
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.job import loadtest_objects

GENERATOR: dict[str, Any] = {
    "name": "loadtest-chat",
    "namespace": "ml",
    "inventory": "prod",
    "image": "locust",
    "files": {"plan.json": "{}"},
    "start_timeout": 30,
}
STAGES: list[dict[str, Any]] = [
    {"name": "rise", "seconds": 65, "first": 2.0, "last": 40.0},
    {"name": "hold", "seconds": 100, "first": 40.0, "last": 40.0},
]
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "loadtest-chat", "uid": "u"}


def made(**options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    [secret, job] = loadtest_objects(GENERATOR | options, STAGES, [OWNER])
    return secret, job


def test_there_is_no_secret_without_the_job_as_its_owner() -> None:
    """A killed run would leave it, with what gpu_loadtest_headers has: only the Job has a time to live."""
    assert [manifest["kind"] for manifest in loadtest_objects(GENERATOR, STAGES)] == ["Job"]
    secret, job = made()
    assert secret["metadata"]["ownerReferences"] == [OWNER]
    assert [job] == loadtest_objects(GENERATOR, STAGES)


def test_the_job_ends_by_itself() -> None:
    assert made()[1]["spec"]["activeDeadlineSeconds"] == 165 + 30 + 60


def test_the_job_reads_the_files_of_the_secret() -> None:
    secret, job = made()
    [plan, _tmp] = job["spec"]["template"]["spec"]["volumes"]
    assert b64decode(secret["data"]["plan.json"]) == b"{}"
    assert plan["secret"]["secretName"] == secret["metadata"]["name"]


PLAN = {"url": "http://chat", "timeout_s": "3", "most_users": "50"}


def test_locust_gets_the_plan_with_the_stages() -> None:
    """Numbers of a command line are text."""
    secret, _job = made(files={"locustfile.py": "#"}, plan=PLAN)
    written = json.loads(b64decode(secret["data"]["plan.json"]))
    assert written == {
        "url": "http://chat",
        "timeout_s": 3.0,
        "most_users": 50,
        "stages": STAGES,
        "parts": [{"begins_s": 0, "ends_s": 65}, {"begins_s": 65, "ends_s": 165}],
    }
    assert b64decode(secret["data"]["locustfile.py"]) == b"#"
    assert "plan.json" not in made(files={}, plan={})[0]["data"]


def test_a_search_for_a_target_lasts_as_long_as_it_may_take() -> None:
    """The deadline of the Job follows from the levels of users, not from stages."""
    sweep = {"settle_s": "10", "level_s": 20, "users": [], "goals": {"p95_ms": "500", "ttft_p95_ms": None}}
    secret, job = made(plan=PLAN, sweep=sweep)
    written = json.loads(b64decode(secret["data"]["plan.json"]))
    assert written["sweep"] == {
        "settle_s": 10.0,
        "level_s": 20.0,
        "users": [],
        "goals": {"rejected_percent": 1.0, "p95_ms": 500.0},
    }
    assert "stages" not in written
    assert loadtest_longest(sweep) == 14 * (10 + 3 * 20)
    assert job["spec"]["activeDeadlineSeconds"] == 14 * 70 + 30 + 60
    again = made(plan=PLAN, sweep=sweep | {"users": ["4"]})
    assert json.loads(b64decode(again[0]["data"]["plan.json"]))["sweep"]["users"] == [4]
    assert again[1]["spec"]["activeDeadlineSeconds"] == 70 + 30 + 60


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ([], {"args": ["--headless", "--only-summary", "--users=1", "--locustfile=/plan/locustfile.py"]}),
        (["bzt"], {"command": ["bzt"]}),
    ],
    ids=["Locust", "of one's own"],
)
def test_what_it_runs(command: list[str], runs: dict[str, Any]) -> None:
    [container] = made(command=command)[1]["spec"]["template"]["spec"]["containers"]
    assert {key: container[key] for key in ("args", "command") if key in container} == runs


def test_it_is_placed_as_the_inventory_says() -> None:
    tolerations = [{"key": "dedicated"}]
    pod = made(node_selector={"pool": "cpu"}, tolerations=tolerations)[1]["spec"]["template"]["spec"]
    assert (pod["nodeSelector"], pod["tolerations"]) == ({"pool": "cpu"}, tolerations)


RUNS: dict[str, Any] = {"running": {"startedAt": "2026-11-26T01:00:00Z"}}


@pytest.mark.parametrize(
    ("load", "exits"),
    [({"terminated": {"exitCode": 0}}, [0]), ({"terminated": {"exitCode": 99}}, [99]), (RUNS, []), (None, [])],
    ids=["done", "failed", "running", "not started"],
)
def test_a_proxy_that_goes_on_beside_the_generator_is_not_waited_for(load: Any, exits: list[int]) -> None:
    """The Job does not end as long as a mesh's proxy runs in its pod."""
    for proxy in (RUNS, {"terminated": {"exitCode": 1}}):
        statuses = [{"name": "istio-proxy", "state": proxy}, {"name": "load", "state": load}]
        assert loadtest_exits([{"status": {"containerStatuses": statuses} if load else {"phase": "Pending"}}]) == exits


def test_a_name_that_fits_stays_and_long_ones_stay_apart() -> None:
    long = "loadtest-meta-llama-3-1-70b-instruct-awq-int4-eu-central-.predictor"
    assert short_name("x" * 63) == "x" * 63
    assert len(short_name("x" * 64)) == 63
    assert short_name(long + "-a") != short_name(long + "-b")
    assert short_name("x" * 53 + "." + "y" * 20)[:54] == "x" * 53 + "-"
