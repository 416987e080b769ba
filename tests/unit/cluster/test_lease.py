"""A Lease among runs that want it: who has it, who is refused, and what becomes of one that was left behind."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.lease import Lease
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from fake_cluster import refusal

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
PATH = "/apis/coordination.k8s.io/v1/namespaces/monitoring/leases"


class Server:
    """One Lease, with the versions that the API server gives it."""

    def __init__(self) -> None:
        self.now, self.live, self.version = NOON, None, 0
        self.written = Event()

    def __call__(self, method: str, path: str, *, body: Any = None, **_: Any) -> Any:
        if method == "POST":
            if self.live:
                raise refusal(409, "already exists", reason="AlreadyExists")
            return self._write(body)
        if self.live is None:
            raise refusal(404, "not found")
        version = {
            "PUT": lambda: body["metadata"]["resourceVersion"],
            "DELETE": lambda: body["preconditions"]["resourceVersion"],
        }.get(method, lambda: self._version)()
        if version != self._version:
            raise refusal(409, "Precondition failed: the object has been modified", reason="Conflict")
        if method == "PUT":
            return self._write(body)
        found = self.live
        if method == "DELETE":
            self.live = None
        return found

    @property
    def _version(self) -> str:
        return self.live["metadata"]["resourceVersion"] if self.live else ""

    def _write(self, body: Any) -> Any:
        self.version += 1
        metadata = {**body["metadata"], "uid": "1", "resourceVersion": str(self.version)}
        self.live = {**body, "metadata": metadata}
        self.written.set()
        return self.live

    def lease(self, holder: str, **options: Any) -> Lease:
        metadata = {"name": "kubegpu-prom", "namespace": "monitoring"}
        return Lease(KubeClient(self), metadata, holder, lambda: self.now, "release monitoring/prom", **options)

    @property
    def holder(self) -> str:
        return self.live["spec"]["holderIdentity"] if self.live else ""


def test_one_run_has_it_and_leaves_nothing() -> None:
    server = Server()
    with server.lease("a").held():
        assert server.holder == "a"
        with pytest.raises(HopError) as caught:
            server.lease("b").refuse_if_held()
        with pytest.raises(HopError, match="is being changed by a since"), server.lease("b").held():
            pytest.fail("two runs have it")
    assert caught.value.seen == (
        "release monitoring/prom is being changed by a since 2026-11-26T12:00:00.000000Z "
        "(Lease monitoring/kubegpu-prom). Nothing was changed"
    )
    assert "ends at 2026-11-26T12:01:00.000000Z" in caught.value.fix
    assert server.live is None


def test_one_that_was_left_behind_is_taken_when_it_has_ended() -> None:
    server = Server()
    with suppress(KeyError), server.lease("killed").held():
        left = server.live
        raise KeyError
    server.live = left
    server.now += timedelta(seconds=59)
    with pytest.raises(HopError), server.lease("b").held():
        pytest.fail("it was taken too early")
    server.now += timedelta(seconds=1)
    with server.lease("b").held():
        assert server.holder == "b"


def test_of_two_that_take_it_at_once_one_is_refused() -> None:
    """Both have seen that there is none."""
    server = Server()
    first, second = server.lease("a"), server.lease("b")
    second._read = iter([None, {"spec": {"holderIdentity": "a", "renewTime": "2026-11-26T12:00:00Z"}}]).__next__  # type: ignore[method-assign]
    with first.held():
        with pytest.raises(HopError, match="is being changed by a"), second.held():
            pytest.fail("two runs have it")
        assert server.holder == "a"


def test_a_long_change_renews_it() -> None:
    server = Server()
    with server.lease("a", renewed_each_s=0.001).held():
        server.now += timedelta(seconds=59)
        server.written.clear()
        assert server.written.wait(10)
        server.now += timedelta(seconds=59)
        with pytest.raises(HopError):
            server.lease("b").refuse_if_held()
    assert server.live is None


def test_a_run_whose_lease_another_one_has_says_so_and_leaves_it() -> None:
    server = Server()
    lease = server.lease("a", renewed_each_s=0.001)
    read, seen = lease._read, Event()

    def noticed() -> Any:
        found = read()
        if found and found["spec"]["holderIdentity"] == "b":
            seen.set()
        return found

    lease._read = noticed  # type: ignore[method-assign]

    def run() -> None:
        with lease.held():
            server._write({**server.live, "spec": {"holderIdentity": "b"}})  # type: ignore[dict-item]
            assert seen.wait(10)

    with pytest.raises(HopError, match="was changed by another run at the same time"):
        run()
    assert server.holder == "b"


def test_who_may_not_see_leases_changes_nothing() -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise refusal(403, "leases is forbidden")

    server = Server()
    lease = Lease(
        KubeClient(forbidden), {"name": "kubegpu-prom", "namespace": "monitoring"}, "a", lambda: server.now, "x"
    )
    with pytest.raises(ApiError, match="leases is forbidden"), lease.held():
        pytest.fail("it was not refused")
