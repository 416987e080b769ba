"""How the whole chain grows with the fleet: 100 to 1,000 nodes of 8 GPUs, with one autoscaler for two nodes.

Everything runs on this machine, so the figures are those of its processors; docs/scaling.md says what follows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median
from typing import Any

TESTS = Path(__file__).parents[2] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "integration")]

from bench_cluster import autoscalers
from bench_report import Target, draw, exponent, number, verdicts
from bench_runs import Done, Failed, run_module
from collection import ROOT, install
from doctor_cluster import Size
from rich.console import Console
from rich.table import Table
from scale_cluster import RULE_GROUP, ScaleCluster, Settings, start_scale
from scale_figures import between, by_user, metric_requests, periods, quantile

WIDTH = 160
RULE_ROUNDS = 30
# What stands in for the Prometheus operator looks for rules five times a second.
BENCH_ITSELF = "admin"
REQUESTS = 'apiserver_request_total{job="apiserver"}'
RULES = f'rule_group=~".*;{RULE_GROUP}"'
MB = 1e6


@dataclass(frozen=True)
class Figures:
    """What was seen at one size; times in seconds, of modules the medians of their rounds.

    rule_s:        evaluation of the autoscalers' rule, median. alerts_s: of the slowest group of gpu_alerts, mean.
    late:          evaluations of rules that were left out, since the one before had not ended.
    adapter_*:     of the custom metrics API, as the HPA controller waits for it. failed: of its requests, percent.
    period_*:      from one decision on an HPA to the next.
    reconcile_s:   of the HPA controller for one HPA, mean.
    requests:      to the API server a minute, in all but those of the bench; requests_of: by who asks.
    *_processor_s: of a module, whatever else was running.
    processors:    how many each component kept busy; busy: all of them; others: whatever else ran on the machine.
    """

    size: Size
    pods: int
    rule_s: float | None
    rule_processor_s: float
    rule_least_s: float | None
    rule_worst_s: float | None
    alerts_s: float | None
    late: float | None
    prometheus_mb: float | None
    series: float | None
    samples_a_s: float | None
    adapter_p50_s: float | None
    adapter_p99_s: float | None
    adapter_mb: float | None
    failed: float
    period_p50_s: float | None
    period_p99_s: float | None
    period_max_s: float | None
    reconcile_s: float | None
    waiting: float | None
    first_s: float
    noop_s: float
    verify_s: float
    doctor_s: float
    noop_processor_s: float
    verify_processor_s: float
    doctor_processor_s: float
    doctor_mb: float
    findings: list[str]
    requests: float | None
    requests_of: dict[str, float]
    processors: dict[str, float]
    busy: float
    others: float


@dataclass(frozen=True)
class Bench:
    machine: dict[str, Any]
    settings: Settings
    window_s: int
    others: int
    figures: list[Figures]

    @property
    def largest(self) -> Figures:
        return self.figures[-1]

    def growth(self, name: str) -> float | None:
        """The exponent of the power of the number of nodes that a figure grows with."""
        points = [(seen.size.nodes, value) for seen in self.figures if (value := getattr(seen, name))]
        return exponent(points) if len(points) > 1 else None

    def most_growth(self) -> float | None:
        return max((growth for name in GROWING if (growth := self.growth(name)) is not None), default=None)


GROWING = {
    "rule_s": "evaluation of the rule",
    "rule_processor_s": "evaluation of the rule, processor",
    "prometheus_mb": "memory of Prometheus",
    "adapter_p50_s": "adapter, p50",
    "adapter_p99_s": "adapter, p99",
    "first_s": "gpu_autoscaler, first apply",
    "noop_s": "gpu_autoscaler, nothing to do",
    "verify_s": "gpu_autoscaler, verification",
    "doctor_s": "gpu_doctor",
    "noop_processor_s": "gpu_autoscaler, nothing to do, processor",
    "verify_processor_s": "gpu_autoscaler, verification, processor",
    "doctor_processor_s": "gpu_doctor, processor",
    "busy": "processors of all parts together",
    "requests": "requests to the API server a minute",
}
TARGETS = (
    Target("rule, of its interval", "", 0.2, lambda b: b.largest.rule_s and b.largest.rule_s / _rule_interval_s(b)),
    Target("period of an HPA, p99", "times", 2, lambda b: _in_periods(b, b.largest.period_p99_s)),
    Target("steepest growth, power of the nodes", "", 1.1, Bench.most_growth),
)


def _rule_interval_s(bench: Bench) -> int:
    """Of the rule that is timed: what GPUs do is smoothed."""
    from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import smoothed_interval_s

    return smoothed_interval_s(bench.settings.evaluate_s)


def _in_periods(bench: Bench, seconds: float | None) -> float | None:
    return seconds and seconds / bench.settings.period_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=sizes, default="100x50,300x150,1000x500", help="nodes x autoscalers")
    parser.add_argument("--window", type=int, default=120, help="seconds that are looked at (default: %(default)s)")
    parser.add_argument("--settle", type=int, default=60, help="seconds before that (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of each module (default: %(default)s)")
    parser.add_argument("--others", type=int, default=0, help="pods of others a node (default: %(default)s)")
    for field in fields(Settings):
        option = f"--{field.name.replace('_', '-')}"
        parser.add_argument(option, type=int, default=field.default, help="(default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench", help="folder (default: %(default)s)")
    arguments = parser.parse_args()
    console = Console(width=WIDTH)
    install()
    arguments.out.mkdir(parents=True, exist_ok=True)
    settings = Settings(**{field.name: getattr(arguments, field.name) for field in fields(Settings)})
    try:
        for bench in measure(arguments, settings, console):
            (arguments.out / "scale.json").write_text(json.dumps(asdict(bench), indent=1) + "\n")
            (arguments.out / "scale.svg").write_text(plot(bench))
    except (Failed, AssertionError) as failure:
        sys.exit(f"not measured: {failure}")
    for table in (_table(bench), verdicts(bench, TARGETS)):
        console.print(table)
    console.print(f"{arguments.out}/scale.json and scale.svg")


def measure(arguments: argparse.Namespace, settings: Settings, console: Console) -> Any:
    """A Bench after each size, so that a size too large for the machine leaves those before it."""
    began = time.monotonic()

    def said(what: str) -> None:
        console.print(f"{time.monotonic() - began:5.0f} s  {what}")

    seen: list[Figures] = []
    with start_scale(settings) as cluster:
        for size in arguments.sizes:
            seen.append(_measure(cluster, size, arguments, said))
            yield Bench(_machine(cluster.version), settings, arguments.window, arguments.others, list(seen))


def _measure(cluster: ScaleCluster, size: Size, arguments: argparse.Namespace, said: Any) -> Figures:
    first: list[Done] = []
    options = {"prometheus": {"evaluation_interval": cluster.settings.evaluate_s}}

    def autoscale(listed: list[dict[str, Any]]) -> None:
        first.append(_run(cluster, "gpu_autoscaler", {"autoscalers": listed, "verify": False, **options}))

    cluster.grow(size, arguments.others, autoscale, said)
    said(f"{size}: settles")
    time.sleep(arguments.settle)
    said(f"{size}: is watched")
    offset, begin, before = cluster.audit_log.stat().st_size, datetime.now(UTC), cluster.processor_s()
    time.sleep(arguments.window)
    end, after = datetime.now(UTC), cluster.processor_s()
    busy = {name: (seconds - before[name]) / arguments.window for name, seconds in after.items()}
    others = busy.pop("all") - sum(busy.values())
    figures = _watched(cluster, arguments.window, offset, begin, end)
    rule_s = cluster.rule_processor_s(busy["prometheus"], RULE_ROUNDS)
    said(f"{size}: modules")
    listed = autoscalers(size.autoscalers, max_replicas=8)
    noop, verify, doctor = (
        [_run(cluster, module, given) for _ in range(arguments.rounds)]
        for module, given in (
            ("gpu_autoscaler", {"autoscalers": listed, "verify": False, **options}),
            ("gpu_autoscaler", {"autoscalers": listed, **options}),
            ("gpu_doctor", {}),
        )
    )
    report = doctor[-1].result["result"]
    return Figures(
        size=size,
        first_s=first[0].wall_s,
        noop_s=median(done.wall_s for done in noop),
        verify_s=median(done.wall_s for done in verify),
        doctor_s=median(done.wall_s for done in doctor),
        doctor_mb=max(done.rss_mb for done in doctor),
        findings=sorted({f"{finding['id']}: {finding.get('seen', '')}"[:200] for finding in report["findings"]}),
        noop_processor_s=median(done.processor_s for done in noop),
        verify_processor_s=median(done.processor_s for done in verify),
        doctor_processor_s=median(done.processor_s for done in doctor),
        processors=busy,
        rule_processor_s=rule_s,
        busy=sum(busy.values()),
        others=others,
        **figures,
    )


def _run(cluster: ScaleCluster, module: str, options: dict[str, Any]) -> Done:
    done = run_module(cluster, module, options)
    if done.result.get("failed"):
        raise Failed(f"{module}: {done.result.get('msg')}")
    return done


def _watched(cluster: ScaleCluster, window: int, offset: int, begin: datetime, end: datetime) -> dict[str, Any]:
    """What the observer and the log of requests say of the window; Prometheus' own numbers need no event of ours."""
    observer, over = cluster.observer, f"[{window}s]"
    events = list(between(cluster.events(offset), begin, end))
    asked = list(metric_requests(events))
    took, between_s = [request.took_s for request in asked], periods(asked)
    users = by_user(events, window / 60)
    group = "prometheus_rule_group_last_duration_seconds"
    alerts = f'rule_group!~".*;{RULE_GROUP}"'
    kept = "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds"
    return {
        "pods": int(observer_count(cluster)),
        "rule_s": observer.value(f"quantile_over_time(0.5, {group}{{{RULES}}}{over})"),
        "rule_least_s": observer.value(f"min_over_time({group}{{{RULES}}}{over})"),
        "rule_worst_s": observer.value(f"max_over_time({group}{{{RULES}}}{over})"),
        "alerts_s": observer.value(f"max(avg_over_time({group}{{{alerts}}}{over}))"),
        "late": observer.value(f"sum(increase(prometheus_rule_group_iterations_missed_total{over}))"),
        "prometheus_mb": _mb(observer.value(f'max_over_time(process_resident_memory_bytes{{job="prometheus"}}{over})')),
        "series": observer.value("prometheus_tsdb_head_series"),
        "samples_a_s": observer.value(f"sum(rate(prometheus_tsdb_head_samples_appended_total{over}))"),
        "adapter_p50_s": quantile(took, 50),
        "adapter_p99_s": quantile(took, 99),
        "adapter_mb": _mb(observer.value(f'max_over_time(process_resident_memory_bytes{{job="adapter"}}{over})')),
        "failed": 100 * mean(not request.ok for request in asked) if asked else 0.0,
        "period_p50_s": quantile(between_s, 50),
        "period_p99_s": quantile(between_s, 99),
        "period_max_s": max(between_s, default=None),
        "reconcile_s": observer.value(f"sum(rate({kept}_sum{over})) / sum(rate({kept}_count{over}))"),
        "waiting": observer.value(f'max_over_time(workqueue_depth{{name="horizontalpodautoscaler"}}{over})'),
        "requests": _less(observer.value(f"60 * sum(rate({REQUESTS}{over}))"), users.pop(BENCH_ITSELF, 0)),
        "requests_of": users,
    }


def observer_count(cluster: ScaleCluster) -> float:
    """Pods that run."""
    answer = json.loads(cluster.chain.answer('sum(kube_pod_status_phase{phase="Running"})'))["data"]["result"]
    return float(answer[0]["value"][1]) if answer else 0.0


def _less(value: float | None, part: float) -> float | None:
    return None if value is None else value - part


def _mb(value: float | None) -> float | None:
    return None if value is None else value / MB


def _machine(kubernetes: str) -> dict[str, Any]:
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), ":")
    return {
        "processors": len(os.sched_getaffinity(0)),
        "model": model.partition(":")[2].strip(),
        "python": platform.python_version(),
        "kubernetes": kubernetes,
        "when": datetime.now(UTC).date().isoformat(),
    }


ROWS: dict[str, tuple[str, int]] = {
    "pods": ("pods", 0),
    "rule_s": ("rule of the autoscalers, s", 3),
    "rule_processor_s": ("  processor", 3),
    "rule_least_s": ("  least", 3),
    "rule_worst_s": ("  worst", 3),
    "alerts_s": ("slowest group of alerts, s", 3),
    "late": ("evaluations left out", 0),
    "series": ("series of Prometheus", 0),
    "samples_a_s": ("samples a second", 0),
    "prometheus_mb": ("memory of Prometheus, MB", 0),
    "adapter_p50_s": ("adapter, p50, s", 3),
    "adapter_p99_s": ("adapter, p99, s", 3),
    "adapter_mb": ("memory of the adapter, MB", 0),
    "failed": ("requests to it that fail, %", 1),
    "period_p50_s": ("period of an HPA, p50, s", 2),
    "period_p99_s": ("period of an HPA, p99, s", 2),
    "period_max_s": ("period of an HPA, longest, s", 2),
    "reconcile_s": ("one decision, s", 3),
    "waiting": ("HPAs that wait for a worker, most", 0),
    "first_s": ("gpu_autoscaler, those added, s", 2),
    "noop_s": ("gpu_autoscaler, nothing to do, s", 2),
    "verify_s": ("gpu_autoscaler, verification, s", 2),
    "doctor_s": ("gpu_doctor, s", 2),
    "noop_processor_s": ("  processor: nothing to do, s", 2),
    "verify_processor_s": ("  processor: verification, s", 2),
    "doctor_processor_s": ("  processor: gpu_doctor, s", 2),
    "doctor_mb": ("memory of gpu_doctor, MB", 0),
    "requests": ("requests to the API server a minute", 0),
    "busy": ("processors that all of it keeps busy", 2),
    "others": ("processors that others on the machine took", 2),
}


def _table(bench: Bench) -> Table:
    title = f"{bench.machine['processors']} processors, {bench.machine['model']}; {bench.window_s} s a size"
    table = Table("", *(str(seen.size) for seen in bench.figures), "power", title=title)
    for name, (text, digits) in ROWS.items():
        seen = [number(getattr(figures, name), digits) for figures in bench.figures]
        table.add_row(text, *seen, number(bench.growth(name)) if name in GROWING else "")
    for kind in ("processors", "requests_of"):
        for who in dict.fromkeys(name for figures in bench.figures for name in getattr(figures, kind)):
            seen = [getattr(figures, kind).get(who) for figures in bench.figures]
            title = f"{who}, processors" if kind == "processors" else f"  of {who}"
            table.add_row(title, *(number(value, 2 if kind == "processors" else 0) for value in seen), "")
    table.add_row("findings", *("; ".join(figures.findings) for figures in bench.figures), "")
    return table


PLOTTED = ("rule_s", "adapter_p50_s", "adapter_p99_s", "noop_s", "verify_s", "doctor_s")


def plot(bench: Bench) -> str:
    """Seconds over the number of nodes."""
    lines = {
        GROWING[name]: [(seen.size.nodes, value) for seen in bench.figures if (value := getattr(seen, name))]
        for name in PLOTTED
    }
    lines["period of an HPA, p99"] = [
        (seen.size.nodes, seen.period_p99_s) for seen in bench.figures if seen.period_p99_s
    ]
    return draw("Seconds over the number of nodes", {name: points for name, points in lines.items() if points})


def sizes(text: str) -> list[Size]:
    """`100x50,1000x500` -> nodes and autoscalers, smallest first."""
    return sorted((Size(*map(int, pair.split("x"))) for pair in text.split(",")), key=lambda size: size.nodes)


if __name__ == "__main__":
    main()
