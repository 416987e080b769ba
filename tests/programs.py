"""What a test needs beside Python: programs that `make programs` compiles, and what a machine has."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest
from collection import ROOT

FOLDER = Path(os.environ.get("KUBEGPU_BIN") or ROOT / "build" / "bin")
# `make unit` names the folder, and CI has everything: there a test must not pass over what is missing.
COMPLETE = bool(os.environ.get("KUBEGPU_BIN") or os.environ.get("CI"))


def program(name: str) -> Path:
    """A compiled program; the test does not run without it."""
    found = shutil.which(name, path=f"{FOLDER}{os.pathsep}{os.environ['PATH']}")
    if not found:
        missing(f"no program {name}: `make programs` compiles it, on Linux as root")
    return Path(found)


def missing(reason: str) -> NoReturn:
    """End the test: as skipped on a developer's machine, as failed where everything has to be there."""
    if COMPLETE:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
