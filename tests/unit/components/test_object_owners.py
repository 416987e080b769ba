"""Which objects a role owns, and which names are taken."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.object_owners import kind_and_name, owned

LABELS = {"managed-by": "kubegpu", "part-of": "sample"}


def made(kind: str, name: str, **labels: str) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, "labels": labels}}


OURS, OLD = made("Deployment", "sample", more="x", **LABELS), made("ConfigMap", "scripts-1", **LABELS)
THEIRS, PART = made("Service", "sample"), made("Service", "sample", **{"managed-by": "kubegpu"})


@pytest.mark.parametrize("foreign", [THEIRS, PART])
def test_objects_are_sorted_by_all_labels(foreign: dict[str, Any]) -> None:
    found = owned([OURS, OLD, foreign, made("Pod", "other")], LABELS, ["Deployment sample", "Service sample"])
    assert list(map(kind_and_name, found.found)) == ["Deployment sample", "ConfigMap scripts-1"]
    assert list(map(kind_and_name, found.left)) == ["ConfigMap scripts-1"]
    assert found.foreign == ("Service sample",)


def test_all_that_is_owned_is_left_where_nothing_is_wanted() -> None:
    found = owned([OURS, OLD, THEIRS], LABELS, [])
    assert (found.left, found.foreign) == (found.found, ())
    assert len(found.found) == 2
