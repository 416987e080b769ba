# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""State of Prometheus: targets, rules, and series of GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

from ...kube.objects import Key, Manifest


@dataclass(frozen=True)
class Row:
    """Labels and value of a series."""

    labels: Mapping[str, str]
    value: float = 1.0

    @property
    def target(self) -> Key:
        """A target of Prometheus, by job and instance."""
        return self.labels.get("job", ""), self.labels.get("instance", "")

    @property
    def pod(self) -> Key | None:
        """The pod of an exporter's row, by the first matching layout of labels; None without one.

        With honorLabels, the row of an idle GPU names the exporter itself.
        """
        labels = self.labels
        pod = labels.get("exported_pod") or labels.get("pod", "")
        namespace = labels.get("exported_namespace") or labels.get("namespace", "")
        own = not labels.get("exported_pod") and re.fullmatch(r"(.+-)?dcgm-exporter(-.+)?", pod)
        return (namespace, pod) if namespace and pod and not own else None


@dataclass(frozen=True)
class ReplicaState:
    """One of several pods behind the Service of Prometheus.

    series: sources and recorded series that it had in the last minutes. up: targets that answered it then.
    """

    series: frozenset[str] = frozenset()
    up: Sequence[Row] = ()


@dataclass(frozen=True)
class PrometheusState:
    """State of one Prometheus.

    error:   why it does not answer; empty if it does.
    rows:    number of series of the metrics' sources, by labels and instance. rows_lately: by labels that
             name pods, including those that existed in the last minutes.
    serving: targets with any reading of GPUs, by instance; None if that was not queried.
    up:      of all targets. up_lately: targets that answered at least once in the last minutes.
    rules:   its recording rules by series, None if it does not list them.
    slow:    targets that take nearly the whole scrape interval to answer, and that part.
    blanks:  rows of GPU fields with impossible values.
    frozen:  GPUs that are busy while profiling reports no activity for minutes.
    doubled: GPUs that two targets report.
    scrape_errors: errors of targets that are down, by job and instance.
    joined:  pod labels that rules on GPUs join and that kube-state-metrics has, including pod and exported_pod;
             None if no rule does.
    runtime: its own status: whether its last reload worked, and how often its write-ahead log was corrupt.
    unstored: targets that are scraped without storing any sample.
    pod_states: states of pods that decisions for KEDA's HPAs are recorded from, by series; empty without such an HPA.
    pod_states_every: seconds between two scrapes of each kube-state-metrics, by job and instance.
    pods:    pods behind its Service. replicas: state of each, by pod, if there are several.
    """

    name: str
    _by_name: KW_ONLY
    error: str = ""
    rows: Sequence[Row] = ()
    rows_lately: Sequence[Row] = ()
    serving: Sequence[Row] | None = None
    up: Sequence[Row] = ()
    up_lately: Sequence[Row] = ()
    rules: Mapping[str, Sequence[Mapping[str, Any]]] | None = None
    slow: Sequence[Row] = ()
    blanks: Sequence[Row] = ()
    frozen: Sequence[Row] = ()
    doubled: Sequence[Row] = ()
    scrape_errors: Mapping[Key, str] = field(default_factory=dict)
    joined: frozenset[str] | None = None
    runtime: Mapping[str, Any] = field(default_factory=dict)
    unstored: int = 0
    pod_states: Sequence[Row] = ()
    pod_states_every: Sequence[Row] = ()
    pods: Sequence[Manifest] = ()
    replicas: Mapping[str, ReplicaState] = field(default_factory=dict)

    @cached_property
    def gpu_rows(self) -> list[Row]:
        return [row for row in self.rows if row.labels.get("__name__", "").startswith("DCGM_")]

    @cached_property
    def names_pods(self) -> bool:
        """Whether any series of GPUs names a pod."""
        return any(row.pod for row in self.gpu_rows)

    @cached_property
    def pods_named_by(self) -> dict[str, set[Key]]:
        """Pods in the rows, by series."""
        found: dict[str, set[Key]] = {}
        for row in self.rows:
            if row.pod:
                found.setdefault(row.labels.get("__name__", ""), set()).add(row.pod)
        return found
