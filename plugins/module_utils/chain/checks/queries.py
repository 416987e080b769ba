# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Checks of the recording rules that people have written themselves over the exporter's series, by their text.

Rules of this collection are no exception: they pass. What is not certain from the text alone is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..findings import Check, Symptom
from ..objects import seconds
from ..state import State

# The label of the node, renamed in dcgm-exporter after 4.5.3-4.8.2.
_NODE_LABELS = ("Hostname", "hostname")
_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`')
# Fields that go up and down, whatever type a list of counters gives them. Source: NVIDIA/dcgm-exporter#88.
_GAUGE = r"DCGM_FI_(?:PROF_\w+|DEV_(?:\w+_UTIL|FB_\w+|\w+_TEMP|POWER_USAGE|\w+_CLOCK))"
_RATE = re.compile(rf"\b(rate|irate|increase)\s*\(\s*({_GAUGE})\b")
_WINDOW = re.compile(r"(DCGM_FI_\w+)\s*(?:\{[^{}]*\})?\s*\[(\w+)\]")
_POD_SERIES = re.compile(r"\bkube_pod_\w+")
_LABELS_SERIES = re.compile(r"\bkube_\w+_labels\b")
_POD_LABEL = re.compile(r"\blabel_(?!replace\b|join\b)\w+")
# A sample may be some milliseconds late.
_PUNCTUALITY = 0.95


def quote(text: str, limit: int = 120) -> str:
    text = " ".join(text.split())
    return f"`{text[:limit]}{'...' if len(text) > limit else ''}`"


def _gpu_queries(state: State) -> Iterator[tuple[str, str]]:
    """Recorded series and query of each loaded rule over the exporter's series."""
    for series, rules in (state.prometheus.rules or {}).items():
        for rule in rules:
            if "DCGM_FI_" in (query := str(rule.get("query") or "")):
                yield f"series {series}", query


def labels_joined(query: str) -> frozenset[str]:
    """The labels of pods that a query over GPUs takes from kube-state-metrics; none if it takes others' labels too."""
    if "DCGM_FI_" not in query or not _POD_SERIES.search(query):
        return frozenset()
    owners = set(_LABELS_SERIES.findall(query))
    return frozenset({"pod", *(_POD_LABEL.findall(query) if owners == {"kube_pod_labels"} else ())})


def _joins(state: State) -> Iterator[Symptom]:
    """Only where kube-state-metrics is there: if it is away, that passes or is seen by everybody."""
    there = state.prometheus.joined or frozenset()
    for series, query in _gpu_queries(state) if "pod" in there else ():
        asked = labels_joined(query)
        missing = sorted(asked - there)
        if asked and "exported_pod" in there and "exported_pod" not in query:
            seen = f"kube-state-metrics' series have exported_pod, their pod is its own: {quote(query)}"
            yield Symptom("RULE_JOINS_WRONG_POD", series, seen)
        elif missing:
            seen = f"no series of kube_pod_labels has {', '.join(missing)}: {quote(query)}"
            yield Symptom("RULE_POD_LABELS_MISSING", series, seen, words={"label": missing[0].removeprefix("label_")})


def _renamed_labels(state: State) -> Iterator[Symptom]:
    """Silent about queries that make labels themselves, and where the exporters do not agree."""
    there = {label for row in state.gpu_rows for label in _NODE_LABELS if row.labels.get(label)}
    if len(there) != 1:
        return
    for series, query in _gpu_queries(state):
        words = set(re.findall(r"\w+", _LITERAL.sub("", query)))
        asked = words & set(_NODE_LABELS)
        if asked and not asked & there and not words & {"label_replace", "label_join"}:
            yield Symptom(
                "RULE_LABEL_RENAMED",
                series,
                f"it reads the label {', '.join(asked)}, the exporter's series have {', '.join(there)}: {quote(query)}",
                words={"label": "".join(there)},
            )


def _rates(state: State) -> Iterator[Symptom]:
    for series, query in _gpu_queries(state):
        if found := _RATE.search(query):
            yield Symptom(
                "RULE_RATE_OF_GAUGE",
                series,
                f"{found[1]}() of {found[2]}: {quote(query)}",
                words={"function": found[1], "field": found[2]},
            )


def _windows(state: State) -> Iterator[Symptom]:
    """Only where the scrape interval is known."""
    scrapes = [
        each.budget["scrape_s"]
        for each in state.autoscalers
        if each.budget
        and (each.budget.get("sources") or {}).get("scrape", "assumed") != "assumed"
        and any(metric.is_of_gpus for metric in each.metrics)
    ]
    for series, query in _gpu_queries(state) if scrapes else ():
        short = [
            (field, window)
            for field, window in _WINDOW.findall(query)
            if (window_s := seconds(window)) and window_s < 2 * _PUNCTUALITY * min(scrapes)
        ]
        if short:
            field, window = short[0]
            yield Symptom(
                "RULE_WINDOW_TOO_SHORT",
                series,
                f"{field}[{window}], it is scraped every {min(scrapes):g} s: {quote(query)}",
                words={"least": f"{4 * min(scrapes):g}s"},
            )


QUERY_CHECKS = (
    Check("rule", "rules read labels that there are", _renamed_labels, ("prometheus", "metrics")),
    Check("rule", "rules join labels that pods have", _joins, ("prometheus",)),
    Check("rule", "rates are of counters", _rates, ("prometheus",)),
    Check("rule", "windows hold two samples", _windows, ("prometheus", "metrics")),
)
