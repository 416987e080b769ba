# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Renders a doctor's report for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any

from .doctor_texts import (
    Report,
    clean,
    cluster_of,
    headline,
    last,
    name_of,
    not_checked,
    number,
    proof_of,
    scope_of,
    servers_of,
    title_of,
    with_unit,
)

# SGR parameters, also bold or reversed for readers who cannot distinguish red.
_COLOURS = {
    "ok": "32",
    "warning": "33",
    "broken": "1;31",
    "error": "1;31",
    "consequence": "2",
    "unknown": "36",
    "partial": "36",
}
_STATUS_WIDTH = len("consequence")
_NAMED = 10


def text_lines(report: Report, *, colour: bool = False, width: int = 80) -> list[str]:
    """The whole report, one string per line, of at most `width` unless a single word is longer."""
    return [*_head(report, width), "", *_hops(report, colour, width), *_rest(report, colour, width)]


def _rest(report: Report, colour: bool, width: int) -> Iterator[str]:
    for number_, finding in enumerate(report["findings"], 1):
        yield ""
        yield from _finding(report, number_, finding, colour, width)
    if report["autoscalers"]:
        yield from ["", *_autoscalers(report, width)]
    if report["not_checked"]:
        yield from ["", "Not checked"]
        for check, hop, reason in not_checked(report):
            yield from _hanging("- ", f"{hop}: {check}: {reason}", width)


def _head(report: Report, width: int) -> list[str]:
    made = f"{report['generated_at']}, {report['duration_s']:.1f} s"
    facts = filter(None, (cluster_of(report), servers_of(report), scope_of(report), made))
    return [headline(report), *_hanging("", "; ".join(facts), width)]


def _hops(report: Report, colour: bool, width: int) -> Iterator[str]:
    for hop in report["hops"]:
        status = hop["status"]
        first, *more = _hanging(f"{status:{_STATUS_WIDTH}}  ", f"{hop['title']}: {hop['summary']}", width)
        yield _paint(first[:_STATUS_WIDTH], status, colour) + first[_STATUS_WIDTH:]
        yield from more


def _finding(report: Report, number_: int, finding: Mapping[str, Any], colour: bool, width: int) -> Iterator[str]:
    severity = finding["severity"]
    yield f"{number_}. {_paint(severity, severity, colour)} {clean(finding['id'])}"
    yield from _hanging("   ", f"{title_of(report, finding['hop'])}: {finding['object']}", width)
    for word, text in _parts(finding):
        yield from _hanging(f"   {word:5}  ", text, width)


def _parts(finding: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from (("" if index else "seen", text) for index, text in enumerate(finding["seen"]))
    if finding["since"]:
        yield "since", finding["since"]
    yield "cause", finding["cause"]
    yield "fix", finding["fix"]
    yield from (("" if index else "then", text) for index, text in enumerate(finding["consequences"]))
    yield "more", finding["doc"]


def _autoscalers(report: Report, width: int) -> Iterator[str]:
    """Unproven ones first; long lists end with a count."""
    ordered = sorted(report["autoscalers"], key=lambda autoscaler: autoscaler["verified"])
    proven = sum(autoscaler["verified"] for autoscaler in ordered)
    yield f"Autoscalers: {proven} of {len(ordered)} proven"
    for autoscaler in ordered[:_NAMED]:
        yield from _hanging("- ", _autoscaler(autoscaler), width)
    if len(ordered) > _NAMED:
        yield f"- and {len(ordered) - _NAMED} more"


def _autoscaler(autoscaler: Mapping[str, Any]) -> str:
    now = with_unit(last(autoscaler["history"]["value"]) if autoscaler["history"] else None, autoscaler["unit"])
    target = with_unit(autoscaler["target_value"], autoscaler["unit"])
    wanted = (
        ""
        if autoscaler["desired_replicas"] == autoscaler["replicas"]
        else f", wants {number(autoscaler['desired_replicas'])}"
    )
    bounds = f"{autoscaler['min_replicas']} to {autoscaler['max_replicas']}"
    replicas = f"{number(autoscaler['replicas'])} of {bounds} replicas{wanted}"
    reaction = f", reacts within {number(autoscaler['budget']['worst_s'])} s" if autoscaler["budget"] else ""
    return (
        f"{name_of(autoscaler)} {proof_of(autoscaler)}: {autoscaler['metric']} {now} for {target}, {replicas}{reaction}"
        + (f": {autoscaler['unproven']}" if autoscaler.get("unproven") else "")
    )


def _hanging(lead: str, text: str, width: int) -> list[str]:
    """Lines of the text; the following ones are indented to its start."""
    return wrap(
        clean(text),
        max(width, len(lead) + 20),
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [lead.rstrip()]


def _paint(word: str, status: str, colour: bool) -> str:
    return f"\x1b[{_COLOURS[status]}m{word}\x1b[0m" if colour else word
