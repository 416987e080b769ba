# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Inputs of the signal: what reports the series that rules read, and which of its scrape targets count.

A rule contains `<input>` among the matchers of each series of an input. `with_selectors` replaces it by the labels of
the input's targets, in each rule that is made. Rows of other jobs and clusters then count nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .dcgm_fields import ENGINE_ACTIVE, GPU_UTIL, any_of
from .promql import equal, one_of

# Labels of the scrape targets: each with a value, or with several of which one must match.
Labels = Mapping[str, Any]
Selectors = Mapping[str, Labels]

# Labels by which a Prometheus with several clusters distinguishes them.
_OF_CLUSTER = ("cluster", "cluster_name", "cluster_id", "k8s_cluster", "k8s_cluster_name")
_OF_JOB = ("job", *_OF_CLUSTER)


@dataclass(frozen=True)
class Input:
    """What reports series that rules read.

    title:  name in messages.
    series: regular expression of series by which its targets are found.
    by:     labels that distinguish its targets from those of others.
    """

    title: str
    series: str
    by: tuple[str, ...] = _OF_JOB

    @property
    def candidates_query(self) -> str:
        """PromQL: one series for each set of labels that its targets could be selected by."""
        return f'group by ({", ".join(self.by)}) ({{__name__=~"{self.series}"}})'


INPUTS: Mapping[str, Input] = {
    "exporter": Input("GPUs", any_of((GPU_UTIL, ENGINE_ACTIVE))),
    "kube_state_metrics": Input("states of pods", "kube_pod_owner|kube_pod_container_resource_requests"),
    # Each team scrapes its own, in jobs of any name. A row counts for the pod whose target Prometheus scraped: `up`.
    "model_servers": Input(
        "model servers",
        "vllm:num_requests_running|sglang:num_running_reqs|tgi_queue_size|trtllm_num_requests_running|"
        "nv_trt_llm_request_metrics|nv_inference_pending_request_count|num_requests_running|"
        "llamacpp:requests_processing",
        _OF_CLUSTER,
    ),
    "istio": Input("requests", "istio_requests_total"),
    "envoy_gateway": Input("requests", "envoy_cluster_upstream_rq"),
    "ingress_nginx": Input("requests", "nginx_ingress_controller_requests"),
    "traefik": Input("requests", "traefik_service_requests_total"),
}
_PLACE = re.compile(rf"(?P<comma>,?)<(?P<input>{'|'.join(INPUTS)})>")


def read_by(promql: str) -> set[str]:
    """Inputs that the PromQL of a rule reads."""
    return {place["input"] for place in _PLACE.finditer(promql)}


def with_selectors(promql: str, selectors: Selectors) -> str:
    """PromQL that reads only the selected targets of each input; all of an input that is not in `selectors`."""

    def matchers(place: re.Match[str]) -> str:
        found = matchers_of(selectors.get(place["input"], {}))
        return found and place["comma"] + found

    return _PLACE.sub(matchers, promql)


def matchers_of(labels: Labels) -> str:
    """Matchers without braces; empty for no labels."""
    return ",".join(
        equal({label: value}) if isinstance(value, str) else one_of(label, value) for label, value in labels.items()
    )


def as_labels(noted: Any) -> dict[str, str | list[str]]:
    """Labels as an annotation has them; empty if it was edited."""
    if not isinstance(noted, dict):
        return {}
    return {
        str(label): list(map(str, value)) if isinstance(value, list) else str(value) for label, value in noted.items()
    }


def select(labels: Labels, row: Mapping[str, str]) -> bool:
    """Whether the labels select a target. row: its labels."""
    return all(row.get(label, "") in ([value] if isinstance(value, str) else value) for label, value in labels.items())
