from __future__ import annotations

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.objects import pod_spec, seconds


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        ("15s", 15),
        ("1m30s", 90),
        ("500ms", 0.5),
        ("1.5h", 5400),
        ("1d", 86400),
        (15, 15),
        ("", None),
        (None, None),
        ("soon", None),
        ("15", None),
        ("15s later", None),
    ],
)
def test_a_duration_as_prometheus_and_go_write_it(duration: str | float | None, expected: float | None) -> None:
    assert seconds(duration) == expected


def test_the_pods_of_each_shape_of_workload() -> None:
    pod = {"containers": []}
    assert pod_spec({"spec": {"template": {"spec": pod}}}) == pod
    assert pod_spec({"spec": {"leaderWorkerTemplate": {"workerTemplate": {"spec": pod}}}}) == pod
    assert pod_spec({"spec": {"strange": True}}) == pod_spec({}) == {}
