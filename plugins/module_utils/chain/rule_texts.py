# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the text of a recording rule over the exporter's series reads."""

from __future__ import annotations

import re

# The label of the node, renamed in dcgm-exporter after 4.5.3-4.8.2.
NODE_LABELS = ("Hostname", "hostname")
# Fields that go up and down, with any type in a list of counters. Source: NVIDIA/dcgm-exporter#88.
_GAUGE = r"DCGM_FI_(?:PROF_\w+|DEV_(?:\w+_UTIL|FB_\w+|\w+_TEMP|POWER_USAGE|\w+_CLOCK))"
# Function and field, series and window.
RATE = re.compile(rf"\b(rate|irate|increase)\s*\(\s*({_GAUGE})\b")
WINDOW = re.compile(r"(DCGM_FI_\w+)\s*(?:\{[^{}]*\})?\s*\[(\w+)\]")

_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`')
_POD_SERIES = re.compile(r"\bkube_pod_\w+")
_LABELS_SERIES = re.compile(r"\bkube_\w+_labels\b")
_POD_LABEL = re.compile(r"\blabel_(?!replace\b|join\b)\w+")


def labels_joined(query: str) -> frozenset[str]:
    """The labels of pods that a query over GPUs takes from kube-state-metrics; none if it takes others' labels too."""
    if "DCGM_FI_" not in query or not _POD_SERIES.search(query):
        return frozenset()
    owners = set(_LABELS_SERIES.findall(query))
    return frozenset({"pod", *(_POD_LABEL.findall(query) if owners == {"kube_pod_labels"} else ())})


def labels_read(query: str) -> set[str]:
    """The node's labels that a query reads; none if it makes labels itself."""
    words = set(re.findall(r"\w+", _LITERAL.sub("", query)))
    return set() if words & {"label_replace", "label_join"} else words & set(NODE_LABELS)
