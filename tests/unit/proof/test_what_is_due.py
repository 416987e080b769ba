"""What has to be proven: what is new, has changed or has failed, and nothing twice."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof.due_proofs import ProofPlan, plan
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof.nodes import ProofNode
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof.record import DENIED, Entry, Record, record_of
from gpu_fleet import node, pod, read, server

AT = "2026-11-26T17:00:00+00:00"
CHAIN = {"adapter": "prometheus-adapter-5.3.0", "kubernetes": "v1.36.3"}


def proven(found: ProofNode, **more: Any) -> Record:
    values = {
        "at": AT,
        "versions": found.versions,
        "node": found.name,
        "gpus": found.provable,
        "unrequested": DENIED,
        **more,
    }
    return Record({found.machine: Entry(**values)}, Entry(AT, CHAIN))


def reasons(planned: ProofPlan) -> dict[str, str]:
    return {due.node.name: due.reason for due in planned.due}


def test_all_is_new_at_first() -> None:
    planned = plan(read(node("gpu1"), node("gpu2")), Record(), CHAIN)
    assert reasons(planned) == {"gpu1": "new", "gpu2": "new"}
    assert planned.chain == "new"


def test_nothing_is_proven_twice() -> None:
    (found,) = read(node(), servers=[server()])
    planned = plan([found], proven(found), CHAIN)
    assert planned.is_empty
    assert planned.kept == {"gpu1": AT}
    assert planned.waiting == {}


def test_a_node_that_joins() -> None:
    first, second = read(node("gpu1"), node("gpu2"))
    planned = plan([first, second], proven(first), CHAIN)
    assert reasons(planned) == {"gpu2": "new"}
    assert planned.chain == ""


def test_a_machine_that_takes_the_place_of_a_node() -> None:
    (before,) = read(node())
    (after,) = read(node(machine="another"))
    assert reasons(plan([after], proven(before), CHAIN)) == {"gpu1": "new"}


def test_another_driver_is_named() -> None:
    (before,) = read(node(), servers=[server()])
    planned = plan(read(node(), servers=[server(driver="595.91.07")]), proven(before), CHAIN)
    assert reasons(planned) == {"gpu1": "driver 580.178.04 -> 595.91.07"}
    assert planned.chain == ""


def test_another_chart_of_the_chain_is_named() -> None:
    (found,) = read(node())
    planned = plan([found], proven(found), {**CHAIN, "adapter": "prometheus-adapter-5.4.0"})
    assert planned.due == ()
    assert planned.chain == "adapter prometheus-adapter-5.3.0 -> prometheus-adapter-5.4.0"


def test_what_failed_is_tried_again() -> None:
    (found,) = read(node())
    record = Record(proven(found, error={"text": "no"}).machines, Entry(AT, CHAIN, error={"text": "no"}))
    planned = plan([found], record, CHAIN)
    assert reasons(planned) == {"gpu1": "failed before"}
    assert planned.chain == "failed before"


def test_gpus_in_use_wait_and_are_proven_once_they_are_free() -> None:
    busy = read(node(gpus=2), pods=[pod("chat", 1)])
    record = proven(busy[0], gpus=1, uuids=("GPU-a",))
    waits = plan(busy, record, CHAIN)
    assert waits.is_empty
    assert waits.waiting == {"gpu1": "1 of 2 GPUs are in use: ml/chat"}
    assert reasons(plan(read(node(gpus=2)), record, CHAIN)) == {"gpu1": "1 of 2 GPUs were not proven"}


@pytest.mark.parametrize(
    ("nodes", "pods", "reason"),
    [
        ([node(gpus=1)], [pod("chat", 1)], "1 of 1 GPUs are in use: ml/chat"),
        ([node(ready=False)], [], "the node is not ready"),
        ([node(machine="")], [], "the kubelet reports no machine ID"),
    ],
)
def test_what_cannot_be_proven_now(nodes: list[Any], pods: list[Any], reason: str) -> None:
    planned = plan(read(*nodes, pods=pods), Record(), None)
    assert planned.due == ()
    assert planned.waiting == {"gpu1": reason}


def test_a_cordoned_node_is_proven_before_it_is_uncordoned() -> None:
    assert reasons(plan(read(node(unschedulable=True)), Record(), None)) == {"gpu1": "new"}


def test_a_proof_that_is_asked_for_again() -> None:
    (found,) = read(node())
    planned = plan([found], proven(found), CHAIN, repeat=True)
    assert reasons(planned) == {"gpu1": "repeated"}
    assert planned.chain == "repeated"


def test_the_chain_may_be_left_out() -> None:
    assert plan([], Record(), None).chain == ""


def test_the_record_is_what_was_written() -> None:
    (found,) = read(node(gpus=2))
    record = proven(found, gpus=1, uuids=("GPU-a",), error={"text": "no", "code": 999})
    assert record_of(record.config_map("default")) == record


def test_an_entry_that_makes_no_sense_was_never_proven() -> None:
    damaged = {"data": {"machine-gpu1": "{", "machine-gpu2": '{"at": "", "what": 1}', "chain": "[]"}}
    assert record_of(damaged) == Record()


def test_a_thousand_nodes_fit_into_one_config_map() -> None:
    nodes = read(*(node(f"gpu{number}", machine=f"{number:032x}") for number in range(1000)))
    machines = {found.machine: proven(found).machines[found.machine] for found in nodes}
    data = Record(machines).config_map("default")["data"]
    assert sum(len(key) + len(text) for key, text in data.items()) < 512 * 1024
