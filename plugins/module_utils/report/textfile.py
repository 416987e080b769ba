# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Renders a doctor's report as metrics in Prometheus' text format, for the textfile collector of a node-exporter."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping

from ..kube.objects import unix
from .doctor_texts import Report, clean

# Labels of a row, and its value.
Row = tuple[Mapping[str, str], float]


def textfile(report: Report) -> str:
    """One gauge for the time of the report, and one for each hop, type of finding and autoscaler."""
    keys = ("id", "hop", "severity")
    found = Counter(tuple(finding[key] for key in keys) for finding in report["findings"])
    gauges: dict[str, tuple[str, list[Row]]] = {
        "run_timestamp_seconds": ("Time of the report.", [({}, unix(report["generated_at"]) or 0)]),
        "verdict": (
            "Verdict of the report, one row.",
            [({"verdict": report["verdict"]}, 1)],
        ),
        "hop": (
            "Status of each hop of the chain, one row each.",
            [({"hop": hop["id"], "status": hop["status"]}, 1) for hop in report["hops"]],
        ),
        "findings": (
            "Number of findings of a type.",
            [(dict(zip(keys, labels, strict=True)), count) for labels, count in found.items()],
        ),
        "autoscaler_proven": (
            "Whether each ready pod of an autoscaler has a value that the HPA acts on.",
            [
                ({key: autoscaler[key] for key in ("namespace", "name")}, int(autoscaler["verified"]))
                for autoscaler in report["autoscalers"]
            ],
        ),
    }
    return "".join(_gauge(f"kubegpu_doctor_{name}", *gauge) for name, gauge in gauges.items())


def _gauge(name: str, about: str, rows: Iterable[Row]) -> str:
    values = {_labels(labels): value for labels, value in rows}  # duplicate rows would make the file invalid
    lines = (f"{name}{labels} {value:.15g}\n" for labels, value in values.items())
    return f"# HELP {name} {about}\n# TYPE {name} gauge\n" + "".join(lines)


def _labels(labels: Mapping[str, str]) -> str:
    # Quotes, backslashes and newlines are escaped as in JSON.
    pairs = (f"{name}={json.dumps(clean(value), ensure_ascii=False)}" for name, value in labels.items())
    return f"{{{','.join(pairs)}}}" if labels else ""
