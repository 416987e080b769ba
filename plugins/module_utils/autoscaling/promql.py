# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from string import Template
from textwrap import indent
from typing import Literal

from .dcgm_fields import either, in_1x

# Older samples are not used, in seconds. Prometheus returns the last one for five minutes if it missed the end of
# the series, as after a restart. Scrape intervals of up to one minute fit.
MAX_AGE_S = 90
# A GPU that a pod had is expected for this time. Old samples of another GPU are not used for longer than _OVERLAP.
_EXPECTED = "10m"
_OVERLAP = f"{MAX_AGE_S + 5}s"
# An exporter reports a counter of energy that grows while the GPU is powered. If it stands still for this time, the
# exporter repeats old values. At scrape intervals of up to one minute there are two samples in it.
_FROZEN = "2m"

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
    input: key of INPUTS.
    slice: label that distinguishes several shares of one part.
    """

    name: str
    layouts: tuple[Layout, ...]
    part: str
    input: str
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
    input="exporter",
    slice="vgpu",
)

# A model server reports no pod: the labels are those of the target. One pod may run several processes (instance), each
# with several models and engines. Jobs that scrape it twice, and ranks that share an engine, are not distinguished.
_OF_TARGET = (Layout("namespace", "pod", 'namespace!="",pod!=""'),)
MODEL_SERVER = Reporter("model server", _OF_TARGET, "instance, model_name, engine, dp_rank", "model_servers")
TRITON = Reporter("model server", _OF_TARGET, "instance, model, version", "model_servers")
_SERVER = "namespace, pod, instance"


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
    formula:  PromQL that replaces the series; `$rows` stands for the matchers of a layout. Any of the series shows
              that a part exists.
    """

    reporter: Reporter
    series: tuple[str, ...]
    limit: float
    full: int | None = None
    scale: int = 1
    total: Literal["avg", "sum"] = "avg"
    matchers: str = ""
    formula: str = ""

    def per_part(self, frozen: str = "") -> str:
        """PromQL: one series for each part of a pod; NaN for a part with an impossible value.

        Values of several exporters or jobs count once, as the largest.
        frozen: recorded series of exporters that repeat old values of a GPU.
        """
        parts = _aggregate(
            f"max by (namespace, pod, {self._labels})",
            "\nor\n".join(self._named(layout, frozen) for layout in self.reporter.layouts),
        )
        if self.full is not None:
            parts = f"clamp_max (\n{indent(parts, '  ')},\n  {self.full}\n)"
        return parts if self.scale == 1 else f"{self.scale} * {parts}"

    @property
    def _labels(self) -> str:
        return ", ".join(filter(None, (self.reporter.part, self.reporter.slice)))

    def _named(self, layout: Layout, frozen: str) -> str:
        """The rows of a layout, with the pod in the labels namespace and pod."""
        matchers = ",".join(filter(None, (self.matchers, layout.matchers, f"<{self.reporter.input}>")))
        (first, formula), *others = self._readings()
        rows = self._rows(first, formula, matchers, frozen)
        for series, formula in others:
            # Rows of two series have the same labels, and `or` would use only the first one.
            more = indent(self._rows(series, formula, matchers, frozen), "  ")
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

    def _rows(self, series: str, formula: str, matchers: str, frozen: str) -> str:
        """PromQL: values of the rows; NaN outside of 0..limit, for example for DCGM's blank sentinels, and if frozen.

        If clamped, they would scale to the maximum. If dropped, the other GPUs of the pod would hide this one.
        """
        is_old, names = series not in self.series, self.series if formula else (series,)
        selectors = [f"{in_1x(name) if is_old else name}{{{matchers}}}" for name in names]
        values = Template(formula).substitute(rows=matchers) if formula else selectors[0]
        if "\n" in values:
            values = f"(\n{indent(values, '  ')}\n)"
        moves = f"\nunless on (instance, UUID)\n{frozen}" if frozen else ""
        exists = "\nor\n".join(f"NaN * {selector}" for selector in selectors)
        young = " or ".join(f"timestamp({selector})" for selector in selectors)
        young = f"({young})" if len(selectors) > 1 else young
        believed = f"{values} >= 0 <= {self.limit}{moves}\nor\n{exists}"
        return f"(\n{indent(believed, '  ')}\n)\nand\n{young} > time() - {MAX_AGE_S}"


def per_pod(sources: Iterable[Source], metric: str) -> str:
    """PromQL: one series per namespace and pod, the value of the first source that has one for that pod.

    So each pod's value is of one kind. A pod has no value while one of its parts has none, or while a server that
    reported before does not report now.
    """
    values = "\nor\n".join(_per_pod(source, metric) for source in sources)
    silent = f"({_known(metric)} unless {_reporting(metric)})"
    return f"(\n{indent(values, '  ')}\n)\nunless on (namespace, pod)\n{silent}"


def _per_pod(source: Source, metric: str) -> str:
    parts = f"{source.per_part()}\nand on ({_SERVER})\n{_reporting(metric)}"
    return _aggregate(f"{source.total} by (namespace, pod)", parts) + " >= 0"


def servers(metric: str, series: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Recordings of the model servers, before the metric: those that report it, and those that ever did.

    Prometheus itself records `up` for each target, with the target's labels. So a row with the labels of another pod
    does not count, and a server that has reported is expected to report for as long as its target exists.
    series: names that the metric reads.
    """
    targets = 'up{pod!="",<model_servers>}'
    rows = f'{{__name__=~{quoted("|".join(series))},namespace!="",pod!="",<model_servers>}}'
    reporting, known = _reporting(metric), _known(metric)
    return (
        (reporting, f"group by ({_SERVER}) ({rows})\nand on ({_SERVER})\n({targets} == 1)"),
        (known, f"group by ({_SERVER}) ({targets})\nand on ({_SERVER})\n({reporting} or {known})"),
    )


def _reporting(metric: str) -> str:
    return f"instance:{metric}:reporting"


def _known(metric: str) -> str:
    return f"instance:{metric}:known"


def frozen_exporters(metric: str) -> tuple[str, str]:
    """Recording of exporters that repeat old values, by instance and GPU. A GPU without a counter of energy is not."""
    energy = either("(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{<exporter>}$ago > 0 < 1e16)")
    now, before = (f"max by (instance, UUID) ({energy.replace('$ago', ago)})" for ago in ("", f" offset {_FROZEN}"))
    return f"instance_gpu:{metric}:frozen", f"{now}\n== on (instance, UUID)\n{before}"


# GPUs and MIG instances that containers request, by kube-state-metrics. Each of several is of one container.
_GPUS = '{resource=~"nvidia_com_(gpu|gpu_shared|mig_.+)",<kube_state_metrics>}'
_REQUESTS = f"kube_pod_container_resource_requests{_GPUS}"
_INIT_REQUESTS = f"kube_pod_init_container_resource_requests{_GPUS}"


def _requested(rows: str) -> str:
    return _aggregate("sum by (namespace, pod)", _aggregate("max by (namespace, pod, container, resource)", rows))


def gpus_of_pods(metric: str, *recorded: str) -> tuple[tuple[str, str], ...]:
    """Recordings of the number of GPUs and instances of each pod that have a row, and of the least in a while.

    recorded: series with these rows.
    """
    seen, lasting = (f"namespace_pod:{metric}:gpus{suffix}" for suffix in ("", "_lasting"))
    return (
        (seen, f"count by (namespace, pod) ({' or '.join(recorded)})"),
        (lasting, f"min_over_time({seen}[{_OVERLAP}])"),
    )


def average_of_gpus(values: str, metric: str, *recorded: str) -> str:
    """PromQL: the average over each pod's GPUs, without pods that have a GPU without a value.

    A pod has fewer GPUs than it should have if its containers request more, or if it had more in the last minutes.
    The latter shows claims and sidecars, which kube-state-metrics does not count, unless requests explain all GPUs:
    a pod of a StatefulSet may have had another one before.

    values:   a series per GPU or instance, and per slice of it; NaN if the value is unknown.
    metric:   name of the metric.
    recorded: series with a row for each of these, with a value or NaN.
    """
    average = _aggregate(
        "avg by (namespace, pod)", _aggregate(f"max by (namespace, pod, {DCGM_EXPORTER.part})", values)
    )
    (seen, _query), (lasting, _least) = gpus_of_pods(metric)
    of_any = f"{_REQUESTS}\nor\n{_INIT_REQUESTS}"
    lost = f"""\
(
  max_over_time({lasting}[{_EXPECTED}]) > {seen}
  unless on (namespace, pod)
  {indent(_requested(of_any), "  ").lstrip()} <= {seen}
)"""
    # Excludes series of other GPUs from before a restart of Prometheus.
    old = " or ".join(f"timestamp({series}) < time() - {MAX_AGE_S}" for series in recorded)
    return "\nunless on (namespace, pod)\n".join(
        (f"{average} >= 0", f"{_requested(_REQUESTS)} > {seen}", lost, f"({old})")
    )


def _aggregate(operator: str, operand: str) -> str:
    return f"{operator} (\n{indent(operand, '  ')}\n)"
