# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent

# One value for each of these: a whole GPU has no GPU_I_ID, a MIG instance carries its parent's UUID.
_DEVICE = "UUID, GPU_I_ID"


@dataclass(frozen=True)
class Source:
    """A metric of dcgm-exporter that says how busy one GPU is.

    scale: what turns a value into percent.
    """

    series: str
    scale: int = 1


@dataclass(frozen=True)
class Layout:
    """Where one way of scraping dcgm-exporter leaves the names of the pod that holds the GPU.

    matchers: what selects the rows of this layout only, without those of GPUs that no pod holds.
    """

    namespace: str
    pod: str
    matchers: str


LAYOUTS = (
    # A ServiceMonitor or PodMonitor with honorLabels: false.
    Layout("exported_namespace", "exported_pod", 'exported_namespace!="",exported_pod!=""'),
    # honorLabels: true, where the row of an idle GPU names the exporter's own pod; or a job that adds neither label.
    Layout(
        "namespace",
        "pod",
        'exported_namespace="",exported_pod="",namespace!="",pod!="",pod!~"(.+-)?dcgm-exporter(-.+)?"',
    ),
    # A job that adds the namespace of its target, but not the pod.
    Layout("exported_namespace", "pod", 'exported_namespace!="",exported_pod="",pod!=""'),
)


def percent_per_pod(source: Source) -> str:
    """PromQL: how busy the GPUs of each pod are, one series per namespace and pod, percent.

    Values outside 0..100, so DCGM's blank sentinels, and NaN are left out: clamped, they would scale to the maximum.
    A GPU that two exporters report counts once. A pod's value is the average over its GPUs.
    """
    rows = "\nor\n".join(_rows(source, layout) for layout in LAYOUTS)
    return _aggregate("avg by (namespace, pod)", _aggregate(f"max by (namespace, pod, {_DEVICE})", rows))


def first_of(expressions: list[str]) -> str:
    """PromQL: for each label set the value of the first expression that has one."""
    return "\nor\n".join(expressions)


def _rows(source: Source, layout: Layout) -> str:
    factor = "" if source.scale == 1 else f"{source.scale} * "
    # Aggregated before renaming: two exporters' rows of one GPU would otherwise become the same label set, an error.
    rows = _aggregate(
        f"max by ({layout.namespace}, {layout.pod}, {_DEVICE})",
        f"{factor}{source.series}{{{layout.matchers}}} >= 0 <= 100",
    )
    for label, origin in (("namespace", layout.namespace), ("pod", layout.pod)):
        if origin != label:
            rows = f'label_replace(\n{indent(rows, "  ")},\n  "{label}", "$1", "{origin}", "(.+)"\n)'
    return rows


def _aggregate(operator: str, operand: str) -> str:
    return f"{operator} (\n{indent(operand, '  ')}\n)"
