"""All artifacts and their dependencies. doit builds them; this module defines the graph and shows progress."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from doit.cmd_base import ModuleTaskLoader
from doit.doit_cmd import DoitMain

from lab import charts, debian, images, packages, preflight, systems, upstream
from lab.artifacts import CACHE, Artifact, Shell, sweep
from lab.images import older
from lab.programs import go, go_env, older_kubernetes, program_groups
from lab.progress import BuildReporter
from lab.versions import CHECKOUT, names

GPU = CHECKOUT / "lab" / "gpu"
HAPROXY = ["haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1"]  # the rest the userland has

OLDER = ["kubernetes-1.36"]
# amtool checks the configuration of the role prometheus_stack; the lab runs no Alertmanager.
LINKED = ("amtool", "etcd", "helm", "kube", "kube-state-metrics", "prometheus", "promtool")


def gpu() -> Artifact:
    """The simulated GPU and its driver: libraries, `nvidia-smi`, the daemon."""

    def build(out: Path, run: Shell) -> None:
        go()  # the Makefile finds it in the path
        run(
            "make",
            "-C",
            GPU,
            f"OUT={out}",
            f"DRIVER={names()['nvidia-driver']}",
            f"GO_NVML={names()['go-nvml']}",
            env=go_env(),
        )

    return Artifact("gpu", build, sources=(GPU,), facts=(names()["nvidia-driver"], names()["go-nvml"]), expected=5)


class Graph:
    """Inputs of a lab."""

    def __init__(self, *, large: bool = False, system: str = systems.DEFAULT, driver: bool = False) -> None:
        """`large` adds what only a lab with several control planes needs: the older Kubernetes and a load balancer.

        `system` is what the servers run, one of systems.yml beside this page; `driver` adds Debian's own NVIDIA driver.
        """
        programs = program_groups()
        self.nvidia = programs["nvidia"]
        self.programs = programs["kubernetes"]
        self.adapter = programs["prometheus-adapter"]
        self.etcd = programs["etcd"]
        self.userland = debian.userland()
        self.node = debian.node_filesystem(systems.systems()[system]["suite"])
        self.apt_key = packages.apt_key()
        self.gpu = gpu()
        contents = {
            "bookworm": debian.unpacked("bookworm", ["runc"]),
            "gpu": self.gpu,
            "pause": images.pause(),
            "toolkit-units": packages.toolkit_units(),
            **{f"programs-{name}": group for name, group in programs.items()},
        }
        crds = charts.operator_crds(self.programs)
        self.apt = self._apt("apt", contents, systems.DEFAULT)
        if system != systems.DEFAULT:
            self.apt = self._apt(f"apt-{system}", contents, system, first=self.apt)
        if driver:
            self.apt = self._with_driver(systems.systems()[system]["suite"])
        self.charts = charts.chart_mirror(self.programs, crds)
        self.images = images.image_mirror(self.userland, contents)
        self.balancer = debian.unpacked("haproxy", HAPROXY) if large else None
        if large:
            kube = older_kubernetes()
            self.apt = packages.apt_mirror(
                "apt-older", OLDER, self.apt_key, contents | {kube.name: kube}, first=self.apt
            )
            self.images = older.image_mirror(self.images, kube, self.etcd)

    def _apt(self, name: str, contents: dict[str, Artifact], system: str, **more: Artifact) -> Artifact:
        """The apt mirror for a system."""
        suite = systems.systems()[system]["suite"]
        distribution = debian.distribution_packages(debian.node_filesystem(suite), suite)
        repositories = upstream.systems()[system]
        return packages.apt_mirror(
            name, repositories, self.apt_key, contents, distribution=distribution, suite=suite, **more
        )

    def _with_driver(self, suite: str) -> Artifact:
        """The apt mirror, with Debian's own NVIDIA driver for servers that run this Debian."""
        return packages.driver_mirror(
            self.apt, self.apt_key, debian.driver_packages(debian.node_filesystem(suite), suite), suite
        )

    def mounted(self) -> dict[str, str]:
        """Folders that the lab's containers use."""
        used = {
            "node": self.node,
            "userland": self.userland,
            "apt": self.apt,
            "apt_key": self.apt_key,
            "charts": self.charts,
            "images": self.images,
        }
        if self.balancer:
            used["haproxy"] = self.balancer
        return {name: str(artifact.path) for name, artifact in used.items()}

    def link_programs(self, folder: Path) -> None:
        """Programs for tests and users, by name."""
        compiled = {name: self.programs.path / name for name in LINKED}
        kubectl = {"kubectl": self.programs.path / "kube"}
        nvidia = {name: self.nvidia.path / name for name in ("dcgm-exporter", "nvidia-ctk", "nvidia-device-plugin")}
        adapter = {"prometheus-adapter": self.adapter.path / "prometheus-adapter"}
        etcd = {name: self.etcd.path / name for name in ("etcdctl", "etcdutl")}
        programs = compiled | kubectl | nvidia | adapter | etcd
        link(folder, {name: target for name, target in programs.items() if target.exists()})

    def artifacts(self) -> list[Artifact]:
        """Each once, the longest first, while the other core builds the small ones."""
        found: dict[str, Artifact] = {}

        def walk(artifact: Artifact) -> None:
            if not artifact.is_built():  # after unpacking, its inputs are missing
                for need in artifact.needs:
                    walk(need)
            found.setdefault(artifact.name, artifact)

        wanted = [self.node, self.apt, self.charts, self.images, *filter(None, [self.balancer])]
        if not preflight.unpacked():
            wanted += [self.programs, self.nvidia, self.adapter, self.etcd]  # the linked programs
        for artifact in wanted:
            walk(artifact)
        return sorted(found.values(), key=lambda artifact: -artifact.expected)

    def build(self) -> int:
        """Build what is missing. Returns 0, or doit's result if a step failed."""
        sweep()
        return make(self.artifacts())


def added_images() -> dict[str, tuple[Artifact, ...]]:
    """What a lab serves once it is asked for, by name: the image, and before it what is in it."""
    packages = {file.stem: images.python_packages(file.stem, file) for file in images.HERE.glob("*.txt")}
    contents, userland = program_groups("added.yml") | packages, debian.userland()
    return {name: (contents[name], images.added_image(name, contents[name], userland)) for name in images.added_names()}


def link(folder: Path, programs: Mapping[str, Path]) -> None:
    """Links of these names to the programs. The lanes of `make test` make them at once."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, target in programs.items():
        place = folder / name
        if place.is_symlink() and place.readlink() == target:
            continue
        new = folder / f".{name}.{uuid4().hex}"
        new.symlink_to(target)
        new.replace(place)  # somebody may be running it


def make(artifacts: Iterable[Artifact]) -> int:
    """Make what of these is missing. Returns 0, or what doit returns when a step failed."""
    missing = {artifact.name: artifact for artifact in artifacts if not artifact.is_built()}
    if not missing:
        return 0

    class Reporter(BuildReporter):
        artifacts = missing

    settings = {
        "dep_file": str(CACHE / "doit.json"),
        "backend": "json",
        "reporter": Reporter,
        "num_process": 2,
        "par_type": "thread",
        "verbosity": 0,
    }
    return DoitMain(ModuleTaskLoader({"DOIT_CONFIG": settings, "task_artifact": lambda: _tasks(missing)})).run([])


def _tasks(missing: dict[str, Artifact]) -> Iterator[dict[str, Any]]:
    for name, artifact in missing.items():
        first = [*(need.name for need in artifact.needs), *artifact.after]
        needs = [f"artifact:{other}" for other in first if other in missing]
        yield {"name": name, "actions": [artifact.make], "task_dep": needs}
