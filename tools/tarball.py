"""`make tarball`: what Galaxy gets, built twice alike, with its checksum.

ansible-galaxy writes the time of the build into it. Here it is that of the last commit, so anybody can build it again.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

CHECKOUT = Path(__file__).resolve().parents[1]


def build(folder: Path) -> Path:
    """The tarball in a folder, made from this checkout."""
    galaxy = Path(sys.executable).with_name("ansible-galaxy")
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as place:
        command = [galaxy, "collection", "build", CHECKOUT, "--output-path", place]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        [built] = Path(place).glob("*.tar.gz")
        tarball = folder / built.name
        with (
            tarfile.open(built) as there,
            tarball.open("wb") as file,
            gzip.GzipFile("", "wb", 9, file, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as tar,
        ):
            for member in there.getmembers():
                member.mtime = commit_time()
                tar.addfile(member, there.extractfile(member) if member.isfile() else None)
    return tarball


def checksum(tarball: Path) -> str:
    return hashlib.sha256(tarball.read_bytes()).hexdigest()


@cache
def commit_time() -> int:
    """Of the last commit, or what SOURCE_DATE_EPOCH says."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    asked = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=CHECKOUT, check=True, capture_output=True, text=True
    )
    return int(asked.stdout)


if __name__ == "__main__":
    tarball = build(CHECKOUT / "build" / "release")
    line = f"{checksum(tarball)}  {tarball.name}\n"
    tarball.with_suffix(".gz.sha256").write_text(line)
    sys.stdout.write(line)
