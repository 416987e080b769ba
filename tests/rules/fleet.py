"""Series of dcgm-exporter and model servers, as Prometheus stores them, for promtool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TICK_S = 2
LAST_TICK = 8

Labels = dict[str, str]


@dataclass(frozen=True)
class Pod:
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> Pod:
        return cls(*text.split("/"))


@dataclass(frozen=True)
class Exporter:
    """One dcgm-exporter and how it is scraped.

    layout: exported (honorLabels: false), honored (honorLabels: true), bare (a job that adds no target labels) or
            half (a job that adds the namespace only).
    """

    layout: str
    name: str = "dcgm-exporter-x7k2p"
    namespace: str = "monitoring"

    def labels(self, holder: Pod | None, container: str = "main") -> Labels:
        """What Prometheus makes of a row's names, or of their absence, and of its target's."""
        own = {"namespace": holder.namespace, "pod": holder.name, "container": container} if holder else {}
        target = {
            "exported": {"namespace": self.namespace, "pod": self.name, "container": "exporter"},
            "honored": {"namespace": self.namespace, "pod": self.name, "container": "exporter"},
            "half": {"namespace": self.namespace},
            "bare": {},
        }[self.layout]
        if self.layout == "honored":
            return {**target, **own, "instance": self.name}
        moved = {f"exported_{label}" if label in target else label: value for label, value in own.items()}
        # Two exporters may have one instance, where a relabelling makes it the node's name.
        return {**target, **moved, "instance": "node" if self.layout == "exported" else self.name}


@dataclass(frozen=True)
class Device:
    """A whole GPU, or a MIG instance of one."""

    uuid: str
    instance: str = ""

    def labels(self) -> Labels:
        return {"UUID": f"GPU-{self.uuid}", **({"GPU_I_ID": self.instance} if self.instance else {})}


def series(name: str, labels: Mapping[str, str], values: str) -> dict[str, str]:
    """An entry of promtool's input_series."""
    matchers = ", ".join(f'{label}="{value}"' for label, value in labels.items())
    return {"series": f"{name}{{{matchers}}}", "values": values}


def timeline(value: float, first: int = 0, last: int = LAST_TICK) -> str:
    """The value from tick `first` to `last`; after that Prometheus' mark for a series that has ended."""
    number = {"nan": "NaN", "inf": "Inf"}.get(repr(float(value)), repr(value))
    said = ["_"] * first + [number] * (last + 1 - first)
    return " ".join(said + ["stale"] * (last < LAST_TICK))


def expects(metric: str, values: Mapping[Pod, float], tick: int = LAST_TICK) -> dict[str, Any]:
    """An entry of promtool's promql_expr_test: all that the rule has recorded."""
    return {
        "expr": metric,
        "eval_time": f"{tick * TICK_S}s",
        "exp_samples": [
            {"labels": f'{metric}{{namespace="{pod.namespace}", pod="{pod.name}"}}', "value": value}
            for pod, value in values.items()
        ],
    }


def promtool_file(rule_files: Sequence[str], tests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A file for `promtool test rules`. Values may differ in the last bit: the order of a sum is Prometheus' own."""
    return {
        "rule_files": list(rule_files),
        "evaluation_interval": f"{TICK_S}s",
        "fuzzy_compare": True,
        "tests": [{"interval": f"{TICK_S}s", **test} for test in tests],
    }
