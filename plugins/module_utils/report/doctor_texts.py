# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Texts shared by all views of a doctor's report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import counted, enumeration
from ..hops import Hop

Report = Mapping[str, Any]

# XML 1.0 allows no others; messages of a cluster may have them.
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:00)")
_CONTROL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(text: Any) -> str:
    """The text without control characters of a terminal, and characters that XML does not allow."""
    return _CONTROL.sub("�", str(text))


def title_of(report: Report, hop: str) -> str:
    return next((entry["title"] for entry in report["hops"] if entry["id"] == hop), hop)


def first_broken(report: Report) -> Mapping[str, Any] | None:
    return next((hop for hop in report["hops"] if hop["status"] == "broken"), None)


def scope_of(report: Report) -> str:
    namespace, name = report["scope"]["namespace"], report["scope"]["name"]
    if name:
        return f"autoscaler {namespace}/{name}"
    return f"namespace {namespace}" if namespace else "the whole cluster"


def cluster_of(report: Report) -> str:
    cluster = report["cluster"]
    place = " at ".join(filter(None, (cluster["context"], cluster["server"])))
    if not cluster["reached"]:
        return ", ".join(filter(None, ("no cluster was reached", place)))
    version = f"Kubernetes {cluster['server_version']}" if cluster["server_version"] else "Kubernetes"
    size = f"{version}, {counted(cluster['nodes'], 'node')}, {cluster['gpu_nodes']} with GPUs"
    return ", ".join(filter(None, (place, size)))


def servers_of(report: Report) -> str:
    """Number of examined servers; empty for a report without servers."""
    servers = report["servers"]
    examined = sum(server["status"] == "examined" for server in servers)
    return f"{examined} of {counted(len(servers), 'server')} examined" if servers else ""


def headline(report: Report) -> str:
    """The verdict in one line; for a broken chain the first broken hop, from left to right."""
    if not report["cluster"]["reached"]:
        return f"No cluster was reached. {_of_servers(report)}"
    if report["verdict"] in ("ok", "warning") and (unproven := _unproven(report)):
        return unproven
    if report["verdict"] == "ok":
        return "The chain works"
    if report["verdict"] == "unknown":
        return "No part of the chain could be checked"
    if report["verdict"] == "partial":
        titles = [title_of(report, hop) for hop in report["unchecked_hops"]]
        return f"No errors found, but some hops were not checked: {clean(enumeration(titles))}"
    if report["verdict"] == "warning":
        warnings = sum(finding["severity"] == "warning" for finding in report["findings"])
        return f"The chain works, with {counted(warnings, 'warning')}"
    if nothing := _nothing_there(report):
        return nothing
    hop = first_broken(report)
    return f"The chain is broken at: {clean(hop['title'])}" if hop else "The chain is broken"


def _nothing_there(report: Report) -> str:
    """For a cluster without GPUs, exporter and Prometheus: there is no chain that could be broken."""
    has_exporter = any(hop["id"] == Hop.EXPORTER and hop["status"] != "unknown" for hop in report["hops"])
    lacks_prometheus = any(finding["id"] == "PROMETHEUS_MISSING" for finding in report["findings"])
    if report["cluster"]["gpu_nodes"] or has_exporter or not lacks_prometheus:
        return ""
    return "This cluster has no node with GPUs. It runs no dcgm-exporter. It has no Prometheus"


def _unproven(report: Report) -> str:
    """How many autoscalers are proven, with the first that is not; empty if all are, or are at zero by decision."""
    autoscalers = report["autoscalers"]
    waiting = [autoscaler for autoscaler in autoscalers if autoscaler.get("unproven")]
    if not waiting:
        return ""
    proven = sum(autoscaler["verified"] for autoscaler in autoscalers)
    first = f"{name_of(waiting[0])}: {clean(waiting[0]['unproven'])}"
    return f"{proven} of {counted(len(autoscalers), 'autoscaler')} proven: {first}"


def _of_servers(report: Report) -> str:
    """The verdict of a report on servers only."""
    hop = next((hop for hop in report["hops"] if hop["status"] == "broken" and hop["id"] != Hop.ACCESS), None)
    if hop:
        return f"Broken on the servers: {clean(hop['title'])}"
    return f"On the servers no error was found, {servers_of(report)}" if report["servers"] else "Nothing was examined"


def not_checked(report: Report) -> list[tuple[str, str, str]]:
    """Check, title of its hop and reason of each check that did not run. Those explained by a finding are one row."""
    rows = [
        (row["check"], title_of(report, row["hop"]), row["reason"])
        for row in report["not_checked"]
        if not row["finding"]
    ]
    explained: dict[str, list[str]] = {}
    for row in report["not_checked"]:
        if row["finding"]:
            explained.setdefault(row["finding"], []).append(title_of(report, row["hop"]))
    for finding, titles in explained.items():
        hops = enumeration(list(dict.fromkeys(titles)))
        rows.append((counted(len(titles), "check"), hops, f"see the finding {finding}"))
    return rows


def first_finding(report: Report) -> Mapping[str, Any] | None:
    """What to fix first: at the first broken hop, else the first error, else the first warning."""
    hop = (first_broken(report) or {}).get("id")
    findings = report["findings"]

    def order(finding: Mapping[str, Any]) -> tuple[bool, bool]:
        return finding["severity"] != "error", finding["hop"] != hop

    return min(findings, key=order, default=None)


def failure(report: Report) -> str:
    """A summary in one line: the hop, the cause, the fix."""
    finding = first_finding(report)
    is_incomplete = report["verdict"] in ("partial", "unknown")
    if finding and (not is_incomplete or finding["hop"] == Hop.ACCESS):
        line = f"{headline(report)}: {finding['object']}: {finding['cause']} (fix: {finding['fix']})"
    elif is_incomplete:
        hop = next(hop for hop in report["hops"] if hop["id"] in report["unchecked_hops"])
        line = f"{headline(report)}: {hop['title']}: {hop['summary']}"
    else:
        line = headline(report)
    return " ".join(clean(line).split())


def at_minute(time: str) -> str:
    """A time of Kubernetes in a readable format: 2026-11-27 10:15:30 UTC."""
    match = _TIME.fullmatch(time)
    return f"{match[1]} {match[2]} UTC" if match else clean(time)


def number(value: float | None) -> str:
    """As short as possible without loss: 66.7, 1234, 0.25; a question mark if unknown."""
    if value is None:
        return "?"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def symbol(unit: str) -> str:
    return "%" if unit == "percent" else clean(unit)


def with_unit(value: float | None, unit: str) -> str:
    return "no value" if value is None else f"{number(value)} {symbol(unit)}".strip()


def last(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def name_of(autoscaler: Mapping[str, Any]) -> str:
    return clean(f"{autoscaler['namespace']}/{autoscaler['name']}")


def target_of(autoscaler: Mapping[str, Any]) -> str:
    return clean(f"{autoscaler['target']['kind']} {autoscaler['target']['name']}")


def proof_of(autoscaler: Mapping[str, Any]) -> str:
    return "proven" if autoscaler["verified"] else "not proven"
