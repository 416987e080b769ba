# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Checks from the metrics API to the pods: the adapter, the value of each pod, the HPA, the workload."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...autoscaling.capacity import gpus_per_pod, nodes_are_added, replicas_that_fit
from ...errors import enumeration
from ..findings import Check, Symptom
from ..objects import Manifest, condition, name_of, owners, seconds, trouble, youngest
from ..state import ALL, ApiState, AutoscalerState, MetricState, State, lost_gpus, repeats_values
from .prometheus import lag_s, rule_age, rule_interval_s

# What serves models and keeps the GPU's memory and engine busy whatever the load.
_MODEL_SERVERS = re.compile(r"vllm|sglang|text-generation-inference")
_STANDS_STILL = frozenset({"gpu", "gpu_util", "gpu_memory", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"})
_URL = re.compile(r"https?://(?P<host>[^/:]+)(?::(?P<port>\d+))?(?:/.*)?")
# An HPA that looks so often at one value compounds its own decision; stock (30 s and 15 s) is just at the edge.
_LOOKS_AT_ONE_VALUE = 2


def _users(state: State, group: str) -> list[AutoscalerState]:
    return [each for each in state.autoscalers if any(metric.group == group for metric in each.metrics)]


def _apis(state: State) -> Iterator[Symptom]:
    for api in state.apis:
        users, words = _users(state, api.group), {"group": api.group, "owner": api.owner}
        reach, name = state.of(users), f"APIService v1beta1.{api.group}"
        if api.service is None:
            yield Symptom("METRICS_API_MISSING", name, "there is none", reach, words=words)
        elif api.unavailable or api.listed is None:
            yield Symptom(
                "METRICS_API_UNAVAILABLE",
                name,
                f"not Available: {api.unavailable}" if api.unavailable else f"{api.owner} does not answer",
                reach,
                state.turned(api.service, "Available") if api.unavailable else _adapter_age(state, api),
                words=words,
                is_cut_off=state.are_cut_off(api.pods),
            )


def _owners(state: State) -> Iterator[Symptom]:
    """Another server is fine as long as it has the metrics; one that has some values has them."""
    for api in state.apis:
        lacking = [
            (each, metric)
            for each in _users(state, api.group)
            for metric in each.metrics
            if metric.group == api.group and metric.series and metric.holders and not (metric.values or metric.listed)
        ]
        if lacking and api.service is not None and not api.is_prometheus_adapter and not api.unavailable:
            users = list(dict.fromkeys(str(each) for each, _metric in lacking))
            ages = [age for each, metric in lacking if (age := _ready_s(state, each, metric)) is not None]
            yield Symptom(
                "METRICS_API_OF_ANOTHER",
                f"APIService v1beta1.{api.group}",
                f"{api.owner} does not offer what {enumeration(users)} scale on",
                state.of(each for each, _metric in lacking),
                youngest([_adapter_age(state, api), max(ages, default=None)]),
                words={"group": api.group, "owner": api.owner},
            )


def _adapter_age(state: State, api: ApiState) -> float | None:
    return youngest(state.turned(pod, "Ready") for pod in api.pods)


def _adapters(state: State) -> Iterator[Symptom]:
    for api in state.apis:
        reach = state.of(_users(state, api.group))
        name = f"Deployment {name_of(api.adapter)}" if api.adapter else api.owner
        why = _wrong_url(state, api) if api.is_prometheus_adapter and not api.listed else ""
        if why:
            yield Symptom("ADAPTER_WRONG_URL", name, why, reach, words={"why": why})
        if api.is_prometheus_adapter and api.listed is not None and not api.listed and not api.unavailable:
            yield Symptom(
                "ADAPTER_LISTS_NOTHING",
                name,
                f"GET /apis/{api.group}/v1beta1: resources is empty",
                reach | {ALL},
                youngest([_adapter_age(state, api), state.prometheus_age, _series_age(state)]),
                more_grace_s=2 * api.relist_s,
            )


def _series_age(state: State) -> float | None:
    """Since when there may have been a series at all: since the pod that has been ready longest."""
    ages = [state.turned(pod, "Ready") for each in state.autoscalers for pod in each.ready_pods]
    return max((age for age in ages if age is not None), default=0.0)


def _wrong_url(state: State, api: ApiState) -> str:
    """What is wrong with an address of a Service; nothing is said of other addresses."""
    url = api.option("--prometheus-url")
    found = _URL.fullmatch(url)
    if not found:
        return f"--prometheus-url is {url}, which is no address" if url else ""
    port = int(found["port"] or (443 if url.startswith("https") else 80))
    name, _, rest = found["host"].partition(".")
    namespace = rest.split(".")[0] or (api.adapter or {"metadata": {"namespace": ""}})["metadata"]["namespace"]
    if "services" in state.unread or (rest and rest.split(".")[1:2] not in ([], ["svc"])) or not name or name.isdigit():
        return ""
    service = next((each for each in state.services if name_of(each) == f"{namespace}/{name}"), None)
    if service is None:
        return f"--prometheus-url is {url}, and there is no Service {namespace}/{name}"
    ports = [each["port"] for each in service["spec"].get("ports") or ()]
    return (
        ""
        if port in ports
        else f"--prometheus-url is {url}, Service {namespace}/{name} has {enumeration(list(map(str, ports)))}"
    )


def _adapter_memory(state: State) -> Iterator[Symptom]:
    for api in state.apis:
        if not api.is_prometheus_adapter or not api.adapter:
            continue
        kept_s = seconds(api.option("--metrics-max-age")) or api.relist_s
        series = {metric.series for each in _users(state, api.group) for metric in each.metrics if metric.series}
        slowest_s = max((rule_interval_s(state, name) or 0 for name in series), default=0)
        if kept_s < slowest_s:
            yield Symptom(
                "ADAPTER_FORGETS",
                f"Deployment {name_of(api.adapter)}",
                f"it looks back {kept_s:g} s, the slowest rule is evaluated every {slowest_s:g} s",
            )


def _values(state: State) -> Iterator[Symptom]:
    for each in state.autoscalers:
        for metric in each.metrics:
            api = state.api.get(metric.group, ApiState(metric.group))
            since = (rule_age(state, metric.series), _adapter_age(state, api), state.prometheus_age)
            age = youngest([_ready_s(state, each, metric), *since])
            words = {"owner": api.owner or metric.group}
            reach = state.of([each]) | {f"node {node}" for node in each.nodes}
            # Others list one name for all that they serve, or a few of them: only prometheus-adapter's list is whole.
            if metric.silent and metric.listed is False and api.is_prometheus_adapter:
                seen = f"{metric.group} does not list {metric.name}"
                yield Symptom(
                    "METRIC_NOT_LISTED", f"autoscaler {each}", seen, reach, age, 2 * api.relist_s + lag_s(each), words
                )
            elif metric.silent:
                seen = f"no {metric.name} for {enumeration(metric.silent)}" + (metric.refusal and f": {metric.refusal}")
                yield Symptom("METRIC_WITHOUT_VALUE", f"autoscaler {each}", seen, reach, age, lag_s(each), words)
            elif metric.disagreeing:
                settled = youngest([_adapter_age(state, api), rule_age(state, metric.series)])
                seen = _difference(metric)
                yield Symptom("METRIC_DISAGREES", f"autoscaler {each}", seen, state.of([each]), settled, lag_s(each))


def _difference(metric: MetricState) -> str:
    holder = metric.disagreeing[0]
    recorded = metric.recorded.get(holder, ())
    was = f"Prometheus recorded {min(recorded):g} to {max(recorded):g}" if recorded else "Prometheus recorded nothing"
    return f"{metric.name} of {holder} is {metric.values[holder]:g}, {was}"


def _ready_s(state: State, autoscaler: AutoscalerState, metric: MetricState) -> float | None:
    pods = [pod for pod in autoscaler.ready_pods if pod["metadata"]["name"] in metric.silent] or autoscaler.ready_pods
    return max((age for pod in pods if (age := state.turned(pod, "Ready")) is not None), default=None)


def _hpa_seen(state: State) -> Iterator[Symptom]:
    for each in state.autoscalers:
        if not (each.hpa.get("status") or {}).get("conditions"):
            yield Symptom(
                "HPA_NOT_SEEN", f"HPA {each}", "status.conditions is empty", state.of([each]), state.created(each.hpa)
            )


def _hpa_conditions(state: State) -> Iterator[Symptom]:
    shared = {place for place, its in _holders(state).items() if len(its) > 1}
    for each in state.autoscalers:
        yield from _hpa_condition(state, each, _place(each.hpa) in shared)


def _hpa_condition(state: State, each: AutoscalerState, shares_target: bool) -> Iterator[Symptom]:
    """Without its target or pods, or beside a second HPA, it can do nothing: that is said of the workload."""
    able, active = condition(each.hpa, "AbleToScale"), condition(each.hpa, "ScalingActive")
    reach = state.of([each]) | {f"node {node}" for node in each.nodes}
    group = each.metrics[0].group if each.metrics else "metrics.k8s.io"
    words = {"namespace": each.key[0], "name": each.key[1], "group": group}
    name, reason = f"HPA {each}", active.get("reason")
    if able.get("status") == "False" and (each.target is not None or "targets" in state.unread):
        yield Symptom("HPA_CANNOT_SCALE", name, _said(able), reach, state.turned(each.hpa, "AbleToScale"), words=words)
    if active.get("status") != "False" or not each.ready_pods or reason == "ScalingDisabled":
        return
    since_s = state.turned(each.hpa, "ScalingActive")
    if reason == "AmbiguousSelector":
        if shares_target:
            return
        yield Symptom("HPA_SELECTOR_AMBIGUOUS", name, _said(active), reach, since_s, words=words)
    elif "forbidden" in active.get("message", "").lower():
        yield Symptom("HPA_FORBIDDEN", name, _said(active), reach, since_s, words=words)
    else:
        age = youngest([since_s, _series_ready(state, each)])
        yield Symptom("HPA_NOT_ACTIVE", name, _said(active), reach, age, lag_s(each), words)


def _series_ready(state: State, each: AutoscalerState) -> float | None:
    return max((age for pod in each.ready_pods if (age := state.turned(pod, "Ready")) is not None), default=None)


def _said(found: Mapping[str, str]) -> str:
    return f"{found['type']} is {found['status']}, {found.get('reason')}: {found.get('message')}"


def _at_maximum(state: State) -> Iterator[Symptom]:
    for each in state.autoscalers:
        limited = condition(each.hpa, "ScalingLimited")
        if limited.get("status") == "True" and limited.get("reason") == "TooManyReplicas":
            age = state.turned(each.hpa, "ScalingLimited")
            seen = f"ScalingLimited for {(age or 0) / 60:.0f} minutes at max_replicas {each.hpa['spec']['maxReplicas']}"
            yield Symptom("HPA_AT_MAXIMUM", f"HPA {each}", seen, age_s=age)


def _pace(state: State) -> Iterator[Symptom]:
    """Only of periods that are known: an assumed one accuses nobody."""
    for each in state.autoscalers:
        budget, compounds = each.budget or {}, any(metric.type != "Pods" for metric in each.metrics)
        known = [
            period
            for period in ("collect", "scrape", "evaluate")
            if (budget.get("sources") or {}).get(period, "assumed") != "assumed"
        ]
        if not known or not budget.get("sync_s") or _is_held_up(state, budget):
            continue
        slowest = max(known, key=lambda period: budget[f"{period}_s"])
        times = budget[f"{slowest}_s"] / budget["sync_s"]
        if times > _LOOKS_AT_ONE_VALUE or (compounds and times == _LOOKS_AT_ONE_VALUE and not _has_probe(each)):
            yield Symptom(
                "HPA_FASTER_THAN_METRIC",
                f"HPA {each}",
                f"{slowest} takes {budget[f'{slowest}_s']:g} s, the HPA looks every {budget['sync_s']:g} s",
            )


def _is_held_up(state: State, budget: Mapping[str, Any]) -> bool:
    """By an exporter that is slower than its scrapes, which is said of the exporter."""
    return bool(state.exporters) and repeats_values(budget["collect_s"], budget["scrape_s"])


def _model_servers(state: State) -> Iterator[Symptom]:
    for each in state.autoscalers:
        images = [container.get("image", "") for container in each.template.get("containers") or ()]
        served = next((image for image in images if _MODEL_SERVERS.search(image)), None)
        names = {metric.name for metric in each.metrics}
        if served and names and names <= _STANDS_STILL:
            seen = f"image {served} scales on {', '.join(sorted(names))} alone"
            yield Symptom("HPA_METRIC_STANDS_STILL", f"HPA {each}", seen)


def _targets(state: State) -> Iterator[Symptom]:
    for each in state.autoscalers:
        words = {"namespace": each.key[0], "target": f"{each.reference.get('kind')}/{each.reference['name']}"}
        reach = state.of([each])
        if each.target is None:
            yield Symptom(
                "WORKLOAD_MISSING", each.workload, "there is none", reach, state.created(each.hpa), words=words
            )
        elif each.replicas == 0:
            yield Symptom("WORKLOAD_AT_ZERO", each.workload, "replicas is 0", reach, words=words)
        elif not each.ready_pods and not _pending(each):
            yield Symptom(
                "WORKLOAD_NOT_READY",
                each.workload,
                f"0 of {len(each.pods)} pods are ready" + _first_trouble(each.pods) + _without_ready_pods(each),
                reach,
                youngest([state.created(each.target), _not_ready_s(state, each)]),
                words=words,
            )


def _first_trouble(pods: Sequence[Manifest]) -> str:
    return next((f": {name_of(pod)}: {text}" for pod in pods if (text := trouble(pod))), "")


def _without_ready_pods(each: AutoscalerState) -> str:
    """A Value is multiplied with the pods that are ready. Source: kubernetes/kubernetes#130130."""
    entries = [entry.get(entry.get("type", "").lower()) or {} for entry in each.hpa["spec"].get("metrics") or ()]
    if any((entry.get("target") or {}).get("type") == "Value" for entry in entries):
        minimum = each.hpa["spec"].get("minReplicas", 1)
        return f"; its HPA has a target of type Value, so it goes to the minimum of {minimum}"
    return ""


def _not_ready_s(state: State, each: AutoscalerState) -> float | None:
    """Of the oldest pod: a rolling update makes young ones beside it, a crash loop keeps it.

    Where an update ends the old pods first there is none for a moment; the workload's status is written then.
    """
    if not each.pods and each.target:
        return state.written(each.target)
    return max((age for pod in each.pods if (age := state.created(pod)) is not None), default=None)


def _pending(autoscaler: AutoscalerState) -> list[Manifest]:
    return [pod for pod in autoscaler.pods if condition(pod, "PodScheduled").get("status") == "False"]


def _pods_pending(state: State) -> Iterator[Symptom]:
    for each in state.autoscalers:
        pods = _pending(each)
        if pods:
            age = max(age for pod in pods if (age := state.turned(pod, "PodScheduled")) is not None)
            yield Symptom(
                "WORKLOAD_PODS_PENDING",
                each.workload,
                f"{len(pods)} of {len(each.pods)} pods: {condition(pods[0], 'PodScheduled').get('message')}",
                state.of([each]),
                age,
                words={"namespace": each.key[0]},
            )


def _two_autoscalers(state: State) -> Iterator[Symptom]:
    holders = _holders(state)
    for each in state.autoscalers:
        its = holders.get(_place(each.hpa), set())
        if len(its) > 1:
            yield Symptom("WORKLOAD_TWO_AUTOSCALERS", each.workload, ", ".join(sorted(its)), state.of([each]))


def _holders(state: State) -> dict[tuple[str, str, str], set[str]]:
    """The autoscalers of each target; KEDA's own HPA counts as one with the ScaledObject that owns it."""
    holders: dict[tuple[str, str, str], set[str]] = {}
    for hpa in state.hpas:
        owner = next((name for kind, name in owners(hpa) if kind == "ScaledObject"), None)
        its = f"ScaledObject {hpa['metadata']['namespace']}/{owner}" if owner else f"HPA {name_of(hpa)}"
        holders.setdefault(_place(hpa), set()).add(its)
    for each in state.scaled_objects:
        holders.setdefault(_place(each), set()).add(f"ScaledObject {name_of(each)}")
    return holders


def _place(scaler: Manifest) -> tuple[str, str, str]:
    reference = scaler["spec"]["scaleTargetRef"]
    return scaler["metadata"]["namespace"], reference.get("kind", "Deployment"), reference["name"]


def _has_probe(autoscaler: AutoscalerState) -> bool:
    return any("readinessProbe" in each for each in autoscaler.template.get("containers") or ())


def _probes(state: State) -> Iterator[Symptom]:
    for each in state.autoscalers:
        if each.template and not _has_probe(each):
            seen = "no container of its pod template has a readinessProbe"
            yield Symptom("WORKLOAD_NO_READINESS_PROBE", each.workload, seen)


def _capacity(state: State) -> Iterator[Symptom]:
    """Counted once for all workloads with the same demands; GPUs that are out of use are a finding of their own."""
    known: dict[str, int] = {}
    for each in state.autoscalers:
        wanted = gpus_per_pod(each.template)
        if not wanted or not state.gpu_nodes:
            continue
        key = repr([each.template.get(demand) for demand in ("nodeSelector", "tolerations", "affinity")] + [wanted])
        if key not in known:
            known[key] = replicas_that_fit(each.template, state.gpu_nodes.values())
        fits, most = known[key], each.hpa["spec"]["maxReplicas"]
        if fits < most and not _is_short(state) and not nodes_are_added(state.gpu_nodes.values()):
            seen = f"max_replicas is {most}, the nodes it may run on hold {fits} with {_gpus(wanted)} each"
            yield Symptom("WORKLOAD_MAXIMUM_OVER_GPUS", each.workload, seen, state.of([each]))


def _is_short(state: State) -> bool:
    """Of GPUs that come back: those that are out of use, and those of nodes that are cordoned, for an upgrade say."""
    nodes = state.gpu_nodes.values()
    return bool(state.bare_nodes) or any(lost_gpus(node) or node["spec"].get("unschedulable") for node in nodes)


def _gpus(wanted: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {resource}" for resource, number in wanted.items())


_METRICS = ("metrics",)
_HPAS = ("hpas",)

WORKLOAD_CHECKS = (
    Check("metrics_api", "the metrics APIs are served", _apis, ("apis",)),
    Check("metrics_api", "their server knows recorded series", _owners, ("apis", "metrics")),
    Check("metrics_api", "the adapter finds Prometheus and lists metrics", _adapters, ("apis",)),
    Check("metrics_api", "the adapter looks back far enough", _adapter_memory, ("apis", "prometheus")),
    Check("metric", "each pod has a value, and Prometheus' one", _values, _METRICS),
    Check("hpa", "the controller has seen the HPA", _hpa_seen, _HPAS),
    Check("hpa", "conditions of the HPA", _hpa_conditions, _HPAS),
    Check("hpa", "the HPA is not at its maximum for long", _at_maximum, _HPAS),
    Check("hpa", "the metric keeps up with the HPA", _pace, ("hpas", "metrics")),
    Check("hpa", "the metric follows the load of model servers", _model_servers, ("hpas", "targets")),
    Check("workload", "the workload is there and ready", _targets, ("targets", "metrics")),
    Check("workload", "its pods find nodes", _pods_pending, _METRICS),
    Check("workload", "it has one autoscaler", _two_autoscalers, ("hpas", "scaled_objects")),
    Check("workload", "it has a readiness probe", _probes, ("targets",)),
    Check("workload", "the GPUs hold its maximum", _capacity, ("targets", "nodes")),
)
