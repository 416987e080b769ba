"""The role fails after it has written the evidence, if a requirement is not fulfilled or nothing is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conformance_proofs import PROOF, TAKEN_AWAY, changed
from playbook import local, run_playbook

VIOLATED = {
    name: next(changed(change) for change, outcome in rows if outcome == "failure") for name, rows in TAKEN_AWAY.items()
}
NOTHING = {**PROOF, "nodes": [], "gpu_nodes": [], "chain": {"status": "off", "reason": ""}}
FAILURES = {
    **{name: (proof, f"NOT FULFILLED: {name}") for name, proof in VIOLATED.items()},
    "nothing": (NOTHING, "No r"),
}


def written(folder: Path, proof: dict[str, Any], **options: Any) -> tuple[int, str]:
    """What the tasks that write the evidence return and print. The folder is `conformance`."""
    given = {"gpu_proof_conformance_dir": str(folder / "conformance"), **options}
    role = {"name": "kubegpu.autoscale.gpu_proof", "tasks_from": "conformance"}
    play = local({"ansible.builtin.include_role": role}, vars={"__gpu_proof": {"result": proof}})
    done = run_playbook(folder, play, given)
    return done.returncode, done.stdout


def test_evidence_of_everything_is_written_and_the_run_passes(tmp_path: Path) -> None:
    rc, text = written(tmp_path, PROOF)
    assert rc == 0, text
    assert json.loads((tmp_path / "conformance" / "observations.json").read_text()) == PROOF


@pytest.mark.parametrize("failure", FAILURES)
def test_what_is_not_fulfilled_fails_the_run_with_its_evidence(tmp_path: Path, failure: str) -> None:
    proof, message = FAILURES[failure]
    rc, text = written(tmp_path, proof)
    assert rc != 0
    assert message in text
    assert (tmp_path / "conformance" / "junit.xml").is_file()


@pytest.mark.parametrize("is_given", [False, True])
def test_what_a_person_filled_in_survives_the_next_run(tmp_path: Path, is_given: bool) -> None:
    """In the PRODUCT.yaml of an earlier run, or in a form. A copy of what is replaced stays, with its comments."""
    assert written(tmp_path, PROOF)[0] == 0
    product = tmp_path / "conformance" / "PRODUCT.yaml"
    filled = product.read_text().replace("'[platformVersion]'", "1.10 # a comment")
    product.write_text(filled)
    form = tmp_path / "form.yaml"
    form.write_text(filled.replace("1.10", "1.20"))
    rc, text = written(tmp_path, PROOF, **({"gpu_proof_conformance_form": str(form)} if is_given else {}))
    assert rc == 0, text
    assert f"  platformVersion: {'1.20' if is_given else '1.10'}\n" in product.read_text()
    [copy] = product.parent.glob("PRODUCT.yaml.*")
    assert copy.read_text() == filled
