"""`python -m lab.load`: the load step on a cluster of site.yml. `make demo` ends with it."""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

from kubernetes.client import ApiException
from kubernetes.config import ConfigException
from rich.console import Console
from urllib3.exceptions import HTTPError

from lab.load.cluster import PROMETHEUS, LabCluster
from lab.load.earlier import Earlier
from lab.load.scenario import PLAYS, NotReached, Recording, play, steps
from lab.load.summary import Chain, Summary, summarise, verdict
from lab.load.timeline import timeline
from lab.load.view import View, summary_table
from plugins.module_utils.autoscaling.metrics import ACTIVITIES, SMOOTHED_EVALUATIONS

# The README's periods: collect, scrape, evaluate, and the HPA's on a control plane of the role kubernetes.
PERIODS = "1,1,2,2"


def main() -> None:
    parser = argparse.ArgumentParser(prog="lab.load", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--namespace", default="gpu-workload", help="of the sample service (default: %(default)s)")
    parser.add_argument("--hpa", default="sample", help="the sample service's autoscaler (default: %(default)s)")
    parser.add_argument(
        "--low", type=float, default=0.15, help="GPU-seconds a second before and after (default: %(default)s)"
    )
    parser.add_argument(
        "--high", type=float, default=2.75, help="GPU-seconds a second of the step (default: %(default)s)"
    )
    parser.add_argument("--hold", type=float, default=30, help="seconds that the step is held (default: %(default)s)")
    parser.add_argument(
        "--play", choices=PLAYS, default="up-down", help="up leaves the load high, down-up begins there (%(default)s)"
    )
    parser.add_argument("--before", type=Path, help="demo.json of an earlier demo, to show beside")
    parser.add_argument(
        "--names",
        type=lambda text: text.split(","),
        default="without demand,with demand",
        help="what the earlier demo and this one are called (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds", type=int, default=1, help="how often, each at another moment of the chain's periods (default: 1)"
    )
    parser.add_argument(
        "--prometheus", default=PROMETHEUS, help="namespace/service:port of the cluster's (default: %(default)s)"
    )
    parser.add_argument(
        "--periods",
        type=lambda text: [float(number) for number in text.split(",")],
        default=PERIODS,
        help="seconds of the chain: collect, scrape, evaluate and the HPA's own (default: %(default)s)",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for timeline.svg and demo.json, one a round")
    arguments = parser.parse_args()
    kubectl = f"kubectl --kubeconfig {arguments.kubeconfig} -n {arguments.namespace}"
    try:
        problems = rounds(arguments)
    except ApiException as error:
        sys.exit(
            f"lab.load -> cluster: the API server answered {error.status} {error.reason}: {error.body}\n"
            f"  fix:  `{kubectl} get hpa,pods`; what is missing there, site.yml makes"
        )
    except (ConfigException, HTTPError) as error:
        sys.exit(f"lab.load -> cluster: no answer by {arguments.kubeconfig}: {error}\n  fix:  run site.yml first")
    if problems:
        sys.exit("\n".join([*problems, f"  fix:  `{kubectl} describe hpa {arguments.hpa}`"]))


def rounds(arguments: argparse.Namespace) -> list[str]:
    """Run the demo several times. Returns the problems of all runs."""
    if arguments.rounds == 1:
        return demo(arguments)
    folder, problems = arguments.out, []
    for number in range(1, arguments.rounds + 1):
        arguments.out = folder / str(number)
        problems += demo(arguments)
        time.sleep(random.uniform(0, Chain(*arguments.periods).sync_s))
    return problems


def demo(arguments: argparse.Namespace) -> list[str]:
    """Run the scenario and write its files. Returns the problems."""
    console = Console()
    cluster = LabCluster(arguments.kubeconfig, arguments.namespace, arguments.hpa, arguments.prometheus)
    plan = steps(cluster.autoscaler, arguments.low, arguments.high, arguments.hold, arguments.play)
    recording, problems = Recording(), []
    counted = cluster.counters()
    start = cluster.now()
    left = 0.0
    try:
        with View(console, cluster.autoscaler) as view:
            play(plan, cluster, recording, view.show, time.monotonic, time.sleep)
        left = arguments.high if arguments.play == "up" else 0.0
    except NotReached as missed:
        problems.append(str(missed))
    finally:
        cluster.demand(left)
    after = cluster.counters()
    summary = summarise(
        recording, plan, {name: after[name] - counted[name] for name in ("served", "rejected", "failed")}
    )
    chain = _chain(cluster, recording, summary, start, Chain(*arguments.periods))
    problems += verdict(summary, cluster.autoscaler, chain)
    arguments.out.mkdir(parents=True, exist_ok=True)
    before = Earlier.read(arguments.before) if arguments.before else None
    (arguments.out / "timeline.svg").write_text(
        timeline(recording, plan, cluster.autoscaler, before, arguments.names[0])
    )
    numbers = {
        "autoscaler": asdict(cluster.autoscaler),
        "steps": [asdict(step) for step in plan],
        "summary": asdict(summary),
        "chain": asdict(chain),
        "begins_s": recording.begins,
        "samples": [asdict(sample) for sample in recording.samples],
    }
    (arguments.out / "demo.json").write_text(json.dumps(numbers, indent=1) + "\n")
    both = dict(zip(arguments.names, (before.summary, summary), strict=True)) if before else {"": summary}
    console.print(summary_table(both))
    console.print(
        f"timeline: {arguments.out / 'timeline.svg'}   numbers: {arguments.out / 'demo.json'}", highlight=False
    )
    return problems


def _chain(cluster: LabCluster, recording: Recording, summary: Summary, start: float, periods: Chain) -> Chain:
    """Adds the times of scrapes and evaluations, from shortly before the step up until the decision.

    start: of the recording, in Prometheus' time.
    """
    step = recording.begins.get("step up", 0.0)
    since = step - 2 * max(periods.scrape_s, periods.evaluate_s)
    until = step + (summary.reaction_s or summary.undecided_s)

    def times(series: str) -> list[float]:
        found = (at - start for at in cluster.times(series, cluster.now() - start - since))
        return [round(at_s, 2) for at_s in found if at_s <= until]

    return replace(
        periods,
        evaluations=SMOOTHED_EVALUATIONS if cluster.autoscaler.metric in ACTIVITIES else 1,
        scraped=times("DCGM_FI_DEV_GPU_UTIL"),
        evaluated=times(f"namespace_pod:{cluster.autoscaler.metric}:avg"),
    )


if __name__ == "__main__":
    main()
