# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Renders a doctor's report as a self-contained HTML page, without scripts, fonts or external images."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from ..errors import counted
from .doctor_texts import (
    Report,
    at_minute,
    cluster_of,
    headline,
    last,
    name_of,
    not_checked,
    number,
    proof_of,
    scope_of,
    servers_of,
    target_of,
    title_of,
    with_unit,
)
from .elements import Child, breakable, element
from .page import page
from .plot import plot
from .status_symbol import light

_NOT_OF_A_PATH = re.compile(r"[^\w/.#-]")
_PAGES = "https://github.com/kubegpu/autoscale/blob/main/"

# Hops after these do not see the GPUs.
_DARK = ("consequence", "broken")


def html(report: Report) -> str:
    """Equal reports result in equal pages."""
    sections = [_chain(report), _findings(report), _autoscalers(report["autoscalers"]), _not_checked(report)]
    return page(
        f"{headline(report)} - GPU autoscaling",
        element("a", "To the findings", href="#findings", class_="skip"),
        _header(report),
        element("main", sections),
        element("footer", f"gpu_doctor of kubegpu.autoscale, schema {report['schema']}"),
    )


def _header(report: Report) -> Element:
    facts = {
        "Cluster": cluster_of(report),
        **({"Servers": servers_of(report)} if report["servers"] else {}),
        "Checked": scope_of(report),
        "Created": f"{at_minute(report['generated_at'])}, in {report['duration_s']:.1f} s",
    }
    return element(
        "header",
        element("div", light(report["verdict"]), element("h1", headline(report)), class_="verdict"),
        element(
            "dl",
            [element("div", element("dt", name), element("dd", breakable(text))) for name, text in facts.items()],
            class_="facts",
        ),
    )


def _section(id_: str, title: str, *children: Child) -> Element:
    heading = f"{id_}-title"
    return element("section", element("h2", title, id=heading), *children, id=id_, aria_labelledby=heading)


def _chain(report: Report) -> Element:
    found = {finding["hop"] for finding in report["findings"]}
    hops = [
        _hop(hop, index > 0 and report["hops"][index - 1]["status"] in _DARK, hop["id"] in found)
        for index, hop in enumerate(report["hops"])
    ]
    # Some browsers do not treat a list without bullets as a list unless it has the role.
    return _section(
        "chain", "The chain, from the GPU to the workload", element("ol", hops, class_="chain", role="list")
    )


def _hop(hop: Mapping[str, Any], is_dark: bool, has_findings: bool) -> Element:
    words = breakable(hop["title"])
    title = element("a", words, href=f"#findings-{hop['id']}") if has_findings else element("b", words)
    return element(
        "li",
        light(hop["status"]),
        element("span", title, class_="title"),
        element("span", hop["status"], class_=f"word {hop['status']}", aria_hidden="true"),
        element("span", breakable(hop["summary"]), class_="summary"),
        id=f"hop-{hop['id']}",
        class_="dark" if is_dark else None,
    )


def _findings(report: Report) -> Element:
    """Findings by hop, in the order of the chain."""
    groups = [(hop["id"], [f for f in report["findings"] if f["hop"] == hop["id"]]) for hop in report["hops"]]
    if not report["findings"]:
        return _section("findings", "Findings", element("p", "None."))
    return _section(
        "findings",
        f"Findings: {_totals(report['findings'])}",
        *[_group(hop, title_of(report, hop), findings) for hop, findings in groups if findings],
    )


def _totals(findings: Sequence[Mapping[str, Any]]) -> str:
    errors = sum(finding["severity"] == "error" for finding in findings)
    parts = [(errors, "error"), (len(findings) - errors, "warning")]
    return ", ".join(counted(amount, what) for amount, what in parts if amount)


def _group(hop: str, title: str, findings: Sequence[Mapping[str, Any]]) -> Element:
    return element(
        "div",
        element("h3", title),
        element("div", [_card(finding) for finding in findings], class_="cards"),
        id=f"findings-{hop}",
    )


def _card(finding: Mapping[str, Any]) -> Element:
    colour = "broken" if finding["severity"] == "error" else "warning"
    parts: list[tuple[str, Child | list[Child], str | None]] = [
        ("Seen", _texts(finding["seen"]), None),
        ("Since", finding["since"] and at_minute(finding["since"]), None),
        ("Cause", breakable(finding["cause"]), None),
        ("Fix", breakable(finding["fix"]), "fix"),
        ("Then", _texts(finding["consequences"]), None),
        ("More", element("a", breakable(finding["doc"]), href=_PAGES + _NOT_OF_A_PATH.sub("", finding["doc"])), None),
    ]
    heading = element(
        "div",
        element("h4", breakable(finding["object"])),
        element("span", finding["severity"], class_=f"word {colour}"),
        " ",
        element("code", breakable(finding["id"])),
    )
    rows = [
        part
        for name, text, kind in parts
        if text is not None
        for part in (element("dt", name), element("dd", text, class_=kind))
    ]
    return element(
        "article",
        element("header", light(finding["severity"], hidden=True), heading),
        element("dl", rows),
        class_=f"card finding {colour}",
    )


def _texts(texts: Sequence[str]) -> Child | list[Child]:
    if len(texts) < 2:
        return breakable(texts[0]) if texts else None
    return element("ul", [element("li", breakable(text)) for text in texts])


def _autoscalers(autoscalers: Sequence[Mapping[str, Any]]) -> Element:
    if not autoscalers:
        return _section("autoscalers", "Autoscalers", element("p", "None found."))
    proven = sum(autoscaler["verified"] for autoscaler in autoscalers)
    ordered = sorted(autoscalers, key=lambda autoscaler: autoscaler["verified"])
    return _section(
        "autoscalers",
        f"Autoscalers: {proven} of {len(autoscalers)} proven",
        _table("Autoscalers", "Proven: each ready pod has a value, and the HPA acts on it.", _COLUMNS, ordered),
        element("div", [_figure(autoscaler, index) for index, autoscaler in enumerate(ordered)], class_="cards plots"),
    )


def _figure(autoscaler: Mapping[str, Any], index: int) -> Element:
    history = autoscaler["history"]
    picture = (
        plot(autoscaler, index)
        if history and history["times"]
        else element("p", "No samples of the last minutes.", class_="quiet")
    )
    return element("article", element("h3", breakable(name_of(autoscaler))), picture, class_="card")


def _proof(autoscaler: Mapping[str, Any]) -> Element:
    colour = "ok" if autoscaler["verified"] else "warning"
    return element("td", proof_of(autoscaler), class_=f"word {colour}")


def _figures(text: str) -> Element:
    return element("td", text, class_="figures")


def _now(autoscaler: Mapping[str, Any]) -> str:
    history = autoscaler["history"]
    return with_unit(last(history["value"]) if history else None, autoscaler["unit"])


def _replicas(autoscaler: Mapping[str, Any]) -> str:
    now, wanted = autoscaler["replicas"], autoscaler["desired_replicas"]
    return number(now) if now == wanted else f"{number(now)} (wants {number(wanted)})"


def _reaction(autoscaler: Mapping[str, Any]) -> str:
    budget = autoscaler["budget"]
    return f"{number(budget['worst_s'])} s" if budget else "?"


_COLUMNS = {
    "Autoscaler": lambda autoscaler: element("th", breakable(name_of(autoscaler)), scope="row"),
    "Proof": _proof,
    "Target": lambda autoscaler: element("td", breakable(target_of(autoscaler))),
    "Metric": lambda autoscaler: element("td", breakable(autoscaler["metric"])),
    "Now": lambda autoscaler: _figures(_now(autoscaler)),
    "Target value": lambda autoscaler: _figures(with_unit(autoscaler["target_value"], autoscaler["unit"])),
    "Replicas": lambda autoscaler: _figures(_replicas(autoscaler)),
    "Bounds": lambda autoscaler: _figures(f"{autoscaler['min_replicas']} to {autoscaler['max_replicas']}"),
    "Reacts within": lambda autoscaler: _figures(_reaction(autoscaler)),
}

_NUMBERS = ("Now", "Target value", "Replicas", "Bounds", "Reacts within")

_CHECKS = {
    "Check": lambda row: element("th", row[0], scope="row"),
    "Hop": lambda row: element("td", row[1]),
    "Reason": lambda row: element("td", breakable(row[2])),
}


def _heading(column: str) -> Element:
    return element("th", column, scope="col", class_="figures" if column in _NUMBERS else None)


def _table(name: str, caption: str, columns: Mapping[str, Any], rows: Sequence[Any]) -> Element:
    """In a frame that scrolls on narrow pages, also with the keyboard."""
    return element(
        "div",
        element(
            "table",
            element("caption", caption),
            element("thead", element("tr", [_heading(column) for column in columns])),
            element("tbody", [element("tr", [cell(row) for cell in columns.values()]) for row in rows]),
        ),
        class_="scroll",
        role="region",
        aria_label=f"{name}, table",
        tabindex="0",
    )


def _not_checked(report: Report) -> Element | None:
    rows = not_checked(report)
    if not rows:
        return None
    return _section("not-checked", "Not checked", _table("Not checked", "Checks that could not run.", _CHECKS, rows))
