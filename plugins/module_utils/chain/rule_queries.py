# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads the text of recording rules on the exporter's series."""

from __future__ import annotations

import re

from ..autoscaling.dcgm_fields import ANY_FIELD, NAMES_IN_1X, reads_fields

# The label of the node, renamed in dcgm-exporter after 4.5.3-4.8.2.
NODE_LABELS = ("Hostname", "hostname")
# Fields that go up and down, with any type in a list of counters. Source: NVIDIA/dcgm-exporter#88.
_TODAYS_GAUGE = r"DCGM_FI_(?:PROF_\w+|DEV_(?:\w+_UTIL|FB_\w+|\w+_TEMP|POWER_USAGE|\w+_CLOCK))"
_GAUGE = "|".join((_TODAYS_GAUGE, *(old for field, old in NAMES_IN_1X.items() if re.fullmatch(_TODAYS_GAUGE, field))))
# Function and field, series and window.
RATE = re.compile(rf"\b(rate|irate|increase)\s*\(\s*({_GAUGE})\b")
WINDOW = re.compile(rf"\b({ANY_FIELD})\s*(?:\{{[^{{}}]*\}})?\s*\[(\w+)\]")

_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`')
_POD_SERIES = re.compile(r"\bkube_pod_\w+")
_LABELS_SERIES = re.compile(r"\bkube_\w+_labels\b")
_ON = re.compile(r"\bon\s*\(([^()]*)\)")
_OF_ONE_NAMESPACE = re.compile(r"\b(?:exported_)?namespace\s*=\s*[\"'`]")
_POD_LABEL = re.compile(r"\blabel_(?!replace\b|join\b)\w+")


def labels_joined(query: str) -> frozenset[str]:
    """Pod labels that a query on GPUs reads from kube-state-metrics; none if it reads labels of other objects, too."""
    if not reads_fields(query) or not _POD_SERIES.search(query):
        return frozenset()
    owners = set(_LABELS_SERIES.findall(query))
    return frozenset({"pod", *(_POD_LABEL.findall(query) if owners == {"kube_pod_labels"} else ())})


def joins_pod_alone(query: str) -> bool:
    """Whether a query on GPUs joins kube-state-metrics' series by the name of the pod, but not by its namespace.

    A query that selects one namespace does not need it.
    """
    if not labels_joined(query) or _OF_ONE_NAMESPACE.search(query):
        return False
    joins = (set(re.findall(r"\w+", labels)) for labels in _ON.findall(_LITERAL.sub("", query)))
    return any(
        joined & {"pod", "exported_pod"} and not joined & {"namespace", "exported_namespace"} for joined in joins
    )


def labels_read(query: str) -> set[str]:
    """The node's labels that a query reads; none if it creates labels itself."""
    words = set(re.findall(r"\w+", _LITERAL.sub("", query)))
    return set() if words & {"label_replace", "label_join"} else words & set(NODE_LABELS)
