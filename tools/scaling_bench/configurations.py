"""What is compared, as configurations.yml and recipes.yml have it, and the objects that each workload of it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template
from typing import Any

import yaml

from plugins.module_utils.autoscaling.scaling_rules import dead_time_s

NAMESPACE = "bench"
MINIMUM, MAXIMUM, TARGET_PERCENT = 1, 8, 60.0
OUR_INTERVALS = (1, 2)  # collect, scrape
# From a decision until a pod runs and is ready, when its program takes no time: what the lab showed on a quiet machine.
LEAST_START_S = 3.0
PLAYER = {"kubegpu.autoscale/bench": "player"}
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Exporter:
    """One of its own: how often it reads the GPUs and is read, seconds."""

    collect_s: int
    scrape_s: int
    honor_labels: bool = False


@dataclass(frozen=True)
class Configuration:
    """One way to scale. The fields are those of configurations.yml, a recipe's rule and metric in place of its name."""

    name: str
    title: str
    words: str
    evaluate_s: int = 0
    window_s: int = 0
    exporter: Exporter | None = None
    rule: Mapping[str, Any] | None = None
    metric: Mapping[str, Any] | None = None
    autoscaler: Mapping[str, Any] | None = None
    recorded: str = ""

    @property
    def is_ours(self) -> bool:
        return self.autoscaler is not None

    def workloads(self, lanes: int, maximum: int = MAXIMUM) -> list[Workload]:
        return [Workload(self, lane, maximum) for lane in range(1, lanes + 1)]


def of_a_small_fleet(configuration: Configuration) -> Configuration:
    """With the rules' period that this collection selects there; those of others keep their own."""
    return replace(configuration, evaluate_s=1) if configuration.is_ours else configuration


def our_dead_time_s(configuration: Configuration, pod_start_s: float) -> int:
    """What gpu_autoscaler would measure on a cluster without the recipes."""
    return dead_time_s(LEAST_START_S + pod_start_s, sum(OUR_INTERVALS) + configuration.evaluate_s)


@dataclass(frozen=True)
class Workload:
    """A Deployment with its HPA, one of several alike."""

    configuration: Configuration
    lane: int
    maximum: int = MAXIMUM

    @property
    def name(self) -> str:
        return f"{self.configuration.name}{self.lane}"

    def filled(self, thing: Any) -> Any:
        return filled(thing, namespace=NAMESPACE, name=self.name)

    @property
    def scraped(self) -> str:
        """Selector of the utilisation of its pods, whichever exporter it is from."""
        exporter = self.configuration.exporter
        label = "pod" if exporter is None or exporter.honor_labels else "exported_pod"
        return f'DCGM_FI_DEV_GPU_UTIL{{{label}=~"{self.name}-.+"}}'

    @property
    def recorded(self) -> str:
        return self.filled(self.configuration.recorded)

    def autoscaler(self, pod_start_s: float) -> dict[str, Any] | None:
        """Options of gpu_autoscaler; None if this is not ours."""
        if self.configuration.autoscaler is None:
            return None
        told = {"namespace": NAMESPACE, "target": {"name": self.name}, "metric": "gpu", "target_value": TARGET_PERCENT}
        told |= {"min_replicas": MINIMUM, "max_replicas": self.maximum}
        # Not measured: the slowest exporter of a cluster counts, and the recipes' are slow.
        told["dead_time_seconds"] = our_dead_time_s(self.configuration, pod_start_s)
        return told | self.filled(dict(self.configuration.autoscaler))

    def service(self) -> dict[str, Any]:
        """By its EndpointSlices the balancer knows the ready pods."""
        ports = [{"name": "http", "port": 8000}]
        return _object("v1", "Service", self.name, {"selector": {"app": self.name}, "ports": ports}, PLAYER)

    def hpa(self) -> dict[str, Any]:
        """As somebody writes it who has no gpu_autoscaler."""
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": self.name}
        spec = {"scaleTargetRef": target, "minReplicas": MINIMUM, "maxReplicas": self.maximum}
        spec["metrics"] = [self.filled(self.configuration.metric)]
        return _object("autoscaling/v2", "HorizontalPodAutoscaler", self.name, spec)

    def measured_by(self) -> list[dict[str, Any]]:
        """Service and ServiceMonitor of its exporter, for its own pods alone, and its recording rule."""
        made, exporter = [], self.configuration.exporter
        if exporter:
            name, app = f"exporter-{self.name}", f"exporter-{self.configuration.name}"
            labels = {"exporter": self.name}
            ports = [{"name": "metrics", "port": 9400}]
            made.append(_object("v1", "Service", name, {"selector": {"app": app}, "ports": ports}, labels))
            pod = "pod" if exporter.honor_labels else "exported_pod"
            endpoint = {
                "port": "metrics",
                "interval": f"{exporter.scrape_s}s",
                "scrapeTimeout": f"{min(exporter.scrape_s, 10)}s",
                "honorLabels": exporter.honor_labels,
                "metricRelabelings": [{"sourceLabels": [pod], "regex": f"{self.name}-.+", "action": "keep"}],
            }
            spec = {"selector": {"matchLabels": labels}, "endpoints": [endpoint]}
            made.append(_object("monitoring.coreos.com/v1", "ServiceMonitor", name, spec))
        if self.configuration.rule:
            group = {"name": self.name, "rules": [self.filled(self.configuration.rule)]}
            made.append(_object("monitoring.coreos.com/v1", "PrometheusRule", self.name, {"groups": [group]}))
        return made


def _object(
    api_version: str, kind: str, name: str, spec: dict[str, Any], labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": NAMESPACE}
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def filled(thing: Any, **values: str) -> Any:
    """With `$namespace` and the like replaced, wherever in it they are."""
    if isinstance(thing, Mapping):
        return {key: filled(value, **values) for key, value in thing.items()}
    if isinstance(thing, list):
        return [filled(value, **values) for value in thing]
    return Template(thing).substitute(values) if isinstance(thing, str) else thing


@dataclass(frozen=True)
class Recipes:
    """recipes.yml: rules of the adapter by name; by name of a recipe its `metric` and `rule`."""

    adapter_rules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    recipes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read_recipes() -> Recipes:
    return Recipes(**yaml.safe_load((_HERE / "recipes.yml").read_text()))


def read_configurations() -> dict[str, Configuration]:
    """By name, a to f."""
    recipes = read_recipes().recipes
    found = {}
    for name, row in yaml.safe_load((_HERE / "configurations.yml").read_text()).items():
        recipe = recipes[row.pop("recipe")] if "recipe" in row else {}
        exporter = Exporter(**row.pop("exporter")) if "exporter" in row else None
        found[name] = Configuration(name=name, exporter=exporter, **{**recipe, **row})
    return found
