# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from string import Template
from textwrap import indent
from typing import Literal

from .dcgm_fields import in_1x

# Older samples are not used, in seconds. Prometheus returns the last one for five minutes if it missed the end of
# the series, as after a restart. Scrape intervals of up to one minute fit.
MAX_AGE_S = 90

_SPECIAL = re.compile(r"[\\+*?()|\[\]{}^$]")


def quoted(text: str) -> str:
    """A PromQL string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def literal(text: str) -> str:
    """A regular expression (RE2) that matches exactly this text. Quote the result as part of a string."""
    return _SPECIAL.sub(r"\\\g<0>", text).replace(".", "[.]")


def equal(labels: Mapping[str, str]) -> str:
    """Matchers without braces: each label has this value."""
    return ",".join(f"{label}={quoted(value)}" for label, value in labels.items())


def one_of(label: str, texts: Iterable[str]) -> str:
    """Matcher: the label has one of these values."""
    return f"{label}=~{quoted('|'.join(dict.fromkeys(map(literal, texts))))}"


@dataclass(frozen=True)
class Layout:
    """Labels in which one way of scraping stores the pod of a row.

    matchers: select the rows of this layout only, without those of idle GPUs.
    """

    namespace: str
    pod: str
    matchers: str


@dataclass(frozen=True)
class Reporter:
    """The server of a series.

    part:  labels that distinguish the parts of a pod; rows with equal labels describe the same part.
    slice: label that distinguishes several shares of one part.
    """

    name: str
    layouts: tuple[Layout, ...]
    part: str
    slice: str = ""


# A whole GPU has no GPU_I_ID; a MIG instance has its parent's UUID. The node's label is spelt Hostname or hostname
# depending on the version, and vgpu numbers the slices of a shared GPU: neither identifies the GPU.
DCGM_EXPORTER = Reporter(
    "dcgm-exporter",
    (
        # A ServiceMonitor or PodMonitor with honorLabels: false.
        Layout("exported_namespace", "exported_pod", 'exported_namespace!="",exported_pod!=""'),
        # honorLabels: true, with the exporter's own pod in the rows of idle GPUs; or a job that adds neither label.
        Layout(
            "namespace",
            "pod",
            'exported_namespace="",exported_pod="",namespace!="",pod!="",pod!~"(.+-)?dcgm-exporter(-.+)?"',
        ),
        # A job that adds the namespace of its target, but not the pod.
        Layout("exported_namespace", "pod", 'exported_namespace!="",exported_pod="",pod!=""'),
    ),
    part="UUID, GPU_I_ID",
    slice="vgpu",
)

# A model server reports no pod: the labels are those of the target. One pod may run several processes (instance), each
# with several models and engines. Jobs that scrape it twice, and ranks that share an engine, are not distinguished.
_OF_TARGET = (Layout("namespace", "pod", 'namespace!="",pod!=""'),)
MODEL_SERVER = Reporter("model server", _OF_TARGET, part="instance, model_name, engine, dp_rank")
TRITON = Reporter("model server", _OF_TARGET, part="instance, model, version")


@dataclass(frozen=True)
class Source:
    """One source of the value of a pod, or of a part of it.

    reporter: what serves the series.
    series:   their names; of several the largest counts, for each part of a pod. Fields of DCGM are also read by their
              names in dcgm-exporter 1.x.
    limit:    the largest valid value, in the unit of the series.
    full:     the value of a fully used part, if valid values may be higher: they count as this one.
    scale:    converts that unit to the metric's.
    total:    how the values of a pod's GPUs or engines are combined.
    matchers: additional selectors of the series' rows.
    formula:  PromQL that replaces the series; `$rows` stands for the matchers of a layout. The first series
              shows that a part exists.
    """

    reporter: Reporter
    series: tuple[str, ...]
    limit: float
    full: int | None = None
    scale: int = 1
    total: Literal["avg", "sum"] = "avg"
    matchers: str = ""
    formula: str = ""

    def per_part(self, of_target: str = "") -> str:
        """PromQL: one series for each part of a pod; NaN for a part with an impossible value.

        Values of several exporters or jobs count once, as the largest.
        of_target: matchers of the scrape targets to use.
        """
        parts = _aggregate(
            f"max by (namespace, pod, {self._labels})",
            "\nor\n".join(self._named(layout, of_target) for layout in self.reporter.layouts),
        )
        if self.full is not None:
            parts = f"clamp_max (\n{indent(parts, '  ')},\n  {self.full}\n)"
        return parts if self.scale == 1 else f"{self.scale} * {parts}"

    @property
    def _labels(self) -> str:
        return ", ".join(filter(None, (self.reporter.part, self.reporter.slice)))

    def _named(self, layout: Layout, of_target: str) -> str:
        """The rows of a layout, with the pod in the labels namespace and pod."""
        matchers = ",".join(filter(None, (self.matchers, of_target, layout.matchers)))
        (first, formula), *others = self._readings()
        rows = self._rows(first, formula, matchers)
        for series, formula in others:
            # Rows of two series have the same labels, and `or` would use only the first one.
            more = indent(self._rows(series, formula, matchers), "  ")
            rows += f'\nor\nlabel_replace(\n{more},\n  "of", "{series}", "", ""\n)'
        origins = {"namespace": layout.namespace, "pod": layout.pod}
        renamed = {label: origin for label, origin in origins.items() if label != origin}
        if renamed:
            # Aggregated first: two exporters' rows of one GPU would otherwise become the same label set, an error.
            rows = _aggregate(f"max by ({layout.namespace}, {layout.pod}, {self._labels})", rows)
        for label, origin in renamed.items():
            rows = f'label_replace(\n{indent(rows, "  ")},\n  "{label}", "$1", "{origin}", "(.+)"\n)'
        return rows

    def _readings(self) -> Iterator[tuple[str, str]]:
        """Each series with the formula that replaces it, those of dcgm-exporter 1.x last."""
        todays = self.series[:1] if self.formula else self.series
        yield from ((series, self.formula) for series in todays)
        yield from ((in_1x(series), in_1x(self.formula)) for series in todays if in_1x(series) != series)

    def _rows(self, series: str, formula: str, matchers: str) -> str:
        """PromQL: values of the rows; NaN outside of 0..limit, for example for DCGM's blank sentinels.

        If clamped, they would scale to the maximum. If dropped, the other GPUs of the pod would hide this one.
        """
        selector = f"{series}{{{matchers}}}"
        values = Template(formula).substitute(rows=matchers) if formula else selector
        if "\n" in values:
            values = f"(\n{indent(values, '  ')}\n)"
        believed = f"{values} >= 0 <= {self.limit}\nor\nNaN * {selector}"
        return f"(\n{indent(believed, '  ')}\n)\nand\ntimestamp({selector}) > time() - {MAX_AGE_S}"


def per_pod(sources: Iterable[Source]) -> str:
    """PromQL: one series per namespace and pod, the value of the first source that has one for that pod.

    So each pod's value is of one kind. A pod has no value while one of its parts has none.
    """
    return "\nor\n".join(_per_pod(source) for source in sources)


def _per_pod(source: Source) -> str:
    return _aggregate(f"{source.total} by (namespace, pod)", source.per_part()) + " >= 0"


# GPUs and MIG instances of a pod, by kube-state-metrics. Each of several is of one container.
_REQUESTED = """\
sum by (namespace, pod) (
  max by (namespace, pod, container, resource) (
    kube_pod_container_resource_requests{resource=~"nvidia_com_(gpu|mig_.+)"}
  )
)"""


def average_of_gpus(values: str, *recorded: str) -> str:
    """PromQL: the average over each pod's GPUs, without pods that have a GPU without a value.

    values:   a series per GPU or instance, and per slice of it; NaN if the value is unknown.
    recorded: series with a row for each of these, with a value or NaN.
    """
    average = _aggregate(
        "avg by (namespace, pod)", _aggregate(f"max by (namespace, pod, {DCGM_EXPORTER.part})", values)
    )
    seen = f"count by (namespace, pod) ({' or '.join(recorded)})"
    # Excludes series of other GPUs from before a restart of Prometheus.
    old = " or ".join(f"timestamp({series}) < time() - {MAX_AGE_S}" for series in recorded)
    return "\nunless on (namespace, pod)\n".join((f"{average} >= 0", f"{_REQUESTED} > {seen}", f"({old})"))


def _aggregate(operator: str, operand: str) -> str:
    return f"{operator} (\n{indent(operand, '  ')}\n)"
