from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from live_lab import Lab, wait_until_healed
from programs import missing

# What an interrupted run has left may take so long to pass.
HEALED_S = 120
TABLE = Path(__file__).parents[2] / "build" / "faults" / "safety.md"
HEAD = """| what is broken | for | replicas before | during | in the minute after |
| --- | --- | --- | --- | --- |"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outage", type=float, default=600, help="seconds that test_safety.py breaks the chain for")
    parser.addoption("--seed", type=int, help="go through files and tests in the random order of this number")


def pytest_report_header(config: pytest.Config) -> str:
    seed = config.getoption("seed")
    return "order: as written" if seed is None else f"order: random, --seed {seed}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Other tests of the same lab run first, because they need an unbroken one."""
    seed = config.getoption("seed")
    if seed is not None:
        random = Random(seed)
        files = sorted({item.path for item in items})
        random.shuffle(files)
        random.shuffle(items)
        items.sort(key=lambda item: files.index(item.path))  # what a file has in common is made once
    items.sort(key=lambda item: Path(__file__).parent in item.path.parents)


@pytest.fixture(scope="session")
def lab(pytestconfig: pytest.Config) -> Lab:
    """The lab of `--ansible-inventory`, on which site.yml has run."""
    inventory = pytestconfig.getoption("ansible_inventory")
    if not inventory:
        missing("no lab: `make demo` starts one, and `make faults` breaks it")
    lab = Lab(Path(inventory).absolute())
    wait_until_healed(lab, "the lab is healthy before the first fault; run `make site`", HEALED_S)
    return lab


@pytest.fixture(scope="session")
def outage_s(pytestconfig: pytest.Config) -> float:
    return pytestconfig.getoption("outage")


@pytest.fixture(scope="session")
def note() -> Callable[[str], None]:
    """Writes a row of the table of outages, and shows it."""
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(HEAD + "\n")

    def note(row: str) -> None:
        print(row)
        with TABLE.open("a") as table:
            table.write(row + "\n")

    return note
