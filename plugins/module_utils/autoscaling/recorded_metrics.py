# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Metrics of pods that are recorded without an autoscaler, for existing HPAs, and PodMonitors that scrape the pods."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from ..errors import HopError, first_of_all
from ..hops import Hop
from ..kube.labels import MONITOR_ANNOTATION, namespace_of
from ..kube.objects import Manifest
from .kube_names import DNS_LABEL, short_name
from .manifests import RuleOptions, profile_rule, query_in, shared_profiles
from .metrics import Metric, Profile
from .options import Options, check_values
from .raw_metrics import check_labels
from .spec import Autoscaler

# The part of the collection whose objects these are, and its kinds.
PART = "autoscaling-metrics"
MONITORING = "monitoring.coreos.com/v1"
KINDS = tuple({"api_version": MONITORING, "kind": kind} for kind in ("PrometheusRule", "PodMonitor"))
# By this series alerts recognize HPAs that read the metric.
INFO_SERIES = "namespace_metric:kubegpu:info"
_OPTIONS = ("name", "namespace", "query", "scrape")
_SCRAPE_OPTIONS = ("port", "path", "interval", "labels")
_INTERVAL_S, _LONGEST_INTERVAL_S = 5, 300


@dataclass(frozen=True)
class RecordedMetric:
    """A metric of a namespace, or only the scrape of its pods.

    profile: the metric and its query; None for a scrape alone.
    scrape:  endpoint of a PodMonitor; empty for none. labels: labels of the scraped pods; all pods without any.
    """

    namespace: str
    profile: Profile | None
    scrape: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name or self.scrape['port']}"

    @property
    def name(self) -> str:
        return self.profile.name if self.profile else ""

    @property
    def metric(self) -> Metric | None:
        return self.profile.metrics[0] if self.profile else None

    @property
    def query(self) -> str:
        """PromQL with one series for each pod of the namespace; empty for a scrape alone."""
        return query_in(self.namespace, self.metric.query) if self.metric else ""

    @property
    def info(self) -> dict[str, str]:
        """Labels of INFO_SERIES. The digest shows which version of the rule Prometheus has loaded."""
        recordings = (
            [recording for metric in self.profile.recorded for recording in metric.recordings()] if self.profile else []
        )
        return {"namespace": self.namespace, "metric_name": self.name, "digest": _digest(recordings)}

    @property
    def monitor(self) -> str:
        """Name of the PodMonitor, which metrics of the same pods and port share, so that no pod is scraped twice."""
        if not self.scrape:
            return ""
        return short_name(f"kubegpu-{self.scrape['port']}-{_digest([self.scrape, self.labels])}")

    @property
    def job(self) -> str:
        """The label job of what the PodMonitor scrapes, as the operator sets it."""
        return f"{self.namespace}/{self.monitor}"

    @classmethod
    def from_params(cls, given: Any, path: str) -> RecordedMetric:
        """Raises: HopError if a name, a query or a field of the scrape is not valid."""
        options = Options(given, _OPTIONS, path)
        scrape = options.options("scrape", _SCRAPE_OPTIONS)
        name, query = options.text("name"), options.text("query")
        if not name and (query or not scrape):
            raise options.error("name", "is missing", "set the name of the metric; a scrape alone needs none")
        namespace = options.text("namespace", rule=DNS_LABEL) or "default"
        profile = None
        if name:
            try:
                profile = Profile.from_params({"name": name, "query": query or f"max by (namespace, pod) ({name})"})
            except HopError as err:
                raise options.error("name", f"is wrong: {err.seen}", err.fix) from err
        if not scrape:
            return cls(namespace, profile)
        if not scrape.text("port", rule=DNS_LABEL):
            raise scrape.error("port", "is missing", "set it to the name of the container port that serves the metrics")
        check_labels(scrape, "labels")
        seconds = scrape.whole("interval", 1, _LONGEST_INTERVAL_S, _INTERVAL_S)
        endpoint = {"port": scrape.text("port"), "path": scrape.text("path", "/metrics"), "interval": f"{seconds}s"}
        return cls(namespace, profile, endpoint, scrape.raw("labels", {}))


def read_metrics(given: Any, autoscalers: Sequence[Autoscaler] = ()) -> list[RecordedMetric]:
    """Parses the option `metrics`. Raises: HopError with the problem of each invalid entry.

    autoscalers: those of the same inventory, which must not record one of the metrics.
    """
    check_values(given, "metrics")
    found, errors = [], []
    for path, entry in Options({"metrics": given}, ("metrics",)).entries("metrics"):
        try:
            found.append(RecordedMetric.from_params(entry, path))
        except HopError as err:
            errors.append(err)
    errors += _contradictions(found, autoscalers)
    if errors:
        raise first_of_all(errors)
    return found


def _contradictions(metrics: Sequence[RecordedMetric], autoscalers: Sequence[Autoscaler]) -> Iterator[HopError]:
    recorded = {(namespace, profile.name) for namespace, profile in shared_profiles(autoscalers)}
    for metric, times in Counter((metric.namespace, metric.name) for metric in metrics if metric.profile).items():
        if times > 1:
            yield HopError(
                Hop.SPEC,
                seen=f"metrics has {times} entries for {'/'.join(metric)}",
                fix="give each metric of a namespace a different name",
            )
        if metric in recorded:
            yield HopError(
                Hop.SPEC,
                seen=f"metric {'/'.join(metric)} is recorded for an autoscaler, and is an entry of metrics as well",
                fix="remove the entry: any HPA of the namespace can read the metric of the autoscaler",
            )


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def metric_objects(metrics: Sequence[RecordedMetric], rules: RuleOptions) -> list[Manifest]:
    """A PrometheusRule for each metric, and a PodMonitor for each scrape."""
    recorded = [_rule(metric, metric.profile, rules) for metric in metrics if metric.profile]
    monitors = {metric.job: _pod_monitor(metric, rules) for metric in metrics if metric.scrape}
    return [*recorded, *monitors.values()]


def monitor_of(rule: Manifest) -> tuple[str, str]:
    """Namespace and name of the PodMonitor of a rule's entry; the name is empty without a scrape."""
    return namespace_of(rule), (rule["metadata"].get("annotations") or {}).get(MONITOR_ANNOTATION, "")


def _rule(metric: RecordedMetric, profile: Profile, rules: RuleOptions) -> Manifest:
    rule = profile_rule(profile, rules, metric.namespace)
    if metric.scrape:
        rule["metadata"].setdefault("annotations", {})[MONITOR_ANNOTATION] = metric.monitor
    info = {"record": INFO_SERIES, "expr": "vector(1)", "labels": {**metric.info, "job": ""}}
    rule["spec"]["groups"][0]["rules"].append(info)
    return rule


def _pod_monitor(metric: RecordedMetric, rules: RuleOptions) -> Manifest:
    return {
        "apiVersion": MONITORING,
        "kind": "PodMonitor",
        "metadata": {"name": metric.monitor, "namespace": metric.namespace, "labels": dict(rules.labels)},
        "spec": {"selector": {"matchLabels": dict(metric.labels)}, "podMetricsEndpoints": [dict(metric.scrape)]},
    }
