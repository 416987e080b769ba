# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from string import Template
from textwrap import indent
from typing import Literal


@dataclass(frozen=True)
class Layout:
    """Where one way of scraping leaves the names of the pod that a row is about.

    matchers: what selects the rows of this layout only, without those of GPUs that no pod holds.
    """

    namespace: str
    pod: str
    matchers: str


@dataclass(frozen=True)
class Reporter:
    """Who serves a series.

    part: labels that tell apart what one pod has several of; rows that agree in them are about the same thing.
    """

    name: str
    layouts: tuple[Layout, ...]
    part: str


# A whole GPU has no GPU_I_ID, a MIG instance carries its parent's UUID. The node's label is spelt Hostname or hostname
# by version, and vgpu numbers the slices of a shared GPU: neither says which GPU it is.
DCGM_EXPORTER = Reporter(
    "dcgm-exporter",
    (
        # A ServiceMonitor or PodMonitor with honorLabels: false.
        Layout("exported_namespace", "exported_pod", 'exported_namespace!="",exported_pod!=""'),
        # honorLabels: true, where an idle GPU's row names the exporter's own pod; or a job that adds neither label.
        Layout(
            "namespace",
            "pod",
            'exported_namespace="",exported_pod="",namespace!="",pod!="",pod!~"(.+-)?dcgm-exporter(-.+)?"',
        ),
        # A job that adds the namespace of its target, but not the pod.
        Layout("exported_namespace", "pod", 'exported_namespace!="",exported_pod="",pod!=""'),
    ),
    part="UUID, GPU_I_ID",
)

# A model server names no pod: the labels are those of the target. One pod may run several processes (instance), each
# with several models and engines; what scrapes a process twice (job), and the ranks that share an engine, are not told.
_OF_TARGET = (Layout("namespace", "pod", 'namespace!="",pod!=""'),)
MODEL_SERVER = Reporter("model server", _OF_TARGET, part="instance, model_name, engine, dp_rank")
TRITON = Reporter("model server", _OF_TARGET, part="instance, model, version")


@dataclass(frozen=True)
class Source:
    """One way to know the value of a pod.

    reporter: who serves the series.
    series:   their names; of several the largest counts, for each part of a pod.
    limit:    the largest value that is believed, in the unit of the series.
    full:     the value of a part that is fully used, if believed values may lie above it: they count as this one.
    scale:    turns that unit into the metric's.
    total:    what a pod's GPUs or engines make together.
    matchers: what selects the series' rows further.
    formula:  PromQL that is read in place of the series; `$rows` stands for the matchers of a layout.
    busy:     PromQL for parts that are at work, with `$rows` as well: a 0 for one of them is stuck and left out.
    """

    reporter: Reporter
    series: tuple[str, ...]
    limit: float
    full: int | None = None
    scale: int = 1
    total: Literal["avg", "sum"] = "avg"
    matchers: str = ""
    formula: str = ""
    busy: str = ""

    def rows(self, layout: Layout) -> str:
        """PromQL: what the rows of a layout say, without what is outside 0..limit, so DCGM's blank sentinels, and NaN.

        Clamped, they would scale to the maximum. A stuck 0 would scale to the minimum.
        """
        matchers = ",".join(filter(None, (self.matchers, layout.matchers)))
        if self.formula:
            values = Template(self.formula).substitute(rows=matchers)
        elif len(self.series) == 1:
            values = f"{self.series[0]}{{{matchers}}}"
        else:
            values = f'{{__name__=~"{"|".join(self.series)}",{matchers}}}'
        if not self.busy:
            return f"{values} >= 0 <= {self.limit}"
        part = f"{self.reporter.part}, {layout.namespace}, {layout.pod}"
        busy = Template(self.busy).substitute(rows=layout.matchers)
        return f"{values} > 0 <= {self.limit}\nor\n{values} == 0\nunless on ({part})\n{busy}"


def per_pod(sources: Iterable[Source]) -> str:
    """PromQL: one series per namespace and pod, the value of the first source that has one for that pod.

    So a pod's value is of one kind, even if only some of its GPUs have it.
    """
    return "\nor\n".join(_per_pod(source) for source in sources)


def _per_pod(source: Source) -> str:
    """What several exporters or jobs report counts once, as the largest; then the parts of a pod are put together."""
    rows = "\nor\n".join(_named(source, layout) for layout in source.reporter.layouts)
    parts = _aggregate(f"max by (namespace, pod, {source.reporter.part})", rows)
    if source.full is not None:
        parts = f"clamp_max (\n{indent(parts, '  ')},\n  {source.full}\n)"
    factor = "" if source.scale == 1 else f"{source.scale} * "
    return factor + _aggregate(f"{source.total} by (namespace, pod)", parts)


def _named(source: Source, layout: Layout) -> str:
    """The rows of a layout with the pod's names in the labels namespace and pod."""
    rows = source.rows(layout)
    origins = {"namespace": layout.namespace, "pod": layout.pod}
    renamed = {label: origin for label, origin in origins.items() if label != origin}
    if renamed:
        # Aggregated first: two exporters' rows of one GPU would otherwise become the same label set, an error.
        rows = _aggregate(f"max by ({layout.namespace}, {layout.pod}, {source.reporter.part})", rows)
    for label, origin in renamed.items():
        rows = f'label_replace(\n{indent(rows, "  ")},\n  "{label}", "$1", "{origin}", "(.+)"\n)'
    return rows


def _aggregate(operator: str, operand: str) -> str:
    return f"{operator} (\n{indent(operand, '  ')}\n)"
