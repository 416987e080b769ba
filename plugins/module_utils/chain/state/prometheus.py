# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What Prometheus has: its targets, its rules, its series of GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

from ..objects import Key, Manifest


@dataclass(frozen=True)
class Row:
    """Labels of something in Prometheus, and its value."""

    labels: Mapping[str, str]
    value: float = 1.0

    @property
    def target(self) -> Key:
        """What Prometheus scrapes, by job and instance."""
        return self.labels.get("job", ""), self.labels.get("instance", "")

    @property
    def pod(self) -> Key | None:
        """The pod that a row of the exporter is about, by the first layout of labels that fits; None if it says none.

        What names the exporter itself is an idle GPU's row under honorLabels.
        """
        labels = self.labels
        pod = labels.get("exported_pod") or labels.get("pod", "")
        namespace = labels.get("exported_namespace") or labels.get("namespace", "")
        own = not labels.get("exported_pod") and re.fullmatch(r"(.+-)?dcgm-exporter(-.+)?", pod)
        return (namespace, pod) if namespace and pod and not own else None


@dataclass(frozen=True)
class ReplicaState:
    """One of several pods behind the Service of Prometheus.

    series: names of sources and recorded series that it has had in the last minutes. up: targets that answered it then.
    """

    series: frozenset[str] = frozenset()
    up: Sequence[Row] = ()


@dataclass(frozen=True)
class PrometheusState:
    """What one Prometheus says.

    error:   why it does not answer; empty if it does.
    rows:    how many series of the metrics' sources there are, by labels and instance. rows_lately: by the labels that
             name pods alone, with those that existed in the last minutes.
    serving: the targets that have any reading of GPUs, by instance; None if that was not asked.
    up:      of all targets. up_lately: those that answered at least once in the last minutes.
    rules:   its recording rules by series, None if it does not say.
    slow:    targets that take nearly all the time between two scrapes to answer, and the share of it.
    blanks:  rows of GPU fields outside of what can be true.
    frozen:  GPUs that are busy while profiling reports no activity for minutes.
    doubled: GPUs that two targets report.
    scrape_errors: why a scrape of a target that is down fails, by job and instance.
    joined:  labels of pods that rules over GPUs join and that kube-state-metrics has, pod and exported_pod among them;
             None if no rule does.
    runtime: what it says of itself: whether its last reload worked, and how often its write-ahead log was corrupt.
    unstored: targets that it scrapes without storing any sample.
    pod_states: states of pods that decisions for KEDA's HPAs are recorded from, by series; empty without such an HPA.
    pod_states_every: seconds between two scrapes of each kube-state-metrics, by job and instance.
    pods:    behind its Service. replicas: what each says for itself, by pod, if there are several.
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
        """Whether any series of GPUs names the pod that holds one."""
        return any(row.pod for row in self.gpu_rows)

    @cached_property
    def pods_named_by(self) -> dict[str, set[Key]]:
        """The pods that rows name, by series."""
        found: dict[str, set[Key]] = {}
        for row in self.rows:
            if row.pod:
                found.setdefault(row.labels.get("__name__", ""), set()).add(row.pod)
        return found
