"""The demo in the terminal: live if possible, otherwise a line at intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lab.load.scenario import Autoscaler, Sample, Step
from lab.load.summary import Summary

PLAIN_EVERY_S = 10.0


class View:
    """Shows samples as they arrive; a context manager."""

    def __init__(self, console: Console, autoscaler: Autoscaler) -> None:
        self._console = console
        self._autoscaler = autoscaler
        self._live = Live(console=console, auto_refresh=False)
        self._shown: Sample | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, step: Step, sample: Sample) -> None:
        if self._console.is_terminal:
            self._live.update(self._panel(step, sample), refresh=True)
        elif self._is_news(sample):
            self._shown = sample
            self._console.print(line(step, sample), highlight=False, soft_wrap=True)

    def _is_news(self, sample: Sample) -> bool:
        before = self._shown
        return (
            before is None
            or (before.step, before.ready, before.desired) != (sample.step, sample.ready, sample.desired)
            or sample.at_s - before.at_s >= PLAIN_EVERY_S
        )

    def _panel(self, step: Step, sample: Sample) -> RenderableType:
        grid = Table.grid(padding=(0, 2))
        grid.add_row("load", f"{step.gpus:g} GPUs, {sample.asked_per_s:.0f} requests/s")
        grid.add_row("answers", _answers(sample))
        dots = Text("●" * sample.ready + "○" * max(sample.desired - sample.ready, 0))
        grid.add_row("replicas", dots + Text(f"  {sample.ready} ready, {sample.desired} wanted, {step.replicas} ideal"))
        grid.add_row("utilisation", f"target {self._autoscaler.target_percent:g} %")
        for pod, percent in sample.utilisation.items():
            colour = "red" if percent > self._autoscaler.target_percent * 1.1 else "green"
            bar = Table.grid(padding=(0, 1))
            bar.add_row(Bar(100, 0, percent, width=40, color=colour), f"{percent:3.0f} %")
            grid.add_row(f"  {pod[-5:]}", bar)
        return Group(Text(f"{sample.at_s:6.1f} s  {step.name}", style="bold"), grid)


def _answers(sample: Sample) -> str:
    rates = {"served": sample.served_per_s, "rejected": sample.rejected_per_s, "failed": sample.failed_per_s}
    return ", ".join(f"{rate:.0f} {name}/s" for name, rate in rates.items())


def line(step: Step, sample: Sample) -> str:
    """One sample as one line."""
    loads = " ".join(f"{percent:.0f}" for percent in sample.utilisation.values()) or "-"
    return (
        f"{sample.at_s:6.1f} s  {step.name:9}  {_answers(sample)};  "
        f"replicas {sample.ready}/{sample.desired} (ideal {step.replicas});  utilisation % {loads}"
    )


def summary_table(summaries: Mapping[str, Summary]) -> Table:
    """Results of each demo, by name."""

    def seconds(value: float | None) -> str:
        return "never" if value is None else f"{value:.1f} s"

    def down(summary: Summary, value: float | None) -> str:
        return seconds(value) if summary.goes_down else "not played"

    rows: dict[str, Callable[[Summary], str]] = {
        "step up to the HPA's decision": lambda summary: seconds(summary.reaction_s),
        "step up to the ideal replicas, ready": lambda summary: seconds(summary.ideal_ready_s),
        "replicas at the peak, and ideal": lambda summary: f"{summary.peak_replicas}, {summary.ideal_replicas}",
        "step down to the HPA's decision": lambda summary: down(summary, summary.scale_down_reaction_s),
        "step down to the minimum": lambda summary: down(summary, summary.minimum_ready_s),
        "requests served, rejected, failed": lambda summary: f"{summary.served}, {summary.rejected}, {summary.failed}",
    }
    table = Table("", *summaries, title="load step", show_header=len(summaries) > 1)
    for name, of in rows.items():
        table.add_row(name, *map(of, summaries.values()))
    return table
