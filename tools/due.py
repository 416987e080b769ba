"""Lists the weekly runs whose files have changed since they last passed, or runs one and records that it passed.

    due.py                       list
    due.py "make test-envoy"     run it; if it passes, write its commit and date to due.yml, to be committed

The runs are those of .github/workflows/weekly.yml. due.yml has the files that each tests, and its last pass.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import indented_yaml
import yaml

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".yml")
WORKFLOW = ROOT / ".github" / "workflows" / "weekly.yml"
HEAD = "# Written by tools/due.py, but for `files`.\n"


def runs() -> list[str]:
    found: list[str] = yaml.safe_load(WORKFLOW.read_text())["jobs"]["lab"]["strategy"]["matrix"]["run"]
    return found


def table() -> dict[str, dict[str, Any]]:
    """By run: `files`, paths of this repository, and `passed` with commit and date, if it ever did."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(TABLE.read_text())
    return found


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def changes(row: Mapping[str, Any]) -> int | None:
    """Commits that changed its files since it passed; None if no pass is recorded, or its commit is not here."""
    passed = row.get("passed")
    if not passed:
        return None
    try:
        return int(git("rev-list", "--count", f"{passed['commit']}..HEAD", "--", *row["files"]))
    except subprocess.CalledProcessError:
        return None


def lines() -> Iterator[str]:
    for run, row in table().items():
        passed, number = row.get("passed"), changes(row)
        seen = f"passed on {passed['commit']} on {passed['date']}" if passed else "no pass is recorded"
        if number != 0:
            yield f"due   {run}: {seen}" + (f", {number} commits since changed its files" if number else "")
        else:
            yield f"      {run}: {seen}"


def record(run: str) -> None:
    known = table()
    known[run]["passed"] = {"commit": git("rev-parse", "--short=8", "HEAD"), "date": time.strftime("%Y-%m-%d")}
    TABLE.write_text(HEAD + indented_yaml.dump(known))


def main(arguments: list[str]) -> int:
    if not arguments:
        print(*lines(), sep="\n")
        return 0
    [run] = arguments
    if run not in table():
        print(f"due: {run!r} is not a run of .github/workflows/weekly.yml. Next: due.py lists them", file=sys.stderr)
        return 2
    if git("status", "--porcelain"):
        print("due: the checkout has changes, so a pass would belong to no commit. Next: commit them", file=sys.stderr)
        return 2
    code = subprocess.run(["bash", "-c", run], cwd=ROOT).returncode
    if code == 0:
        record(run)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
