"""The contract of each profile of GPUs: no fault of its rows moves the replicas against the truth.

Every case is a workload in a namespace of its own. One run of promtool records all cases of a profile; from what is
recorded, the controller's arithmetic tells the replicas that an HPA would ask for.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import (
    RuleOptions,
    profile_rule,
    workload_rule,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import (
    ACTIVITIES,
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
from fleet import Exporter, Labels, Pod, series
from programs import program

GPU_PROFILES = [name for name, profile in PROFILES.items() if all(metric.is_of_gpus for metric in profile.metrics)]
TYPES = ("Pods", "Object", "External", "demand")

INTERVAL_S = 30
JUDGED_S = 300
TICKS = JUDGED_S // INTERVAL_S + 1
TARGET = 60
MIN_REPLICAS = 1
EXPORTER = {"job": "gpu-metrics", "cluster": "here"}
BLANK = 2147483647
ENGINE, SM, DRAM, UTIL = (
    f"DCGM_FI_{name}" for name in ("PROF_GR_ENGINE_ACTIVE", "PROF_SM_ACTIVE", "PROF_DRAM_ACTIVE", "DEV_GPU_UTIL")
)
USED, FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
COST = 0.02
# Cases in one database of promtool, which refuses queries of more than 10,000 samples.
AT_ONCE = 60
SELDOM_COLLECTED = {**os.environ, "GOGC": "1000"}

Fields = dict[str, float]


@dataclass(frozen=True)
class Row:
    """What an exporter says of one GPU, MIG instance or slice, for as long as the case lasts."""

    pod: Pod
    labels: Labels
    fields: Fields
    exporter: Exporter
    target: Mapping[str, str]
    values: Callable[[float], str] = lambda value: f"{value:g}x{TICKS}"


def fields(busy: float) -> Fields:
    """All fields of a GPU that is busy so many percent. Each profile reads the same of them."""
    return {
        ENGINE: busy / 100,
        SM: busy / 100,
        DRAM: busy / 200,
        UTIL: busy,
        USED: 800 * busy,
        FREE: 80_000 - 800 * busy,
    }


# ---- what a pod has: GPUs, instances or slices

KINDS = {"1 GPU": 1, "2 GPUs": 2, "8 GPUs": 8, "MIG": 2, "shared": 1}


def device_labels(kind: str, pod: Pod, number: int) -> Labels:
    uuid = f"GPU-{pod}-{number}"
    if kind == "MIG":
        return {"UUID": f"GPU-{pod}", "GPU_I_ID": str(7 + number)}
    # The other slices are those of pods with nothing to do, so the activity of the GPU is the pod's.
    return {"UUID": uuid, **({"vgpu": "0"} if kind == "shared" else {})}


def can_be(profile: str, kind: str) -> bool:
    """Instances have no utilisation, and the activity of a shared GPU is not the pod's."""
    return {
        "gpu_util": kind != "MIG",
        "mig": kind == "MIG",
        "shared": kind == "shared",
        "gpu_compute": kind != "shared",
        "gpu_memory": kind != "shared",
    }.get(profile, True)


# ---- what goes wrong, with the first GPU of the first pod

Fault = Callable[[list[Row]], list[Row]]


def of_first(change: Callable[[Row], Row | None]) -> Fault:
    return lambda rows: [row for row in (change(rows[0]), *rows[1:]) if row]


def says(**changes: Callable[[Fields], Fields]) -> Fault:
    (change,) = changes.values()
    return of_first(lambda row: replace(row, fields=change(row.fields)))


def profiling(value: float | None) -> Callable[[Fields], Fields]:
    """Profiling says this of a GPU, or nothing."""

    def changed(said: Fields) -> Fields:
        return {
            field: said[field] if "_PROF_" not in field else value
            for field in said
            if "_PROF_" not in field or value is not None
        }

    return changed


def all_blank(said: Fields) -> Fields:
    return dict.fromkeys(said, BLANK)


def beside(busy: float, **target: str) -> Fault:
    """More rows for the first pod, of nine GPUs, by another target."""

    def changed(rows: list[Row]) -> list[Row]:
        stranger = replace(
            rows[0], fields=fields(busy), target={**EXPORTER, **target}, exporter=Exporter("exported", "stranger")
        )
        labels = [{**rows[0].labels, "UUID": f"GPU-{busy:g}-{number}"} for number in range(9)]
        return [*rows, *(replace(stranger, labels=of_gpu) for of_gpu in labels)]

    return changed


def another_value(busy: float) -> Fault:
    """The same GPUs with another value, by another target."""
    return lambda rows: [
        *rows,
        *(replace(row, fields=fields(busy), target={**EXPORTER, "job": "evil"}) for row in rows),
    ]


def ended(busy: float) -> Fault:
    """A GPU that the pod had before, whose series got no mark of its end: Prometheus still has its last sample."""
    kept = (JUDGED_S - 240) // INTERVAL_S
    return lambda rows: [
        *rows,
        replace(
            rows[0],
            fields=fields(busy),
            labels={**rows[0].labels, "UUID": "GPU-before"},
            values=lambda value: f"{value:g}x{kept} _x{TICKS - kept}",
        ),
    ]


def twice(rows: list[Row]) -> list[Row]:
    """A second exporter, scraped in another way."""
    return [*rows, *(replace(row, exporter=Exporter("exported", "second")) for row in rows)]


def late(rows: list[Row]) -> list[Row]:
    """Scraped once a minute, as Prometheus does where nobody says otherwise."""
    once = " ".join(["{0:g} _"] * (TICKS // 2 + 1))
    return [replace(row, values=lambda value: once.format(value)) for row in rows]


FAULTS: dict[str, Fault] = {
    "nothing": lambda rows: rows,
    "missing field": says(fields=profiling(None)),
    "missing GPU": of_first(lambda _row: None),
    "missing pod": lambda rows: [row for row in rows if row.pod != rows[0].pod],
    "stuck at 0": says(fields=profiling(0)),
    "stuck high": says(fields=profiling(0.97)),
    "all stuck at 0": lambda rows: [replace(row, fields=profiling(0)(row.fields)) for row in rows],
    "blank field": says(fields=profiling(BLANK)),
    "blank": says(fields=all_blank),
    "0 beside a blank": says(fields=lambda said: {**profiling(0)(said), UTIL: BLANK}),
    "duplicated": twice,
    "forged idle": beside(0, job="evil"),
    "forged full": beside(100, job="evil"),
    "forged values idle": another_value(0),
    "forged values full": another_value(100),
    "idle in another cluster": beside(0, cluster="there"),
    "full in another cluster": beside(100, cluster="there"),
    "stale idle": ended(0),
    "stale full": ended(100),
    "late": late,
}
# MIG instances have no utilisation, and no other field is a witness of the one that these profiles read. The profile
# `mig` says so in its caveats.
STUCK = ("stuck at 0", "stuck high", "all stuck at 0", "0 beside a blank")


def is_told(profile: str, kind: str, fault: str) -> bool:
    """Whether anything in Prometheus could tell that fault."""
    return fault not in STUCK or (kind != "MIG" and profile in ("gpu", "gpu_compute"))


# ---- what the GPUs really do: of the first pod's first GPU, its others, and those of the other pods

TRUTHS = {
    "busy": (90, 90, 90),
    "idle": (2, 2, 2),
    "first GPU busy": (95, 4, 4),
    "first GPU idle": (2, 95, 95),
}


@dataclass(frozen=True)
class Case:
    profile: str
    fault: str
    kind: str
    pods: int
    truth: str

    @property
    def name(self) -> str:
        return f"{self.profile}: {self.fault}, {self.pods} pods of {self.kind}, {self.truth}"

    @property
    def namespace(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", f"{self.fault} {self.pods} {self.kind} {self.truth}".lower())

    @property
    def holders(self) -> list[Pod]:
        return [Pod(self.namespace, f"chat-6d5f8-x7k2{letter}") for letter in "bcd"[: self.pods]]

    @property
    def busy(self) -> dict[Pod, list[float]]:
        """What each GPU does, by pod."""
        first, others, of_others = TRUTHS[self.truth]
        count = KINDS[self.kind]
        return {
            pod: [first, *[others] * (count - 1)] if number == 0 else [of_others] * count
            for number, pod in enumerate(self.holders)
        }

    @property
    def means(self) -> list[float]:
        return [sum(values) / len(values) for values in self.busy.values()]

    def input_series(self) -> Iterator[dict[str, str]]:
        rows = [
            Row(
                pod,
                device_labels(self.kind, pod, number),
                {field: value for field, value in fields(busy).items() if self.kind != "MIG" or field != UTIL},
                Exporter("honored", f"exporter-of-{self.namespace}"),
                EXPORTER,
            )
            for pod, values in self.busy.items()
            for number, busy in enumerate(values)
        ]
        for row in FAULTS[self.fault](rows):
            labels = {**row.exporter.labels(row.pod), **row.labels, **row.target}
            for field, value in row.fields.items():
                yield series(field, labels, row.values(value))
        resource = "nvidia_com_mig_1g_10gb" if self.kind == "MIG" else "nvidia_com_gpu"
        for pod in self.holders:
            names = {"namespace": pod.namespace, "pod": pod.name}
            owner = {**names, "workload": "chat", "workload_type": "deployment"}
            requests = {**names, "container": "main", "resource": resource}
            yield series("namespace_workload_pod:kube_pod_owner:relabel", owner, f"1x{TICKS}")
            yield series("kube_pod_status_phase", {**names, "phase": "Running"}, f"1x{TICKS}")
            yield series("kube_pod_container_resource_requests", requests, f"{KINDS[self.kind]}x{TICKS}")
        per_tick = sum(self.means) / 100 / COST * INTERVAL_S
        yield series("asked_total", {"namespace": self.namespace}, f"0+{per_tick:g}x{TICKS}")

    def autoscalers(self) -> Iterator[Autoscaler]:
        told: dict[str, Any] = {"namespace": self.namespace, "target": {"name": "chat"}, "max_replicas": 99}
        told |= {"metric": self.profile, "target_value": TARGET}
        asked = f'asked_total{{namespace="{self.namespace}"}}'
        yield Autoscaler.from_params({**told, "name": "object", "metric_type": "Object"})
        yield Autoscaler.from_params({**told, "name": "external", "metric_type": "External"})
        if self.has_demand:
            yield Autoscaler.from_params({**told, "name": "demand", "demand": {"offered": asked, "served": asked}})

    @property
    def has_demand(self) -> bool:
        """Not for each number of GPUs and pods: a demand reads what is recorded of pods.

        What a request costs is learned in minutes, also of a GPU that the pod had then.
        """
        is_asked = self.kind in ("2 GPUs", "MIG", "shared") and self.pods > 1
        return self.profile in ACTIVITIES and is_asked and not self.fault.startswith("stale")


def is_asked(case: Case, type_: str) -> bool:
    return type_ != "demand" or case.has_demand


def fewest(case: Case, type_: str, right: int) -> int:
    """The fewest replicas that are not too few.

    With metrics of pods the controller takes pods without a value to be on target, though they may be full. It never
    asks for fewer replicas than there are such pods. This concerns gpu_compute, whose stuck GPUs have no other value.
    """
    least = min(case.pods, right)
    if (case.profile, case.fault, type_) != ("gpu_compute", "all stuck at 0", "Pods"):
        return least
    without_value = case.pods - len(seen(case)["pods"])
    return max(without_value, least - ceil(without_value * (100 / TARGET - 1)))


def cases(profile: str) -> list[Case]:
    return [
        Case(profile, fault, kind, pods, truth)
        for fault, kind, pods, truth in product(FAULTS, KINDS, (1, 3), TRUTHS)
        if can_be(profile, kind) and is_told(profile, kind, fault) and (kind, pods) != ("8 GPUs", 3)
    ]


# ---- what the HPA makes of it

Recorded = Mapping[tuple[str, str], Mapping[str, float]]


@cache
def recorded(profile: str) -> Recorded:
    """What one run of promtool records: by series and namespace the value by pod, or of the workload."""
    some = [cases(profile)[first : first + AT_ONCE] for first in range(0, len(cases(profile)), AT_ONCE)]
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
    for text, value in re.findall(r"\{([^}]*)\} ([-+\w.]+)", output):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', text))
        found.setdefault((labels["__name__"], labels["namespace"]), {})[labels.get("pod", "")] = float(value)
    return found


def rules_and_test(profile: str, some: Sequence[Case]) -> tuple[dict[str, Any], dict[str, Any]]:
    options = RuleOptions(evaluation_interval_s=INTERVAL_S, exporter_labels=EXPORTER)
    manifests = [profile_rule(PROFILES[profile], options)]
    manifests += [workload_rule(autoscaler, options) for case in some for autoscaler in case.autoscalers()]
    groups = [group for manifest in manifests for group in manifest["spec"]["groups"]]
    groups = [{**group, "name": f"{number} {group['name']}"} for number, group in enumerate(groups)]
    wanted = "|".join(
        (
            f"namespace_pod:({profile}|{sustained_name(profile)}):avg",
            f"namespace_workload:({profile}:avg|{profile}_demand:sum)",
            f"external:{profile}:sum",
        )
    )
    return {"groups": groups}, {
        "interval": f"{INTERVAL_S}s",
        "input_series": [entry for case in some for entry in case.input_series()],
        # promtool shows what it has got where it expects something else.
        "promql_expr_test": [{"expr": f'{{__name__=~"{wanted}"}}', "eval_time": f"{JUDGED_S}s", "exp_samples": []}],
    }


def proposal(type_: str, values: Mapping[str, Sequence[float]], case: Case) -> int:
    """Replicas that an HPA asks for. values: by kind of series, of pods or of the workload; empty for none."""
    current = case.pods

    def of_pods(name: str) -> int | None:
        usage = values[name]
        return desired_replicas(usage, TARGET, current=current, missing=current - len(usage)) if usage else None

    def of_workload(name: str) -> int | None:
        if not values[name]:
            return None
        (value,) = values[name]
        if name == "object":
            return desired_replicas_by_value(value, TARGET, current=current, ready=current)
        return desired_replicas_by_total(value, TARGET, status_replicas=current)

    proposals = {
        "Pods": lambda: [of_pods("pods")],
        "Object": lambda: [of_workload("object")],
        "External": lambda: [of_workload("external")],
        "demand": lambda: [of_pods("sustained"), of_workload("demand")],
    }[type_]()
    return max(MIN_REPLICAS, desired_replicas_together(proposals, current=current))


def seen(case: Case) -> dict[str, list[float]]:
    names = {
        "pods": f"namespace_pod:{case.profile}:avg",
        "sustained": f"namespace_pod:{sustained_name(case.profile)}:avg",
        "object": f"namespace_workload:{case.profile}:avg",
        "external": f"external:{case.profile}:sum",
        "demand": f"namespace_workload:{case.profile}_demand:sum",
    }
    return {kind: list(recorded(case.profile).get((name, case.namespace), {}).values()) for kind, name in names.items()}


def true(case: Case) -> dict[str, list[float]]:
    means, total = case.means, sum(case.means)
    return {"pods": means, "sustained": means, "object": [total / len(means)], "external": [total], "demand": [total]}


@pytest.mark.parametrize("profile", GPU_PROFILES)
def test_replicas_never_move_against_the_truth(profile: str) -> None:
    wrong = []
    for case, type_ in product(cases(profile), TYPES):
        if not is_asked(case, type_):
            continue
        right, asked = proposal(type_, true(case), case), proposal(type_, seen(case), case)
        if not fewest(case, type_, right) <= asked <= max(case.pods, right):
            wrong.append(f"{case.name}: {type_} asks for {asked}, right are {right}, now {case.pods}: {seen(case)}")
    assert not wrong, "\n".join([f"{len(wrong)} cases", *wrong[:20]])


@pytest.mark.parametrize("profile", GPU_PROFILES)
def test_replicas_follow_the_truth_where_nothing_is_wrong(profile: str) -> None:
    """No value at all would hold the contract, too."""
    good = [case for case in cases(profile) if case.fault in ("nothing", "duplicated", "forged full", "late")]
    asked = {
        (case.name, type_): (proposal(type_, seen(case), case), proposal(type_, true(case), case))
        for case, type_ in product(good, TYPES)
        if is_asked(case, type_)
    }
    assert asked
    assert not {name: both for name, both in asked.items() if both[0] != both[1]}
