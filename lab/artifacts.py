"""Artifacts: built once, in a cache outside the checkout, with a name made from their inputs.

A second checkout with the same inputs finds the same folder and builds nothing. A folder that exists is whole:
it is built elsewhere and renamed, so a killed build only leaves something to remove.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubegpu-lab"


class BuildError(Exception):
    """A step failed; its log says why."""


@dataclass(frozen=True)
class Shell:
    """Runs commands with all their output in one log."""

    log: IO[str]

    def __call__(self, *argv: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
        """Raises BuildError unless the command exits with 0."""
        words = [str(word) for word in argv]
        print("+", *words, file=self.log, flush=True)
        ended = subprocess.run(
            words,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        if ended.returncode:
            raise BuildError(f"{words[0]} ended with {ended.returncode}")


@dataclass(frozen=True)
class Artifact:
    """One folder in the cache.

    build:     creates the content of the given folder with shell commands; `needs` are built before.
    sources:   its inputs in the checkout.
    facts:     other inputs: versions, flags.
    needs:     artifacts that it contains.
    expected:  seconds it took on two cores, shown while it runs.
    after:     artifacts to build before it, because both share work. It does not contain them.
    """

    name: str
    build: Callable[[Path, Shell], None]
    sources: tuple[Path, ...] = ()
    facts: tuple[str, ...] = ()
    needs: tuple[Artifact, ...] = ()
    expected: int = 5
    after: tuple[str, ...] = ()

    @cached_property
    def key(self) -> str:
        digest = hashlib.sha256()
        for fact in self.facts:
            digest.update(fact.encode())
        for file in _files(self.sources):
            digest.update(f"{file.name}:{file.stat().st_mode & 0o111}:".encode() + file.read_bytes())
        for need in self.needs:
            digest.update(need.key.encode())
        return digest.hexdigest()[:12]

    @property
    def path(self) -> Path:
        return CACHE / f"{self.name}-{self.key}"

    @property
    def log(self) -> Path:
        return CACHE / "logs" / f"{self.name}.log"

    def is_built(self) -> bool:
        return self.path.is_dir()

    def make(self) -> None:
        """Build it, unless another process does."""
        with _lock(self.name):
            if self.is_built():
                return
            partial = self.path.with_name(f".{self.path.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            self.log.parent.mkdir(exist_ok=True)
            with self.log.open("w") as log:
                try:
                    self.build(partial, Shell(log))
                except subprocess.CalledProcessError as failed:
                    raise _told(failed, log) from failed
            partial.rename(self.path)


def _told(failed: subprocess.CalledProcessError, log: IO[str]) -> BuildError:
    """The error of a command whose output the build reads, with the reason; the whole output is in the log."""
    said = (failed.stderr or "").strip()
    print("+", *failed.cmd, file=log)
    print(said, file=log, flush=True)
    return BuildError(": ".join([f"{failed.cmd[0]} ended with {failed.returncode}", *said.splitlines()[-1:]]))


def _files(sources: Iterable[Path]) -> Iterator[Path]:
    for source in sources:
        if source.is_dir():
            yield from (
                file for file in sorted(source.rglob("*")) if file.is_file() and "__pycache__" not in file.parts
            )
        else:
            yield source


def sweep() -> None:
    """Remove what a killed build left; running builds hold a lock."""
    for partial in CACHE.glob(".*.partial"):
        try:
            with _lock(partial.name[1:].rpartition("-")[0], wait=False):
                shutil.rmtree(partial)
        except BlockingIOError:
            continue


@contextmanager
def _lock(name: str, *, wait: bool = True) -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f".{name}.lock").open("w") as handle:
        fcntl.flock(
            handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        )  # released when its holder ends, in any way
        yield
