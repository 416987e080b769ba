"""Evidence for CNCF's AI conformance: nothing is claimed that a proof has not seen."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.dcgm_fields import NAMES_IN_1X, in_todays
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.conformance import (
    REQUIREMENTS,
    conformance_files,
    conformance_lines,
)

AT = "2026-11-28T17:00:00+00:00"
NODE = {"node": "gpu1", "status": "proven", "reason": "new", "text": "", "gpus": 8, "pods": 2, "of": 8}
FIELDS = {"DCGM_FI_DEV_GPU_UTIL": 8, "DCGM_FI_DEV_FB_USED": 8, "DCGM_FI_DEV_GPU_TEMP": 8, "DCGM_FI_DEV_XID_ERRORS": 3}
SERIES = {name: {"gpu1": gpus} for name, gpus in FIELDS.items()}
DECISION = {"before": 1, "after": 2, "dry": False, "value": 100.0, "target_value": 50, "seconds": 6.1}
DECISION |= {"down_s": 7.2, "ready": 2, "left": 1}
PROOF: dict[str, Any] = {
    "generated_at": AT,
    "seconds": 61.4,
    "proven_now": True,
    "gpu_nodes": ["gpu1"],
    "adds_nodes": False,
    "nodes": [{**NODE, "unrequested": "denied", "is_shared": False}],
    "chain": {
        "status": "proven",
        "reason": "new",
        "decision": DECISION,
        "metrics": {"series": SERIES, "served": 14.0, "unscraped": ""},
    },
}
SHOWN = {"secure_accelerator_access", "pod_autoscaling", "accelerator_metrics", "ai_service_metrics"}
LACKING = {"ai_inference", "gang_scheduling", "robust_controller"}
Change = Callable[[dict[str, Any]], Any]


def product(proof: Mapping[str, Any], **more: Any) -> dict[str, dict[str, Any]]:
    """The entries of the form by id."""
    found = yaml.safe_load(conformance_files(proof, **more)["PRODUCT.yaml"])
    return {entry["id"]: entry for entries in found["spec"].values() for entry in entries}


def outcomes(proof: Mapping[str, Any]) -> dict[str, str]:
    """As CNCF's validator reads a JUnit file."""
    root = ElementTree.fromstring(conformance_files(proof)["junit.xml"])
    return {
        case.attrib["name"]: next((tag for tag in ("failure", "skipped") if case.find(tag) is not None), "passed")
        for case in root.iter("testcase")
    }


def test_a_full_proof_shows_what_it_has_seen_and_nothing_else() -> None:
    entries = product(PROOF, servers=["gpu1"])
    assert {name for name, entry in entries.items() if entry["status"] == "Implemented"} == SHOWN
    assert entries["cluster_autoscaling"]["status"] == "N/A"
    assert entries["cluster_autoscaling"]["notes"], "N/A needs notes"
    for name in SHOWN:
        assert entries[name]["evidence"] == [f"file://junit.xml#{name}"]
        assert AT in entries[name]["notes"]
        assert outcomes(PROOF)[name] == "passed"
    rest = {name: entry for name, entry in entries.items() if name not in SHOWN | {"cluster_autoscaling"}}
    assert all((entry["status"], entry["evidence"]) == ("", []) for entry in rest.values())
    assert {name for name, entry in rest.items() if entry["level"] == "MUST"} == LACKING


def test_no_name_of_a_test_of_upstream_is_used() -> None:
    """A file with one would claim that the suite ran."""
    texts = conformance_files(PROOF)
    assert "TestSecure" not in "".join(texts.values())
    assert set(texts) == {"PRODUCT.yaml", "junit.xml", "observations.json"}, "results.json is upstream's own format"
    assert json.loads(texts["observations.json"]) == PROOF


def node(**more: Any) -> Change:
    return lambda proof: proof["nodes"][0].update(more)


def chain(**more: Any) -> Change:
    return lambda proof: proof["chain"].update(more)


def metrics(**more: Any) -> Change:
    return lambda proof: proof["chain"]["metrics"].update(more)


TAKEN_AWAY: dict[str, list[tuple[Change, str]]] = {
    "secure_accelerator_access": [
        (node(unrequested="visible"), "failure"),
        (node(unrequested=""), "skipped"),
        (node(status="failed"), "failure"),
        (node(status="kept"), "skipped"),
        (node(status="waiting"), "skipped"),
        (node(pods=1), "skipped"),  # GPUs of an earlier run count in `gpus`
        (node(is_shared=True), "skipped"),
        (lambda proof: proof["nodes"].clear(), "skipped"),
        (lambda proof: proof["nodes"].append({**NODE, "status": "waiting", "unrequested": ""}), "skipped"),
    ],
    "pod_autoscaling": [
        (chain(status="failed"), "failure"),
        (chain(status="waiting"), "skipped"),
        (chain(status="kept"), "skipped"),
        (chain(decision={**DECISION, "down_s": None}), "failure"),
        (chain(decision={**DECISION, "dry": True}), "skipped"),
        *((chain(decision={**DECISION, "ready": ready}), "skipped") for ready in (0, 1)),
        *((chain(decision={**DECISION, "left": left}), "skipped") for left in (0, 2)),
    ],
    "accelerator_metrics": [
        (chain(metrics={}), "skipped"),
        (metrics(series={}), "skipped"),
        (metrics(series={name: {"gpu1": 7} for name in SERIES}), "failure"),
        (metrics(series={name: {"gpu2": 8} for name in SERIES}), "failure"),
        (node(of=9), "failure"),
        (node(is_shared=True), "skipped"),
        (node(status="waiting"), "skipped"),
        (lambda proof: proof["nodes"].append({**proof["nodes"][0], "node": "gpu2"}), "failure"),
        *(
            (metrics(series={kept: gpus for kept, gpus in SERIES.items() if kept != name}), "failure")
            for name in ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED")
        ),
    ],
    "ai_service_metrics": [
        (chain(metrics={}), "skipped"),
        (metrics(served=0.0), "failure"),
        (metrics(served=0.0, unscraped="no PodMonitor is served"), "skipped"),
    ],
}


def test_each_claim_has_evidence_that_is_taken_away() -> None:
    assert TAKEN_AWAY.keys() == SHOWN


@pytest.mark.parametrize(
    ("name", "change", "outcome"), [(name, *row) for name, rows in TAKEN_AWAY.items() for row in rows]
)
def test_without_its_evidence_nothing_is_claimed(name: str, change: Change, outcome: str) -> None:
    proof = deepcopy(PROOF)
    change(proof)
    entry = product(proof)[name]
    assert (entry["status"], entry["evidence"]) == ("", [])
    assert entry["notes"]
    assert outcomes(proof)[name] == outcome
    [line] = [line for line in conformance_lines(proof) if line.startswith(name)]
    assert {"failure": "NOT FULFILLED", "skipped": "NOT SHOWN"}[outcome] in line


@pytest.mark.parametrize("name", sorted({*NAMES_IN_1X, *NAMES_IN_1X.values(), "DCGM_FI_PROF_SM_ACTIVE"}))
def test_only_the_utilization_of_a_gpu_is_utilization(name: str) -> None:
    """Not that of its memory bus or video engines. Names of dcgm-exporter 1.x count, too."""
    proof = deepcopy(PROOF)
    metrics(series={"DCGM_FI_DEV_FB_USED": {"gpu1": 8}, name: {"gpu1": 8}})(proof)
    is_utilization = in_todays(name) in {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"}
    assert (product(proof)["accelerator_metrics"]["status"] == "Implemented") == is_utilization


@pytest.mark.parametrize(
    "change",
    [{"gpu_nodes": ["gpu1", "gpu2"]}, {"gpu_nodes": ["gpu2"]}, {"gpu_nodes": []}, {"adds_nodes": True}],
    ids=str,
)
def test_a_cluster_of_other_nodes_may_have_an_autoscaler(change: dict[str, Any]) -> None:
    """Nodes that this run did not prove count, too."""
    entry = product({**PROOF, **change}, servers=["gpu1"])["cluster_autoscaling"]
    assert (entry["status"], entry["evidence"]) == ("", [])
    assert entry["notes"]


def test_the_fields_of_a_given_form_stay() -> None:
    entry = {"id": "pod_autoscaling", "description": "text of the form", "level": "MUST", "status": "", "evidence": []}
    new = {"id": "new_in_1.38", "description": "new", "level": "MUST", "status": "", "evidence": [], "notes": ""}
    form = {"metadata": {"kubernetesVersion": "v1.38"}, "spec": {"schedulingOrchestration": [entry, new]}}
    found = yaml.safe_load(conformance_files(PROOF, form)["PRODUCT.yaml"])
    assert found["metadata"] == form["metadata"]
    [filled, unknown] = found["spec"]["schedulingOrchestration"]
    assert (filled["description"], filled["status"]) == ("text of the form", "Implemented")
    assert (unknown["description"], unknown["status"]) == ("new", "")


def test_each_requirement_is_one_case() -> None:
    names = [name for _section, name, _level, _judge in REQUIREMENTS]
    assert len(names) == len(set(names)) == 15
    assert list(outcomes(PROOF)) == names
