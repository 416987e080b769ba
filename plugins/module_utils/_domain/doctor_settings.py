# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Checks of what people have set beside the chain's own parts: who writes what, and texts that cannot work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from .doctor_objects import Manifest, name_of, unix, youngest
from .doctor_report import Check, Symptom
from .doctor_state import AutoscalerState, MetricState, State, exporter_container
from .findings import enumeration

_UTILISATION = "DCGM_FI_DEV_GPU_UTIL"
# Fields that DCGM gives as 0 to 1.
_RATIO = re.compile(r"DCGM_FI_PROF_(?:GR_ENGINE_ACTIVE|SM_ACTIVE|SM_OCCUPANCY|DRAM_ACTIVE|PIPE_\w+_ACTIVE)")
_MADE_PERCENT = re.compile(r"\b100\b|\b1e2\b|\b0?\.01\b")
# The HPA's controller, before the API server kept the subresource in managedFields.
_SCALERS = ("kube-controller-manager",)


def _fields_by_node(state: State) -> dict[str, set[str]]:
    """Which of the metrics' sources each node's exporter reports; of nodes whose target can be told from others."""
    targets, nodes = state.targets, {}
    for pod in state.exporter_pods:
        if row := targets.get(name_of(pod)):
            nodes[row.labels.get("instance", "")] = pod["spec"].get("nodeName", "")
    found: dict[str, set[str]] = {}
    for row in state.gpu_rows:
        if node := nodes.get(row.labels.get("instance", "")):
            found.setdefault(node, set()).add(row.labels.get("__name__", ""))
    return found


def _has_profiling(names: set[str]) -> bool:
    return any("_PROF_" in name for name in names)


def _profiling_by_node(state: State) -> Iterator[Symptom]:
    """DCGM leaves profiling out for a whole node if one of its GPUs has none."""
    fields = _fields_by_node(state)
    needed = {
        node
        for each in state.autoscalers
        if any(metric.is_of_gpus and metric.needs_profiling for metric in each.metrics)
        for node in each.nodes
    }
    for node in sorted(needed) if any(map(_has_profiling, fields.values())) else ():
        if _UTILISATION in fields.get(node, ()) and not _has_profiling(fields[node]):
            yield Symptom(
                "PROFILING_MISSING",
                f"node {node}",
                f"its exporter reports {_UTILISATION}, but no DCGM_FI_PROF_*, which other nodes have",
                state.on_nodes([node]),
                _exporter_age(state),
                words={"why": "one GPU of a node without them is enough"},
            )


def _exporter_age(state: State) -> float | None:
    return youngest([state.prometheus_age, *(state.turned(pod, "Ready") for pod in state.exporter_pods)])


def _fields(state: State) -> Iterator[Symptom]:
    """Only where nothing else gives the metric a value."""
    names = {row.labels.get("__name__", "") for row in state.gpu_rows}
    users: dict[tuple[str, ...], list[AutoscalerState]] = {}
    for each in state.autoscalers:
        for metric in each.metrics:
            if metric.is_of_gpus and metric.sources and metric.silent and not names & set(metric.sources):
                users.setdefault(metric.sources, []).append(each)
    images = sorted({(exporter_container(each) or {}).get("image", "").split("/")[-1] for each in state.exporters})
    for sources, its in users.items() if names else ():
        yield Symptom(
            "EXPORTER_FIELD_MISSING",
            f"autoscaler {enumeration([str(each) for each in its])}",
            f"Prometheus has {', '.join(sorted(names))}, but no {' or '.join(sources)}; "
            f"exporter: {', '.join(images) or 'no DaemonSet'}",
            state.of(its),
            _exporter_age(state),
            words={"fields": " or ".join(sources)},
        )


def _ratio_as_percent(state: State) -> Iterator[Symptom]:
    for each in state.autoscalers:
        for metric in each.metrics:
            text = next(filter(_is_bare_ratio, _texts(state, metric)), "")
            if text and (metric.target_value or 0) > 1 and metric.values and max(metric.values.values()) <= 1:
                yield Symptom(
                    "HPA_RATIO_AS_PERCENT",
                    f"HPA {each}",
                    f"the target of {metric.name} is {metric.target_value:g}, its values are at most "
                    f"{max(metric.values.values()):g}; it is made by {_quote(text)}",
                    state.of([each]),
                )


def _texts(state: State, metric: MetricState) -> Iterator[str]:
    """What a metric is made by, as far as somebody's text says so."""
    yield metric.name
    for name in {metric.name, metric.series} - {""}:
        for rule in (state.prometheus.rules or {}).get(name, ()):
            yield str(rule.get("query", ""))


def _is_bare_ratio(text: str) -> bool:
    """A sum over GPUs may be above 1."""
    return bool(_RATIO.search(text)) and not _MADE_PERCENT.search(text) and "sum" not in text


def _quote(text: str, limit: int = 120) -> str:
    text = " ".join(text.split())
    return f"`{text[:limit]}{'...' if len(text) > limit else ''}`"


def _replicas_owned(state: State) -> Iterator[Symptom]:
    """Scaling takes the field away from whoever had it; so who has it afterwards has written it again."""
    for each in state.autoscalers:
        scaled_s = unix((each.hpa.get("status") or {}).get("lastScaleTime"))
        if scaled_s is None or each.target is None or (unix(_created(each.target)) or 0) > scaled_s:
            continue
        later = [
            (manager, written_s) for manager, written_s in _writers_of_replicas(each.target) if written_s > scaled_s
        ]
        if later:
            manager, written_s = max(later, key=lambda found: found[1])
            yield Symptom(
                "WORKLOAD_REPLICAS_OWNED",
                each.workload,
                f"{manager} wrote spec.replicas at {_clock(written_s)}, after the HPA had scaled at {_clock(scaled_s)}",
                words={"manager": manager},
            )


def _created(manifest: Manifest) -> str | None:
    return manifest["metadata"].get("creationTimestamp")


def _writers_of_replicas(target: Manifest) -> Iterator[tuple[str, float]]:
    """Who has set spec.replicas otherwise than by scaling, and when it last wrote the object."""
    for entry in target["metadata"].get("managedFields") or ():
        fields = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        scales = entry.get("subresource") or entry.get("manager") in _SCALERS
        if "f:replicas" in fields and not scales and (written_s := unix(entry.get("time"))):
            yield entry.get("manager", "somebody"), written_s


def _clock(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


_GPU_SERIES = ("daemon_sets", "component_pods", "prometheus", "metrics")

SETTINGS_CHECKS = (
    Check("exporter", "profiling fields on each node", _profiling_by_node, ("nodes", *_GPU_SERIES)),
    Check("exporter", "the exporter has the metrics' fields", _fields, _GPU_SERIES),
    Check("hpa", "targets are in the metric's unit", _ratio_as_percent, ("hpas", "prometheus", "metrics")),
    Check("workload", "nobody else sets the replicas", _replicas_owned, ("hpas", "targets")),
)
