from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from lanes import BESIDE


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What wants to be alone comes last, when the other steps of `make test` are over or nearly so."""
    items.sort(key=lambda item: "alone" in getattr(item, "fixturenames", ()))


@pytest.fixture
def alone() -> Iterator[None]:
    """No other step of `make test` runs, and none begins, see tests/lanes.py."""
    beside = os.environ.get(BESIDE)
    with Path(beside or os.devnull).open() as handle:
        if beside:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
