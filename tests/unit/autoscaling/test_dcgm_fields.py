"""One field of DCGM under two names."""

from __future__ import annotations

import re

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.dcgm_fields import (
    ANY_FIELD,
    NAMES_IN_1X,
    any_of,
    either,
    in_1x,
    in_todays,
    is_field,
    reads_fields,
)
from collection import ROOT

RECIPE = (
    "avg(max by(node, pod, namespace) (dcgm_gpu_utilization)"
    ' * on(pod) group_left(label_app) max by(pod, label_app) (kube_pod_labels{label_app="cuda-test"}))'
)


def test_each_name_of_1x_is_of_one_field() -> None:
    assert len(set(NAMES_IN_1X.values())) == len(NAMES_IN_1X)
    assert all(in_todays(in_1x(field)) == field for field in NAMES_IN_1X)


def test_promql_is_written_in_either_names() -> None:
    todays = RECIPE.replace("dcgm_gpu_utilization", "DCGM_FI_DEV_GPU_UTIL")
    assert (in_1x(todays), in_todays(RECIPE)) == (RECIPE, todays)
    assert either("DCGM_FI_DEV_GPU_TEMP") == "(DCGM_FI_DEV_GPU_TEMP or dcgm_gpu_temp)"
    assert any_of(["DCGM_FI_DEV_GPU_TEMP", "vllm:x"]) == "DCGM_FI_DEV_GPU_TEMP|vllm:x|dcgm_gpu_temp"


def test_a_field_without_a_name_in_1x_keeps_its_name() -> None:
    assert in_1x("DCGM_FI_DEV_FB_RESERVED") == either("DCGM_FI_DEV_FB_RESERVED") == "DCGM_FI_DEV_FB_RESERVED"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dcgm_gpu_utilization", True),
        ("DCGM_FI_DEV_GPU_UTIL", True),
        ("DCGM_FI_DEV_FB_RESERVED", True),
        ("cuda_test_gpu_avg", False),
        ("my_dcgm_gpu_temp", False),
        ("dcgm_exporter_build_info", False),
    ],
)
def test_a_name_is_a_field_or_not(name: str, expected: bool) -> None:
    assert is_field(name) is reads_fields(f"sum({name})") is expected


@pytest.mark.parametrize("name", ["chain", "records"])
def test_rules_of_alerts_and_dashboards_read_each_field_by_both_names(name: str) -> None:
    text = (ROOT / "roles" / "gpu_alerts" / "files" / f"{name}.yml").read_text()
    selected = re.findall(rf"\b{ANY_FIELD}\b(?:{{[^}}]*}})?", text)
    old = {selector for selector in selected if not selector.startswith("DCGM_")}
    todays = {selector for selector in selected if selector.startswith("DCGM_")}
    assert old == {in_1x(selector) for selector in todays if in_1x(selector) != selector}
    assert {selector: selected.count(selector) for selector in old} == {
        in_1x(selector): selected.count(selector) for selector in todays if in_1x(selector) != selector
    }
