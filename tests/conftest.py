from __future__ import annotations

from pathlib import Path

import pytest
from collection import install
from hypothesis import settings

install()
# In CI hypothesis takes its profile `ci` by itself: the same examples in each run. A run by hand looks for new ones.
# A machine that is busy is no failure: an example may take as long as it takes, as in CI.
settings.register_profile("default", print_blob=True, deadline=None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is covered is counted in tests/unit: counting takes a third of the time of what templates a role."""
    for item in items:
        if Path(__file__).parent / "unit" not in item.path.parents:
            item.add_marker("no_cover")
