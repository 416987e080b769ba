"""vLLM itself, on a processor with a tiny model: profiles, HPA and doctor at each load, and a target found from a goal.

Prometheus, adapter, API server and HPA controller are real; pods are objects.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from control_plane import ControlPlane, eventually, running
from job_kubelet import generators, loadtest
from kubernetes import client
from metric_chain import PROOF_S
from prometheus_rules import remove_rules, serve_kind
from real_servers import Ask, ServersChain, Streamed, complete, completion, tiny_model, users, vllm, vllm_process
from workloads import Workloads

# `make test` does not install it: its own target does.
pytestmark = [
    pytest.mark.skipif(not os.environ.get("MODELS"), reason="`make test-models` installs it"),
    pytest.mark.timeout(2400),
]
Run = Callable[..., dict[str, Any]]

NAMESPACE, NODE = "ml", "gpu1"
TOKENS = 8  # of an answer while a target is searched
SLOTS = 4  # --max-num-seqs: requests that run at once
CAP = 6  # --max-num-queued-reqs: requests that it admits
# The doctor reads rejections of the last five minutes, and needs two samples.
SEEN_S = 240


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[dict[str, int]]:
    """One that lets all requests wait, and one that rejects what it does not admit."""
    work = tmp_path_factory.mktemp("servers")
    with ExitStack() as stack:
        options: dict[str, list[str]] = {"open": [], "capped": ["--max-num-queued-reqs", str(CAP)]}
        yield {name: stack.enter_context(vllm(work / name, model, *more)) for name, more in options.items()}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, client.ApiClient]]:
    with running(tmp_path_factory.mktemp("control-plane")) as (plane, kube):
        serve_kind(kube)
        yield plane, kube


@pytest.fixture(scope="module")
def kube(plane: tuple[ControlPlane, client.ApiClient]) -> client.ApiClient:
    return plane[1]


@pytest.fixture(scope="module")
def chain(plane: tuple[ControlPlane, client.ApiClient], servers: dict[str, int]) -> Iterator[ServersChain]:
    chain = ServersChain(*plane, {f"{NAMESPACE}/{name}-0": port for name, port in servers.items()})
    chain.start()
    yield chain
    chain.stop()


@pytest.fixture(scope="module")
def workloads(kube: client.ApiClient, chain: ServersChain, servers: dict[str, int]) -> Iterator[Workloads]:
    made = Workloads(kube, NAMESPACE)
    made.node(NODE, gpus=16)
    for name in servers:
        made.deployment(name)
        made.ready_pod(f"{name}-0", app=name)
    yield made
    remove_rules(kube)


def wanted(kube: client.ApiClient, name: str) -> int:
    status = client.AutoscalingV2Api(kube).read_namespaced_horizontal_pod_autoscaler(name, NAMESPACE).status
    return status.desired_replicas or 0


def findings(run: Run, name: str) -> list[dict[str, Any]]:
    """But for those about the node, on which nothing runs."""
    found = run("gpu_doctor", namespace=NAMESPACE, name=name, grace=False)["result"]["findings"]
    return [finding for finding in found if finding["object"] != f"node {NODE}"]


def answered_ms(ask: Ask) -> float:
    began_s = time.monotonic()
    assert ask() == 200
    return 1000 * (time.monotonic() - began_s)


def test_each_load_is_read_scaled_and_judged(
    run: Run, kube: client.ApiClient, chain: ServersChain, workloads: Workloads, servers: dict[str, int]
) -> None:
    """Idle, then half of its slots, then four times as many users as it has slots."""
    spec = {"namespace": NAMESPACE, "target": {"name": "open"}, "metric": "llm_in_flight", "target_value": 4}
    with_queue = [{**spec, "max_replicas": 8, "extra_metrics": [{"metric": "llm"}]}]
    proven = run(verify=True, wait_timeout=PROOF_S, autoscalers=with_queue)
    assert not proven.get("failed"), proven
    names = ("llm_in_flight", "llm_requests_waiting", "llm_kv_cache")
    assert [chain.value(name, "open-0") for name in names] == [0, 0, 0]
    assert findings(run, "open") == []

    def read(name: str, value: float) -> None:
        eventually(lambda: chain.value(name, "open-0") == value, f"{name} is {value}", PROOF_S)

    with users(2, complete(servers["open"])):
        read("llm_in_flight", 2)
        read("llm_requests_waiting", 0)
        assert wanted(kube, "open") == 1
        assert findings(run, "open") == []

    with users(16, complete(servers["open"])) as statuses:
        read("llm_in_flight", 16)
        read("llm_requests_waiting", 16 - SLOTS)
        eventually(lambda: wanted(kube, "open") == 4, "16 in flight are four pods at four each", PROOF_S)
        kv_cache = chain.value("llm_kv_cache", "open-0")
        # The slots are full long before the cache is: its usage alone would never scale.
        assert kv_cache is not None
        assert 0 < kv_cache < 10
        assert findings(run, "open") == []
    assert set(statuses) == {200}
    read("llm_in_flight", 0)


def test_a_capped_queue_is_seen_and_reported(
    run: Run, kube: client.ApiClient, chain: ServersChain, workloads: Workloads, servers: dict[str, int]
) -> None:
    """Twenty users of a server that admits six: most are rejected, and its own gauges show six."""
    spec = {"namespace": NAMESPACE, "target": {"name": "capped"}, "metric": "llm_in_flight", "max_replicas": 8}
    assert not run(verify=True, wait_timeout=PROOF_S, autoscalers=[{**spec, "target_value": 20}]).get("failed")
    assert findings(run, "capped") == []

    with users(20, complete(servers["capped"])) as statuses:

        def rejected() -> list[dict[str, Any]]:
            return [found for found in findings(run, "capped") if found["id"] == "REJECTED_BELOW_TARGET"]

        [finding] = eventually(rejected, "the doctor names the rejections", SEEN_S)
        assert "capped-0 rejected up to" in finding["seen"][0]
        assert wanted(kube, "capped") == 1
        # Rejected requests count as much again as those in flight, so a target below twice the limit scales.
        assert not run(autoscalers=[{**spec, "target_value": CAP}]).get("failed")
        eventually(lambda: wanted(kube, "capped") >= 2, "it scales for those that are rejected", PROOF_S)
    assert statuses[503] > statuses[200] > 0


def test_a_target_is_found_from_a_goal_and_measured_again(
    tmp_path: Path,
    plane: tuple[ControlPlane, client.ApiClient],
    run: Run,
    workloads: Workloads,
    servers: dict[str, int],
) -> None:
    """The goal holds for one user on any machine: a first token in twice the time of a whole answer."""
    spec = {"namespace": NAMESPACE, "target": {"name": "open"}, "metric": "llm_in_flight", "target_value": 30}
    with_queue = {**spec, "max_replicas": 1, "extra_metrics": [{"metric": "llm"}]}
    assert not run(verify=True, wait_timeout=PROOF_S, autoscalers=[with_queue]).get("failed")
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": datetime.now(UTC).isoformat()}
    address = {"podIP": plane[0].address, "podIPs": [{"ip": plane[0].address}], "conditions": [ready]}
    client.CoreV1Api(plane[1]).patch_namespaced_pod_status("open-0", NAMESPACE, {"status": address})
    goal_ms = 2 * max(answered_ms(complete(servers["open"], TOKENS)) for _request in range(20))

    body = json.dumps(completion(TOKENS, stream=True, stream_options={"include_usage": True}))
    options = {
        "name": "open",
        "find_target": True,
        "goals": {"ttft_p95_ms": goal_ms},
        "level": 10,
        "timeout": 60,
        "url": "http://open/v1/completions",
        "pod_port": servers["open"],
        "method": "POST",
        "headers": {"Content-Type": "application/json"},
        "body": body,
    }
    with generators(*plane, NAMESPACE, tmp_path / "pods"):
        told, report = loadtest(tmp_path, plane[0], NAMESPACE, **options)
    found = json.loads((report / "target.json").read_text())
    levels = {level["users"]: level for level in found["levels"]}
    assert {1, 2} <= set(levels)
    for level in levels.values():
        assert 0 < level["metrics"]["llm_in_flight"] <= level["users"]
        assert level["ttft_ms"]["p50"] < level["latency_ms"]["p50"]
        assert level["tokens_per_second"] == pytest.approx(TOKENS * level["per_second"], abs=0.1)
    assert levels[1]["metrics"]["llm_in_flight"] < levels[max(levels)]["metrics"]["llm_in_flight"]

    row = next(row for row in found["metrics"] if row["metric"] == "llm_in_flight")
    assert f"target_value: {row['value']:g} # of llm_in_flight" in told
    assert row["value"] <= row["users"] <= row["knee"]
    # Whether the same users meet it again is up to the machine. It is reported either way.
    again = found["confirmation"]
    assert again["level"]["users"] == row["users"]
    [goal] = [goal for goal in again["goals"] if goal["goal"] == "ttft_p95_ms"]
    assert goal["seen"] == again["level"]["ttft_ms"]["p95"]
    assert (found["problems"] == []) == again["holds"] == ("failed=0" in told)


# Without a byte for so long, a client gives up. Two processors that others use compute a token in less.
SILENCE_S = 20


@pytest.mark.parametrize("options", [(), ("--shutdown-timeout", "120")], ids=["as-shipped", "shutdown-timeout"])
def test_streams_at_sigterm(tmp_path: Path, model: Path, options: tuple[str, ...]) -> None:
    """As shipped, the engine ends at once. The streams are aborted, or stay open without another byte.

    With a timeout they are completed. What comes meanwhile is answered with an empty stream and status 200, so a
    preStop hook has to wait until no proxy sends requests.
    """
    with vllm_process(tmp_path, model, *options) as (port, process):
        streams = [Streamed(port, 200, SILENCE_S) for _slot in range(SLOTS)]
        readers = [threading.Thread(target=stream.read) for stream in streams]
        for reader in readers:
            reader.start()
        eventually(lambda: all(stream.events for stream in streams), "each stream has a token", 120)
        process.send_signal(signal.SIGTERM)
        assert not any(stream.is_done for stream in streams)
        time.sleep(1)
        late = Streamed(port, 8, SILENCE_S)
        late.read()
        for reader in readers:
            reader.join()
    assert [stream.finish_reason == "length" for stream in streams] == [bool(options)] * SLOTS
    assert (late.events, late.is_done) == (0, bool(options))
