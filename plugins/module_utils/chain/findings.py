# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From symptoms to a report: which one is the cause, what follows from it, and what is only on its way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ..errors import NAMED, enumeration
from .catalogue import CATALOGUE, HOPS, Ailment
from .state import ALL, AutoscalerState, State

SCHEMA = "kubegpu.autoscale/doctor/v1"


@dataclass(frozen=True)
class Symptom:
    """Something that one check saw.

    ailment: of the catalogue.
    reach:   what it concerns, so what it may explain further right: `node <name>`, `autoscaler <namespace>/<name>`, or
             ALL.
    age_s:   for how long it has been so; None if nothing tells, and then it counts.
    more_grace_s: what an interval of this cluster adds to the grace of the catalogue.
    words:   for the catalogue's texts.
    is_cut_off: what it is about runs on nodes that do not report, so that is what explains it.
    """

    ailment: str
    object: str
    seen: str
    reach: frozenset[str] = frozenset()
    age_s: float | None = None
    more_grace_s: float = 0
    words: Mapping[str, str] = field(default_factory=dict)
    is_cut_off: bool = False

    @property
    def kind(self) -> Ailment:
        return CATALOGUE[self.ailment]

    @property
    def grace_s(self) -> int:
        return round(self.kind.grace_s + self.more_grace_s)

    @property
    def is_settling(self) -> bool:
        return self.age_s is not None and self.age_s < self.grace_s


@dataclass(frozen=True)
class Check:
    """One question to the state.

    needs: fields of the state without which it cannot be answered.
    """

    hop: str
    name: str
    judge: Callable[[State], Iterator[Symptom]]
    needs: tuple[str, ...] = ()

    def obstacles(self, state: State) -> list[str]:
        """Why it cannot be made."""
        return [state.unread[need] for need in self.needs if need in state.unread]


@dataclass
class Finding:
    """A cause: the symptoms that are alike, and what follows from them."""

    symptoms: list[Symptom]
    consequences: list[Symptom] = field(default_factory=list)

    @property
    def kind(self) -> Ailment:
        return self.symptoms[0].kind

    def describe(self) -> dict[str, Any]:
        first = self.symptoms[0]
        seen = list(dict.fromkeys(each.seen for each in self.symptoms))
        return {
            "id": self.kind.id,
            "hop": self.kind.hop,
            "severity": self.kind.severity,
            "object": enumeration(list(dict.fromkeys(each.object for each in self.symptoms))),
            "seen": _first(seen),
            "cause": self.kind.cause.format(**first.words),
            "fix": self.kind.fix.format(**first.words),
            "doc": self.kind.doc,
            "consequences": _first(
                list(dict.fromkeys(f"{HOPS[each.kind.hop]}: {each.object}: {each.seen}" for each in self.consequences))
            ),
            "grace_s": max(each.grace_s for each in self.symptoms),
        }


def judge(symptoms: Iterable[Symptom], *, grace: bool = True) -> list[Finding]:
    """Walk from left to right: what an error explains is its consequence, not one more finding.

    What is only settling explains too, and then there is no alarm for either.
    """
    settling, causes = _Explanations(), _Explanations()
    found: dict[str, Finding] = {}
    for symptom in symptoms:
        if grace and (symptom.is_settling or settling.of(symptom)):
            settling.add(symptom)
        elif cause := causes.of(symptom):
            found[cause.ailment].consequences.append(symptom)
        else:
            found.setdefault(symptom.ailment, Finding([])).symptoms.append(symptom)
            causes.add(symptom)
    return list(found.values())


class _Explanations:
    """Errors by what they reach, the first that does."""

    def __init__(self) -> None:
        self._by_reach: dict[str, tuple[int, Symptom]] = {}

    def add(self, symptom: Symptom) -> None:
        if symptom.kind.severity == "error":
            for each in symptom.reach:
                self._by_reach.setdefault(each, (len(self._by_reach), symptom))

    def of(self, symptom: Symptom) -> Symptom | None:
        """The first error that explains a silence; of its own kind it is another case, not the cause."""
        if not (symptom.kind.is_silence or symptom.is_cut_off):
            return None
        reaching = [self._by_reach[each] for each in {ALL, *symptom.reach} if each in self._by_reach]
        others = [
            (place, each)
            for place, each in reaching
            if each.ailment != symptom.ailment and each.kind.hop in symptom.kind.explained_by
        ]
        return min(others, key=lambda found: found[0], default=(0, None))[1]


def report(state: State, checks: Sequence[Check], *, grace: bool = True, duration_s: float = 0) -> dict[str, Any]:
    """The published report, see docs/doctor/report.schema.json."""
    made = [check for check in checks if not check.obstacles(state)]
    findings = judge((symptom for check in made for symptom in check.judge(state)), grace=grace)
    return {
        "schema": SCHEMA,
        "generated_at": datetime.fromtimestamp(state.now_s, UTC).isoformat(timespec="seconds"),
        "duration_s": duration_s,
        "cluster": {
            "server_version": state.server_version,
            "nodes": len(state.nodes),
            "gpu_nodes": len(state.gpu_nodes),
        },
        "scope": {"namespace": state.scope.namespace, "name": state.scope.name},
        "verdict": _verdict(findings),
        "hops": [_hop(hop, findings, checks, made, state) for hop in HOPS],
        "findings": [finding.describe() for finding in sorted(findings, key=_place)],
        "not_checked": [
            {"check": check.name, "hop": check.hop, "reason": "; ".join(dict.fromkeys(check.obstacles(state)))}
            for check in checks
            if check.obstacles(state)
        ],
        "autoscalers": [_autoscaler(each) for each in state.autoscalers],
    }


def _place(finding: Finding) -> tuple[bool, int]:
    """Errors first, then left to right."""
    return finding.kind.severity != "error", list(HOPS).index(finding.kind.hop)


def _verdict(findings: Sequence[Finding]) -> str:
    severities = {finding.kind.severity for finding in findings}
    return "broken" if "error" in severities else "warning" if severities else "ok"


def _hop(
    hop: str, findings: Sequence[Finding], checks: Sequence[Check], made: Sequence[Check], state: State
) -> dict[str, str]:
    its = [finding for finding in findings if finding.kind.hop == hop]
    consequences = [each for finding in findings for each in finding.consequences if each.kind.hop == hop]
    errors = [finding for finding in its if finding.kind.severity == "error"]
    reasons = [reason for check in checks if check.hop == hop for reason in check.obstacles(state)]
    if errors:
        status, summary = "broken", _summary(errors)
    elif consequences:
        status, summary = "consequence", consequences[0].seen
    elif not any(check.hop == hop for check in made):
        status, summary = "unknown", reasons[0] if reasons else "nothing was asked"
    elif its:
        status, summary = "warning", _summary(its)
    elif nothing := _NOTHING[hop](state):
        status, summary = "unknown", ": ".join([nothing, *reasons[:1]])
    else:
        status, summary = "ok", _SUMMARIES[hop](state)
    return {"id": hop, "title": HOPS[hop], "status": status, "summary": summary}


def _summary(findings: Sequence[Finding]) -> str:
    first = findings[0].symptoms[0]
    rest = sum(len(finding.symptoms) for finding in findings) - 1
    return f"{first.object}: {first.seen}" + (f" and {rest} more" if rest else "")


def _autoscaler(each: AutoscalerState) -> dict[str, Any]:
    status, spec = each.hpa.get("status") or {}, each.hpa["spec"]
    metric = each.metrics[0] if each.metrics else None
    return {
        "namespace": each.key[0],
        "name": each.key[1],
        "target": {"kind": each.reference.get("kind", "Deployment"), "name": each.reference["name"]},
        "metric": metric.name if metric else "",
        "target_value": metric.target_value if metric else None,
        "unit": metric.unit if metric else "",
        "min_replicas": spec.get("minReplicas", 1),
        "max_replicas": spec["maxReplicas"],
        "replicas": status.get("currentReplicas") if each.replicas is None else each.replicas,
        "desired_replicas": status.get("desiredReplicas"),
        "verified": each.verified,
        "budget": each.budget,
        "history": each.history,
    }


def _first(texts: Sequence[str]) -> list[str]:
    rest = len(texts) - NAMED
    return [*texts[:NAMED], *([f"and {rest} more"] if rest > 0 else [])]


def _layouts(state: State) -> str:
    """Which of the three ways of scraping the labels show, and how many pods they name."""
    found = {
        "exported_namespace, exported_pod"
        if row.labels.get("exported_pod")
        else "exported_namespace, pod"
        if row.labels.get("exported_namespace")
        else "namespace, pod"
        for row in state.prometheus.rows
        if row.pod
    }
    pods = {row.pod for row in state.prometheus.rows if row.pod}
    return f"{len(pods)} pods are named by {' and by '.join(sorted(found))}"


def _exporters(state: State) -> str:
    pods = f"{len(state.exporter_pods)} pods of dcgm-exporter"
    return pods if state.exporter_pods else "an exporter that is no DaemonSet of this cluster"


def _no_rule(state: State) -> str:
    if state.prometheus.rules is None:
        return "Prometheus does not say which rules it has"
    recorded = any(metric.series for each in state.autoscalers for metric in each.metrics)
    return "" if recorded else "no metric that is looked at is recorded by a rule"


def _no_value(state: State) -> str:
    held = any(metric.holders for each in state.autoscalers for metric in each.metrics)
    return "" if held else "no ready pod of an autoscaler has to have a value"


_SUMMARIES: Mapping[str, Callable[[State], str]] = {
    "node": lambda state: f"{len(state.gpu_nodes)} of {len(state.nodes)} nodes have GPUs",
    "device_plugin": lambda state: f"{len(state.pods_of(state.plugins))} pods of the device plugin",
    "node_labels": lambda state: f"{len(state.gpu_nodes)} GPU nodes are found by what needs them",
    "exporter": _exporters,
    "scrape": lambda state: f"{state.prometheus.name} has {len(state.gpu_rows)} kinds of GPU series",
    "labels": _layouts,
    "rule": lambda state: f"{len(state.prometheus.rules or {})} recorded series",
    "metrics_api": lambda state: ", ".join(f"{api.group} by {api.owner}" for api in state.apis),
    "metric": lambda state: f"{sum(len(each.metrics) for each in state.autoscalers)} metrics are looked at",
    "hpa": lambda state: f"{len(state.autoscalers)} autoscalers are looked at",
    "workload": lambda state: f"{sum(len(each.ready_pods) for each in state.autoscalers)} pods are ready",
}

_NO_EXPORTER = "no dcgm-exporter is known"
# Why a hop without a finding is not well either: nothing of it is there. Empty if something could be judged.
_NOTHING: Mapping[str, Callable[[State], str]] = {
    "node": lambda state: "" if state.gpu_nodes else "no node is known to have GPUs",
    "device_plugin": lambda state: "" if state.pods_of(state.plugins) else "no pod of a device plugin is known",
    "node_labels": lambda state: "" if state.gpu_nodes and state.exporters else _NO_EXPORTER,
    "exporter": lambda state: "" if state.exporter_pods or state.gpu_rows else _NO_EXPORTER,
    "scrape": lambda state: "" if state.exporter_pods or state.gpu_rows else _NO_EXPORTER,
    "labels": lambda state: "" if any(row.pod for row in state.prometheus.rows) else "no series names a pod",
    "rule": _no_rule,
    "metrics_api": lambda state: "" if state.apis else "no autoscaler asks for a metrics API",
    "metric": _no_value,
    "hpa": lambda state: "" if state.autoscalers else "no autoscaler is looked at",
    "workload": lambda state: "" if state.autoscalers else "no autoscaler is looked at",
}
