# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from string import Template
from textwrap import indent
from typing import Any, Literal

from ..errors import HopError
from ..hops import Hop
from .dcgm_fields import ENGINE_ACTIVE, GPU_UTIL
from .defaults import TARGET_PERCENT
from .inputs import read_by
from .kube_names import is_label_value, is_qualified_name
from .options import is_text, shown
from .promql import (
    DCGM_EXPORTER,
    MODEL_SERVER,
    TRITON,
    Reporter,
    Source,
    average_of_gpus,
    frozen_exporters,
    gpus_of_pods,
    per_pod,
    servers,
)
from .replicas import DEFAULT_TOLERANCE

_NAME = re.compile(r"[a-z]([a-z0-9_]{0,50}[a-z0-9])?")
# Names that other servers may use, such as KEDA's s0-prometheus; the HPA queries in lower case.
_EXTERNAL_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
# Text options of a custom metric, with their defaults.
_OWN_TEXTS = {"name": "", "query": "", "per": "pod"}

PERCENT = "percent"


@dataclass(frozen=True)
class Metric:
    """A metric: its name in the metrics API and its recorded PromQL.

    query:        PromQL with one series per namespace and pod, or with per="workload" one series with the total;
                  empty for an existing external metric.
    parts:        series that the query reads, per GPU or server, and their PromQL; recorded before the query.
    unit:         what the values count.
    sources:      series that the query reads, the preferred one first; empty for a user's query.
    target_value: default average per pod, in that unit.
    selector:     labels of an external metric.
    reporter:     what serves the sources: dcgm-exporter or model server; empty for a user's query.
    """

    name: str
    query: str
    unit: str = ""
    sources: tuple[str, ...] = ()
    target_value: float | None = None
    per: Literal["pod", "workload"] = "pod"
    selector: tuple[tuple[str, str], ...] = ()
    reporter: str = ""
    parts: tuple[tuple[str, str], ...] = ()

    @property
    def series(self) -> str:
        """The recorded series, by the convention level:metric:operation."""
        return f"namespace_pod:{self.name}:avg"

    @property
    def is_smoothed(self) -> bool:
        """Whether the value is smoothed: the load of a GPU differs from second to second."""
        return self.name in ACTIVITIES

    @property
    def latest(self) -> str:
        """The recorded series of unsmoothed values."""
        return f"namespace_pod:{self.name}:now" if self.is_smoothed else self.series

    def recordings(self) -> tuple[tuple[str, str], ...]:
        """Series and PromQL for each GPU and pod, in the order of evaluation; `with_selectors` completes the PromQL.

        A smoothed value is the average of the current value and the previous smoothed value: an exponential moving
        average. So a pause of the load and the burst after it do not look like a higher load.
        """
        if not self.is_smoothed:
            return *self.parts, (self.series, self.query)
        return (
            *self.parts,
            (self.latest, self.query),
            (
                self.series,
                f"({self.latest} + ({self.series} >= 0)) / 2\nor\n{self.latest}",
            ),
        )

    @property
    def is_percent(self) -> bool:
        return self.unit == PERCENT

    @property
    def is_of_gpus(self) -> bool:
        """Whether its values are of GPUs, as dcgm-exporter reports them."""
        return self.reporter == DCGM_EXPORTER.name


@dataclass(frozen=True)
class Profile:
    """A profile, selected by an autoscaler's `metric`: one metric, or several for one HPA.

    caveats: limitations of the metric, for users.
    """

    name: str
    metrics: tuple[Metric, ...]
    caveats: tuple[str, ...] = ()

    @property
    def recorded(self) -> tuple[Metric, ...]:
        """The metrics with a series per pod, which all autoscalers on this profile share."""
        return tuple(metric for metric in self.metrics if metric.query and metric.per == "pod")

    @property
    def inputs(self) -> set[str]:
        """Inputs that its rule reads."""
        return set().union(*(read_by(query) for metric in self.recorded for _series, query in metric.recordings()))

    @property
    def is_own(self) -> bool:
        """Whether it is a custom metric. Each namespace has a separate rule for it, because queries may differ."""
        return not any(metric.sources for metric in self.metrics)

    def rule_name(self, namespace: str) -> str:
        """Name of the shared PrometheusRule, of the cluster or of the namespace.

        No other rule of this collection has a dot after its first word.
        """
        name = self.name.replace("_", "-")
        return f"kubegpu.{namespace}.{name}" if self.is_own else f"kubegpu-{name}"

    @classmethod
    def from_params(cls, given: str | Mapping[str, Any]) -> Profile:
        """A profile by its name, or a custom metric as ``{name, query}``.

        Raises: HopError if the profile does not exist or the metric is incomplete.
        """
        if isinstance(given, str) and given in PROFILES:
            return PROFILES[given]
        if not isinstance(given, Mapping):
            raise HopError(
                Hop.SPEC,
                seen=f"metric {shown(given)} is not a profile",
                fix=f"use one of {', '.join(sorted(PROFILES))}, or set name and query of a custom metric",
            )
        metric = _own_metric(given)
        return cls(metric.name, (metric,))


def _own_metric(given: Mapping[str, Any]) -> Metric:
    values = {key: value for key, value in given.items() if value is not None}
    name, query, per = (str(values.get(key, default)).strip() for key, default in _OWN_TEXTS.items())
    selector = values.get("selector", {})
    named = (_NAME if query else _EXTERNAL_NAME).fullmatch(name)
    are_texts = all(is_text(values.get(key, "")) for key in _OWN_TEXTS)
    if set(values) - {*_OWN_TEXTS, "selector"} or not named or not are_texts or not isinstance(selector, Mapping):
        raise HopError(
            Hop.SPEC,
            seen=f"metric {shown(dict(given))} is not complete",
            fix="give name (lower case, digits, underscores; at most 52) and query (PromQL), and nothing else but "
            "per (pod or workload) and, for an external metric, selector",
        )
    if per not in ("pod", "workload"):
        raise HopError(Hop.SPEC, seen=f"metric {name!r} has per: {per}", fix="set per to pod or to workload")
    if name in TAKEN_NAMES:
        raise HopError(
            Hop.SPEC,
            seen=f"{name!r} is the name of a profile or of a profile's metric, which a custom metric cannot have",
            fix="give the metric another name, or use the profile by its name",
        )
    for label, value in selector.items():
        if not is_text(value) or not is_qualified_name(str(label)) or not is_label_value(str(value)):
            raise HopError(
                Hop.SPEC,
                seen=f"metric {name!r} has the selector {label}: {shown(value)}, which is not a valid label",
                fix="use names and values of labels: at most 63 letters, digits, dashes, underscores and dots",
            )
    labels = tuple(sorted((str(label), str(value)) for label, value in selector.items()))
    return Metric(name, query, per="pod" if per == "pod" else "workload", selector=labels)


def _metric(name: str, *sources: Source, unit: str = PERCENT, target_value: float | None = TARGET_PERCENT) -> Metric:
    """A pod's value is that of the first source with one, because one cluster can have several kinds of servers."""
    series = dict.fromkeys(name for source in sources for name in source.series)
    query, parts = per_pod(sources, name), servers(name, series)
    return Metric(name, query, unit, tuple(series), target_value, reporter=sources[0].reporter.name, parts=parts)


def _gpu_metric(
    name: str,
    values: str,
    target_value: float = TARGET_PERCENT,
    witnesses: tuple[str, ...] = (),
    counted: tuple[str, ...] = (),
    **parts: Source,
) -> Metric:
    """The average over a pod's GPUs.

    values:    PromQL with one value per GPU or instance; `$<part>` is the recorded series of a source.
    witnesses: parts that decide whether others are valid, and provide no value.
    counted:   parts whose rows show that a pod has a GPU; by default all.
    """
    recorded = {part: f"namespace_pod_gpu:{name}:{part}" for part in parts}
    bounds = {bound: f"instance_gpu:{name}:util_{bound}" for bound in _BOUNDS if f"${bound}" in values}
    names = {**recorded, **bounds}
    rows = [recorded[part] for part in counted or parts]
    query = average_of_gpus(Template(values).substitute(names), name, *rows)
    frozen = frozen_exporters(name)
    sources = (source for part, source in parts.items() if part not in witnesses)
    series = dict.fromkeys(name for source in sources for name in source.series)
    return Metric(
        name,
        query,
        PERCENT,
        tuple(series),
        target_value,
        reporter=DCGM_EXPORTER.name,
        parts=(
            frozen,
            *((recorded[part], source.per_part(frozen[0])) for part, source in parts.items()),
            *((series, Template(_BOUNDS[bound]).substitute(names)) for bound, series in bounds.items()),
            *gpus_of_pods(name, *rows),
        ),
    )


# A measured ratio may be slightly above 1 at full load. Blank or broken values are far above.
MOST_OF_A_RATIO = 1.05

# Profiling metrics can freeze until the exporter restarts, at 0 or another value: NVIDIA/dcgm-exporter#662 and
# NVIDIA/DCGM#303. The utilization can stick, too. Each is the witness of the other, except for MIG instances, which
# have no utilization. Without a running kernel it is sometimes a few percent.
_IDLE_PERCENT = 20
# The utilization counts a GPU with any kernel as busy, so it may be far above the activity of its engines.
_APART_PERCENT = 50
# Two values contradict if they were apart for a minute in which one did not change. If the other one has changed, it
# is believed. If neither has, there is no value. A slice has the activity of the whole GPU, and the utilization of its
# pod.
_BOUNDS = {bound: f"sum by (UUID) ({bound}_over_time($util[1m]))" for bound in ("min", "max")}
_STILL = "($max == $min == sum by (UUID) ($util offset 1m))"
_STUCK_HIGH = f"($profiled == $profiled offset 1m)\n> on (UUID) group_left ()\n{_IDLE_PERCENT} + $max"
_STUCK_LOW = f"($profiled == $profiled offset 1m)\n< on (UUID) group_left ()\n$min - {_APART_PERCENT}"
_STUCK = f"{_STUCK_HIGH}\nor\n{_STUCK_LOW}"


def _witnessed(otherwise: str, stuck: str = _STUCK) -> str:
    """PromQL: profiled values that utilization does not contradict. otherwise: for the other GPUs."""
    return f"""\
$profiled{{GPU_I_ID!=""}}
or
(
  $profiled{{GPU_I_ID=""}} > 0
  unless
  (
{indent(stuck, "    ")}
  )
  or
  $profiled{{GPU_I_ID=""}} == 0
  and
  $util <= {_IDLE_PERCENT}
  or
{indent(otherwise, "  ")}
)
unless on (namespace, pod)
$profiled{{GPU_I_ID!=""}}"""


# Utilization that does not change, and that the activity of the engine contradicts for a minute: it is high while the
# GPU does nothing, or low while it is busy.
_UTIL = f"""\
$util
unless on (UUID)
(
  {_STILL}
  < on (UUID)
  min by (UUID) (min_over_time($profiled{{GPU_I_ID=""}}[1m])) - {_IDLE_PERCENT}
  or
  {_STILL}
  > on (UUID)
  {_IDLE_PERCENT} + (max by (UUID) (max_over_time($profiled{{GPU_I_ID=""}}[1m])) < {_IDLE_PERCENT // 4})
)
or
NaN * $util"""


def _profiled(*series: str, matchers: str = "") -> Source:
    """Ratios of DCGM's profiling module."""
    return Source(DCGM_EXPORTER, series, limit=MOST_OF_A_RATIO, full=1, scale=100, matchers=matchers)


# No server has a million requests: such a value is invalid.
_MOST_REQUESTS = 1_000_000


# vLLM rejects requests beyond --max-num-queued-reqs, and its gauges then look normal. By Little's law
# rejected requests add to those in flight in proportion to the completed ones. They count at most as many, because
# immediate retries of clients are not a demand. admission_rejections_total has no label engine.
_REJECTED_SHARE = """\
clamp_max(
  (sum without (engine, reason) (rate(vllm:admission_rejections_total{$rows}[1m])) > 0)
  / sum without (engine, finished_reason) (rate(vllm:request_success_total{$rows}[1m])),
  1
)"""
_VLLM_HELD = "((vllm:num_requests_running{$rows} >= 0) + (vllm:num_requests_waiting{$rows} >= 0))"
_VLLM_REJECTED = f"{_VLLM_HELD}\n* ignoring (engine) group_left ()\n{_REJECTED_SHARE}"
# Triton's queue drops to 0 with each batch and fills again, so its average of 15 s counts. Finished requests show
# what ran. The total duration of requests is steadier, but shows a growing queue late.
_TRITON_RUNS_AND_WAITS = """\
(
  (rate(nv_inference_compute_infer_duration_us{$rows}[1m]) / 1e6 >= 0)
  + (
    (
      avg_over_time(nv_inference_pending_request_count{$rows}[15s])
      or nv_inference_pending_request_count{$rows}
    ) >= 0
  )
)"""


def _queue(series: str, *, reporter: Reporter = MODEL_SERVER, matchers: str = "") -> Source:
    return Source(reporter, (series,), limit=_MOST_REQUESTS, total="sum", matchers=matchers)


def _held(*series: str, reporter: Reporter = MODEL_SERVER, formula: str = "", matchers: str = "") -> Source:
    """Running and waiting requests. The first series shows that a server exists."""
    # An invalid value of one series would be hidden in the sum.
    both = " + ".join(f"({one}{{$rows}} >= 0)" for one in series)
    return Source(reporter, series, limit=_MOST_REQUESTS, total="sum", formula=formula or both, matchers=matchers)


def _cache(series: str, *, reporter: Reporter = MODEL_SERVER, matchers: str = "") -> Source:
    return Source(reporter, (series,), limit=MOST_OF_A_RATIO, full=1, scale=100, matchers=matchers)


# Requests that wait for capacity. Others wait because the scheduler defers them, for example to transfer KV blocks.
_VLLM_WAITING = Source(
    MODEL_SERVER,
    ("vllm:num_requests_waiting_by_reason", "vllm:num_requests_waiting"),
    limit=_MOST_REQUESTS,
    total="sum",
    formula=f"""\
(vllm:num_requests_waiting_by_reason{{reason="capacity",$rows}} >= 0)
+ ignoring (reason) group_left ()
(
{indent(_VLLM_REJECTED, "  ")}
)
or
vllm:num_requests_waiting_by_reason{{reason="capacity",$rows}}""",
)
_VLLM_IN_FLIGHT = _held(
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    formula=f"{_VLLM_HELD}\n+\n{_VLLM_REJECTED}\nor\n{_VLLM_HELD}",
)
_TRITON_IN_FLIGHT = _held(
    "nv_inference_compute_infer_duration_us",
    "nv_inference_pending_request_count",
    reporter=TRITON,
    formula=f"""\
rate(nv_inference_request_duration_us{{$rows}}[1m]) / 1e6
>
{_TRITON_RUNS_AND_WAITS}
or
{_TRITON_RUNS_AND_WAITS}""",
)
# Names from documentation; these servers were not run. A NIM's names have no prefix, so its label is required.
_NIM = 'model_name!=""'
_TRT_LLM = "nv_trt_llm_request_metrics"
_TRT_LLM_IN_FLIGHT = _held(
    _TRT_LLM,
    reporter=TRITON,
    formula=f"""\
({_TRT_LLM}{{request_type="scheduled",$rows}} >= 0)
+ ignoring (request_type) group_left ()
({_TRT_LLM}{{request_type="waiting",$rows}} >= 0)""",
)


def _memory(field: str) -> str:
    """MiB. A blank field is a huge number, which a ratio would hide; no GPU has a petabyte."""
    return f"(DCGM_FI_DEV_FB_{field}{{$rows}} >= 0 < 1e9)"


_GPU_UTIL = Source(DCGM_EXPORTER, (GPU_UTIL,), limit=100)
# Sum over a pod's processes, which are rounded and sampled separately.
MOST_OF_PROCESSES = 1000
_PROCESSES_UTIL = Source(DCGM_EXPORTER, (GPU_UTIL,), limit=MOST_OF_PROCESSES, full=100)
_ENGINE = _profiled(ENGINE_ACTIVE)
_ENGINE_OF_INSTANCES = _profiled(ENGINE_ACTIVE, matchers='GPU_I_ID!=""')
_SM_OR_DRAM = _profiled("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE")
_MEMORY_USED = Source(
    DCGM_EXPORTER,
    ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED"),
    limit=1,
    scale=100,
    # NVIDIA's chart does not export FB_RESERVED. A total of 0 results in NaN, which no range accepts.
    formula=f"""\
  {_memory("USED")}
/
  (
      {_memory("USED")}
    +
      {_memory("FREE")}
    +
      ({_memory("RESERVED")} or 0 * DCGM_FI_DEV_FB_USED{{$rows}})
  )""",
)

PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(
            "gpu",
            (
                _gpu_metric(
                    "gpu",
                    _witnessed(
                        f'$util{{GPU_I_ID=""}} unless on (UUID) {_STILL}\nor\n'
                        f'$util{{GPU_I_ID=""}} unless on (UUID) ($profiled >= 0)\nor\n'
                        'NaN * ($profiled{GPU_I_ID=""} or $util{GPU_I_ID=""})'
                    ),
                    profiled=_ENGINE,
                    util=_GPU_UTIL,
                ),
            ),
        ),
        Profile(
            "gpu_util",
            (
                _gpu_metric(
                    "gpu_util", _UTIL, TARGET_PERCENT, ("profiled",), ("util",), util=_GPU_UTIL, profiled=_ENGINE
                ),
            ),
        ),
        Profile(
            "gpu_compute",
            (
                _gpu_metric(
                    "gpu_compute",
                    # The larger of two fields hides one that is stuck low.
                    _witnessed(
                        'NaN * ($profiled{GPU_I_ID=""} or $util{GPU_I_ID=""})',
                        f"{_STUCK}\nor\n{_STUCK_LOW.replace('$profiled', '$sm')}",
                    ),
                    witnesses=("sm", "util"),
                    profiled=_SM_OR_DRAM,
                    sm=_profiled("DCGM_FI_PROF_SM_ACTIVE"),
                    util=_GPU_UTIL,
                ),
            ),
        ),
        Profile(
            "gpu_memory",
            (_gpu_metric("gpu_memory", "$used", target_value=80, used=_MEMORY_USED),),
            caveats=(
                "vLLM, TGI and others allocate nearly all GPU memory at startup and keep it, so the value never falls",
                "on a shared GPU the value is wrong: free memory is the GPU's, but used memory may be the pod's",
            ),
        ),
        Profile(
            "mig",
            (_gpu_metric("mig", "$profiled", profiled=_ENGINE_OF_INSTANCES),),
            caveats=(
                "whole GPUs have no value, and instances of all sizes count alike",
                "DCGM before 3 reports the share of the whole GPU, not of the instance: check it with a known load",
                "neither the rule nor gpu_doctor detects that the metric of an instance is stuck at 0",
                "dcgm-exporter before 4.6.0-4.8.3 names no pod of an instance that was claimed through DRA, and later "
                "versions do not if the DRA driver created the instance for the claim",
            ),
        ),
        Profile(
            "shared",
            (
                _gpu_metric(
                    "shared", _UTIL, TARGET_PERCENT, ("profiled",), ("util",), util=_PROCESSES_UTIL, profiled=_ENGINE
                ),
            ),
            caveats=(
                "dcgm-exporter distinguishes pods on one GPU from 4.5.3 on, with KUBERNETES_VIRTUAL_GPUS, hostPID and "
                "kubernetes.enablePodUID: older ones give each pod the GPU's value; without the last two it is 0",
                "the values of a pod's processes are added, and a sum above 100 counts as 100",
                "another pod on the same GPU adds contention, not capacity",
            ),
        ),
        Profile(
            "llm",
            (
                _metric(
                    "llm_requests_waiting",
                    _VLLM_WAITING,
                    _queue("vllm:num_requests_waiting"),
                    _queue("sglang:num_queue_reqs"),
                    _queue("trtllm_num_requests_waiting"),
                    _held(_TRT_LLM, reporter=TRITON, formula=f'{_TRT_LLM}{{request_type="waiting",$rows}}'),
                    _queue("num_requests_waiting", matchers=_NIM),
                    unit="requests",
                    target_value=5,
                ),
                _metric(
                    "llm_kv_cache",
                    _cache("vllm:kv_cache_usage_perc"),
                    _cache("vllm:gpu_cache_usage_perc"),
                    _cache("sglang:token_usage"),
                    _cache("trtllm_kv_cache_utilization"),
                    _cache(
                        "nv_trt_llm_kv_cache_block_metrics",
                        reporter=TRITON,
                        matchers='kv_cache_block_type="fraction"',
                    ),
                    _cache("gpu_cache_usage_perc", matchers=_NIM),
                    target_value=80,
                ),
            ),
            caveats=(
                "Prometheus must scrape the model servers' pods, with a PodMonitor or a ServiceMonitor",
                "requests wait only when a server is full: the queue does not show how busy it is before",
                "TGI, llama.cpp and Triton without TensorRT-LLM have no KV cache usage: use llm_in_flight for them",
                "with --max-num-queued-reqs, vLLM rejects further requests: set the target below that number",
            ),
        ),
        Profile(
            "llm_in_flight",
            (
                _metric(
                    "llm_in_flight",
                    _VLLM_IN_FLIGHT,
                    _held("sglang:num_running_reqs", "sglang:num_queue_reqs"),
                    _held("tgi_batch_current_size", "tgi_queue_size"),
                    _held("trtllm_num_requests_running", "trtllm_num_requests_waiting"),
                    _TRT_LLM_IN_FLIGHT,
                    _TRITON_IN_FLIGHT,
                    _held("num_requests_running", "num_requests_waiting", matchers=_NIM),
                    _held("llamacpp:requests_processing", "llamacpp:requests_deferred"),
                    unit="requests",
                    target_value=None,
                ),
            ),
            caveats=(
                "Prometheus must scrape the model servers' pods, with a PodMonitor or a ServiceMonitor",
                "how many requests a pod can hold depends on the model and its answers: measure it with a load test",
                "waiting requests add up while pods start: with too short a dead time, the HPA asks for too many pods",
                "Triton's running requests are an average of the last minute, so the value falls a minute late",
                "with --max-num-queued-reqs, vLLM rejects further requests: set the target below that number",
                "Triton counts the time of an ensemble and of its models: up to twice the requests in flight",
            ),
        ),
    )
}
# Metrics of GPU activity: requests can be converted into them, and they are smoothed.
ACTIVITIES = ("gpu", "gpu_util", "gpu_compute", "mig", "shared")


# Evaluations of a smoothing rule in one interval of another rule: three quarters of a step are then visible. An idle
# GPU that becomes full reads 75 %. An HPA with a target of 60 acts from 66 on.
SMOOTHED_EVALUATIONS = 2
_NEARLY_FULL = 0.99  # part of a step to wait for at most, because a step is never completely visible


def smoothed_interval_s(evaluation_interval_s: int) -> int:
    """Seconds between two evaluations of a smoothing rule: that many take as long as one of another rule."""
    return math.ceil(evaluation_interval_s / SMOOTHED_EVALUATIONS)


def smoothed_evaluations(target_percent: float) -> int:
    """Evaluations until an HPA with this target acts on a GPU that becomes full: each halves the remaining difference.

    At least SMOOTHED_EVALUATIONS. Above a target of 68 it takes more, four at 80.
    """
    acted_on = min(DEFAULT_TOLERANCE.band[1] * target_percent / 100, _NEARLY_FULL)
    return max(SMOOTHED_EVALUATIONS, math.ceil(-math.log2(1 - acted_on)))


def demand_name(metric: str) -> str:
    """Name of the demand of a GPU activity metric."""
    return f"{metric}_demand"


def sustained_name(metric: str) -> str:
    """Name of the sustained GPU activity metric."""
    return f"{metric}_sustained"


def with_what_they_read(names: set[str]) -> set[str]:
    """Names of metrics and of the series that they are made of."""
    return names | {activity for activity in ACTIVITIES if {demand_name(activity), sustained_name(activity)} & names}


# A custom metric with such a name would share a profile's rule or series, or be mistaken for a demand.
TAKEN_NAMES = frozenset(
    (
        *PROFILES,
        *(metric.name for profile in PROFILES.values() for metric in profile.metrics),
        *map(demand_name, ACTIVITIES),
        *map(sustained_name, ACTIVITIES),
    )
)
