"""What a reader asks of a cluster, and what it notes of parts that it cannot read."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import DAEMON_SETS, NODES, KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import PrometheusClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.change_reader import ChangeReader
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.reader import Reader
from fake_cluster import FakeTransport

GET_NODES, GET_DAEMON_SETS = "GET /api/v1/nodes", "GET /apis/apps/v1/daemonsets"
GET_SCALED_OBJECTS = "GET /apis/keda.sh/v1alpha1/scaledobjects"
GPU1 = {"metadata": {"name": "gpu1"}}


def items(*manifests: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {}, "items": list(manifests)}


def failure(status: int) -> ApiError:
    return ApiError(status, {"message": "no"}, GET_NODES)


def test_a_part_that_nobody_asks_for_is_not_read() -> None:
    transport = FakeTransport({GET_NODES: items(GPU1)})
    reader = Reader(KubeClient(transport))
    assert transport.asked == []
    assert reader.nodes == [GPU1]
    assert transport.asked == [GET_NODES]
    assert vars(reader)["nodes"] is reader.nodes


def test_what_was_read_ahead_is_not_read_again() -> None:
    transport = FakeTransport({GET_NODES: items(GPU1), GET_DAEMON_SETS: failure(403)})
    reader = Reader(KubeClient(transport))
    reader.read_ahead([NODES, DAEMON_SETS])
    assert (reader.nodes, reader.daemon_sets) == ([GPU1], ())
    assert sorted(transport.asked) == [GET_NODES, GET_DAEMON_SETS]
    assert list(reader.gaps.unavailable) == list(reader.gaps.denied) == ["daemon_sets"]


def test_kinds_are_discovered_once() -> None:
    transport = FakeTransport({"GET /apis/apps/v1": {"resources": []}})
    reader = Reader(KubeClient(transport))
    assert [reader.kube.discover("apps/v1") for _look in range(2)] == [{}, {}]
    assert transport.asked == ["GET /apis/apps/v1"]


def test_a_server_that_does_not_answer_is_not_asked_for_more() -> None:
    transport = FakeTransport({GET_NODES: failure(0)})
    with pytest.raises(ApiError):
        Reader(KubeClient(transport)).read_ahead([NODES])
    assert transport.asked == [GET_NODES]


@pytest.mark.parametrize(
    ("status", "is_strict", "is_raised"),
    [
        (403, False, False),
        (500, False, False),
        (0, False, True),
        (403, True, False),
        (500, True, True),
        (0, True, True),
    ],
)
def test_only_what_may_be_left_out_is_noted(status: int, is_strict: bool, is_raised: bool) -> None:
    """Before a change what could not be read may be in the way, unless there is no right to it."""
    reader = Reader(KubeClient(FakeTransport({GET_NODES: failure(status)})), is_strict=is_strict)
    if is_raised:
        with pytest.raises(ApiError):
            print(reader.nodes)
    else:
        assert reader.nodes == ()
        assert list(reader.gaps.unavailable) == ["nodes"]
        assert not reader.is_known("nodes")


def test_a_kind_that_is_not_served_is_empty_and_known() -> None:
    reader = Reader(KubeClient(FakeTransport({})), is_strict=True)
    assert not reader.scaled_objects
    assert reader.is_known("scaled_objects")


@pytest.mark.parametrize(("namespaces", "is_known"), [((), False), (("ml",), True)])
def test_a_user_of_one_namespace_reads_what_is_in_reach(namespaces: tuple[str, ...], is_known: bool) -> None:
    mine = {"metadata": {"namespace": "ml", "name": "chat"}}
    in_ml = GET_SCALED_OBJECTS.replace("v1alpha1/", "v1alpha1/namespaces/ml/")
    transport = FakeTransport({GET_SCALED_OBJECTS: failure(403), in_ml: items(mine)})
    reader = Reader(KubeClient(transport), namespaces=namespaces)
    assert reader.is_known("scaled_objects") is is_known
    assert list(reader.scaled_objects) == ([mine] if is_known else [])


def test_the_hpas_before_a_change_have_to_be_known() -> None:
    """An HPA that is not seen would leave its rule without a user, and the rule would be removed."""
    hpas = "GET /apis/autoscaling/v2/horizontalpodautoscalers"
    transport = FakeTransport({hpas: failure(403)})
    kube = KubeClient(transport)
    prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service="prometheus", port=9090)
    nobody: list[Autoscaler] = []
    with pytest.raises(ApiError):
        print(ChangeReader(kube, prometheus, nobody, "monitoring").existing)
    assert transport.asked[-1] == hpas
    assert len(transport.asked) == 2
