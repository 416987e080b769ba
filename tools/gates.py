"""`make gates`: checks the release tarball with Ansible's tools and those of Galaxy.

    gates.py                                              each part, with the ansible-core of .venv
    gates.py sanity licences                              these parts
    gates.py --all                                        those of ansible-core, on each with each Python that is here

Each part has a log in build/gates, beside the unpacked collection, and prints a line with its time. The others continue
if one fails.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tarball import CHECKOUT, build

LOGS = CHECKOUT / "build" / "gates"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubegpu-lab" / "gates"
# ansible-test downloads pip from its own host. PIP_INDEX_URL sets the source of packages.
GET_PIP = """import os, sys
words = [word for word in sys.argv[1:] if word not in ("--no-setuptools", "--no-wheel")]
os.execv({python!r}, [{python!r}, "-m", "pip", "--python", sys.executable, "install", *words])
"""


@dataclass(frozen=True)
class Place:
    """Where the parts run.

    programs: folder of ansible-test and the like.
    root:     has the tarball, and in ansible_collections what is in it, beside the collection that it depends on.
    """

    programs: Path
    root: Path

    @property
    def collection(self) -> Path:
        return self.root / "ansible_collections" / "kubegpu" / "autoscale"

    @property
    def tarball(self) -> Path:
        [path] = self.root.glob("kubegpu-autoscale-*.tar.gz")
        return path

    def environment(self) -> Mapping[str, str]:
        """An environment without user settings, except the package index, proxies and the like.

        For git it is not part of the checkout: in a checkout antsibull-docs only uses files that git knows, which for
        the collection in .venv are none. This would depend on the location of the checkout.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        places = {"HOME": str(CACHE / "home"), "PATH": path, "ANSIBLE_COLLECTIONS_PATH": str(self.root)}
        importer = {"GALAXY_IMPORTER_RUN_ANSIBLE_LINT": "False"}  # `make lint` runs it
        return {**kept, **places, **importer, "LC_ALL": "C.UTF-8", "GIT_CEILING_DIRECTORIES": str(CHECKOUT)}


Command = Sequence[str | Path]


def sanity(place: Place) -> tuple[Path, list[Command]]:
    """All tests of ansible-test that need no container, without an ignore file."""
    asked = subprocess.check_output(
        [place.programs / "python", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    )
    return place.collection, [
        ["git", "init", "--quiet"],
        ["git", "add", "--all", "--force"],
        ["ansible-test", "sanity", "--color", "no", "--lint", "--python", asked.decode().strip()],
    ]


def documentation(place: Place) -> tuple[Path, list[Command]]:
    options = ("--plugin-docs", "--skip-rstcheck", "--validate-collection-refs", "dependent")
    return place.root, [["antsibull-docs", "lint-collection-docs", *options, place.collection]]


def importer(place: Place) -> tuple[Path, list[Command]]:
    """Galaxy's checks of an upload."""
    return place.root, [[place.programs / "python", "-m", "galaxy_importer.main", place.tarball]]


def licences(_place: Place) -> tuple[Path, list[Command]]:
    return CHECKOUT, [["reuse", "lint", "--lines"]]


def workflows(_place: Place) -> tuple[Path, list[Command]]:
    """Files for GitHub: their schemas, and security problems."""
    github = CHECKOUT / ".github"
    schema = ("check-jsonschema", "--builtin-schema")
    forms = sorted(path for path in (github / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
    return CHECKOUT, [
        [*schema, "vendor.github-workflows", *sorted((github / "workflows").glob("*.yml"))],
        [*schema, "vendor.github-actions", *sorted(github.glob("actions/*/action.yml"))],
        [*schema, "vendor.github-issue-forms", *forms],
        ["zizmor", "--offline", "--quiet", github],
    ]


def figures(place: Place) -> tuple[Path, list[Command]]:
    """Figures of README.md against the files that they come from."""
    return CHECKOUT, [[place.programs / "python", Path("tools") / "figures.py"]]


def browser(place: Place) -> tuple[Path, list[Command]]:
    """Pages and reports in a browser."""
    return CHECKOUT, [[place.programs / "python", Path("tools") / "browser.py"]]


def playbooks(place: Place) -> tuple[Path, list[Command]]:
    names = sorted(path.stem for path in (CHECKOUT / "playbooks").glob("*.yml"))
    words = [f"kubegpu.autoscale.{name}" for name in names]
    inventory = place.collection / "inventories" / "cluster"
    return place.root, [["ansible-playbook", "--inventory", inventory, "--syntax-check", *words]]


def unit(place: Place) -> tuple[Path, list[Command]]:
    return CHECKOUT, [[place.programs / "python", "-m", "pytest", "-p", "no:cacheprovider", "tests/unit"]]


PARTS: Mapping[str, Callable[[Place], tuple[Path, list[Command]]]] = {
    part.__name__: part
    for part in (sanity, documentation, importer, licences, workflows, figures, browser, playbooks, unit)
}
# `make test` runs the others with the ansible-core of .venv.
USUAL = ("sanity", "documentation", "importer", "licences", "workflows", "figures", "browser")
OF_CORE = ("sanity", "playbooks", "unit")
# Series of ansible-core that are maintained, and the Pythons that each runs on.
CORES = (
    *(("2.19", python) for python in ("3.11", "3.12", "3.13")),
    *(("2.20", python) for python in ("3.12", "3.13", "3.14")),
    *(("2.21", python) for python in ("3.12", "3.13", "3.14")),
)


def prepare(programs: Path, root: Path) -> Place:
    """The tarball as this checkout builds it, unpacked beside kubernetes.core."""
    shutil.rmtree(root, ignore_errors=True)
    place = Place(programs, root)
    place.collection.mkdir(parents=True)
    build(root)
    shutil.unpack_archive(place.tarball, place.collection)
    [core] = Path(sys.prefix).glob("lib/python*/site-packages/ansible_collections/kubernetes/core")
    shutil.copytree(core, root / "ansible_collections" / "kubernetes" / "core")
    pip = CACHE / "home" / ".ansible" / "test" / "cache"
    pip.mkdir(parents=True, exist_ok=True)
    [source] = programs.parent.glob("lib/python*/site-packages/ansible_test/_internal/python_requirements.py")
    for version in set(re.findall(r"pip='([\d.]+)'", source.read_text())):
        name = f"get_pip_{version.replace('.', '_')}.py"
        (pip / name).write_text(GET_PIP.format(python=sys.executable))
    return place


def other_core(core: str, python: str) -> Path | None:
    """Programs of the latest ansible-core of a series, with what unit tests require; None without that Python."""
    pyenv = Path.home() / ".pyenv" / "versions"
    # pyenv's own first: its stand-ins in the path start nothing until a version is chosen.
    found = next(map(str, pyenv.glob(f"{python}.*/bin/python")), None) or shutil.which(f"python{python}")
    folder = CACHE / f"core-{core}-python{python}"
    if found and not (folder / "filled").exists():
        subprocess.run([found, "-m", "venv", "--clear", folder], check=True)
        wanted = [f"ansible-core=={core}.*", *(line for line in _quick() if not line.startswith("ansible"))]
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", *wanted], check=True)
        (folder / "filled").touch()
    return folder / "bin" if found else None


def _quick() -> list[str]:
    """The requirements of `make quick`, without comments."""
    texts = [(CHECKOUT / f"requirements-{name}.txt").read_text() for name in ("lab", "quick")]
    return [line for text in texts for line in text.splitlines() if not line.startswith(("#", "-r"))]


def run(name: str, place: Place) -> bool:
    label = f"{place.root.name} {name}"
    log = LOGS / f"{label.replace(' ', '-')}.log"
    began, before = time.monotonic(), _processor()
    folder, commands = PARTS[name](place)
    with log.open("w") as output:
        passed = all(
            subprocess.run(command, cwd=folder, env=place.environment(), stdout=output, stderr=output).returncode == 0
            for command in commands
        )
    seconds = f"{time.monotonic() - began:.0f} s ({_processor() - before:.0f} s of processor)"
    print(f"{label}: {'passed' if passed else 'FAILED'} after {seconds}", flush=True)
    if not passed:
        print("\n".join(log.read_text().splitlines()[-40:]))
    return passed


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--all", action="store_true", help="on each ansible-core and Python")
    options = parser.parse_args(words)
    if wrong := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(wrong))}, but {', '.join(PARTS)}")
    LOGS.mkdir(parents=True, exist_ok=True)
    if not options.all:
        place = prepare(Path(sys.executable).parent, LOGS / "core")
        results = [run(name, place) for name in options.parts or USUAL]
        return 0 if all(results) else 1
    results = []
    for core, python in CORES:
        if programs := other_core(core, python):
            place = prepare(programs, LOGS / f"tree-{core}-python{python}")
            results += [run(name, place) for name in options.parts or OF_CORE]
        else:
            print(f"core-{core}-python{python}: NOT RUN, there is no python{python} here")
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
