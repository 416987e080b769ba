"""Workloads of each configuration on a lab that `make site` made, with loads to play on all of them at once."""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubernetes.client import ApiException
from kubernetes.config import ConfigException
from rich.console import Console
from urllib3.exceptions import HTTPError

from lab.versions import versions
from scaling_bench import manifests
from scaling_bench.balancer import COST_MS
from scaling_bench.cluster import BenchCluster, NotReached, wait_until
from scaling_bench.configurations import MAXIMUM, NAMESPACE, Workload, of_a_small_fleet, read_configurations
from scaling_bench.report import MEASURED, write
from scaling_bench.rounds import FORGET_S, HPA_S, Result, Round, begins, judge, trace
from scaling_bench.shapes import JUMP_S, LOW

CHECKOUT = Path(__file__).parents[2]
# A minute of requests is the least that a cost is learned from, and the median wants some of them.
LEARN_S = 240
# From a round's end until the next load: new pods, and a new HPA controller for another period.
REST_S = 40


class Bench:
    def __init__(
        self,
        arguments: argparse.Namespace,
        *,
        ways: str = "",
        maximum: int = MAXIMUM,
        cost_ms: float = COST_MS,
        low_gpus: float = LOW,
        is_small: bool = False,
    ) -> None:
        """arguments: those of `add_options`, and `lanes`.

        ways:    names of configurations; all without any. maximum: replicas of a workload.
        cost_ms: GPU time of a request. low_gpus: GPU-seconds a second at rest, by which a cost is learned.
        """
        self.started = time.monotonic()
        self.console = Console(highlight=False)
        self.inventory, self.kubeconfig = arguments.inventory, arguments.kubeconfig
        self.cluster = BenchCluster(arguments.kubeconfig)
        self.configurations = {name: one for name, one in read_configurations().items() if name in ways or not ways}
        if is_small:
            self.configurations = {name: of_a_small_fleet(one) for name, one in self.configurations.items()}
        self.lanes, self.maximum, self.cost_ms, self.low_gpus = arguments.lanes, maximum, cost_ms, low_gpus
        self.workloads = [
            workload
            for configuration in self.configurations.values()
            for workload in configuration.workloads(arguments.lanes, maximum)
        ]
        self.names = [workload.name for workload in self.workloads]
        self.image = versions()["images"]["python"]
        self.chance = random.Random(arguments.seed)
        self.results: list[Result] = []

    def say(self, words: str) -> None:
        self.console.print(f"{time.strftime('%H:%M:%S')}  {words}", soft_wrap=True)

    def set_up(self) -> None:
        """All objects, and one ready pod of each workload under a low load."""
        self.say(f"{len(self.workloads)} workloads of {len(self.configurations)} configurations")
        self.cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
        site = self.cluster.read("apps/v1", "DaemonSet", "dcgm-exporter", "monitoring")
        objects = [manifests.scripts(), manifests.counters(), *manifests.balancer(self.image, self.cost_ms)]
        for configuration in self.configurations.values():
            if configuration.exporter:
                objects += manifests.exporter(configuration, site)
        for workload in self.workloads:
            objects += [workload.service(), manifests.deployment(workload, self.image), *workload.measured_by()]
        self.cluster.apply(objects)
        self.cluster.follow()
        self.refuse_too_few_gpus()
        wait_until(lambda: self.cluster.record() is not None, "the balancer answers", 120)
        self.low_load()
        self.cluster.rest(self.names, manifests.player(self.image, 0))
        self.cluster.apply(workload.hpa() for workload in self.workloads if not workload.configuration.is_ours)
        self.autoscalers(0)
        self.say("learning what a request costs")
        wait_until(self.learned, "each demand has learned its cost", LEARN_S)

    def refuse_too_few_gpus(self) -> None:
        """A pod that finds no GPU would be the cluster's fault, and not the configuration's."""
        needed, there = len(self.workloads) * self.maximum, self.cluster.gpus()
        if there < needed:
            raise NotReached(
                f"bench -> cluster: {there} GPUs, and {self.lanes} workloads of each configuration may take {needed}\n"
                f"  fix:  `--lanes {there // (len(self.configurations) * self.maximum)}`, or a lab of size bench-wide"
            )

    def low_load(self) -> None:
        self.cluster.put_traces({name: [[time.time(), self.low_gpus]] for name in self.names})

    def autoscalers(self, pod_start_s: int) -> None:
        """Those that gpu_autoscaler makes: their pace follows from how long their pods take to start.

        The rule of the metric is common to all. It is to be the last, and slowest.
        """
        ours: dict[int, list[dict[str, Any]]] = {}
        for workload in self.workloads:
            if told := workload.autoscaler(pod_start_s):
                ours.setdefault(workload.configuration.evaluate_s, []).append(told)
        groups = [{"evaluate_s": evaluate_s, "autoscalers": ours[evaluate_s]} for evaluate_s in sorted(ours)]
        variables = {"bench_kubeconfig": str(self.kubeconfig.absolute()), "bench_groups": groups}
        playbook = [Path(sys.prefix) / "bin" / "ansible-playbook", Path(__file__).parent / "autoscalers.yml"]
        command = [*map(str, playbook), "-i", str(self.inventory), "-e", json.dumps(variables)]
        done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
        if done.returncode:
            raise NotReached(f"bench -> gpu_autoscaler: ended with {done.returncode}\n{done.stdout}{done.stderr}")

    def learned(self) -> bool:
        query = "count(namespace_workload:gpu_demand:learned) or vector(0)"
        demands = sum("demand" in (workload.configuration.autoscaler or {}) for workload in self.workloads)
        return (self.cluster.value(query) or 0) >= demands

    def set_sync_period(self, seconds: int) -> None:
        if self.cluster.sync_period_is(seconds):
            return
        self.say(f"HPA controller: a period of {seconds} s")
        change = {
            "path": "/etc/kubernetes/manifests/kube-controller-manager.yaml",
            "regexp": r"(horizontal-pod-autoscaler-sync-period)=\S+",
            "replace": rf"\1={seconds}s",
        }
        ansible = [str(Path(sys.prefix) / "bin" / "ansible"), "-i", str(self.inventory), "kube_control_plane"]
        ansible += ["-m", "ansible.builtin.replace", "-a", json.dumps(change)]
        subprocess.run(ansible, check=True, cwd=CHECKOUT, capture_output=True, text=True)
        wait_until(lambda: self.cluster.sync_period_is(seconds), "the HPA controller works with its new period", 180)

    def play(self, round_: Round, is_new_start: bool) -> list[Result]:
        """One round, from rest to what was seen."""
        self.set_sync_period(round_.sync_s)
        self.low_load()
        self.cluster.rest(self.names, manifests.player(self.image, round_.pod_start_s))
        if is_new_start:
            self.autoscalers(round_.pod_start_s)
            self.cluster.rest(self.names, manifests.player(self.image, round_.pod_start_s))
        now = time.time()
        begin = begins(round_, self.lanes, now, self.chance)
        self.cluster.put_traces(
            {workload.name: trace(round_.shape, begin[workload.lane - 1], now) for workload in self.workloads}
        )
        time.sleep(max(min(begin) - HPA_S - time.time(), 0))
        self.cluster.release()
        time.sleep(max(max(begin) + round_.looks_s - time.time(), 0))
        record = self.cluster.record()
        return [
            self.judge(round_, workload, begin[workload.lane - 1], record[workload.name]) for workload in self.workloads
        ]

    def play_requests(
        self, seconds: Sequence[float], until_s: float, gpus_before: float, sync_s: int
    ) -> tuple[float, dict[str, dict[str, list[list[float]]]]]:
        """Give each workload the same requests, from rest and after a time of random ones that need so many GPUs.

        Returns: the Unix time of second 0, and the balancer's record by workload.
        """
        self.set_sync_period(sync_s)
        self.cluster.rest(self.names, manifests.player(self.image, 0))
        begin = time.time() + FORGET_S
        before = [[begin, gpus_before], [begin + JUMP_S, 0.0]]
        self.cluster.put_traces(dict.fromkeys(self.names, before))
        self.cluster.put_requests([begin + second for second in seconds])
        self.cluster.release()
        while (now := time.time()) < begin + until_s:
            time.sleep(min(600.0, max(begin + until_s - now, 0.1)))
            self.say(f"{max(time.time() - begin, 0) / 60:.0f} of {until_s / 60:.0f} minutes")
        record: dict[str, dict[str, list[list[float]]]] = {}

        def is_read() -> bool:
            record.update(self.cluster.record())
            return bool(record)

        wait_until(is_read, "the balancer's record", 120)
        return begin, record

    def judge(self, round_: Round, workload: Workload, begin: float, record: dict[str, list[list[float]]]) -> Result:
        ago = time.time() - begin + 5
        return judge(
            round_,
            workload,
            begin,
            record,
            self.cluster.desired(workload.name),
            self.cluster.samples(workload.scraped, ago),
            self.cluster.samples(workload.recorded, ago) if workload.recorded else [],
        )

    def run(self, rounds: list[Round], out: Path, minutes: float) -> None:
        """Write after each round what there is: a run that is stopped has not been for nothing."""
        start_s = 0
        end = self.started + minutes * 60
        for number, round_ in enumerate(rounds, 1):
            if time.monotonic() + round_.lasts_s + REST_S > end:
                self.say(f"no time for round {number} of {len(rounds)}")
                return
            self.say(
                f"round {number} of {len(rounds)}: {round_.shape.name}, period {round_.sync_s} s, "
                f"pod start {round_.pod_start_s} s; {round_.lasts_s:.0f} s"
            )
            found = self.play(round_, is_new_start=round_.pod_start_s != start_s)
            start_s = round_.pod_start_s
            self.results += found
            write(out, {MEASURED: self.results}, self.configurations)
            for result in found:
                self.say(f"  {result.configuration}{result.lane}  {in_short(result)}")


def in_short(result: Result) -> str:
    def seconds(value: float | None) -> str:
        return "   never" if value is None else f"{value:6.1f} s"

    outcome, hops = result.outcome, result.hops
    return (
        f"scraped {seconds(hops.scraped)}, recorded {seconds(hops.recorded)}, decided {seconds(outcome.reaction_s)}, "
        f"wanted {seconds(outcome.wanted_s)}, ready {seconds(outcome.capacity_s)}, "
        f"peak {outcome.peak} of {outcome.ideal}, "
        f"rejected {outcome.rejected} of {outcome.offered}, turns {outcome.turns}"
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubeconfig", type=Path, default=CHECKOUT / "inventories/lab/.kubegpu/kubeconfig")
    parser.add_argument("--inventory", type=Path, default=CHECKOUT / "inventories/lab")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn (default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="folder for tables, JSON and plots")


@contextmanager
def told(kubeconfig: Path) -> Iterator[None]:
    """End with one message, and not with a traceback, if the cluster does not do what is asked of it."""
    try:
        yield
    except NotReached as missed:
        sys.exit(str(missed))
    except ApiException as error:
        sys.exit(f"bench -> cluster: the API server answered {error.status} {error.reason}: {error.body}")
    except (ConfigException, HTTPError) as error:
        sys.exit(f"bench -> cluster: no answer by {kubeconfig}: {error}\n  fix:  run site.yml first")
