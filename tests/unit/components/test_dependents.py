"""What serves the metrics of others' HPAs is not removed unnamed."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.dependents import lost_metrics
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import marked

CUSTOM, EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"
ROLES = ("prometheus_adapter", "keda", "prometheus_stack", "dcgm_exporter", "gpu_operator", "metrics_server")


def hpa(kind: str = "Pods", inventory: str = "", owner: str = "") -> dict[str, Any]:
    owners = [{"kind": "ScaledObject", "name": owner}] if owner else []
    metadata = {"namespace": "ml", "name": "chat", "ownerReferences": owners}
    made = {"metadata": metadata, "spec": {"metrics": [{"type": kind}]}}
    return marked(made, inventory) if inventory else made


def components(*owned: str) -> dict[str, Any]:
    return {
        "prometheus": [{"owned": "prometheus" in owned}],
        "exporter": [{"owned": "exporter" in owned}],
        "gpu_operator": [{"owned": "operator" in owned}],
        "metrics_apis": {
            CUSTOM: {"owned": CUSTOM in owned, "is_adapter": True},
            EXTERNAL: {"owned": EXTERNAL in owned, "is_adapter": False},
            "metrics.k8s.io": {"owned": "metrics.k8s.io" in owned, "is_adapter": False},
        },
    }


@pytest.mark.parametrize(
    ("found", "owned", "roles", "words"),
    [
        (hpa(), (CUSTOM,), ROLES, "ml/chat (not of this collection)"),
        (hpa("Object"), (CUSTOM,), ROLES, "-e prometheus_adapter_state=existing"),
        (hpa("External"), (EXTERNAL,), ROLES, "-e keda_state=existing"),
        (hpa("External"), (CUSTOM,), ROLES, ""),
        (hpa("Resource"), (CUSTOM, EXTERNAL, "prometheus", "exporter"), ROLES, ""),
        (hpa("Resource"), ("metrics.k8s.io",), ROLES, "-e metrics_server_state=existing"),
        (hpa("ContainerResource"), ("metrics.k8s.io",), ROLES, "ml/chat (not of this collection)"),
        (hpa("Resource", "theirs"), ("prometheus",), ROLES, ""),
        (hpa(inventory="theirs"), ("operator",), ROLES, "-e gpu_operator_state=existing"),
        (hpa("External", owner="chat"), (EXTERNAL,), ROLES, "ml/chat (of ScaledObject chat, not of this collection)"),
        (hpa(inventory="mine"), (CUSTOM, "prometheus", "exporter"), ROLES, ""),
        (hpa(inventory="theirs"), ("prometheus",), ROLES, "ml/chat (inventory theirs)"),
        (hpa(inventory="theirs"), ("exporter",), ROLES, "-e dcgm_exporter_state=existing"),
        (hpa(), ("prometheus", "exporter"), ROLES, ""),  # its metric can come from anywhere
        (hpa(inventory="theirs"), ("prometheus",), ("prometheus_adapter",), ""),
        (hpa(), (CUSTOM,), (), ""),
    ],
)
def test_hpas_of_others_that_lose_their_metrics_are_named(
    found: dict[str, Any], owned: tuple[str, ...], roles: tuple[str, ...], words: str
) -> None:
    error = lost_metrics([found], components(*owned), roles, "mine", "cluster prod -> metrics")
    assert words in error
    assert bool(words) is bool(error)
