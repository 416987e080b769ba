# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Renders a proof as lines for a terminal, as one line for the end of a run, and as a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from ..errors import counted, enumeration
from .doctor_texts import clean, number
from .elements import element, figures_table
from .junit import cases_xml
from .page import page
from .status_symbol import light

# The result of the module gpu_proof.
Proof = Mapping[str, Any]

LEFT_OUT = "skipped by kubegpu_proof: false or by tags"
_WORDS = {
    "proven": "proven",
    "kept": "proven before",
    "due": "would be proven",
    "waiting": "NOT PROVEN",
    "failed": "FAILED",
    "off": "not run",
}
_UNREQUESTED = {
    "": "",
    "denied": "pods without a request see no GPU",
    "visible": "pods without a request SEE GPUS",
}


def proof_lines(proof: Proof) -> list[str]:
    """The whole proof, one string per line."""
    return [
        *(f"CUDA on {row['node']}: {_node(row)}" for row in proof["nodes"]),
        *([] if proof["nodes"] else ["CUDA: NOT PROVEN, no node offers a GPU"]),
        *_chain_lines(proof["chain"]),
    ]


def proof_summary(proof: Proof | None, error: str = "") -> str:
    """One line. proof: None if this run skipped the proof."""
    if error:
        return clean(f"FAILED: {error}")
    if proof is None:
        return LEFT_OUT
    parts = [*_nodes_summary(proof["nodes"]), *_chain_summary(proof["chain"])]
    seconds = f" ({number(proof['seconds'])} s)" if proof["proven_now"] else ""
    return clean("; ".join(parts)) + seconds


def proof_page(proof: Proof, error: str = "", cluster: str = "") -> str:
    """error: why the run failed; empty if it did not. cluster: its name."""
    title = "The proof failed" if error else "Proof"
    facts = {"Cluster": cluster, "Time": proof["generated_at"]}
    return page(
        title,
        element("div", light(_state(proof, error)), element("h1", title), class_="verdict"),
        element("p", clean(proof_summary(proof))),
        element("dl", [_fact(name, fact) for name, fact in facts.items() if fact], class_="facts"),
        *([element("pre", clean(error))] if error else []),
        *_tables(proof),
    )


def proof_junit(proof: Proof, error: str = "") -> str:
    """A case for each node, one for the chain, and one for the run if it failed. What was not proven is skipped."""
    chain = proof["chain"]
    cases = [(f"CUDA on {row['node']}", row["status"], _node(row)) for row in proof["nodes"]]
    cases = cases or [("CUDA", "waiting", "no node offers a GPU")]
    if chain["status"] != "off":
        cases.append(("a workload scales on its GPU", chain["status"], "\n".join(_chain_lines(chain))))
    outcomes = {"proven": "system-out", "kept": "system-out", "failed": "failure"}
    judged = [(name, outcomes.get(status, "skipped"), text) for name, status, text in cases]
    judged += [("the run", "failure", error)] if error else []
    return cases_xml("gpu_proof", proof["generated_at"], proof["seconds"], judged)


def _fact(name: str, fact: str) -> Element:
    return element("div", element("dt", name), element("dd", clean(fact)))


def _state(proof: Proof, error: str) -> str:
    """A status of the doctor: unknown if nothing is proven, partial if something is not."""
    found = {row["status"] for row in [*proof["nodes"], proof["chain"]]}
    if error or "failed" in found:
        return "broken"
    proven = found & {"proven", "kept"}
    if proven and (proof["chain"].get("decision") or {}).get("late"):
        return "warning"
    if proven and proof["nodes"]:
        return "partial" if found & {"due", "waiting"} else "ok"
    return "unknown"


def _tables(proof: Proof) -> Iterator[Element]:
    rows = [
        (row["node"], _WORDS[row["status"]], f"{row['gpus']} of {row['of']}", _seconds(row["seconds"]), _remark(row))
        for row in proof["nodes"]
    ]
    yield figures_table("CUDA on the GPUs of each node", ("Node", "Result", "GPUs", "Seconds", "Remark"), rows)
    hops = [(hop["title"], _hop_seconds(hop)) for hop in proof["chain"]["hops"]]
    if hops:
        yield figures_table("A temporary workload, hop by hop", ("Hop", "Seconds"), hops)
    yield element("p", clean("; ".join(_outcome(proof["chain"]))))


def _seconds(value: float) -> str:
    return f"{value:.1f}" if value else "-"


def _remark(row: Mapping[str, Any]) -> str:
    return clean("; ".join(filter(None, (row["reason"], row["text"], _UNREQUESTED[row["unrequested"]]))))


def _node(row: Mapping[str, Any]) -> str:
    status, word = row["status"], _WORDS[row["status"]]
    if status == "proven":
        device = "one shared device" if row["is_shared"] else f"{row['gpus']} of {counted(row['of'], 'GPU')}"
        words = f"{word}: {device} computed in {row['seconds']:.1f} s, pod included {row['wall']:.1f} s"
        return clean("; ".join(filter(None, (words, row["text"], _UNREQUESTED[row["unrequested"]]))))
    return clean(f"{word}: {_remark(row)}")


def _chain_lines(chain: Mapping[str, Any]) -> list[str]:
    return [*(f"{hop['title']}: {_hop_seconds(hop)} s" for hop in chain["hops"]), *_outcome(chain)]


def _outcome(chain: Mapping[str, Any]) -> Iterator[str]:
    if chain["status"] == "proven":
        yield f"Decision: {_decision(chain['decision'])}"
    elif chain["status"] != "off":
        yield clean(f"Workload: {_WORDS[chain['status']]}: {chain['reason']}")


def _hop_seconds(hop: Mapping[str, Any]) -> str:
    return f"{hop['seconds']:.1f}" if hop["seconds"] >= 0.05 else "< 0.1"


def _decision(decision: Mapping[str, Any]) -> str:
    budget = f"budget {number(decision['budget_s'])} + {number(decision['driver_s'])} s"
    within = f"{decision['seconds']:.1f} s after the load step ({budget})"
    late = "LATE: " if decision["late"] else ""
    replicas = f"{decision['before']} -> {decision['after']} replicas"
    dry = ", a dry decision: one GPU is free" if decision["dry"] else ""
    down = decision.get("down_s", 0)
    back = "; scale-down NOT SEEN" if down is None else f"; back to 1 after {down:.1f} s" if down else ""
    value = f"value {number(decision['value'])} for target {decision['target_value']}"
    return clean(f"{late}{replicas} {within}, {value}{dry}{back}".strip())


def _nodes_summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not rows:
        yield "NOT PROVEN, no node offers a GPU"
    for status in ("failed", "proven", "kept", "due", "waiting"):
        found = [row for row in rows if row["status"] == status]
        names = enumeration([row["node"] for row in found])
        if status in ("proven", "kept") and found:
            gpus = sum(row["gpus"] for row in found)
            before = f" (proven {max(row['reason'] for row in found)})" if status == "kept" else ""
            yield f"CUDA on {counted(gpus, 'GPU')} of {names}{before}"
        elif found:
            yield f"{_WORDS[status]} on {names}: {found[0]['reason']}"
    visible = [row["node"] for row in rows if row["unrequested"] == "visible"]
    if visible:
        yield f"{_UNREQUESTED['visible']} on {enumeration(visible)}"
    partial = [row["node"] for row in rows if row["text"]]
    if partial:
        yield f"GPUs in use on {enumeration(partial)} left out"


def _chain_summary(chain: Mapping[str, Any]) -> Iterator[str]:
    if chain["status"] == "proven":
        yield f"load step: {_decision(chain['decision'])}"
    elif chain["status"] == "kept":
        yield f"scaling (proven {chain['reason']})"
    elif chain["status"] != "off":
        yield f"scaling {_WORDS[chain['status']]}: {chain['reason']}"
