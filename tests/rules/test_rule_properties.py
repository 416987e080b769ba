"""Any fleet: Prometheus records what each pod's value must be, which is said here in Python and not in PromQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.inputs import with_selectors
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import PROFILES
from fleet import LAST_TICK, Device, Exporter, Labels, Pod, expects, promtool_file, series, timeline
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_rules import LAYOUTS, METRICS, promtool

UTIL = "DCGM_FI_DEV_GPU_UTIL"
ENGINE, SM, DRAM = (f"DCGM_FI_PROF_{name}_ACTIVE" for name in ("GR_ENGINE", "SM", "DRAM"))
USED, FREE, RESERVED = (f"DCGM_FI_DEV_FB_{name}" for name in ("USED", "FREE", "RESERVED"))
MEMORY = (USED, FREE, RESERVED)
QUEUES = ("vllm:num_requests_waiting", "sglang:num_queue_reqs")
RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs")
TARGET = ("namespace", "pod", "instance")
CACHES = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage")

# Of a GPU's memory the numbers are such that each ratio is exact: the sum of the parts is a power of two.
MEMORY_MIB = 65_536
SENTINELS = (9223372036854775792, 9.2e18, 140737488355328, 2147483632, 4294967295, -1, -0.5, float("nan"), float("inf"))


# ---- what a fleet says


@dataclass(frozen=True)
class Row:
    """What one exporter or server says of one thing at one time.

    thing:  what the value is about; two rows on one thing of a pod are two reports of the same.
    fields: series to value.
    labels: what Prometheus stores with it.
    last:   the last tick at which it is said.
    """

    thing: object
    pod: Pod | None
    fields: dict[str, float]
    labels: Labels
    last: int = LAST_TICK


@dataclass(frozen=True)
class Fleet:
    gpus: tuple[Row, ...]
    servers: tuple[Row, ...]

    def input_series(self) -> Iterator[dict[str, str]]:
        for row in (*self.gpus, *self.servers):
            for field, value in row.fields.items():
                yield series(field, row.labels, timeline(value, last=row.last))
        targets = {tuple(row.labels[name] for name in TARGET) for row in self.servers}
        for target in sorted(targets):
            yield series("up", dict(zip(TARGET, target, strict=True)), timeline(1))


# ---- what each pod's value must be

Reading = Callable[[dict[str, float]], float | None]
# A ratio is believed up to here, and at 1 the GPU is full.
MOST_OF_A_RATIO = 1.05


def true(value: float | None, most: float) -> bool:
    return value is not None and 0 <= value <= most


def one(field: str, most: float, full: float = float("inf")) -> Reading:
    return lambda fields: min(fields[field], full) if true(fields.get(field), most) else None


def ratio(*names: str) -> Reading:
    """The largest of these fields, as a part of a whole."""

    def reading(fields: dict[str, float]) -> float | None:
        values = [fields[field] for field in names if true(fields.get(field), MOST_OF_A_RATIO)]
        return min(max(values), 1) if values else None

    return reading


def both(*names: str) -> Reading:
    """The sum of these fields, where each can be."""

    def reading(fields: dict[str, float]) -> float | None:
        values = [fields[field] for field in names if true(fields.get(field), 1e6)]
        return sum(values) if len(values) == len(names) else None

    return reading


def memory_in_use(fields: dict[str, float]) -> float | None:
    used, free, reserved = (fields.get(field) for field in (USED, FREE, RESERVED))
    if not true(used, 1e8) or not true(free, 1e8):
        return None
    whole = used + free + (reserved if true(reserved, 1e8) else 0)
    return used / whole if whole else None


Things = dict[object, float | None]


def things_of(pod: Pod, rows: Iterable[Row], reading: Reading, *fields: str) -> Things:
    """The value of each thing of the pod that has one of these fields; the larger where two report it.

    None for a thing without a value that can be.
    """
    values: Things = {}
    for row in rows:
        if row.pod == pod and row.last == LAST_TICK and set(fields) & row.fields.keys():
            said = [value for value in (values.get(row.thing), reading(row.fields)) if value is not None]
            values[row.thing] = max(said, default=None)
    return values


def whole(values: Things) -> list[float]:
    """The values, if none is missing."""
    known = [value for value in values.values() if value is not None]
    return known if len(known) == len(values) else []


def lost(pod: Pod, rows: Iterable[Row], *fields: str) -> bool:
    """Whether a GPU of the pod, or a slice of one, that had one of these fields has none of them any more."""
    last: dict[object, int] = {}
    for row in rows:
        if row.pod == pod and set(fields) & row.fields.keys():
            thing = (row.thing, row.labels.get("vgpu"))
            last[thing] = max(row.last, last.get(thing, 0))
    return any(tick < LAST_TICK for tick in last.values())


def mean(values: Things) -> float | None:
    return fmean(whole(values)) if whole(values) else None


def percent(ratios: Things) -> Things:
    return {thing: None if value is None else 100 * value for thing, value in ratios.items()}


def first(values: Iterable[float | None]) -> float | None:
    return next((value for value in values if value is not None), None)


def instances(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.labels.get("GPU_I_ID")]


def uncut(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if not row.labels.get("GPU_I_ID")]


def util(pod: Pod, fleet: Fleet) -> float | None:
    return mean(things_of(pod, fleet.gpus, one(UTIL, 100), UTIL))


def shared(pod: Pod, fleet: Fleet) -> float | None:
    return mean(things_of(pod, fleet.gpus, one(UTIL, 1000, full=100), UTIL))


def mig(pod: Pod, fleet: Fleet) -> float | None:
    return mean(percent(things_of(pod, instances(fleet.gpus), ratio(ENGINE), ENGINE)))


def profiled(pod: Pod, fleet: Fleet, *fields: str, falls_back: bool = False) -> float | None:
    """By MIG instances if the pod has any. Of a whole GPU a 0 counts if its utilisation is near 0, too."""
    # A slice of a shared GPU is judged by itself; of a pod's slices of one GPU the larger counts.
    rows = [replace(row, thing=(row.thing, row.labels.get("vgpu"))) for row in fleet.gpus]
    of_instances = percent(things_of(pod, instances(rows), ratio(*fields), *fields))
    if of_instances:
        return mean(of_instances)
    active = percent(things_of(pod, uncut(rows), ratio(*fields), *fields))
    used = things_of(pod, uncut(rows), one(UTIL, 100), UTIL)
    values: Things = {}
    for thing, vgpu in active | used:
        value, witness = active.get((thing, vgpu)), used.get((thing, vgpu))
        is_believed = value is not None and (value > 0 or (witness is not None and witness <= 20))
        said = (values.get(thing), value if is_believed else witness if falls_back else None)
        values[thing] = max((known for known in said if known is not None), default=None)
    return mean(values)


def queue(pod: Pod, fleet: Fleet) -> float | None:
    queues = (whole(things_of(pod, fleet.servers, one(name, 1e6), name)) for name in QUEUES)
    return first(sum(values) for values in queues if values)


def in_flight(pod: Pod, fleet: Fleet) -> float | None:
    held = (whole(things_of(pod, fleet.servers, both(*names), *names)) for names in zip(RUNNING, QUEUES, strict=True))
    return first(sum(values) for values in held if values)


def cache(pod: Pod, fleet: Fleet) -> float | None:
    return first(mean(percent(things_of(pod, fleet.servers, ratio(name), name))) for name in CACHES)


Statement = Callable[[Pod, Fleet], float | None]


def of_gpus(value: Statement, *fields: str, counted: Callable[[Iterable[Row]], Iterable[Row]] = iter) -> Statement:
    """A value of the pod's GPUs, which are those with one of these fields. There is none while one of them is lost."""
    return lambda pod, fleet: None if lost(pod, counted(fleet.gpus), *fields) else value(pod, fleet)


MUST_BE: dict[str, Statement] = {
    "gpu": of_gpus(lambda pod, fleet: profiled(pod, fleet, ENGINE, falls_back=True), ENGINE, UTIL),
    "gpu_util": of_gpus(util, UTIL),
    "gpu_compute": of_gpus(lambda pod, fleet: profiled(pod, fleet, SM, DRAM), SM, DRAM, UTIL),
    "gpu_memory": of_gpus(
        lambda pod, fleet: mean(percent(things_of(pod, fleet.gpus, memory_in_use, *MEMORY))),
        *MEMORY,
    ),
    "mig": of_gpus(mig, ENGINE, counted=instances),
    "shared": of_gpus(shared, UTIL),
    "llm_requests_waiting": queue,
    "llm_kv_cache": cache,
    "llm_in_flight": in_flight,
}


# ---- any fleet

PODS = [Pod("ml", "chat-0"), Pod("ml", "chat-1"), Pod("web", "chat-0"), Pod("web", "rank-0")]

often_true = st.integers(0, 3).map(bool)
ratios = st.integers(0, 64).map(lambda part: part / 64)


def reported(values: st.SearchStrategy[float], *wrong: float) -> st.SearchStrategy[float | None]:
    """A value, now and then none, or what DCGM says instead of one, or something else that cannot be."""
    instead = st.sampled_from((*SENTINELS, *wrong))
    return st.integers(0, 9).flatmap(lambda die: [st.none(), instead, values][min(die, 2)])


reported_ratios = reported(ratios, 0, 1.03125, 1.25, 60)


@st.composite
def readings(draw: st.DrawFn, has_profiling: bool) -> dict[str, float]:
    reserved = draw(reported(st.sampled_from((0, MEMORY_MIB // 2))))
    whole = MEMORY_MIB - (reserved if reserved in (0, MEMORY_MIB // 2) else 0)
    used = draw(st.integers(0, 32)) * whole // 32
    if draw(st.integers(0, 9)) == 0:
        used = whole = 0
    fields = {
        UTIL: draw(reported(st.integers(0, 100), 101)),
        USED: draw(reported(st.just(used))),
        FREE: draw(reported(st.just(whole - used))),
        RESERVED: reserved,
        **({field: draw(reported_ratios) for field in (ENGINE, SM, DRAM)} if has_profiling else {}),
    }
    return {field: value for field, value in fields.items() if value is not None}


@st.composite
def holdings(draw: st.DrawFn, uuid: str) -> list[tuple[Device, Pod | None, Labels]]:
    """A GPU as one whole, in MIG instances, or in slices; the GPU as a whole may be in it beside its parts."""
    holder = st.sampled_from([*PODS, None])
    kind = draw(st.sampled_from(("whole", "whole", "mig", "shared")))
    if kind == "whole":
        return [(Device(uuid), draw(holder), {})]
    whole = [(Device(uuid), draw(holder) if kind == "mig" else None, {})] * draw(st.integers(0, 1))
    if kind == "mig":
        return whole + [(Device(uuid, str(7 + part)), draw(holder), {}) for part in range(draw(st.integers(1, 3)))]
    slices = draw(st.lists(st.sampled_from(PODS), min_size=1, max_size=3))
    return whole + [(Device(uuid), pod, {"vgpu": str(number)}) for number, pod in enumerate(slices)]


@st.composite
def nodes(draw: st.DrawFn, number: int) -> list[Row]:
    """GPUs, each reported by one exporter or by two that are scraped in whatever way."""
    layouts = draw(st.lists(st.sampled_from(LAYOUTS), min_size=1, max_size=2))
    release = draw(st.sampled_from(("", "nvidia-", "my-gpus-")))
    exporters = [Exporter(layout, f"{release}dcgm-exporter-{number}-{index}") for index, layout in enumerate(layouts)]
    spellings = [draw(st.sampled_from(("Hostname", "hostname"))) for _ in exporters]
    has_profiling = draw(often_true)
    return [
        Row(
            device,
            pod,
            draw(readings(has_profiling)),
            {
                **device.labels(),
                **exporter.labels(pod, draw(st.sampled_from(("main", "helper")))),
                **more,
                spelling: f"node-{number}",
            },
            last=LAST_TICK if draw(often_true) else 4,
        )
        for index in range(draw(st.integers(1, 3)))
        for device, pod, more in draw(holdings(f"{number}-{index}"))
        for exporter, spelling in zip(exporters, spellings, strict=True)
    ]


@st.composite
def servers(draw: st.DrawFn) -> list[Row]:
    """Engines in pods, each scraped by one job or by two."""
    rows = []
    for number in range(draw(st.integers(0, 4))):
        pod, names = draw(st.sampled_from(PODS)), draw(st.sampled_from(((0, 0), (0, 1), (1, 2))))
        told_apart_by = draw(st.sampled_from(("instance", "model_name", "engine", "dp_rank")))
        labels = {"namespace": pod.namespace, "pod": pod.name, "instance": "a", told_apart_by: str(number)}
        for job in range(draw(st.integers(1, 2))):
            waiting, running = (draw(reported(st.integers(0, 50), 2_000_000)) for _ in range(2))
            said = {QUEUES[names[0]]: waiting, RUNNING[names[0]]: running, CACHES[names[1]]: draw(reported_ratios)}
            fields = {field: value for field, value in said.items() if value is not None}
            rows.append(Row(number, pod, fields, {**labels, "job": str(job), "tp_rank": str(job)}))
    return rows


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    gpus = [row for number in range(draw(st.integers(1, 3))) for row in draw(nodes(number))]
    return Fleet(tuple(gpus), tuple(draw(servers())))


# ---- the law


def rules() -> dict[str, object]:
    recorded = [metric for profile in PROFILES.values() for metric in profile.recorded]
    return {
        "groups": [
            {
                "name": metric.name,
                "rules": [
                    {"record": series, "expr": with_selectors(query, {})} for series, query in metric.recordings()
                ],
            }
            for metric in recorded
        ]
    }


def judged(fleet: Fleet) -> dict[str, object]:
    """The fleet as a test for promtool."""
    expected = [
        expects(
            METRICS[name].latest,
            {pod: value for pod in PODS if (value := must_be(pod, fleet)) is not None},
        )
        for name, must_be in MUST_BE.items()
    ]
    return {"input_series": list(fleet.input_series()), "promql_expr_test": expected}


def test_each_metric_has_its_statement() -> None:
    assert set(MUST_BE) == {metric.name for profile in PROFILES.values() for metric in profile.recorded}


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(fleets(), min_size=8, max_size=8))
def test_prometheus_records_what_each_pods_value_must_be(many: list[Fleet]) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "rules.yml").write_text(json.dumps(rules()))
        tests = promtool_file(["rules.yml"], [judged(fleet) for fleet in many])
        (Path(folder) / "fleets_test.yml").write_text(json.dumps(tests))
        promtool("test", "rules", "fleets_test.yml", folder=Path(folder))
