"""A proof in the words of a terminal, of the last lines of a run, and of a page."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.proof import (
    _WORDS,
    proof_junit,
    proof_lines,
    proof_page,
    proof_summary,
)

AT = "2026-11-26T17:00:00+00:00"
DECISION = {
    "before": 1,
    "after": 2,
    "dry": False,
    "value": 100.0,
    "target_value": 50,
    "seconds": 6.14,
    "budget_s": 10.0,
    "driver_s": 1.0,
    "late": False,
}


def node(name: str = "gpu1", status: str = "proven", reason: str = "new", **more: Any) -> dict[str, Any]:
    row = {"gpus": 8, "of": 8, "text": "", "unrequested": "denied", "is_shared": False, "seconds": 2.1, "wall": 4.4}
    return {"node": name, "status": status, "reason": reason, **row, **more}


def proof(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    hops = [{"hop": "pod", "title": "A pod is ready with a GPU", "seconds": 2.0}]
    chain = {"status": "proven", "reason": "new", "hops": hops, "decision": DECISION}
    base = {"generated_at": AT, "seconds": 31.4, "proven_now": True, "nodes": list(nodes) or [node()], "chain": chain}
    return {**base, **more}


def chain(status: str, reason: str) -> dict[str, Any]:
    return {"chain": {"status": status, "reason": reason, "hops": []}, "proven_now": False}


def test_each_hop_with_its_seconds() -> None:
    assert proof_lines(proof()) == [
        "CUDA on gpu1: proven: 8 of 8 GPUs computed in 2.1 s, pod included 4.4 s; pods without a request see no GPU",
        "A pod is ready with a GPU: 2.0 s",
        "Decision: 1 -> 2 replicas 6.1 s after the load step (budget 10 + 1 s), value 100 for target 50",
    ]


def test_the_last_words() -> None:
    assert proof_summary(proof()) == (
        "CUDA on 8 GPUs of gpu1; load step: 1 -> 2 replicas 6.1 s after the load step (budget 10 + 1 s), "
        "value 100 for target 50 (31.4 s)"
    )


def test_what_was_proven_before() -> None:
    kept = proof(node(status="kept", reason=AT, seconds=0.0, wall=0.0), **chain("kept", AT))
    assert proof_summary(kept) == f"CUDA on 8 GPUs of gpu1 (proven {AT}); scaling (proven {AT})"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            proof(node(status="waiting", reason="1 of 1 GPUs are in use: ml/chat")),
            "NOT PROVEN on gpu1: 1 of 1",
        ),
        (proof(**chain("waiting", "no GPU is free")), "scaling NOT PROVEN: no GPU is free"),
        (proof(node(gpus=6, text="2 of 8 GPUs are in use: ml/chat")), "GPUs in use on gpu1 left out"),
        (proof(nodes=[]), "NOT PROVEN, no node offers a GPU"),
        (proof(node(status="due")), "would be proven on gpu1: new"),
    ],
)
def test_what_is_not_proven_is_said(found: dict[str, Any], words: str) -> None:
    assert words in proof_summary(found)
    assert words.partition(":")[0].split(" on ")[0] in " ".join([*proof_lines(found), proof_summary(found)])


@pytest.mark.parametrize(
    ("down", "words"), [(7.24, "target 50; back to 1 after 7.2 s"), (None, "target 50; scale-down NOT SEEN")]
)
def test_the_way_down(down: float | None, words: str) -> None:
    decided = {"status": "proven", "reason": "", "hops": [], "decision": {**DECISION, "down_s": down}}
    assert words in proof_summary(proof(chain=decided))


def test_a_late_and_a_dry_decision() -> None:
    late = {**DECISION, "late": True, "dry": True}
    found = proof(chain={"status": "proven", "reason": "", "hops": [], "decision": late})
    assert "LATE: 1 -> 2 replicas" in proof_summary(found)
    assert "a dry decision: one GPU is free" in proof_summary(found)


def test_a_run_that_did_not_look() -> None:
    assert proof_summary(None) == "skipped by kubegpu_proof: false or by tags"


def test_the_page_has_hops_and_error_and_escapes_them() -> None:
    text = proof_page(proof(node(name="<gpu1>")), "node: <broken>")
    assert "The proof failed" in text
    assert "&lt;gpu1&gt;" in text
    assert "node: &lt;broken&gt;" in text
    assert "A pod is ready with a GPU" in text


@pytest.mark.parametrize("status", sorted(set(_WORDS) - {"off"}))
def test_a_test_case_passes_only_if_it_was_proven(status: str) -> None:
    found = proof(node("<gpu1>", status=status), **chain(status, AT)) if status != "proven" else proof(node("<gpu1>"))
    (suite,) = ElementTree.fromstring(proof_junit(found).encode())
    outcomes = {case.get("name"): [element.tag for element in case] for case in suite}
    expected = {"proven": "system-out", "kept": "system-out", "failed": "failure"}.get(status, "skipped")
    assert outcomes == {"CUDA on <gpu1>": [expected], "a workload scales on its GPU": [expected]}
    assert suite.get("failures") == str(2 * (status == "failed"))


def test_a_run_that_failed_and_found_nothing_has_cases() -> None:
    (suite,) = ElementTree.fromstring(proof_junit(proof(nodes=[], **chain("off", "")), "HPA -> ml: broken").encode())
    assert [(case.get("name"), case[0].tag) for case in suite] == [("CUDA", "skipped"), ("the run", "failure")]


@pytest.mark.parametrize(
    ("found", "error", "status"),
    [
        (proof(), "", "ok"),
        (proof(node(gpus=7, text="1 of 8 GPUs are in use: ml/chat")), "", "ok"),
        (proof(chain={**proof()["chain"], "decision": {**DECISION, "late": True}}), "", "warning"),
        (proof(node(), node("gpu2", status="waiting")), "", "partial"),
        (proof(node(status="failed")), "", "broken"),
        (proof(), "a -> b: wrong", "broken"),
        (proof(nodes=[]), "", "unknown"),
        (proof(node(status="waiting"), **chain("waiting", "no GPU is free")), "", "unknown"),
    ],
)
def test_the_page_has_a_status_and_the_cluster(found: dict[str, Any], error: str, status: str) -> None:
    shown = proof_page(found, error, "gpus-in-europe")
    assert f'class="light {status}"' in shown
    assert "<dt>Cluster</dt><dd>gpus-in-europe</dd>" in shown


def test_no_cell_is_empty_and_no_time_is_zero() -> None:
    quick = proof(node(status="kept", reason=AT, seconds=0.0))
    quick["chain"]["hops"].append({"hop": "metrics_api", "title": "The metrics API serves it", "seconds": 0.0})
    assert proof_lines(quick)[2] == "The metrics API serves it: < 0.1 s"
    assert "></td>" not in proof_page(quick)
    assert "0.0" not in proof_page(quick).partition("</style>")[2].replace("10.0", "")
