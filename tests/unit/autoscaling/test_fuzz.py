"""Whatever options are: the collection's own error, or objects that the API server accepts.

`make fuzz` takes 20,000 lists of them, a run of the other tests 500. tests/integration asks a real API server.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.filter.gpu_autoscaler_manifests import gpu_autoscaler_manifests
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import _OWN_TEXTS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import read_keys
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from autoscaler_specs import INT32, NO_TEXT, WRONG, right, some_wrong
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("FUZZ", "500"))
many = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
VERDICTS = ("accepted", "rejected")
DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
QUANTITY = re.compile(r"[0-9]+m?")


def objections(manifest: dict[str, Any]) -> Iterator[str]:
    """What an API server says. Source: kubernetes pkg/apis/autoscaling/validation and apimachinery's validation."""
    metadata = manifest["metadata"]
    if not DNS.fullmatch(metadata["name"]) or len(metadata["name"]) > 253:
        yield f"name {metadata['name']!r}"
    if not DNS.fullmatch(metadata["namespace"]) or len(metadata["namespace"]) > 63 or "." in metadata["namespace"]:
        yield f"namespace {metadata['namespace']!r}"
    for value in metadata["labels"].values():
        if not LABEL.fullmatch(value) or len(value) > 63:
            yield f"label {value!r}"
    if manifest["kind"] == "HorizontalPodAutoscaler":
        yield from hpa_objections(manifest["spec"])


def hpa_objections(spec: dict[str, Any]) -> Iterator[str]:
    if not 1 <= spec["minReplicas"] <= spec["maxReplicas"] <= INT32:
        yield f"replicas {spec['minReplicas']} to {spec['maxReplicas']}"
    for rules in spec["behavior"].values():
        if not 0 <= rules["stabilizationWindowSeconds"] <= 3600:
            yield f"window {rules['stabilizationWindowSeconds']}"
        if not QUANTITY.fullmatch(rules.get("tolerance", "0")):
            yield f"tolerance {rules['tolerance']}"
        for policy in rules["policies"]:
            if not (0 < policy["value"] <= INT32 and 0 < policy["periodSeconds"] <= 1800):
                yield f"policy {policy}"
            if {type(policy["value"]), type(policy["periodSeconds"])} != {int}:
                yield f"types of policy {policy}"
    for entry in spec["metrics"]:
        section = entry[entry["type"][0].lower() + entry["type"][1:]]
        if not any(section["target"].get(kind) for kind in ("value", "averageValue", "averageUtilization")):
            yield f"target {section['target']}"


def judge(specs: Any) -> str:
    try:
        made = gpu_autoscaler_manifests(specs)
    except AnsibleFilterError as err:
        str(err).encode()
        return "rejected" if str(err).startswith("autoscaler spec: ") else str(err)
    json.dumps(made, allow_nan=False, ensure_ascii=False).encode()
    assert [said for manifest in made for said in objections(manifest)] == []
    return "accepted"


@many
@given(st.lists(some_wrong(), max_size=2))
def test_nothing_but_the_collections_own_error(specs: list[Any]) -> None:
    verdict = judge(specs)
    event(verdict)
    assert verdict in VERDICTS


@many
@given(st.lists(right(), min_size=1, max_size=1))
def test_what_each_option_may_be(specs: list[Any]) -> None:
    verdict = judge(specs)
    event(verdict)
    assert verdict in VERDICTS


@many
@given(st.sampled_from(sorted(_OWN_TEXTS)), NO_TEXT)
def test_a_text_of_a_metric_is_text(option: str, value: Any) -> None:
    metric = {"name": "queue", "query": "max(x)", option: value}
    assert judge([{"target": {"name": "chat"}, "max_replicas": 2, "metric": metric}]) == "rejected"


@many
@given(NO_TEXT)
def test_a_label_of_a_metric_is_text(value: Any) -> None:
    metric = {"name": "lag", "selector": {"topic": value}}
    assert judge([{"target": {"name": "chat"}, "max_replicas": 2, "metric": metric}]) == "rejected"


@settings(many, max_examples=max(EXAMPLES // 10, 50))
@given(WRONG)
def test_whatever_is_given_for_the_list(specs: Any) -> None:
    verdict = judge(specs)
    event(verdict)
    assert verdict in VERDICTS


@settings(many, max_examples=max(EXAMPLES // 10, 50))
@given(st.lists(some_wrong(), max_size=2))
def test_whatever_is_to_go(specs: list[Any]) -> None:
    try:
        keys = read_keys(specs)
    except HopError:
        return
    assert all(DNS.fullmatch(name) for key in keys for name in key)


def test_an_objection_is_one() -> None:
    """The judge of this test objects to what the API server has rejected."""
    (_rule, hpa) = gpu_autoscaler_manifests([{"target": {"name": "chat"}, "max_replicas": 2}])
    assert list(objections(hpa)) == []
    hpa["spec"]["behavior"]["scaleUp"]["policies"][0]["value"] = 0
    hpa["metadata"]["name"] = "Chat"
    assert len(list(objections(hpa))) == 2
