"""Makes each mistake of replicas.yml in the replica arithmetic, and checks that unit tests and controller detect it.

The controller's decisions are those of tests/integration/test_controller_agrees.py, where it agrees with the arithmetic
as it is in each case: a mistake that changes the answer of a case contradicts the controller there.
Prints the table of docs/replicas.md. Ends with 1 if a mistake goes unnoticed, or if the page has another table.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import settings

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "integration")]
PAGE = ROOT / "docs" / "replicas.md"
UNIT_TESTS = ROOT / "tests" / "unit" / "autoscaling" / "test_desired_replicas.py"
HEAD = "| mistake | unit tests | controller |\n| --- | --- | --- |\n"


class Failures:
    """A pytest plugin that keeps the names of the tests that fail."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            name = report.nodeid.rpartition("::")[2]
            found = re.search(r"\[(.+)\]", name)
            self.names.append(found[1] if found else name.removeprefix("test_").replace("_", " "))


def arithmetic() -> Any:
    from collection import install

    install()
    from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling import replicas

    return replicas


def answers() -> dict[str, Any]:
    """What the arithmetic says in each case that the controller has decided, as it is loaded now."""
    from replica_cases import cases

    return {name: _answer(case) for name, case in cases().items()}


def _answer(case: Any) -> Any:
    try:
        return case.expected
    except (ArithmeticError, TypeError, ValueError) as error:
        return repr(error)


def unit_tests() -> list[str]:
    failures = Failures()
    settings.register_profile("the same each time", derandomize=True, database=None)
    settings.load_profile("the same each time")
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        pytest.main(["-q", "-p", "no:cacheprovider", "--noconftest", str(UNIT_TESTS)], plugins=[failures])
    return failures.names


def noticed(was: str, becomes: str) -> tuple[list[str], dict[str, Any]]:
    """In a process of its own: the unit tests that fail, and the answers."""
    module = arithmetic()
    source = Path(module.__file__).read_text()
    if source.count(was) != 1:
        sys.exit(
            f"mutants -> replicas.py: {was!r} stands there {source.count(was)} times\n  fix:  correct replicas.yml"
        )
    exec(compile(source.replace(was, becomes), module.__file__, "exec"), vars(module))
    found = answers()
    return unit_tests(), found


def apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """The result of `work` in a process of its own."""
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, work, arguments))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        sys.exit(1)  # it has said why
    finally:
        process.join()


def _send(sender: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    sender.send(work(*arguments))


def right() -> dict[str, Any]:
    arithmetic()
    return answers()


def main() -> None:
    expected = apart(right)
    rows, unnoticed = [], []
    for mistake, was, becomes in yaml.safe_load((HERE / "replicas.yml").read_text()):
        failed, found = apart(noticed, was, becomes)
        contradicted = sum(found[name] != answer for name, answer in expected.items())
        rows.append(f"| {mistake} | {len(failed)}: {failed[0] if failed else 'none'} | {contradicted} |\n")
        print(rows[-1], end="", flush=True)
        if not (failed and contradicted):
            unnoticed.append(mistake)
    if unnoticed:
        sys.exit(f"{len(unnoticed)} mistakes go unnoticed: {', '.join(unnoticed)}\n  fix:  add the test or the case")
    if HEAD + "".join(rows) not in PAGE.read_text():
        sys.exit("docs/replicas.md has another table\n  fix:  put this one there")


if __name__ == "__main__":
    main()
