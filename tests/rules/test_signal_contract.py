"""The contract of each profile: no fault of what its rules read moves the replicas against the truth.

What is faulty comes from the rules: each selector of their PromQL is one of the fields below, or the suite fails. Each
field goes through each fault, and so does each input as a whole. Every case is a workload in a namespace of its own.
One run of promtool records the cases of a profile; from what is recorded, the controller's arithmetic tells the
replicas that an HPA would ask for.

Dimensions that do not matter are not multiplied. The rules read states of pods in the same PromQL for each profile
(`test_states_are_read_alike`), so their faults are cases of one profile. Layouts of labels and names of fields in 1.x
rotate over the cases, because the rules bring both to one form before anything else.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import md5
from itertools import product
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import all_rules
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.dcgm_fields import in_1x, in_todays
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.inputs import INPUTS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.keda_rules import Decisions
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions, recordings_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import (
    PROFILES,
    sustained_name,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.replicas import (
    desired_replicas,
    desired_replicas_by_total,
    desired_replicas_by_value,
    desired_replicas_together,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from fleet import Exporter, Pod
from programs import program

INTERVAL_S = 30
JUDGED_S = 300
TICKS = JUDGED_S // INTERVAL_S + 1
# Faults begin here. Until then all is well.
ONSET = 4
MIN_REPLICAS = 1
HERE, THERE, EVIL = ({"job": "right", "cluster": "here"}, {"job": "right", "cluster": "there"}, {"job": "evil"})
EVIL |= {"cluster": "here"}
SELECTORS = dict.fromkeys(INPUTS, HERE) | {"model_servers": {"cluster": "here"}}
COST = 0.02
# Cases in one database of promtool, which refuses queries of more than 10,000 samples.
AT_ONCE = 60
SELDOM_COLLECTED = {**os.environ, "GOGC": "1000"}

Values = list[float | None]
Labels = Mapping[str, str]


# ---- the truth: percent that the first pod's first part is busy, its others, and those of the other pods

TRUTHS = {
    "busy": (90, 90, 90),
    "idle": (2, 2, 2),
    "first busy": (95, 4, 4),
    "first idle": (2, 92, 92),
    "full": (100, 100, 100),
    "zero": (0, 0, 0),
}
# What a stuck value shows of before: the contrary.
OPPOSITE = {"busy": 3, "idle": 92, "first busy": 3, "first idle": 92, "full": 3, "zero": 92}


def constant(value: float) -> Values:
    return [value] * TICKS


def real(busy: float) -> Values:
    """What a part does, at each tick. Only idle and full ones never differ from second to second."""
    return [busy if busy in (0, 100) else busy + (tick % 2 - 0.5) for tick in range(TICKS)]


# ---- what Prometheus has of it


@dataclass(frozen=True)
class Entry:
    """A series of an input.

    field: its name, and what distinguishes it from others of that name.
    pod:   the number of the pod that it is about; None for none.
    part:  the number of the pod's GPU or server.
    """

    input: str
    name: str
    labels: Labels
    values: Values
    target: Labels
    pod: int | None = None
    part: int = 0
    of: str = ""

    @property
    def field(self) -> str:
        return f"{self.name}{self.of}"

    @property
    def is_first(self) -> bool:
        return not self.pod and not self.part

    @property
    def all_labels(self) -> dict[str, str]:
        return {**self.labels, **self.target}


# GPUs: each field as a function of how busy it is, its values that never change, and what DCGM writes if unknown.
BLANK = 2147483647.0
FIELDS: dict[str, Callable[[float], float]] = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": lambda busy: busy / 100,
    "DCGM_FI_PROF_SM_ACTIVE": lambda busy: busy / 100,
    "DCGM_FI_PROF_DRAM_ACTIVE": lambda busy: busy / 200,
    "DCGM_FI_DEV_GPU_UTIL": lambda busy: busy,
    "DCGM_FI_DEV_FB_USED": lambda busy: 790 * busy,
    "DCGM_FI_DEV_FB_FREE": lambda busy: 79_000 - 790 * busy,
    "DCGM_FI_DEV_FB_RESERVED": lambda _busy: 1_000,
}
UTIL, ENERGY = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
LARGEST = {UTIL: 100.0, ENERGY: 1e9} | {name: 1.0 for name in FIELDS if "_PROF_" in name}

# Model servers: by kind, series with its labels, as a function of how busy a server is. A counter is given per second.
Gauge = Callable[[float], float]
SLOTS = 48.0


def running(busy: float) -> float:
    return SLOTS * min(busy, 50) / 100


def waiting(busy: float) -> float:
    return SLOTS * max(busy - 50, 0) / 100


def ratio(busy: float) -> float:
    return busy / 100


def gauges(prefix: str, run: str, wait: str, cache: str = "") -> dict[tuple[str, str], Gauge]:
    return {(f"{prefix}{run}", ""): running, (f"{prefix}{wait}", ""): waiting} | (
        {(f"{prefix}{cache}", ""): ratio} if cache else {}
    )


TRT_LLM = "nv_trt_llm_request_metrics"
SERVERS: dict[str, dict[tuple[str, str], Gauge]] = {
    "vLLM": gauges("vllm:", "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    | {
        ("vllm:num_requests_waiting_by_reason", 'reason="capacity"'): waiting,
        ("vllm:request_success_total", 'finished_reason="length"'): lambda _busy: 10,
        ("vllm:admission_rejections_total", 'reason="max_num_queued_reqs"'): lambda _busy: 0,
    },
    "older vLLM": gauges("vllm:", "num_requests_running", "num_requests_waiting", "gpu_cache_usage_perc"),
    "SGLang": gauges("sglang:", "num_running_reqs", "num_queue_reqs", "token_usage"),
    "TGI": gauges("tgi_", "batch_current_size", "queue_size"),
    "TensorRT-LLM": gauges("trtllm_", "num_requests_running", "num_requests_waiting", "kv_cache_utilization"),
    "TensorRT-LLM in Triton": {
        (TRT_LLM, 'request_type="scheduled"'): running,
        (TRT_LLM, 'request_type="waiting"'): waiting,
        ("nv_trt_llm_kv_cache_block_metrics", 'kv_cache_block_type="fraction"'): ratio,
    },
    "Triton": {
        ("nv_inference_compute_infer_duration_us", ""): lambda busy: 1e6 * running(busy),
        ("nv_inference_request_duration_us", ""): lambda busy: 1e6 * (running(busy) + waiting(busy)),
        ("nv_inference_pending_request_count", ""): waiting,
    },
    "NIM": gauges("", "num_requests_running", "num_requests_waiting", "gpu_cache_usage_perc"),
    "llama.cpp": gauges("llamacpp:", "requests_processing", "requests_deferred"),
}
COUNTERS = re.compile(r"\w+_total|\w+_us")
PARTS_OF_SERVERS = {"model_name": "m", "engine": "0", "model": "m", "version": "1"}

SHAPES = {"1 GPU": 1, "2 GPUs": 2, "8 GPUs": 8, "MIG": 2, "shared": 1, "claims": 2}
GPU_PROFILES = [name for name, profile in PROFILES.items() if all(metric.is_of_gpus for metric in profile.metrics)]
LLM_PROFILES = [name for name in PROFILES if name not in GPU_PROFILES]
TARGETS = {"llm_requests_waiting": 5.0, "llm_kv_cache": 60.0, "llm_in_flight": 16.0}
PHASES = ("Pending", "Running", "Failed")
# The profile of what is alike for all of them.
ONE_OF_ALL = "gpu"
# Of the cluster, so all cases of one database have it in common.
LEASE = "kube_lease_renew_time"
# How the exporter is scraped, and whether it serves the names of 1.x.
LAYOUTS = tuple(product(("honored", "exported", "half"), (False, True)))


def can_be(profile: str, shape: str) -> bool:
    """Instances have no utilization, and the activity of a shared GPU is not the pod's."""
    if profile in LLM_PROFILES:
        has_cache = any(function is ratio for function in SERVERS.get(shape.split(", ")[0], {}).values())
        return shape not in SHAPES and (profile == "llm_in_flight" or has_cache)
    return shape in SHAPES and {
        "gpu_util": shape != "MIG",
        "mig": shape == "MIG",
        "shared": shape == "shared",
        "gpu_compute": shape != "shared",
        "gpu_memory": shape != "shared",
    }.get(profile, True)


@dataclass(frozen=True)
class Case:
    """A workload. shape: what its pods have; turn: which layout of labels its exporter has."""

    profile: str
    fault: str
    of: str
    shape: str
    pods: int
    truth: str
    turn: int = 0

    def __str__(self) -> str:
        return f"{self.profile}: {self.of} {self.fault}, {self.pods} pods of {self.shape}, {self.truth}"

    @property
    def namespace(self) -> str:
        return f"n{md5(str(self).encode()).hexdigest()[:12]}"

    @property
    def holders(self) -> list[Pod]:
        names = [
            f"chat-{number}" if self.is_stateful else f"chat-6d5f8d9c4b-x7k2{'bcd'[number]}" for number in range(3)
        ]
        return [Pod(self.namespace, name) for name in names[: self.pods]]

    @property
    def is_stateful(self) -> bool:
        """Whether a StatefulSet has the pods, and not a Deployment: by the field that is faulty, or in turn."""
        return "statefulset" in self.of or (
            not {"deployment", "replicaset"} & set(self.of.split("_")) and bool(self.turn // len(LAYOUTS) % 2)
        )

    @property
    def parts(self) -> int:
        return SHAPES.get(self.shape, 2 if self.shape.endswith("2 servers") else 1)

    @property
    def busy(self) -> list[list[float]]:
        """What each part does, by pod."""
        first, others, of_others = TRUTHS[self.truth]
        return [
            [first, *[others] * (self.parts - 1)] if not pod else [of_others] * self.parts for pod in range(self.pods)
        ]

    @property
    def is_llm(self) -> bool:
        return self.profile in LLM_PROFILES

    def loads(self, metric: str) -> list[float]:
        """The right value of each pod."""
        if metric == "llm_requests_waiting":
            return [sum(map(waiting, parts)) for parts in self.busy]
        if metric == "llm_in_flight":
            return [sum(running(busy) + waiting(busy) for busy in parts) for parts in self.busy]
        return [sum(parts) / len(parts) for parts in self.busy]

    # -- series

    def entries(self) -> Iterator[Entry]:
        for (pod, holder), parts in zip(enumerate(self.holders), self.busy, strict=True):
            for part, busy in enumerate(parts):
                yield from (
                    self._of_server(pod, holder, part, busy) if self.is_llm else self._of_gpu(pod, holder, part, busy)
                )
            yield from self._states(pod, holder)
        yield from self._states_of_workload()
        if self.has_demand:
            per_tick = sum(self.loads("gpu")) / 100 / COST * INTERVAL_S
            labels = {
                "reporter": "source",
                "destination_service_namespace": self.namespace,
                "destination_service_name": "chat",
                "response_code": "200",
                "grpc_response_status": "",
            }
            counted = [per_tick * tick for tick in range(TICKS)]
            yield Entry("istio", "istio_requests_total", labels, counted, HERE)

    def _of_gpu(self, pod: int, holder: Pod, part: int, busy: float) -> Iterator[Entry]:
        layout, is_1x = LAYOUTS[self.turn % len(LAYOUTS)]
        exporter = Exporter(layout, f"exporter-of-{self.namespace}")
        uuid = f"GPU-{holder}" if self.shape == "MIG" else f"GPU-{holder}-{part}"
        more = {"MIG": {"GPU_I_ID": str(7 + part)}, "shared": {"vgpu": "0"}}.get(self.shape, {})
        labels = {**exporter.labels(holder), "instance": f"{exporter.name}:9400", "UUID": uuid, **more}
        functions = {name: [function(value) for value in real(busy)] for name, function in FIELDS.items()}
        functions[ENERGY] = [5e9 + 1e6 * tick + 1e5 * part for tick in range(TICKS)]
        for name, values in functions.items():
            if self.shape != "MIG" or name != UTIL:
                yield Entry("exporter", in_1x(name) if is_1x else name, labels, values, HERE, pod, part)

    def _of_server(self, pod: int, holder: Pod, part: int, busy: float) -> Iterator[Entry]:
        target = {"namespace": holder.namespace, "pod": holder.name, "instance": f"{holder.name}:800{part}"}
        for (name, of), function in SERVERS[self.shape.split(", ")[0]].items():
            labels = {**target, **PARTS_OF_SERVERS, **dict(re.findall(r'(\w+)="(\w+)"', of))}
            values = constant(function(busy))
            if COUNTERS.fullmatch(name):
                values = [INTERVAL_S * function(busy) * tick for tick in range(TICKS)]
            yield Entry("model_servers", name, labels, values, HERE, pod, part, f"{{{of}}}" * bool(of))
        yield Entry("model_servers", "up", target, constant(1), HERE, pod, part)

    def _states(self, pod: int, holder: Pod) -> Iterator[Entry]:
        names = {"namespace": holder.namespace, "pod": holder.name}
        kind, name = ("StatefulSet", "chat") if self.is_stateful else ("ReplicaSet", "chat-6d5f8d9c4b")
        owner = {"owner_kind": kind, "owner_name": name, "owner_is_controller": "true"}
        yield self._state("kube_pod_owner", {**names, **owner}, 1, pod)
        for phase in PHASES:
            of = f'{{phase="{phase}"}}'
            yield self._state("kube_pod_status_phase", {**names, "phase": phase}, phase == "Running", pod, of)
        # What no pod has, in a healthy workload.
        yield self._state("kube_pod_deletion_timestamp", names, None, pod)
        if not self.is_llm:
            resource = "nvidia_com_mig_1g_10gb" if self.shape == "MIG" else "nvidia_com_gpu"
            resource += "_shared" * (self.shape == "shared")
            requests = {**names, "container": "main", "resource": resource}
            amount = None if self.shape == "claims" else self.parts
            yield self._state("kube_pod_container_resource_requests", requests, amount, pod)
            sidecar = {**requests, "container": "sidecar"}
            yield self._state("kube_pod_init_container_resource_requests", sidecar, None, pod)

    def _states_of_workload(self) -> Iterator[Entry]:
        of = {"namespace": self.namespace}
        if self.is_stateful:
            for name in ("kube_statefulset_replicas", "kube_statefulset_status_replicas"):
                yield self._state(name, {**of, "statefulset": "chat"}, self.pods)
        else:
            owner = {"replicaset": "chat-6d5f8d9c4b", "owner_kind": "Deployment", "owner_name": "chat"}
            yield self._state("kube_replicaset_owner", {**of, **owner, "owner_is_controller": "true"}, 1)
            for name in ("kube_deployment_spec_replicas", "kube_deployment_status_replicas"):
                yield self._state(name, {**of, "deployment": "chat"}, self.pods)
        renewed: Values = [1.7e9 + INTERVAL_S * tick for tick in range(TICKS)]
        yield replace(self._state(LEASE, {"lease": "kube-scheduler"}, 0), values=renewed)

    @staticmethod
    def _state(name: str, labels: Labels, value: float | None, pod: int | None = None, of: str = "") -> Entry:
        values: Values = [None] * TICKS if value is None else constant(float(value))
        return Entry("kube_state_metrics", name, labels, values, HERE, pod, 0, of)

    # -- autoscalers

    def autoscalers(self) -> Iterator[Autoscaler]:
        target = {"kind": "StatefulSet" if self.is_stateful else "Deployment", "name": "chat"}
        told: dict[str, Any] = {"namespace": self.namespace, "target": target, "max_replicas": 99}
        told |= {"metric": self.profile, "target_values": {name: target_of(name) for name in metrics(self.profile)}}
        yield Autoscaler.from_params({**told, "name": "pods"})
        yield Autoscaler.from_params({**told, "name": "total", "metric_type": self.types[1]})
        yield Autoscaler.from_params({**told, "name": "keda", "backend": "keda"})
        if self.has_demand:
            yield Autoscaler.from_params({**told, "name": "demand", "demand": {"source": "istio"}})

    @property
    def has_demand(self) -> bool:
        """Not for each profile, number of GPUs and pods: a demand reads what is recorded of pods.

        What a request costs is learned in minutes, also of what the pod had or did then.
        """
        is_asked = self.of == "istio" or self.truth in FIRST
        is_steady = self.fault not in CHANGES and not self.of.startswith("kube_")
        return self.profile == ONE_OF_ALL and (self.shape, self.pods) == ("2 GPUs", 3) and is_asked and is_steady

    @property
    def types(self) -> list[str]:
        """Object and External take turns: their queries differ in nothing but avg and sum."""
        return ["Pods", ("Object", "External")[self.turn % 2], "KEDA", *["demand"] * self.has_demand]


def metrics(profile: str) -> list[str]:
    return [metric.name for metric in PROFILES[profile].metrics]


def target_of(metric: str) -> float:
    return TARGETS.get(metric, 60.0)


# ---- what goes wrong. A fault of a field changes the first pod's first part; one of an input changes all of a kind.

Entries = list[Entry]
Fault = Callable[[Entries, Case], Entries]


def after(entry: Entry, value: float | None) -> Entry:
    return replace(entry, values=[*entry.values[:ONSET], *[value] * (TICKS - ONSET)])


def before(entry: Entry, case: Case, entries: Entries) -> Entry:
    """Stuck at what it showed before: of the contrary load, or of the contrary state."""
    busy = OPPOSITE[case.truth]
    if entry.input == "kube_state_metrics":
        return replace(entry, values=constant(entry.values[0] if entry.name == LEASE else contrary(entry)))
    if (name := in_todays(entry.name)) in {*FIELDS, ENERGY}:
        return replace(entry, values=constant(FIELDS[name](busy) if name in FIELDS else 5e9))
    return replace(entry, values=constant(entry.values[0] or 0.0))


def contrary(entry: Entry) -> float:
    """A state that it is not in: not Running, being deleted, of nobody, of another size."""
    now = entry.values[-1]
    return 1.0 if not now else 0.0 if "phase" in entry.name else now + 2


# By field: the fault of one series.
OF_FIELD: dict[str, Callable[[Entry, Case, Entries], Entry]] = {
    "missing": lambda entry, _case, _all: after(entry, None),
    "missing from the start": lambda entry, _case, _all: replace(entry, values=[None] * TICKS),
    "stuck at 0": lambda entry, _case, _all: after(entry, 0.0),
    "stuck at 100": lambda entry, _case, _all: after(entry, LARGEST.get(in_todays(entry.name), 100.0)),
    "stuck at 1": lambda entry, _case, _all: after(entry, 1.0),
    "stuck at its last value": before,
    "blank": lambda entry, _case, _all: after(entry, BLANK),
    "late": lambda entry, _case, _all: replace(
        entry, values=[None if tick % 2 else value for tick, value in enumerate(entry.values)]
    ),
}


# A row of one field with the contrary value, by another target. All fields at once would give these rows away.
ADDED = {"forged": EVIL, "of another cluster": THERE}


def of_field(fault: str, name: str) -> Fault:
    def changed(entries: Entries, case: Case) -> Iterator[Entry]:
        for entry in entries:
            is_affected = in_todays(entry.field) == name and entry.is_first
            if not is_affected:
                yield entry
            elif fault in OF_FIELD:
                yield OF_FIELD[fault](entry, case, entries)
            else:
                instance = {} if entry.input == "model_servers" else {"instance": "evil:80"}
                other = before(entry, case, entries)
                yield entry
                yield replace(other, target=ADDED[fault], labels={**entry.labels, **instance})

    return lambda entries, case: list(changed(entries, case))


def of_input(name: str, change: Callable[[Entry, Case], Iterable[Entry]]) -> Fault:
    return lambda entries, case: [
        other for entry in entries for other in (change(entry, case) if entry.input == name else (entry,))
    ]


def forged(busy: float, target: Labels) -> Callable[[Entry, Case], Iterable[Entry]]:
    """The same rows with other values, from other targets, and more of them. Its own `up` is of its own pod."""

    def changed(entry: Entry, case: Case) -> Iterator[Entry]:
        yield entry
        if entry.name == "up":
            # Another cluster has a pod of this name that answers, too.
            is_there = target is THERE
            own = entry.labels if is_there else {"namespace": "evil", "pod": "evil", "instance": "evil:80"}
            yield replace(entry, labels=own, target=target)
            return
        name = in_todays(entry.name)
        if entry.input == "exporter":
            values = [FIELDS[name](busy) if name in FIELDS else 7e9 + tick for tick in range(TICKS)]
        elif entry.input == "kube_state_metrics":
            values = constant(contrary(entry))
        else:
            values = [value and busy * value for value in entry.values]
            # Counters that begin later: what a request costs is known by then.
            values = [None] * ONSET * (entry.input == "istio") + values[ONSET * (entry.input == "istio") :]
        instance = {"instance": "evil:80"} if entry.input != "model_servers" or target is not THERE else {}
        other = replace(entry, values=values, target=target, labels={**entry.labels, **instance})
        yield other
        if "UUID" in entry.labels:
            yield replace(other, labels={**other.labels, "UUID": f"{entry.labels['UUID']}-more"})
        if entry.input == "model_servers":
            yield replace(other, labels={**other.labels, "engine": "9", "model": "more"})

    return changed


def twice(entry: Entry, _case: Case) -> Iterator[Entry]:
    """A second exporter, or kube-state-metrics after a restart; a second job for model servers and proxies."""
    yield entry
    if entry.input in ("model_servers", "istio"):
        yield replace(entry, target={**entry.target, "job": "second"})
    else:
        yield replace(entry, labels={**entry.labels, "instance": "second"})


def frozen(entry: Entry, case: Case) -> Iterator[Entry]:
    """It repeats what it said before the load changed."""
    yield entry if entry.name == "up" else before(entry, case, [])


def beside_frozen(entry: Entry, case: Case) -> Iterator[Entry]:
    """A second exporter of the same GPUs, which repeats what it said."""
    yield entry
    second = replace(entry, labels={**entry.labels, "instance": "second:9400"})
    yield before(second, case, [])


def silent(is_affected: Callable[[Entry], bool]) -> Callable[[Entry, Case], Iterable[Entry]]:
    """A target that Prometheus cannot scrape."""

    def changed(entry: Entry, _case: Case) -> Iterator[Entry]:
        yield after(entry, 0.0 if entry.name == "up" else None) if is_affected(entry) else entry

    return changed


def ended(busy: float) -> Callable[[Entry, Case], Iterable[Entry]]:
    """What was before, and got no mark of its end: Prometheus still has its last sample."""

    def changed(entry: Entry, _case: Case) -> Iterator[Entry]:
        yield entry
        if not entry.is_first or entry.name == "up":
            return
        name, kept = in_todays(entry.name), [1.0, 1.0] + [-1.0] * (TICKS - 2)
        if entry.input == "exporter":
            kept = [FIELDS[name](busy) if name in FIELDS else 6e9 + tick for tick in range(2)] + [-1.0] * (TICKS - 2)
            yield replace(entry, values=kept, labels={**entry.labels, "UUID": "GPU-before"})
        elif entry.input == "kube_state_metrics" and entry.pod is not None:
            kept = [entry.values[0]] * 2 + [-1.0] * (TICKS - 2)
            before_ = "chat-7" if entry.labels["pod"] == "chat-0" else "chat-6d5f8d9c4b-before"
            yield replace(entry, values=kept, labels={**entry.labels, "pod": before_})
        elif entry.input == "model_servers":
            kept = [busy / 10] * 2 + [-1.0] * (TICKS - 2)
            yield replace(entry, values=kept, labels={**entry.labels, "instance": "before:8000"})

    return changed


def leased_by_a_user(entry: Entry, _case: Case) -> Iterator[Entry]:
    """A Lease of a controller's name in the namespace of a user, renewed in the future."""
    yield entry
    if entry.name == LEASE:
        yield replace(entry, labels={**entry.labels, "namespace": "user"}, values=constant(4e9))


def without(is_affected: Callable[[Entry], bool]) -> Callable[[Entry, Case], Iterable[Entry]]:
    return lambda entry, _case: [after(entry, None) if is_affected(entry) else entry]


LEASED = "lease of a user"
ALL_INPUTS = ("exporter", "kube_state_metrics", "istio", "model_servers")
OF_INPUTS: dict[tuple[str, str], Fault] = {
    **{
        (name, fault): of_input(name, change)
        for name in ALL_INPUTS
        for fault, change in {
            "forged idle": forged(0, EVIL),
            "forged full": forged(100, EVIL),
            "idle in another cluster": forged(0, THERE),
            "full in another cluster": forged(100, THERE),
            "duplicated": twice,
            "missing": without(lambda _entry: True),
            "late": lambda entry, case: [OF_FIELD["late"](entry, case, [])],
        }.items()
    },
    **{
        (name, fault): of_input(name, change)
        for name in ("exporter", "kube_state_metrics", "model_servers")
        for fault, change in {
            "stale idle": ended(0),
            "stale full": ended(100),
            "missing of a pod": without(lambda entry: entry.pod == 0),
            "missing of a part": without(lambda entry: entry.is_first and entry.pod is not None),
        }.items()
    },
    ("exporter", "frozen"): of_input("exporter", frozen),
    ("kube_state_metrics", "frozen"): of_input("kube_state_metrics", frozen),
    ("kube_state_metrics", LEASED): of_input("kube_state_metrics", leased_by_a_user),
    ("exporter", "one of two frozen"): of_input("exporter", beside_frozen),
    ("model_servers", "silent"): of_input("model_servers", silent(lambda _entry: True)),
    ("model_servers", "one silent"): of_input("model_servers", silent(lambda entry: entry.is_first)),
    ("", "nothing"): lambda entries, _case: entries,
}
del OF_INPUTS["model_servers", "missing of a part"], OF_INPUTS["model_servers", "missing of a pod"]
# Faults in which the load, or what a pod has, changes. A demand learns for minutes.
CHANGES = ("stuck at its last value", "frozen", "one of two frozen", "stale idle", "stale full")
STUCK = ("stuck at 0", "stuck at 1", "stuck at 100", "stuck at its last value")


def untold(case: Case) -> str:
    """Why nothing in Prometheus could tell that fault; empty if something can."""
    stuck = case.fault in STUCK and case.of != ENERGY
    if case.shape == "MIG" and stuck and case.of in FIELDS:
        return "an instance has no utilization, and no other witness of its activity"
    if case.shape == "claims" and case.fault == "missing from the start" and case.of in FIELDS:
        return "kube-state-metrics reports no claims, so a GPU that never had the field is unknown"
    if case.profile == "gpu_compute" and case.of.endswith("SM_ACTIVE") and case.fault.startswith(("missing", "blank")):
        return "the profile is the larger of two activities, and the other one if an exporter serves only that"
    if case.profile == "gpu_memory" and stuck and case.of in FIELDS:
        return "the sum of used and free memory is not exported: nothing tells which of them is wrong"
    if case.is_llm and stuck and case.of != "up":
        return "a server's gauges may stand still for as long as its load does, and it exports no other witness"
    if case.is_stateful and stuck and case.of == "kube_pod_deletion_timestamp":
        return "the status of a StatefulSet counts terminating pods, so none of its numbers tells whether a pod is one"
    if case.of == "up":
        return "Prometheus writes it beside the rows of each target, so it is never wrong by itself"
    return ""


# ---- cases


@cache
def read_by(profile: str) -> frozenset[tuple[str, str]]:
    """Name and matchers of each selector of what Prometheus scrapes, in the rules of a profile."""
    base = next(case for case in healthy(profile) if case.pods > 1 and case.truth in FIRST)
    some = [replace(base, turn=turn) for turn in range(2 * len(LAYOUTS))]
    expressions = [
        recording["expr"]
        for rule in all_rules([autoscaler for case in some for autoscaler in case.autoscalers()], options())
        for recording in recordings_of(rule)
    ]
    found = {
        (name, matchers)
        for expression in expressions
        for name, matchers in re.findall(r"([A-Za-z_:][\w:]*)?\{((?:[^}\"]|\"(?:\\.|[^\"\\])*\")*)\}", expression)
    }
    return frozenset((name, matchers) for name, matchers in found if not is_recorded(name))


def is_recorded(name: str) -> bool:
    return bool(re.match(r"(namespace|instance|external)\w*:", name))


def matches(selector: tuple[str, str], entry: Entry) -> bool:
    name, matchers = selector
    labels = {**entry.all_labels, "__name__": entry.name}
    tests = {
        "=": lambda value, text: value == text,
        "!=": lambda value, text: value != text,
        "=~": lambda value, text: bool(re.fullmatch(text, value)),
        "!~": lambda value, text: not re.fullmatch(text, value),
    }
    return name in ("", entry.name) and all(
        tests[operator](labels.get(label, ""), json.loads(f'"{text}"'))
        for label, operator, text in re.findall(r'(\w+)(=~|!~|!=|=)"((?:\\.|[^"\\])*)"', matchers)
    )


def options() -> RuleOptions:
    return RuleOptions(evaluation_interval_s=INTERVAL_S, selectors=SELECTORS)


def healthy(profile: str) -> Iterator[Case]:
    if profile in GPU_PROFILES:
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(SHAPES, (3,)) | {"1 GPU": (1, 3), "8 GPUs": (1,)}
    else:
        shapes = {f"{kind}, 2 servers": (3,) for kind in SERVERS} | {"vLLM, 1 server": (3,)}
    for shape, pods in shapes.items():
        if can_be(profile, shape):
            for number, truth in product(pods, TRUTHS):
                yield Case(profile, "nothing", "", shape, number, truth)


@cache
def fields(profile: str, shape: str) -> tuple[tuple[str, str], ...]:
    """Input and name of each field that the rules of a profile read, of what the pods of this shape have."""
    read = read_by(profile)
    return tuple(
        dict.fromkeys(
            (entry.input, in_todays(entry.field))
            for entry in entries_of(profile, shape)
            if any(matches(selector, entry) for selector in read)
        )
    )


# Shapes whose cases have each truth. The others have those in which a part differs from its neighbours.
WHOLE = ("2 GPUs", "vLLM, 2 servers")
FIRST = ("first busy", "first idle")


@cache
def cases(profile: str) -> list[Case]:
    found = []
    for base in healthy(profile):
        inputs = [(name, fault) for name, fault in OF_INPUTS if is_asked(base, name)]
        single = [
            (field_, fault)
            for input_, field_ in fields(profile, base.shape)
            if is_asked(base, input_)
            for fault in (*OF_FIELD, *ADDED)
            if is_possible(input_, field_, fault)
        ]
        for turn, (of, fault) in enumerate([*inputs, *single]):
            case = replace(base, of=of, fault=fault, turn=turn + list(TRUTHS).index(base.truth))
            # Exact values and even loads matter where a part differs from what it was, or from its witness.
            is_whole = base.shape in WHOLE and (profile == ONE_OF_ALL or base.truth not in ("busy", "idle"))
            # A state of a pod counts most where the pod's load is most of the workload's.
            is_state = base.shape == "1 GPU" and (of.startswith("kube_") and base.truth != "idle")
            is_whole = is_state or (is_whole and not of.startswith("kube_") and fault != "late")
            if base.shape == "claims" and of.startswith("kube_") and "requests" not in of:
                continue
            if (is_whole or base.truth in FIRST or fault == "nothing") and not untold(case):
                found.append(case)
    return found


def is_asked(case: Case, input_: str) -> bool:
    """Whether its faults are cases of this profile and shape: states of pods are read alike."""
    if input_ == "kube_state_metrics":
        return case.profile == ONE_OF_ALL and (case.shape, case.pods) in (("1 GPU", 3), ("claims", 3))
    if input_ == "istio":
        return replace(case, of="istio").has_demand
    if input_:
        return (input_ == "model_servers") == case.is_llm
    return True


def is_possible(input_: str, field_: str, fault: str) -> bool:
    """Whether it can happen. A counter or a state has no blank, and only a state is a 1."""
    if fault == "blank":
        return input_ == "exporter" or (input_ == "model_servers" and not COUNTERS.fullmatch(field_))
    if fault == "missing from the start":
        return input_ == "exporter"
    if fault in ADDED:
        # A counter is added to the others, and an answer of a pod is written by Prometheus itself.
        return input_ in ("exporter", "kube_state_metrics") and field_ != LEASE
    return fault != "stuck at 1" or input_ == "kube_state_metrics"


def batches(profile: str) -> Iterator[list[Case]]:
    """Cases of one database. What changes the leases of the cluster is apart."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases(profile):
        changes_leases = case.of in ("kube_state_metrics", LEASE)
        groups.setdefault((case.of, case.fault) if changes_leases else ("", ""), []).append(case)
    for group in groups.values():
        yield from (group[first : first + AT_ONCE] for first in range(0, len(group), AT_ONCE))


# ---- what the HPA makes of it

Recorded = Mapping[tuple[str, str], Mapping[str, float]]


@cache
def recorded(profile: str) -> Recorded:
    """What one run of promtool records: by series and namespace the value by pod, or of the workload."""
    some = list(batches(profile))
    with TemporaryDirectory() as folder:
        for number, group in enumerate(some):
            rules, test = rules_and_test(profile, group)
            (Path(folder) / f"{number}_rules.yml").write_text(json.dumps(rules))
            content = {"rule_files": [f"{number}_rules.yml"], "evaluation_interval": f"{INTERVAL_S}s", "tests": [test]}
            (Path(folder) / f"{number}_test.yml").write_text(json.dumps(content))
        files = [f"{number}_test.yml" for number in range(len(some))]
        command = [program("promtool"), "test", "rules", *files]
        done = subprocess.run(command, cwd=folder, env=SELDOM_COLLECTED, capture_output=True, text=True)
    output = done.stdout + done.stderr
    assert "err:" not in output, output[:2000]
    assert output.count("got:") == len(some), output[:2000]
    found: dict[tuple[str, str], dict[str, float]] = {}
    for text, value in re.findall(r"\{([^}]+)\} ([-+\d][-+\w.]*|NaN)", output):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', text))
        found.setdefault((labels["__name__"], labels["namespace"]), {})[labels.get("pod", "")] = float(value)
    return found


def shown(value: float | None) -> str:
    """A value for promtool: no sample, the mark of an ended series before the first missing one, or the number."""
    return "_" if value is None or value == -1.0 else f"{value:.10g}"


def series(entry: Entry) -> Iterator[dict[str, str]]:
    matchers = ", ".join(f'{label}="{value}"' for label, value in entry.all_labels.items())
    texts = [shown(value) for value in entry.values]
    if None in entry.values and entry.values[-1] is None and any(value is not None for value in entry.values):
        texts[entry.values.index(None)] = "stale"
    if any(text != "_" for text in texts):
        yield {"series": f"{entry.name}{{{matchers}}}", "values": " ".join(texts)}


def rules_and_test(profile: str, some: Sequence[Case]) -> tuple[dict[str, Any], dict[str, Any]]:
    rules = all_rules([autoscaler for case in some for autoscaler in case.autoscalers()], options())
    groups = [group for manifest in rules for group in manifest["spec"]["groups"]]
    groups = [{**group, "name": f"{number} {group['name']}"} for number, group in enumerate(groups)]
    names = metrics(profile)
    wanted = "|".join(
        wanted
        for name in names
        for wanted in (
            f"namespace_pod:({name}|{sustained_name(name)}):avg",
            f"namespace_workload:({name}:avg|{name}_demand:sum|{name}_decision:(desired_replicas|unchanged))",
            f"external:{name}:sum",
        )
    )
    entries = [entry for case in some for entry in fault_of(case)(list(case.entries()), case)]
    return {"groups": groups}, {
        "interval": f"{INTERVAL_S}s",
        "input_series": [*{row["series"]: row for entry in entries for row in series(entry)}.values()],
        # promtool shows what it has got where it expects something else, here always a 1.
        "promql_expr_test": [
            {"expr": f'{{__name__=~"{wanted}"}} or vector(1)', "eval_time": f"{JUDGED_S}s", "exp_samples": []}
        ],
    }


def fault_of(case: Case) -> Fault:
    return OF_INPUTS.get((case.of, case.fault)) or of_field(case.fault, case.of)


def proposal(type_: str, values: Mapping[str, Mapping[str, Sequence[float]]], case: Case) -> int:
    """Replicas that an HPA asks for. values: by metric and kind of series, of pods or of the workload."""
    current = case.pods
    proposals: list[int | None] = []
    for metric, of_metric in values.items():
        target = target_of(metric)

        def of_pods(name: str, usage_of: Mapping[str, Sequence[float]] = of_metric, goal: float = target) -> int | None:
            usage = usage_of[name]
            return desired_replicas(usage, goal, current=current, missing=current - len(usage)) if usage else None

        total = "external" if type_ == "External" else "demand" if type_ == "demand" else "object"
        if type_ in ("Pods", "demand"):
            proposals.append(of_pods("pods" if type_ == "Pods" else "sustained"))
        if type_ == "KEDA":
            proposals += [ceil(value) for value in of_metric["desired_replicas"]]
            proposals += [current for value in of_metric["unchanged"] if value]
            proposals += [None] * (not of_metric["desired_replicas"])
        elif type_ != "Pods":
            (value,) = of_metric[total] or [None]
            if value is None:
                proposals.append(None)
            elif type_ == "Object":
                proposals.append(desired_replicas_by_value(value, target, current=current, ready=current))
            else:
                proposals.append(desired_replicas_by_total(value, target, status_replicas=current))
    return max(MIN_REPLICAS, desired_replicas_together(proposals, current=current))


def seen(case: Case) -> dict[str, dict[str, list[float]]]:
    def of(name: str) -> list[float]:
        return list(recorded(case.profile).get((name, case.namespace), {}).values())

    return {
        metric: {
            "pods": of(f"namespace_pod:{metric}:avg"),
            "sustained": of(f"namespace_pod:{sustained_name(metric)}:avg"),
            "object": of(f"namespace_workload:{metric}:avg"),
            "external": of(f"external:{metric}:sum"),
            "demand": of(f"namespace_workload:{metric}_demand:sum"),
            "desired_replicas": of(Decisions(metric).desired_replicas),
            "unchanged": of(Decisions(metric).unchanged),
        }
        for metric in metrics(case.profile)
    }


def true(case: Case) -> dict[str, dict[str, list[float]]]:
    found = {}
    for metric in metrics(case.profile):
        loads, total = case.loads(metric), sum(case.loads(metric))
        found[metric] = {
            "pods": loads,
            "sustained": loads,
            "object": [total / len(loads)],
            "external": [total],
            "demand": [total],
        }
    return found


def right(case: Case, type_: str) -> int:
    return proposal("Pods" if type_ == "KEDA" else type_, true(case), case)


def fewest(case: Case, type_: str) -> int:
    """The fewest replicas that are not too few.

    With metrics of pods the controller takes pods without a value to be on target, though they may be full. It never
    asks for fewer replicas than there are such pods (docs/model.md, "Pods without a value").
    """
    least = min(case.pods, right(case, type_))
    if type_ not in ("Pods", "KEDA", "demand"):
        return least
    without_value = max(case.pods - len(of_metric["pods"]) for of_metric in seen(case).values())
    most = max(max(case.loads(metric)) / target_of(metric) for metric in metrics(case.profile))
    return max(min(without_value, least), least - ceil(without_value * max(most - 1, 0)))


@pytest.mark.parametrize("profile", PROFILES)
def test_each_series_that_a_rule_reads_has_faults(profile: str) -> None:
    every = [entry for shape in {case.shape for case in healthy(profile)} for entry in entries_of(profile, shape)]
    faulty = {case.of for name in (profile, ONE_OF_ALL) for case in cases(name)}
    explained = {"up"} | (
        {field_ for _input, field_ in fields(profile, "2 GPUs")} if profile == "gpu_memory" else set()
    )
    untouched = []
    for selector in read_by(profile):
        found = {in_todays(entry.field) for entry in every if matches(selector, entry)}
        if not found & (faulty | explained):
            untouched.append((selector, found))
    assert not untouched


@cache
def entries_of(profile: str, shape: str) -> list[Entry]:
    """In each layout, of both kinds of workloads."""
    base = next(case for case in healthy(profile) if case.shape == shape and case.truth in FIRST)
    pods = 3 if shape != "8 GPUs" else 1
    return [entry for turn in range(2 * len(LAYOUTS)) for entry in replace(base, pods=pods, turn=turn).entries()]


@pytest.mark.parametrize("profile", PROFILES)
def test_replicas_never_move_against_the_truth(profile: str) -> None:
    wrong, judged = [], 0
    for case in cases(profile):
        for type_ in case.types:
            judged += 1
            asked = proposal(type_, seen(case), case)
            if not fewest(case, type_) <= asked <= max(case.pods, right(case, type_)):
                wrong.append(
                    f"{case}: {type_} asks for {asked}, right {right(case, type_)}, now {case.pods}: {seen(case)}"
                )
    print(f"{profile}: {len(cases(profile))} workloads, {judged} proposals")
    assert not wrong, "\n".join([f"{len(wrong)} of {judged}", *wrong[:20]])


@pytest.mark.parametrize("profile", PROFILES)
def test_replicas_follow_the_truth_where_nothing_is_wrong(profile: str) -> None:
    """No value at all would hold the contract, too."""
    # Triton is seen by rates of a minute, which need two scrapes in it.
    healthy_faults = ("nothing", "duplicated", "forged full", LEASED, "late")
    good = [case for case in cases(profile) if case.fault in healthy_faults[: 4 if "Triton," in str(case) else 5]]
    asked = {
        (str(case), type_): (proposal(type_, seen(case), case), right(case, type_))
        for case in good
        for type_ in case.types
    }
    assert asked
    assert not {name: both for name, both in asked.items() if both[0] != both[1]}


def test_states_are_read_alike() -> None:
    """So the faults of kube-state-metrics are cases of one profile."""

    def states(profile: str) -> set[tuple[str, str]]:
        return {(name, matchers) for name, matchers in read_by(profile) if name.startswith("kube_")}

    for profile in GPU_PROFILES:
        assert {name for name, _matchers in states(profile)} == {name for name, _matchers in states(ONE_OF_ALL)}
    for profile in LLM_PROFILES:
        assert {name for name, _matchers in states(profile)} < {name for name, _matchers in states(ONE_OF_ALL)}
