"""One run each: of the module as a process, of a playbook with one task, of an import."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from bench_cluster import Cluster, autoscalers
from bench_progress import Steps
from collection import COLLECTIONS_PATH

MODULE_PEAK = Path(__file__).with_name("module_peak.py")
MB_PER_KIB = 1024 / 1e6  # the kernel counts memory in KiB
TAIL = 2000  # characters of an output that are worth showing

# Prints a playbook's results as JSON, with the moments at which each task begins and ends.
CALLBACK = "ansible.posix.json"
MANIFESTS = "ansible_collections.kubegpu.autoscale.plugins.filter.gpu_autoscaler_manifests"

FIRST, UNCHANGED, ALL_CHANGED, ONE_CHANGED, ABSENT = STEPS = (
    "first apply",
    "unchanged",
    "all changed",
    "one changed",
    "absent",
)

# One look at all that is made, as verification takes one each round.
LOOK = "one look"

THEIR_LIST = "one k8s task"
THEIR_LOOP = "a loop of k8s tasks"
OURS = "one gpu_autoscaler task"


@dataclass(frozen=True)
class Run:
    """One step at one size: medians of its rounds, the memory their highest.

    wall_s:   of the module's process, from its start to its end.
    rss_mb:   the most memory that it held.
    requests: by verb and kind.
    """

    autoscalers: int
    step: str
    wall_s: float
    rss_mb: float
    requests: dict[str, int]


@dataclass(frozen=True)
class Done:
    """One run of a module: what it returned, and as in Run. processor_s: that it took, whatever else was running."""

    result: dict[str, Any]
    wall_s: float
    rss_mb: float
    requests: dict[str, int]
    processor_s: float = 0.0


@dataclass(frozen=True)
class TaskTime:
    """A task in ansible-playbook, as Ansible's callback times it.

    objects:  how many HPAs it was measured with.
    of:       how many it is about: a loop is measured with a few and is as long as it has items.
    """

    way: str
    step: str
    objects: int
    of: int
    measured_s: float

    @property
    def seconds(self) -> float:
        return self.measured_s * self.of / self.objects


class Failed(Exception):
    """A run that did not do what its step is about; its time means nothing."""


def steps_of(number: int) -> dict[str, tuple[dict[str, Any], Counter[str]]]:
    """Each step's options, and what it has to report: how many autoscalers by action."""
    changed = autoscalers(number, max_replicas=5)
    one_changed = [{**changed[0], "max_replicas": 6}, *changed[1:]]
    return {
        FIRST: ({"autoscalers": autoscalers(number)}, Counter(created=number)),
        UNCHANGED: ({"autoscalers": autoscalers(number)}, Counter(unchanged=number)),
        ALL_CHANGED: ({"autoscalers": changed}, Counter(changed=number)),
        ONE_CHANGED: ({"autoscalers": one_changed}, Counter(changed=1, unchanged=number - 1)),
        ABSENT: ({"autoscalers": one_changed, "state": "absent"}, Counter(deleted=number)),
    }


def measure_size(cluster: Cluster, number: int, rounds: int, progress: Steps) -> list[Run]:
    """All steps, in their order, as many rounds as asked."""
    cluster.deploy(number)
    done: dict[str, list[Run]] = {step: [] for step in STEPS}
    task = progress.add_task(f"{number} autoscalers", total=rounds * len(STEPS))
    for _ in range(rounds):
        for step, (options, expected) in steps_of(number).items():
            done[step].append(_run_module(cluster, number, step, options, expected))
            progress.advance(task)
    return [_middle(runs) for runs in done.values()]


def _run_module(cluster: Cluster, number: int, step: str, options: Mapping[str, Any], expected: Counter[str]) -> Run:
    done = run_module(cluster, "gpu_autoscaler", {"verify": False, **options})
    actions = Counter(entry["action"] for entry in done.result.get("result", {}).get("autoscalers", []))
    if done.result.get("failed") or actions != expected:
        raise Failed(f"{step} of {number} autoscalers: {done.result.get('msg') or dict(actions)}")
    return Run(number, step, done.wall_s, done.rss_mb, done.requests)


@dataclass(frozen=True)
class Crowd:
    """The same runs in a cluster alone, and beside the pods of others."""

    others: int
    alone: list[Run]
    crowded: list[Run]

    def ratio(self, what: Callable[[Run], float]) -> float:
        """How many times as much a run takes beside others, of the step that grows most."""
        return max(what(crowded) / what(alone) for alone, crowded in zip(self.alone, self.crowded, strict=True))


def measure_crowd(cluster: Cluster, number: int, others: int, rounds: int, progress: Steps) -> Crowd:
    """An unchanged run and a look, before and after others have come."""
    cluster.deploy(number)
    options, expected = steps_of(number)[FIRST]
    _run_module(cluster, number, FIRST, options, expected)
    task = progress.add_task(f"beside {others} pods of others", total=4 * rounds + 1)

    def runs() -> list[Run]:
        measured = []
        for step in (UNCHANGED, LOOK):
            done = []
            for _ in range(rounds):
                done.append(_look(cluster, number) if step == LOOK else _unchanged(cluster, number))
                progress.advance(task)
            measured.append(_middle(done))
        return measured

    alone = runs()
    cluster.crowd(others)
    progress.advance(task)
    crowded = runs()
    cluster.remove_hpas()
    return Crowd(others, alone, crowded)


def _unchanged(cluster: Cluster, number: int) -> Run:
    return _run_module(cluster, number, UNCHANGED, *steps_of(number)[UNCHANGED])


def _look(cluster: Cluster, number: int) -> Run:
    done = run_module(cluster, "gpu_autoscaler_info", {})
    seen = len(done.result.get("result", {}).get("autoscalers", []))
    if done.result.get("failed") or seen != number:
        raise Failed(f"a look at {number} autoscalers: {done.result.get('msg') or seen}")
    return Run(number, LOOK, done.wall_s, done.rss_mb, done.requests)


def run_module(cluster: Cluster, module: str, options: Mapping[str, Any]) -> Done:
    """Raises Failed if what it prints is no JSON."""
    with tempfile.NamedTemporaryFile("r") as peak:
        begin = datetime.now(UTC)
        started, before = time.perf_counter(), _processor_s()
        done = subprocess.run(
            [sys.executable, MODULE_PEAK, peak.name, module],
            input=json.dumps({"kubeconfig": str(cluster.kubeconfig), **options}),
            stdout=subprocess.PIPE,
            text=True,
        )
        wall_s = time.perf_counter() - started
        rss_mb = int(peak.read()) * MB_PER_KIB
        processor_s = _processor_s() - before
    return Done(_json(done.stdout), wall_s, rss_mb, cluster.requests(begin, datetime.now(UTC)), processor_s)


def _processor_s() -> float:
    """Of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _json(output: str) -> dict[str, Any]:
    try:
        return json.loads(output)
    except ValueError as err:
        raise Failed(f"no JSON, but: {output[-TAIL:]}") from err


def _middle(runs: Sequence[Run]) -> Run:
    first = runs[0]
    return Run(
        first.autoscalers,
        first.step,
        median(run.wall_s for run in runs),
        max(run.rss_mb for run in runs),
        first.requests,
    )


def compare(cluster: Cluster, number: int, loop: int, rounds: int, progress: Steps) -> list[TaskTime]:
    """The same HPAs by a task of ours, by kubernetes.core.k8s with a list, and by a loop of it."""
    cluster.deploy(number)
    ways = (
        (OURS, number, {"kubegpu.autoscale.gpu_autoscaler": {"autoscalers": "{{ autoscalers }}", "verify": False}}),
        (THEIR_LIST, number, {"kubernetes.core.k8s": {"definition": "{{ hpas }}"}}),
        (THEIR_LOOP, loop, {"kubernetes.core.k8s": {"definition": "{{ item }}"}, "loop": f"{{{{ hpas[:{loop}] }}}}"}),
    )
    task = progress.add_task("beside kubernetes.core", total=rounds * len(ways) * 2)
    times: dict[tuple[str, str, int], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="kubegpu-bench-") as folder:
        playbook = _Playbook(Path(folder), cluster.kubeconfig, number)
        for way, objects, action in (way for _ in range(rounds) for way in ways):
            for step, changed in ((FIRST, True), (UNCHANGED, False)):
                times.setdefault((way, step, objects), []).append(playbook.run(action, changed=changed))
                progress.advance(task)
            cluster.remove_hpas()
    return [TaskTime(way, step, objects, number, median(measured)) for (way, step, objects), measured in times.items()]


class _Playbook:
    """ansible-playbook with one task on localhost; its variables are written once."""

    def __init__(self, folder: Path, kubeconfig: Path, number: int) -> None:
        self._folder = folder
        self._kubeconfig = kubeconfig
        specs = autoscalers(number)
        manifests = import_module(MANIFESTS).gpu_autoscaler_manifests
        hpas = [manifest for manifest in manifests(specs) if manifest["kind"] == "HorizontalPodAutoscaler"]
        (folder / "vars.json").write_text(json.dumps({"autoscalers": specs, "hpas": hpas}))

    def run(self, action: Mapping[str, Any], *, changed: bool) -> float:
        """Seconds that the task takes. Raises Failed if it does not change as much as it should."""
        (self._folder / "play.yml").write_text(json.dumps([self._play(action)]))
        done = subprocess.run(
            [Path(sys.executable).with_name("ansible-playbook"), "-i", "localhost,", "play.yml"],
            cwd=self._folder,
            env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH, "ANSIBLE_STDOUT_CALLBACK": CALLBACK},
            stdout=subprocess.PIPE,
            text=True,
        )
        answer = _json(done.stdout)
        (task,) = answer["plays"][0]["tasks"]
        if done.returncode or bool(answer["stats"]["localhost"]["changed"]) != changed:
            raise Failed(f"{action}: {json.dumps(task['hosts'])[:TAIL]}")
        begin, end = (datetime.fromisoformat(task["task"]["duration"][moment]) for moment in ("start", "end"))
        return (end - begin).total_seconds()

    def _play(self, action: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars": {"ansible_python_interpreter": sys.executable},
            "vars_files": ["vars.json"],
            "module_defaults": {
                f"group/{group}": {"kubeconfig": str(self._kubeconfig)}
                for group in ("kubernetes.core.k8s", "kubegpu.autoscale.all")
            },
            "tasks": [action],
        }


# What a module imports of kubernetes.core; ours comes on top. Collections are compiled anew in each process.
_K8S = "ansible_collections.kubernetes.core.plugins.module_utils.k8s"
THEIR_IMPORTS = (f"{_K8S}.core", f"{_K8S}.client", "kubernetes.client", "kubernetes.dynamic")
OUR_IMPORT = "ansible_collections.kubegpu.autoscale.plugins.modules.gpu_autoscaler"
IMPORT = """
import sys, time
sys.path.insert(0, sys.argv[1])
from importlib import import_module
from collection import install
install()
begin = time.perf_counter()
for name in sys.argv[3:]:
    import_module(name)
theirs = time.perf_counter()
import_module(sys.argv[2])
print(theirs - begin, time.perf_counter() - theirs)
"""


@dataclass(frozen=True)
class ImportTime:
    """Seconds to import what a module needs of kubernetes.core, then our module with all its own code; medians."""

    theirs_s: float
    own_s: float


def measure_import(rounds: int) -> ImportTime:
    theirs, own = zip(*(_import() for _ in range(rounds)), strict=True)
    return ImportTime(median(theirs), median(own))


def _import() -> list[float]:
    command = [sys.executable, "-c", IMPORT, Path(__file__).parents[2] / "tests", OUR_IMPORT, *THEIR_IMPORTS]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [float(seconds) for seconds in done.stdout.split()]
