# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Checks of what people have set beside the chain's own parts: who writes what, and texts that cannot work."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from ...errors import enumeration
from ..findings import Check, Symptom
from ..objects import Manifest, clock, is_ready, labels_of, made_s, name_of, unix, youngest
from ..selectors import labels_match
from ..state import AutoscalerState, MetricState, State, exporter_container
from .adapter import name_given
from .queries import quote

_UTILISATION = "DCGM_FI_DEV_GPU_UTIL"
# Fields that DCGM gives as 0 to 1.
_RATIO = re.compile(r"DCGM_FI_PROF_(?:GR_ENGINE_ACTIVE|SM_ACTIVE|SM_OCCUPANCY|DRAM_ACTIVE|PIPE_\w+_ACTIVE)")
_MADE_PERCENT = re.compile(r"\b100\b|\b1e2\b|\b0?\.01\b")
# The HPA's controller, before the API server kept the subresource in managedFields.
_SCALERS = ("kube-controller-manager",)
# The minor version of Kubernetes that a version of HPAs is gone from.
_REMOVED = {"autoscaling/v2beta1": 25, "autoscaling/v2beta2": 26}
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_APPLIED_VERSION = re.compile(r'"apiVersion":\s*"(autoscaling/\w+)"')


def _mounts(state: State) -> Iterator[Symptom]:
    messages: dict[tuple[str, str], list[str]] = {}
    for event in sorted(state.events, key=_last_seen):
        about = event.get("involvedObject") or {}
        place = about.get("namespace", ""), about.get("name", "")
        messages.setdefault(place, []).append(str(event.get("message")))
    for pod in state.waiting_exporters:
        metadata, node = pod["metadata"], pod["spec"]["nodeName"]
        # Two events alternate: what is wrong with one volume, and that the kubelet has waited for all of them.
        its = sorted(messages.get((metadata["namespace"], metadata["name"]), ()), key=_names_the_volume)
        if its:
            yield Symptom(
                "EXPORTER_MOUNT_FAILS",
                f"pod {name_of(pod)} on node {node}",
                its[-1],
                state.on_nodes([node]),
                state.created(pod),
                words={"namespace": metadata["namespace"], "name": metadata["name"]},
            )


def _last_seen(event: Manifest) -> str:
    return event.get("lastTimestamp") or event.get("eventTime") or ""


def _names_the_volume(message: str) -> bool:
    return "MountVolume" in message


def _webhooks(state: State) -> Iterator[Symptom]:
    """Of pods that are read: those of other namespaces may well be there."""
    seen = {pod["metadata"]["namespace"] for pod in state.component_pods}
    services = {name_of(each): each for each in state.services}
    for config in state.webhooks:
        asked = [each for each in config.get("webhooks") or () if _refuses_rules(each)]
        for place in dict.fromkeys(map(_service_of, asked)):
            if place and place not in services:
                yield _unserved(state, config, f"there is no Service {place}")
            elif place and place.split("/")[0] in seen and (missing := _pods_missing(state, services[place])):
                yield _unserved(state, config, f"Service {place} has {missing}", _pods_of(state, services[place]))


def _unserved(state: State, config: Manifest, why: str, pods: Sequence[Manifest] = ()) -> Symptom:
    name = config["metadata"]["name"]
    nodes = frozenset(f"node {pod['spec'].get('nodeName')}" for pod in pods)
    age_s = youngest(state.turned(pod, "Ready") for pod in pods)
    return Symptom("RULE_WEBHOOK_UNSERVED", f"webhook {name}", why, nodes, age_s, words={"name": name})


def _refuses_rules(webhook: Manifest) -> bool:
    return webhook.get("failurePolicy", "Fail") == "Fail" and any(
        "prometheusrules" in (rule.get("resources") or ()) for rule in webhook.get("rules") or ()
    )


def _service_of(webhook: Manifest) -> str:
    service = (webhook.get("clientConfig") or {}).get("service") or {}
    return f"{service['namespace']}/{service['name']}" if service else ""


def _pods_of(state: State, service: Manifest) -> list[Manifest]:
    selector = {"matchLabels": service["spec"].get("selector")}
    namespace = service["metadata"]["namespace"]
    return [
        pod
        for pod in state.component_pods
        if pod["metadata"]["namespace"] == namespace and labels_match(selector, labels_of(pod))
    ]


def _pods_missing(state: State, service: Manifest) -> str:
    """Empty if one is ready, or if somebody else keeps the Service's endpoints."""
    pods = _pods_of(state, service)
    if not service["spec"].get("selector") or any(is_ready(pod) for pod in pods):
        return ""
    return f"{len(pods)} pods, none is ready" if pods else "no pods"


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
    exporters = state.by_node(state.exporters)
    for node in sorted(needed) if any(map(_has_profiling, fields.values())) else ():
        if _UTILISATION in fields.get(node, ()) and not _has_profiling(fields[node]):
            yield Symptom(
                "PROFILING_MISSING",
                f"node {node}",
                f"its exporter reports {_UTILISATION}, but no DCGM_FI_PROF_*, which other nodes have",
                state.on_nodes([node]),
                state.read_s(exporters.get(node, ())),
                words={"why": "one GPU of a node without them is enough"},
            )


def _fields(state: State) -> Iterator[Symptom]:
    """Only where nothing else gives the metric a value."""
    names = {row.labels.get("__name__", "") for row in state.gpu_rows}
    users: dict[tuple[str, ...], list[AutoscalerState]] = {}
    for each in state.autoscalers:
        for metric in each.metrics:
            if metric.is_of_gpus and metric.sources and metric.silent and not names & set(metric.sources):
                users.setdefault(metric.sources, []).append(each)
    images = sorted({(exporter_container(each) or {}).get("image", "").split("/")[-1] for each in state.exporters})
    others = ", ".join(sorted(names)) or "other readings of GPUs"
    for sources, its in users.items() if names or state.prometheus.serving else ():
        yield Symptom(
            "EXPORTER_FIELD_MISSING",
            f"autoscaler {enumeration([str(each) for each in its])}",
            f"Prometheus has {others}, but no {' or '.join(sources)}; exporter: {', '.join(images) or 'no DaemonSet'}",
            state.of(its),
            state.read_s(state.exporter_pods),
            words={"fields": " or ".join(sources)},
        )


def _ratio_as_percent(state: State) -> Iterator[Symptom]:
    for each in state.autoscalers:
        for metric in each.metrics:
            text = next(filter(_is_bare_ratio, _texts(state, metric)), "")
            most, largest = _most(each, metric, text), max(metric.values.values(), default=math.inf)
            if text and most and largest <= most < (metric.target_value or 0):
                yield Symptom(
                    "HPA_RATIO_AS_PERCENT",
                    f"HPA {each}",
                    f"the target of {metric.name} is {metric.target_value:g}, its values are at most "
                    f"{largest:g}; it is made by {quote(text)}",
                    state.of([each]),
                )


def _texts(state: State, metric: MetricState) -> Iterator[str]:
    """What a metric is made by, as far as somebody's text says so."""
    yield metric.name
    for name in dict.fromkeys(filter(None, (metric.name, metric.series))):
        for rule in (state.prometheus.rules or {}).get(name, ()):
            yield str(rule.get("query", ""))
    for api in state.apis:
        for rule in api.config.rules if api.config else ():
            if name_given(rule) == metric.name:
                yield f"{rule.get('seriesQuery')} {rule.get('metricsQuery')}"


def _is_bare_ratio(text: str) -> bool:
    return bool(_RATIO.search(text)) and not _MADE_PERCENT.search(text)


def _most(autoscaler: AutoscalerState, metric: MetricState, text: str) -> int:
    """The largest value that can be: of a sum, the GPUs of a pod; 0 if that is not known."""
    if "sum" not in text:
        return 1
    return sum(autoscaler.gpus.values()) if metric.type == "Pods" else 0


def _manifests(state: State) -> Iterator[Symptom]:
    """Whoever has written the HPA since in a version that is served has another manifest."""
    for each in state.autoscalers:
        text = (each.hpa["metadata"].get("annotations") or {}).get(_LAST_APPLIED, "")
        found = _APPLIED_VERSION.search(text)
        gone = _REMOVED.get(found[1]) if found else None
        if found and gone and _minor(state) >= gone and not _written_otherwise(each.hpa):
            yield Symptom(
                "HPA_MANIFEST_OUTDATED",
                f"HPA {each}",
                f"it was last applied as {found[1]}, the API server is {state.server_version}",
                words={"version": found[1], "gone": f"1.{gone}"},
            )


def _minor(state: State) -> int:
    found = re.match(r"v1\.(\d+)", state.server_version or "")
    return int(found[1]) if found else 0


def _written_otherwise(hpa: Manifest) -> bool:
    return any(
        "f:spec" in (entry.get("fieldsV1") or {}) and entry.get("apiVersion") not in _REMOVED
        for entry in hpa["metadata"].get("managedFields") or ()
        if not entry.get("subresource")
    )


def _replicas_owned(state: State) -> Iterator[Symptom]:
    """Scaling takes the field away from whoever had it; so who has it afterwards has written it again.

    Not of a target at 0, which is said of it already.
    """
    for each in state.autoscalers:
        scaled_s = unix((each.hpa.get("status") or {}).get("lastScaleTime"))
        if scaled_s is None or each.target is None or not each.replicas or made_s(each.target) > scaled_s:
            continue
        later = [
            (manager, written_s) for manager, written_s in _writers_of_replicas(each.target) if written_s > scaled_s
        ]
        if later:
            manager, written_s = max(later, key=lambda found: found[1])
            yield Symptom(
                "WORKLOAD_REPLICAS_OWNED",
                each.workload,
                f"{manager} wrote spec.replicas at {clock(written_s)}, after the HPA had scaled at {clock(scaled_s)}",
                words={"manager": manager},
            )


def _writers_of_replicas(target: Manifest) -> Iterator[tuple[str, float]]:
    """Who has set spec.replicas otherwise than by scaling, and when it last wrote the object."""
    for entry in target["metadata"].get("managedFields") or ():
        fields = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        scales = entry.get("subresource") or entry.get("manager") in _SCALERS
        if "f:replicas" in fields and not scales and (written_s := unix(entry.get("time"))):
            yield entry.get("manager", "somebody"), written_s


_GPU_SERIES = ("daemon_sets", "component_pods", "prometheus", "metrics")

_WEBHOOKS = ("webhooks", "services", "component_pods")

# Before the checks that see what follows.
CAUSE_CHECKS = (
    Check("exporter", "the exporter's volumes can be mounted", _mounts, ("daemon_sets", "component_pods", "events")),
)
SETTINGS_CHECKS = (
    Check("rule", "what checks PrometheusRules answers", _webhooks, _WEBHOOKS),
    Check("exporter", "profiling fields on each node", _profiling_by_node, ("nodes", *_GPU_SERIES)),
    Check("exporter", "the exporter has the metrics' fields", _fields, _GPU_SERIES),
    Check("hpa", "targets are in the metric's unit", _ratio_as_percent, ("hpas", "prometheus", "metrics")),
    Check("hpa", "its manifest can be applied again", _manifests, ("hpas",)),
    Check("workload", "nobody else sets the replicas", _replicas_owned, ("hpas", "targets")),
)
