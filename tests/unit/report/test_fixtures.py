from __future__ import annotations

import json

import pytest
from collection import ROOT
from doctor_reports import HOPS, REPORTS
from jsonschema import Draft202012Validator

SCHEMA = json.loads((ROOT / "docs" / "doctor" / "report.schema.json").read_text())


@pytest.mark.parametrize("name", [name for name in REPORTS if name != "hostile"])
def test_what_is_shown_here_is_what_the_doctor_may_return(name: str) -> None:
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(REPORTS[name])] == []
    assert [hop["id"] for hop in REPORTS[name]["hops"]] == list(HOPS)
