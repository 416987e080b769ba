"""What counts as a change, without asking the server. test_gpu_autoscaler.py asks it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.ownership import is_up_to_date, other_managers

US = "kubegpu.autoscale"

DESIRED: dict[str, Any] = {
    "metadata": {"name": "chat", "labels": {"a": "1"}, "annotations": {"b": "2"}},
    "spec": {
        "maxReplicas": 4,
        "metrics": [{"type": "Pods", "pods": {"target": {"averageValue": "60"}}}],
        "groups": [{"name": "g", "rules": [{"expr": "up"}]}],
        "sets": ["x"],
    },
}
APPLIED = {
    "f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:annotations": {"f:b": {}}},
    "f:spec": {
        "f:maxReplicas": {},
        "f:metrics": {},
        "f:groups": {'k:{"name":"g"}': {".": {}, "f:name": {}, "f:rules": {}}},
        "f:sets": {'v:"x"': {}},
    },
}


def live() -> dict[str, Any]:
    found = deepcopy(DESIRED)
    entry = {"manager": US, "operation": "Apply", "fieldsV1": deepcopy(APPLIED)}
    found["metadata"]["managedFields"] = [entry]
    return found


def settled(found: dict[str, Any]) -> bool:
    return is_up_to_date(found, DESIRED, US)


def test_what_is_as_desired_is_settled() -> None:
    assert settled(live())


TOLERATED = {
    "a default of the server": lambda found: found["spec"].update(minReplicas=1),
    "a default inside a list": lambda found: found["spec"]["metrics"][0]["pods"].update(selector=None),
    "somebody's label": lambda found: found["metadata"]["labels"].update(theirs="x"),
    "the same quantity": lambda found: found["spec"]["metrics"][0]["pods"]["target"].update(averageValue="60000m"),
    "no record of who applied": lambda found: found["metadata"].pop("managedFields"),
    "another's fields": lambda found: found["metadata"]["managedFields"].append(
        {"manager": "other", "operation": "Apply", "fieldsV1": {"f:spec": {"f:else": {}}}}
    ),
    "a record without a manager": lambda found: found["metadata"]["managedFields"].append(
        {"operation": "Apply", "fieldsV1": {"f:spec": {"f:else": {}}}}
    ),
    "an update of ours that was no apply": lambda found: found["metadata"]["managedFields"].append(
        {"manager": US, "operation": "Update", "fieldsV1": {"f:spec": {"f:else": {}}}}
    ),
}


@pytest.mark.parametrize("change", TOLERATED.values(), ids=TOLERATED)
def test_what_does_not_count(change: Any) -> None:
    found = live()
    change(found)
    assert settled(found)


CHANGED = {
    "another value": lambda found: found["spec"].update(maxReplicas=5),
    "another quantity": lambda found: found["spec"]["metrics"][0]["pods"]["target"].update(averageValue="61"),
    "another text": lambda found: found["spec"]["groups"][0]["rules"][0].update(expr="down"),
    "a missing field": lambda found: found["spec"].pop("maxReplicas"),
    "one more in a list": lambda found: found["spec"]["metrics"].append({"type": "Resource"}),
    "a list that is none": lambda found: found["spec"].update(metrics="x"),
    "a map that is none": lambda found: found["spec"]["metrics"][0].update(pods="x"),
    "another label": lambda found: found["metadata"]["labels"].update(a="2"),
    "no labels": lambda found: found["metadata"].pop("labels"),
    "another annotation": lambda found: found["metadata"]["annotations"].update(b="3"),
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_what_counts(change: Any) -> None:
    found = live()
    change(found)
    assert not settled(found)


NO_LONGER_WANTED = {
    "a field": {"f:spec": {"f:minReplicas": {}}},
    "a label": {"f:metadata": {"f:labels": {"f:old": {}}}},
    "an item by its key": {"f:spec": {"f:groups": {'k:{"name":"old"}': {}}}},
    "a field of an item": {"f:spec": {"f:groups": {'k:{"name":"g"}': {"f:interval": {}}}}},
    "a value of a set": {"f:spec": {"f:sets": {'v:"old"': {}}}},
    "an item of what is no list": {"f:spec": {"f:maxReplicas": {'k:{"name":"g"}': {}}}},
}


@pytest.mark.parametrize("fields", NO_LONGER_WANTED.values(), ids=NO_LONGER_WANTED)
def test_what_we_applied_and_no_longer_want_counts(fields: dict[str, Any]) -> None:
    found = live()
    found["metadata"]["managedFields"].append({"manager": US, "operation": "Apply", "fieldsV1": fields})
    assert not settled(found)


def test_others_that_wrote_the_spec() -> None:
    found = live()
    entry = {"operation": "Update", "fieldsV1": {"f:spec": {}}}
    found["metadata"]["managedFields"] += [
        {**entry, "manager": "kubectl"},
        {**entry, "manager": "controller", "fieldsV1": {"f:status": {}}},
        {**entry, "manager": "scaler", "subresource": "scale"},
    ]
    assert other_managers(found, US) == ["kubectl"]
    found["metadata"]["managedFields"].append(entry)
    assert other_managers(found, US) == ["an unknown manager", "kubectl"]
    assert settled(found)
    assert other_managers({"metadata": {}}, US) == []


def test_an_owner_is_a_change_until_it_is_there() -> None:
    """The server adds nothing to a reference but what it says itself."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "load", "uid": "u"}
    owned = {**DESIRED, "metadata": {**DESIRED["metadata"], "ownerReferences": [owner]}}
    found = live()

    assert not is_up_to_date(found, owned, US)
    found["metadata"]["ownerReferences"] = [{**owner, "controller": False}]
    assert is_up_to_date(found, owned, US)
    found["metadata"]["ownerReferences"] = [{**owner, "uid": "another"}]
    assert not is_up_to_date(found, owned, US)
