"""Check the lab's charts and its exporter by their own tools: `python -m lab.lint`, after `python -m lab build`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.charts import copy_with_schema
from lab.programs import BUILD, HERE, NVML_FLAGS, go, go_env
from lab.versions import CHECKOUT, versions

EXPORTER = "./dcgm-exporter"


def run(*argv: str | Path, cwd: Path = CHECKOUT, env: Mapping[str, str] | None = None) -> bool:
    """Whether it passed; what it says is shown if not."""
    done = subprocess.run(argv, cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        print(f"{' '.join(map(str, argv[:3]))} failed:\n{done.stdout}", file=sys.stderr)
    return not done.returncode


def exporter() -> bool:
    """With the flags of the build, so that its packages are compiled already."""
    folder = HERE / "nvidia"
    env = os.environ | go_env() | {"CGO_ENABLED": "1"}
    root = subprocess.run([go(), "env", "GOROOT"], text=True, stdout=subprocess.PIPE, check=True).stdout.strip()
    gofmt = [f"{root}/bin/gofmt", "-l", str(HERE)]
    unformatted = subprocess.run(gofmt, text=True, stdout=subprocess.PIPE, check=True).stdout
    if unformatted:
        print(f"gofmt -w is needed for:\n{unformatted}", file=sys.stderr)
    vetted = run(go(), "vet", *BUILD, EXPORTER, cwd=folder, env=env)
    tested = run(go(), "test", *BUILD, "-ldflags", NVML_FLAGS, EXPORTER, cwd=folder, env=env)
    return not unformatted and vetted and tested


def charts() -> bool:
    helm = CHECKOUT / "build" / "bin" / "helm"
    with TemporaryDirectory() as folder:
        return all(run(helm, "lint", copy_with_schema(name, Path(folder))) for name in versions()["charts"])


if __name__ == "__main__":
    sys.exit(not all([charts(), exporter()]))
