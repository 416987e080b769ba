"""Evidence for CNCF's AI conformance: nothing is claimed that a proof has not seen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.dcgm_fields import NAMES_IN_1X, in_todays
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.conformance import (
    REQUIREMENTS,
    conformance_error,
    conformance_files,
    conformance_lines,
)
from conformance_proofs import AT, PROOF, TAKEN_AWAY, Change, changed, metrics

SHOWN = {"secure_accelerator_access", "pod_autoscaling", "accelerator_metrics", "ai_service_metrics"}
LACKING = {"ai_inference", "gang_scheduling", "robust_controller"}


def product(proof: Mapping[str, Any], **more: Any) -> dict[str, dict[str, Any]]:
    """The entries of the form by id."""
    found = yaml.load(conformance_files(proof, **more)["PRODUCT.yaml"], yaml.CSafeLoader)
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


def test_each_claim_has_evidence_that_is_taken_away() -> None:
    assert TAKEN_AWAY.keys() == SHOWN


@pytest.mark.parametrize(
    ("name", "change", "outcome"), [(name, *row) for name, rows in TAKEN_AWAY.items() for row in rows]
)
def test_without_its_evidence_nothing_is_claimed(name: str, change: Change, outcome: str) -> None:
    proof = changed(change)
    entry = product(proof)[name]
    assert (entry["status"], entry["evidence"]) == ("", [])
    assert entry["notes"]
    assert outcomes(proof)[name] == outcome
    [line] = [line for line in conformance_lines(proof) if line.startswith(name)]
    assert {"failure": "NOT FULFILLED", "skipped": "NOT SHOWN"}[outcome] in line
    assert (f"NOT FULFILLED: {name}: " in conformance_error(proof)) == (outcome == "failure")


def test_a_run_fails_only_by_what_it_saw_and_if_it_saw_nothing() -> None:
    assert conformance_error(PROOF) == ""
    nothing = {**PROOF, "nodes": [], "gpu_nodes": [], "chain": {"status": "off", "reason": ""}}
    assert conformance_error(nothing) == "No requirement was shown."


@pytest.mark.parametrize("name", sorted({*NAMES_IN_1X, *NAMES_IN_1X.values(), "DCGM_FI_PROF_SM_ACTIVE"}))
def test_only_the_utilization_of_a_gpu_is_utilization(name: str) -> None:
    """Not that of its memory bus or video engines. Names of dcgm-exporter 1.x count, too."""
    proof = changed(metrics(series={"DCGM_FI_DEV_FB_USED": {"gpu1": 8}, name: {"gpu1": 8}}))
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
    found = yaml.safe_load(conformance_files(PROOF, yaml.safe_dump(form))["PRODUCT.yaml"])
    assert found["metadata"] == form["metadata"]
    [filled, unknown] = found["spec"]["schedulingOrchestration"]
    assert (filled["description"], filled["status"]) == ("text of the form", "Implemented")
    assert (unknown["description"], unknown["status"]) == ("new", "")


FILLED = [
    {"status": "Implemented", "evidence": ["https://example.com/suite.log"], "notes": "1.10"},
    {"status": "Implemented", "evidence": [], "notes": "by hand"},
    {"status": "Not Implemented", "evidence": ["a"], "notes": ""},
    {"status": "N/A", "evidence": [], "notes": "no such thing"},
]
HALF_FILLED = [{"status": "", "evidence": ["a"], "notes": ""}, {"status": "", "evidence": [], "notes": "to do"}]
NAMES = [name for _section, name, _level, _judge in REQUIREMENTS]
VIOLATED = {
    name: next(changed(change) for change, outcome in rows if outcome == "failure") for name, rows in TAKEN_AWAY.items()
}


def edit(text: str, name: str, **more: Any) -> str:
    form = yaml.safe_load(text)
    for entries in form["spec"].values():
        for entry in entries:
            entry.update(more if entry["id"] == name else {})
    return yaml.safe_dump(form)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("filled", [*FILLED, *HALF_FILLED], ids=str)
def test_what_a_person_filled_in_is_only_replaced_by_what_the_run_shows(name: str, filled: dict[str, Any]) -> None:
    """Also over the notes of an earlier run, and in the PRODUCT.yaml of one."""
    before = conformance_files(PROOF)["PRODUCT.yaml"]
    notes = product(PROOF)[name]["notes"] if filled["notes"] == "by hand" else filled["notes"]
    given = {**filled, "notes": notes if name not in SHOWN else filled["notes"]}
    entry = product(PROOF, form=edit(before, name, **given))[name]
    if name in SHOWN and not filled["status"]:
        assert (entry["status"], entry["evidence"]) == ("Implemented", [f"file://junit.xml#{name}"])
    else:
        assert {field: entry[field] for field in given} == given


@pytest.mark.parametrize("name", VIOLATED)
@pytest.mark.parametrize("filled", [*FILLED, *HALF_FILLED], ids=str)
def test_what_a_person_filled_in_does_not_hide_a_violation(name: str, filled: dict[str, Any]) -> None:
    form = edit(conformance_files(PROOF)["PRODUCT.yaml"], name, **filled)
    entry = product(VIOLATED[name], form=form)[name]
    assert (entry["status"], entry["evidence"]) == ("", [])


@pytest.mark.parametrize("now", [PROOF, *VIOLATED.values(), *(changed(rows[-1][0]) for rows in TAKEN_AWAY.values())])
@pytest.mark.parametrize("before", [PROOF, *VIOLATED.values()])
def test_what_an_earlier_run_wrote_is_replaced(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for servers in ([], ["gpu1"]):
        earlier = conformance_files(before, servers=["gpu1"])["PRODUCT.yaml"]
        assert conformance_files(now, earlier, servers) == conformance_files(now, servers=servers)


@pytest.mark.parametrize(
    "value", ["1.10", "yes", "2026-11-28", "0x10", "~", "'~'", "1_000", "é", "'1'", "{a: [1.0, no]}"]
)
def test_other_values_keep_their_spelling(value: str) -> None:
    form = conformance_files(PROOF)["PRODUCT.yaml"].replace("'[platformName]'", value)
    assert f"  platformName: {value}\n" in form
    assert f"  platformName: {value}\n" in conformance_files(PROOF, form)["PRODUCT.yaml"]


def test_each_requirement_is_one_case() -> None:
    names = [name for _section, name, _level, _judge in REQUIREMENTS]
    assert len(names) == len(set(names)) == 15
    assert list(outcomes(PROOF)) == names
