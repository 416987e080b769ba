"""The control plane of these tests starts, or reports at once why it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from control_plane import ControlPlane, free_port


def test_no_port_is_given_twice() -> None:
    """etcd had one for its clients and for its peers: it ended, and all tests waited for its API server."""
    assert len({free_port() for _time in range(2000)}) == 2000


def test_a_program_that_ends_is_named_at_once(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    plane.run("etcd", "sh", "-c", "echo address already in use; exit 1")
    plane._processes["etcd"].wait()

    with pytest.raises(AssertionError, match="etcd ended: address already in use"):
        plane._is_ready()
