# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What every view of a doctor's report says alike."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Report = Mapping[str, Any]

# XML 1.0 can hold no others; messages of a cluster may.
_CONTROL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(text: Any) -> str:
    """The text without characters that steer a terminal or that XML cannot hold."""
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
    version = f"Kubernetes {cluster['server_version']}" if cluster["server_version"] else "Kubernetes"
    return f"{version}, {counted(cluster['nodes'], 'node')}, {cluster['gpu_nodes']} with GPUs"


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def headline(report: Report) -> str:
    """The verdict in one line; of a broken chain the first broken hop, from left to right."""
    if report["verdict"] == "ok":
        return _well(report)
    if report["verdict"] == "warning":
        warnings = sum(finding["severity"] == "warning" for finding in report["findings"])
        return f"The chain works, with {counted(warnings, 'warning')}"
    hop = first_broken(report)
    return f"The chain is broken at: {clean(hop['title'])}" if hop else "The chain is broken"


def overall(report: Report) -> str:
    """The verdict; `unknown` where each hop is, which is no verdict."""
    return "unknown" if all(hop["status"] == "unknown" for hop in report["hops"]) else report["verdict"]


def _well(report: Report) -> str:
    if overall(report) == "unknown":
        return "Nothing of the chain could be looked at"
    is_partial = report["not_checked"] or any(hop["status"] == "unknown" for hop in report["hops"])
    return "The chain works" + (", as far as it could be looked at" if is_partial else "")


def first_finding(report: Report) -> Mapping[str, Any] | None:
    """What to mend first: at the first broken hop, else the first error, else the first warning."""
    hop = (first_broken(report) or {}).get("id")
    findings = report["findings"]

    def order(finding: Mapping[str, Any]) -> tuple[bool, bool]:
        return finding["severity"] != "error", finding["hop"] != hop

    return min(findings, key=order, default=None)


def failure(report: Report) -> str:
    """One line for whoever sees nothing else: the hop, what is the matter there, the fix."""
    finding = first_finding(report)
    if not finding:
        return headline(report)
    line = f"{headline(report)}: {finding['object']}: {finding['cause']} (fix: {finding['fix']})"
    return " ".join(clean(line).split())


def number(value: float | None) -> str:
    """As short as it can be without a lie: 66.7, 1234, 0.25; a question mark for what nobody knows."""
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
