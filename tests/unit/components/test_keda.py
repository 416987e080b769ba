"""KEDA is not removed while objects depend on it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.filter.roles import keda_dependents
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import marked

LEAVING = {"deletionTimestamp": "2026-11-27T00:00:00Z"}


def scaled(kind: str = "ScaledObject", name: str = "chat", **metadata: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"namespace": "ml", "name": name, **metadata}}


OURS = marked(scaled(), "default")


@pytest.mark.parametrize(
    ("objects", "preview", "leaving", "words"),
    [
        ([[], []], False, False, ""),
        ([[scaled()], [scaled("ScaledJob", "batch")]], False, False, "ScaledObject ml/chat, ScaledJob ml/batch. Helm"),
        ([[scaled(**LEAVING)], []], False, True, "the deletion of ScaledObject ml/chat waits for KEDA's operator"),
        ([[scaled(**LEAVING), scaled(name="other")], []], False, False, "KEDA serves ScaledObject ml/other. Helm"),
        ([[OURS], []], False, False, "KEDA serves ScaledObject ml/chat. Helm"),
        ([[OURS], []], True, False, ""),
        ([[OURS], [scaled("ScaledJob")]], True, False, "KEDA serves ScaledJob ml/chat. Helm"),
    ],
)
def test_objects_that_helm_would_delete_are_named(
    objects: list[list[dict[str, Any]]], preview: bool, leaving: bool, words: str
) -> None:
    found = keda_dependents(objects, "prod", "default", preview)
    assert found["leaving"] is leaving
    if words:
        assert found["error"].startswith("cluster prod -> keda: ")
        assert words in found["error"]
        assert "Nothing was changed. Next: " in found["error"]
    else:
        assert found["error"] == ""
