# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Renders a doctor's report as JUnit XML: a suite with a test case per hop and autoscaler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from .doctor_texts import Report, clean, first_finding, name_of, scope_of

_SUITE = "gpu_doctor"


def junit(report: Report) -> str:
    """The XML. A warning passes, and is written to system-out. Checks that could not run are skipped."""
    root = Element("testsuites", name=_SUITE)
    suite = SubElement(root, "testsuite", name=_SUITE, timestamp=clean(report["generated_at"]))
    properties = SubElement(suite, "properties")
    SubElement(properties, "property", name="scope", value=clean(scope_of(report)))
    SubElement(properties, "property", name="verdict", value=report["verdict"])
    for hop in report["hops"]:
        _hop(suite, hop, [finding for finding in report["findings"] if finding["hop"] == hop["id"]])
    for autoscaler in report["autoscalers"]:
        _autoscaler(suite, autoscaler, report)
    for node in (root, suite):
        node.attrib |= counts(suite, report["duration_s"])
    return as_text(root)


def cases_xml(name: str, generated_at: str, duration_s: float, cases: Iterable[tuple[str, str, str]]) -> str:
    """A suite of test cases, each with its name, `failure`, `skipped` or `system-out`, and the text of that."""
    root = Element("testsuites", name=name)
    suite = SubElement(root, "testsuite", name=name, timestamp=clean(generated_at))
    for title, outcome, text in cases:
        case = SubElement(suite, "testcase", classname=name, name=clean(title))
        SubElement(case, outcome, {} if outcome == "system-out" else {"message": clean(text)}).text = clean(text)
    for node in (root, suite):
        node.attrib |= counts(suite, duration_s)
    return as_text(root)


def as_text(root: Element) -> str:
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def counts(suite: Element, duration_s: float) -> dict[str, str]:
    """Attributes of a suite with its numbers of test cases."""
    cases = suite.findall("testcase")
    found = {name: str(sum(case.find(tag) is not None for case in cases)) for name, tag in _OUTCOMES.items()}
    return {"tests": str(len(cases)), "errors": "0", **found, "time": f"{duration_s:.3f}"}


_OUTCOMES = {"failures": "failure", "skipped": "skipped"}


def _hop(suite: Element, hop: Mapping[str, Any], findings: list[Mapping[str, Any]]) -> None:
    case = SubElement(suite, "testcase", classname=f"{_SUITE}.hop", name=clean(hop["title"]))
    text = "\n\n".join(_finding(finding) for finding in findings)
    if hop["status"] == "broken":
        SubElement(case, "failure", type=_type(findings), message=clean(hop["summary"])).text = text
    elif hop["status"] in ("consequence", "partial", "unknown"):
        SubElement(case, "skipped", message=clean(f"{hop['status']}: {hop['summary']}"))
    elif text:
        SubElement(case, "system-out").text = text


def _type(findings: list[Mapping[str, Any]]) -> str:
    return next((clean(finding["id"]) for finding in findings if finding["severity"] == "error"), "broken")


def _finding(finding: Mapping[str, Any]) -> str:
    lines = [
        f"{finding['id']} ({finding['severity']}): {finding['object']}",
        *(f"seen: {text}" for text in finding["seen"]),
        *([f"since: {finding['since']}"] if finding["since"] else []),
        f"cause: {finding['cause']}",
        f"fix: {finding['fix']}",
        *(f"then: {consequence}" for consequence in finding["consequences"]),
        f"more: {finding['doc']}",
    ]
    return clean("\n".join(lines))


def _autoscaler(suite: Element, autoscaler: Mapping[str, Any], report: Report) -> None:
    """An unproven autoscaler fails only if the chain is broken. Otherwise the result is unknown."""
    case = SubElement(suite, "testcase", classname=f"{_SUITE}.autoscaler", name=name_of(autoscaler))
    if autoscaler["verified"]:
        return
    cause = first_finding(report)
    message = clean(f"not proven: {cause['cause']}" if cause else "not proven")
    if report["verdict"] == "broken":
        SubElement(case, "failure", type="NotProven", message=message).text = _finding(cause) if cause else message
    else:
        SubElement(case, "skipped", message=message)
