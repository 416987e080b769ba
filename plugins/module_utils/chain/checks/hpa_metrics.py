# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks whether an HPA's metrics are suitable: their speed, unit and subject."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...autoscaling.dcgm_fields import in_todays, is_field
from ...diagnosis.check import CheckResult, FindingTypes, check
from ...hops import Hop
from ...kube.objects import Manifest
from ...kube.quantity import parse_quantity
from ...kube.rollouts import STABLE
from ..adapter_config import name_given
from ..exporter_options import repeats_values
from ..finding_texts import quote
from ..state.autoscaler import AutoscalerState
from ..state.cluster import State
from ..state.metric import MetricState
from .hpa import rules_of

_HPA = FindingTypes(Hop.HPA)

_START_GRACE_S = 120
# Default of the HPA controller.
_TOLERANCE = 0.1
# Model servers keep GPU memory and engine busy at any load.
_MODEL_SERVERS = re.compile(
    r"vllm|sglang|text-generation-(?:inference|launcher)|trtllm|tensorrt-?llm|(?:^|/)nim/|llama\.cpp|llama-server"
)
_STANDS_STILL = frozenset({"gpu", "gpu_util", "gpu_memory", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"})
# An HPA that evaluates a value this often compounds its own decision; the defaults (30 s, 15 s) are just at the edge.
_LOOKS_AT_ONE_VALUE = 2
# Fields that DCGM reports as 0 to 1.
_RATIO = re.compile(r"DCGM_FI_PROF_(?:GR_ENGINE_ACTIVE|SM_ACTIVE|SM_OCCUPANCY|DRAM_ACTIVE|PIPE_\w+_ACTIVE)")
_MADE_PERCENT = re.compile(r"\b100\b|\b1e2\b|\b0?\.01\b")
# Minor version of Kubernetes from which a version of the HPA API is not served.
_REMOVED = {"autoscaling/v2beta1": 25, "autoscaling/v2beta2": 26}
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_APPLIED_VERSION = re.compile(r'"apiVersion":\s*"(autoscaling/\w+)"')

HPA_FASTER_THAN_METRIC = _HPA.warning(
    "HPA_FASTER_THAN_METRIC",
    cause="the HPA evaluates the same value several times and adds pods each time, so it overshoots",
    fix="lower the longest interval: dcgm_exporter_collect_interval, dcgm_exporter_scrape_interval or "
    "prometheus.evaluation_interval; or use a Pods metric",
)


@check("the metric keeps up with the HPA", HPA_FASTER_THAN_METRIC, needs=("hpas", "metrics"))
def metric_keeps_up(state: State) -> Iterator[CheckResult]:
    """Uses only known periods, not assumed ones."""
    for autoscaler in state.autoscalers:
        budget = autoscaler.budget or {}
        sources = budget.get("sources") or {}
        known = [period for period in ("collect", "scrape", "evaluate") if sources.get(period, "assumed") != "assumed"]
        if not known or not budget.get("sync_s") or _is_held_up(state, budget):
            continue
        slowest = max(known, key=lambda period: budget[f"{period}_s"])
        looks = budget[f"{slowest}_s"] / budget["sync_s"]
        compounds = any(metric.type != "Pods" for metric in autoscaler.metrics) and not autoscaler.has_readiness_probe
        if looks > _LOOKS_AT_ONE_VALUE or (compounds and looks == _LOOKS_AT_ONE_VALUE):
            yield CheckResult(
                HPA_FASTER_THAN_METRIC,
                f"HPA {autoscaler}",
                f"{slowest} takes {budget[f'{slowest}_s']:g} s, the HPA syncs every {budget['sync_s']:g} s",
            )


def _is_held_up(state: State, budget: Mapping[str, Any]) -> bool:
    """Whether the exporter is slower than its scrapes, which is a finding of the exporter."""
    return bool(state.agents.exporters) and repeats_values(budget["collect_s"], budget["scrape_s"])


HPA_RATIO_AS_PERCENT = _HPA.error(
    "HPA_RATIO_AS_PERCENT",
    cause="DCGM's profiling fields are 0 to 1, the target is meant in percent, so it is never reached. The HPA can "
    "only scale down",
    fix="multiply by 100 in the rule that records the metric, or set the target as a ratio",
)


@check("targets are in the metric's unit", HPA_RATIO_AS_PERCENT, needs=("hpas", "prometheus", "metrics"))
def target_units(state: State) -> Iterator[CheckResult]:
    for autoscaler in state.autoscalers:
        for metric in autoscaler.metrics:
            text = next(filter(_is_bare_ratio, _texts_of(state, metric)), "")
            most, largest = _most(autoscaler, metric, text), max(metric.values.values(), default=math.inf)
            if text and most and largest <= most < (metric.target_value or 0):
                yield CheckResult(
                    HPA_RATIO_AS_PERCENT,
                    f"HPA {autoscaler}",
                    f"the target of {metric.name} is {metric.target_value:g}, its values are at most "
                    f"{largest:g}; it is made by {quote(text)}",
                    state.affected_by([autoscaler]),
                )


def _texts_of(state: State, metric: MetricState) -> Iterator[str]:
    """Texts that define a metric: its name, recording rules, and rules of the adapter."""
    yield metric.name
    for name in dict.fromkeys(filter(None, (metric.name, metric.series))):
        for rule in (state.prometheus.rules or {}).get(name, ()):
            yield str(rule.get("query", ""))
    for api in state.apis:
        for rule in api.config.rules if api.config else ():
            if name_given(rule) == metric.name:
                yield f"{rule.get('seriesQuery')} {rule.get('metricsQuery')}"


def _is_bare_ratio(text: str) -> bool:
    return bool(_RATIO.search(in_todays(text))) and not _MADE_PERCENT.search(text)


def _most(autoscaler: AutoscalerState, metric: MetricState, text: str) -> int:
    """The largest possible value. For a sum it is the number of GPUs of a pod; 0 if unknown."""
    if "sum" not in text:
        return 1
    return sum(autoscaler.gpus.values()) if metric.type == "Pods" else 0


HPA_METRIC_OF_ALL_GPUS = _HPA.error(
    "HPA_METRIC_OF_ALL_GPUS",
    cause="the HPA reads the exporter's Service, so one value covers every GPU, not only this workload's",
    fix="use a Pods metric: run gpu_autoscaler for the workload, with adopt: true",
)


@check("metrics are of the workload's GPUs", HPA_METRIC_OF_ALL_GPUS, needs=("hpas",))
def metrics_are_of_the_workload(state: State) -> Iterator[CheckResult]:
    """Only DCGM's own names, because a Service of the workload may report values of its pods."""
    for autoscaler in state.autoscalers:
        for entry in autoscaler.hpa["spec"].get("metrics") or ():
            described = (entry.get("object") or {}).get("describedObject") or {}
            name = ((entry.get("object") or {}).get("metric") or {}).get("name", "")
            if described.get("kind") == "Service" and is_field(name):
                seen = f"it reads {name} of Service {described['name']}"
                affected, age_s = state.affected_by([autoscaler]), state.clock.last_change_age_s(autoscaler.hpa)
                yield CheckResult(HPA_METRIC_OF_ALL_GPUS, f"HPA {autoscaler}", seen, affected, age_s)


HPA_MANIFEST_OUTDATED = _HPA.warning(
    "HPA_MANIFEST_OUTDATED",
    cause="the HPA's manifest has apiVersion {version}, which Kubernetes does not serve from {release} on. It cannot "
    "be applied again",
    fix="write apiVersion: autoscaling/v2 in the manifest, with target.type under each metric; kubectl convert does it",
)


@check("its manifest can be applied again", HPA_MANIFEST_OUTDATED, needs=("hpas",))
def hpa_manifest(state: State) -> Iterator[CheckResult]:
    """No result if the HPA was later written in a served version: then another manifest exists."""
    for autoscaler in state.autoscalers:
        text = (autoscaler.hpa["metadata"].get("annotations") or {}).get(_LAST_APPLIED, "")
        match = _APPLIED_VERSION.search(text)
        gone = _REMOVED.get(match[1]) if match else None
        if match and gone and _minor_version(state) >= gone and not _is_written_otherwise(autoscaler.hpa):
            yield CheckResult(
                HPA_MANIFEST_OUTDATED,
                f"HPA {autoscaler}",
                f"it was last applied as {match[1]}, the API server is {state.server_version}",
                age_s=state.clock.last_change_age_s(autoscaler.hpa),
                template_vars={"version": match[1], "release": f"1.{gone}"},
            )


def _minor_version(state: State) -> int:
    match = re.match(r"v1\.(\d+)", state.server_version or "")
    return int(match[1]) if match else 0


def _is_written_otherwise(hpa: Manifest) -> bool:
    return any(
        "f:spec" in (entry.get("fieldsV1") or {}) and entry.get("apiVersion") not in _REMOVED
        for entry in hpa["metadata"].get("managedFields") or ()
        if not entry.get("subresource")
    )


HPA_METRIC_STANDS_STILL = _HPA.warning(
    "HPA_METRIC_STANDS_STILL",
    cause="model servers allocate all GPU memory and keep the GPU busy at any load, so the value does not follow it",
    fix="use the metric llm (waiting requests and KV cache usage), or llm_in_flight (all requests of a server)",
    before="warn",
)


@check("the metric follows the load of model servers", HPA_METRIC_STANDS_STILL, needs=("targets",))
def model_servers(state: State) -> Iterator[CheckResult]:
    for autoscaler in state.autoscalers:
        server = _model_server(autoscaler.template)
        names = {metric.name for metric in autoscaler.metrics}
        if server and names and set(map(in_todays, names)) <= _STANDS_STILL:
            seen = f"{server} scales on {', '.join(sorted(names))} alone"
            yield CheckResult(HPA_METRIC_STANDS_STILL, f"HPA {autoscaler}", seen)


def _model_server(template: Manifest) -> str:
    """The image or program of a model server; empty if none is known. Arguments may contain secrets."""
    for container in template.get("containers") or ():
        if _MODEL_SERVERS.search(image := container.get("image") or ""):
            return f"image {image}"
        words = " ".join([*(container.get("command") or ()), *(container.get("args") or ())])
        if match := _MODEL_SERVERS.search(words):
            return f"program {match[0]}"
    return ""


HPA_AVERAGES_REVISIONS = _HPA.warning(
    "HPA_AVERAGES_REVISIONS",
    cause="a rollout is in progress, and one of its revisions is over the target. The HPA averages over both, so it "
    "adds no pods",
    fix="make traffic proportional to pods (setCanaryScale with matchTrafficWeight: true), or promote or abort: "
    "kubectl argo rollouts -n {namespace} get rollout {name}",
    grace_s=_START_GRACE_S,
)


@check("both revisions of a rollout are within the target", HPA_AVERAGES_REVISIONS, needs=("targets", "metrics"))
def revisions_are_within_the_target(state: State) -> Iterator[CheckResult]:
    """Uses the HPA's own tolerance. If the average is also over the target, the HPA acts."""
    for autoscaler in state.autoscalers:
        revisions, tolerance = autoscaler.revisions, rules_of(autoscaler, "scaleUp").get("tolerance")
        more = _TOLERANCE if tolerance is None else parse_quantity(str(tolerance))
        for metric in autoscaler.metrics if revisions else ():
            means = {name: mean for name, pods in revisions.items() if (mean := _mean(metric, pods)) is not None}
            together = _mean(metric, [pod for pods in revisions.values() for pod in pods])
            limit = (metric.target_value or math.inf) * (1 + more)
            if together is None or together > limit or max(means.values()) <= limit:
                continue
            new = [pod for pod in autoscaler.ready_pods if pod["metadata"]["name"] not in revisions[STABLE]]
            counts = ", ".join(f"{len(revisions[name])} {name} pods at {mean:.0f}" for name, mean in means.items())
            yield CheckResult(
                HPA_AVERAGES_REVISIONS,
                f"HPA {autoscaler}",
                f"{metric.name}: {counts}; {together:.0f} on average, and the target is {metric.target_value:g}",
                state.affected_by([autoscaler]),
                state.clock.longest_ready_s(new),
                template_vars={"namespace": autoscaler.key[0], "name": autoscaler.reference["name"]},
            )


def _mean(metric: MetricState, pods: Iterable[str]) -> float | None:
    """Average of the pods with a value; None without pods, as for metrics of another type."""
    values = [metric.values[pod] for pod in pods if pod in metric.values]
    return sum(values) / len(values) if values else None
