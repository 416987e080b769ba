"""What the documentation says of findings and of the report."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils import argspecs
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.checks.registry import FINDING_TYPES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.servers import ExaminedServer
from ansible_collections.kubegpu.autoscale.plugins.module_utils.hops import CHAIN, SERVER_TITLES, Hop
from ansible_collections.kubegpu.autoscale.plugins.modules.gpu_doctor import DOCUMENTATION, RETURN
from clusters import Cluster
from collection import ROOT
from doctor_pages import ALL_TYPES, PAGES, page
from faults import FAULTS
from jsonschema import Draft202012Validator

DOCS = ROOT / "docs" / "doctor"
SCHEMA = json.loads((DOCS / "report.schema.json").read_text())
KNOWN_WAYS = 66


@pytest.mark.parametrize("hop", PAGES)
def test_a_page_says_what_the_checks_say(hop: Hop) -> None:
    """`make docs` writes it."""
    assert (DOCS / f"{hop}.md").read_text() == page(hop)


def test_the_page_says_which_playbook_runs_a_role_that_a_fix_names() -> None:
    roles = {path.name for path in (ROOT / "roles").glob("[a-z]*_*")}
    named = {word for type_ in ALL_TYPES.values() for word in re.findall(r"\w+", type_.fix) if word in roles}
    table = (DOCS / "README.md").read_text().partition("## What a fix means")[2].partition("\n## ")[0]
    assert sorted(role for role in named if role not in table) == []
    for roles_of, playbook in re.findall(r"^\| the roles ([^|]+) \| `kubegpu\.autoscale\.(\w+)`", table, re.MULTILINE):
        text = (ROOT / "playbooks" / f"{playbook}.yml").read_text()
        assert all(f"kubegpu.autoscale.{role}" in text for role in roles_of.split(", "))


def test_each_known_way_to_break_the_chain_is_checked_or_has_a_reason() -> None:
    page = (DOCS / "README.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \| (\w+) \| (.*?) ?\|$", page, re.MULTILINE)
    assert [int(number) for number, *_rest in rows] == list(range(1, KNOWN_WAYS + 1))
    judged = [row for row in rows if row[2] != "not checked"]
    assert f"{len(judged)} of {KNOWN_WAYS} are checked" in page
    assert all(note for _number, _what, finding, _proof, note in rows if finding == "not checked")
    assert {link for row in judged for link in re.findall(r"\[(\w+)\]", row[2])} <= set(FINDING_TYPES)
    assert {proof for _number, _what, finding, proof, _note in rows if finding == "not checked"} == {"no"}
    proofs = {int(number): proof for number, _what, _finding, proof, _note in rows}
    injected = {row for fault in FAULTS for row in fault.rows}
    played = {row for fault in FAULTS for row in fault.symptoms} - injected
    assert {row for row, proof in proofs.items() if proof == "lab"} == injected
    assert {row for row, proof in proofs.items() if proof == "symptom"} == played
    assert all(note for _number, _what, _finding, proof, note in rows if proof == "symptom")
    assert f"{len(injected)} of them are caused in the lab, and {len(played)} more by their symptom" in page


def test_a_fault_leads_to_a_finding_of_its_row() -> None:
    page = (DOCS / "README.md").read_text()
    findings = {
        int(number): set(re.findall(r"\[(\w+)\]", finding))
        for number, finding in re.findall(r"^\| (\d+) \| .+? \| (.+?) \| \w+ \|", page, re.MULTILINE)
    }
    strangers = [
        (fault.name, row)
        for fault in FAULTS
        for row in (*fault.rows, *fault.symptoms)
        if fault.finding not in findings[row]
    ]
    assert strangers == []


def test_each_hop_is_broken_on_the_lab() -> None:
    """By two faults at least."""
    hops = [FINDING_TYPES[fault.finding].hop for fault in FAULTS]
    assert min(hops.count(hop) for hop in CHAIN) >= 2


def test_by_default_each_hop_is_judged_past_a_grace() -> None:
    outlasting = [FINDING_TYPES[fault.finding] for fault in FAULTS if fault.outlasts]
    assert [finding_type.hop for finding_type in outlasting] == list(CHAIN)
    assert all(finding_type.grace_s for finding_type in outlasting)


@pytest.mark.parametrize("broken", [False, True])
def test_the_report_is_as_its_schema_says(broken: bool) -> None:
    every_hop = tuple(SERVER_TITLES)
    cluster = Cluster(unavailable={"facts": "not given"}, servers=[ExaminedServer("gpu1", "gpu1", hops=every_hop)])
    if broken:
        cluster.service_monitors, cluster.prometheus = [], {"rows": [], "up": []}
        cluster.silence("chat-0", "chat-1")
    found = json.loads(json.dumps(cluster.report(), allow_nan=False))
    Draft202012Validator(SCHEMA).validate(found)
    assert found["verdict"] == ("broken" if broken else "ok")
    assert [hop["id"] for hop in found["hops"]] == SCHEMA["$defs"]["hop"]["enum"]


def test_the_sample_of_the_module_is_a_report() -> None:
    result = yaml.safe_load(RETURN)["result"]
    Draft202012Validator(SCHEMA).validate(result["sample"])
    assert set(result["contains"]) == set(SCHEMA["required"])


def test_documentation_says_what_the_argument_spec_says() -> None:
    def shape(options: dict[str, Any], inner: str) -> dict[str, Any]:
        return {
            name: [option.get(key) for key in ("type", "default", "choices", "elements")]
            + [bool(option.get("required")), shape(option.get(inner, {}), inner)]
            for name, option in options.items()
        }

    assert shape(yaml.safe_load(DOCUMENTATION)["options"], "suboptions") == shape(argspecs.DOCTOR, "options")
