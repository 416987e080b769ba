"""Six ways to scale, side by side on a lab that `make site` made. `make bench` does it all."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from scaling_bench.bench import Bench, add_options, told
from scaling_bench.rounds import Round, each, full, only, others, quick, slow, small, steps

PLANS: dict[str, Callable[[int], list[Round]]] = {
    "full": full,
    "steps": steps,
    "each": each,
    "others": others,
    "slow": slow,
    "quick": quick,
    "small": small,
}
# Of a configuration, where there are as many processors. Five on two of these starved, at a load of 89.
MOST_LANES = 5


def main() -> None:
    parser = argparse.ArgumentParser(prog="scaling_bench", description=__doc__)
    add_options(parser)
    parser.add_argument("--plan", choices=PLANS, default="full", help="what is measured (default: %(default)s)")
    lanes = min(os.cpu_count() or 1, MOST_LANES)
    parser.add_argument(
        "--lanes", type=int, default=lanes, help="workloads of each configuration (default: processors, at most 5)"
    )
    parser.add_argument("--period", type=int, help="only rounds with this period of the HPA controller, seconds")
    parser.add_argument("--pod-start", type=int, help="only rounds with pods that start in so many seconds")
    parser.add_argument("--minutes", type=float, default=56, help="begin no round that would end later (default: 56)")
    arguments = parser.parse_args()
    plan = PLANS[arguments.plan](arguments.lanes)
    rounds = only(plan, arguments.period, arguments.pod_start)
    if not rounds:
        there = sorted({(round_.sync_s, round_.pod_start_s) for round_ in plan})
        parser.error(
            f"--plan {arguments.plan} has no such round; of --period and --pod-start it has "
            + ", ".join(f"{sync_s} and {pod_start_s}" for sync_s, pod_start_s in there)
        )
    with told(arguments.kubeconfig):
        bench = Bench(arguments, is_small=arguments.plan == "small")
        bench.set_up()
        bench.run(rounds, arguments.out, arguments.minutes)
        bench.say(f"{arguments.out / 'results.md'}")


if __name__ == "__main__":
    main()
