"""A proof that shows everything, and what a run may lack, by the requirement that is then not shown."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

Change = Callable[[dict[str, Any]], Any]

AT = "2026-11-28T17:00:00+00:00"
NODE = {"node": "gpu1", "status": "proven", "reason": "new", "text": "", "gpus": 8, "pods": 2, "of": 8}
FIELDS = {"DCGM_FI_DEV_GPU_UTIL": 8, "DCGM_FI_DEV_FB_USED": 8, "DCGM_FI_DEV_GPU_TEMP": 8, "DCGM_FI_DEV_XID_ERRORS": 3}
SERIES = {name: {"gpu1": gpus} for name, gpus in FIELDS.items()}
DECISION = {"before": 1, "after": 2, "dry": False, "value": 100.0, "target_value": 50, "seconds": 6.1}
DECISION |= {"down_s": 7.2, "ready": 2, "left": 1}
PROOF: dict[str, Any] = {
    "generated_at": AT,
    "seconds": 61.4,
    "proven_now": True,
    "gpu_nodes": ["gpu1"],
    "adds_nodes": False,
    "nodes": [{**NODE, "unrequested": "denied", "is_shared": False}],
    "chain": {
        "status": "proven",
        "reason": "new",
        "decision": DECISION,
        "metrics": {"series": SERIES, "served": 14.0, "unscraped": ""},
    },
}


def node(**more: Any) -> Change:
    return lambda proof: proof["nodes"][0].update(more)


def chain(**more: Any) -> Change:
    return lambda proof: proof["chain"].update(more)


def metrics(**more: Any) -> Change:
    return lambda proof: proof["chain"]["metrics"].update(more)


def add_node(proof: dict[str, Any]) -> None:
    """Another proven one, of which Prometheus has nothing."""
    proof["gpu_nodes"].append("gpu2")
    proof["nodes"].append({**proof["nodes"][0], "node": "gpu2"})


TAKEN_AWAY: dict[str, list[tuple[Change, str]]] = {
    "secure_accelerator_access": [
        (node(unrequested="visible"), "failure"),
        (node(unrequested=""), "skipped"),
        (node(status="failed"), "skipped"),
        (node(status="kept"), "skipped"),
        (node(status="waiting"), "skipped"),
        (node(pods=1), "skipped"),  # GPUs of an earlier run count in `gpus`
        (node(is_shared=True), "skipped"),
        (lambda proof: proof["nodes"].clear(), "skipped"),
        (lambda proof: proof["nodes"][0].update(node="gpu2"), "skipped"),
        (lambda proof: proof["gpu_nodes"].append("gpu2"), "skipped"),
    ],
    "pod_autoscaling": [
        (chain(status="failed"), "skipped"),
        (chain(status="waiting"), "skipped"),
        (chain(status="kept"), "skipped"),
        (chain(decision={**DECISION, "down_s": None}), "failure"),
        (chain(decision={**DECISION, "dry": True}), "skipped"),
        *((chain(decision={**DECISION, "ready": ready}), "skipped") for ready in (0, 1)),
        *((chain(decision={**DECISION, "left": left}), "skipped") for left in (0, 2)),
    ],
    "accelerator_metrics": [
        (chain(metrics={}), "skipped"),
        (chain(metrics={"unread": "503"}), "skipped"),
        (lambda proof: proof["gpu_nodes"].append("gpu2"), "skipped"),
        (metrics(series={}), "skipped"),
        (metrics(series={name: {"gpu1": 7} for name in SERIES}), "failure"),
        (metrics(series={name: {"gpu2": 8} for name in SERIES}), "failure"),
        (node(of=9), "failure"),
        (node(is_shared=True), "skipped"),
        (node(status="waiting"), "skipped"),
        (add_node, "failure"),
        *(
            (metrics(series={kept: gpus for kept, gpus in SERIES.items() if kept != name}), "failure")
            for name in ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED")
        ),
    ],
    "ai_service_metrics": [
        (chain(metrics={}), "skipped"),
        (chain(metrics={"unread": "503"}), "skipped"),
        (metrics(served=0.0), "failure"),
        (metrics(served=0.0, unscraped="no PodMonitor is served"), "skipped"),
    ],
}


def changed(change: Change) -> dict[str, Any]:
    proof = deepcopy(PROOF)
    change(proof)
    return proof
