"""What an unchanged run of nodes.yml costs on 1, 10 and 50 servers: containers of a lab of its own, without Kubernetes.

The roles make the first server. The others are copies of it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from bench_site import CHECKOUT, measure

from lab.preflight import CACHE, bare

LAB = f"{os.environ['LAB']}-servers"
COPY = f"localhost/kubegpu-lab/node:{LAB}"
FIRST = "node1"
PLAYBOOK = "playbooks/nodes.yml"
ANSIBLE_PLAYBOOK = str(Path(sys.prefix) / "bin" / "ansible-playbook")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", default="1,10,50", help="how many, 50 at most (default: %(default)s)")
    arguments = parser.parse_args()
    with servers() as inventory:
        runs = {
            count: measure(str(inventory), PLAYBOOK, "--limit", f"kube_node[0:{int(count) - 1}]")
            for count in arguments.servers.split(",")
        }
    changed = {count: run.results["changed"] for count, run in runs.items() if "changed" in run.results}
    print(json.dumps({count: asdict(run) for count, run in runs.items()}, indent=1))
    if changed:
        sys.exit(f"these runs changed something, so what is above is no unchanged run: {changed}")


@contextmanager
def servers(prepare: Callable[[Path], None] = lambda _inventory: None, *, fresh: bool = False) -> Iterator[Path]:
    """The inventory of fifty servers; they are gone afterwards.

    prepare: does what else the server needs that all are copied from, by its inventory.
    fresh:   no role has run on them. Otherwise the playbook has.
    """
    with tempfile.TemporaryDirectory() as folder:
        inventory = Path(folder) / "hosts.yml"
        (inventory.parent / "group_vars").symlink_to(CHECKOUT / "inventories" / "lab" / "group_vars")
        try:
            up("one", inventory)
            if not fresh:
                call(ANSIBLE_PLAYBOOK, "-i", str(inventory), PLAYBOOK)
            prepare(inventory)
            up("fifty", inventory, copied(inventory.parent))
            yield inventory
        finally:
            call(sys.executable, "-m", "lab", "--lab", LAB, "--inventory", str(inventory), "down")
            if not bare():
                call("podman", "rmi", "--force", COPY)


def copied(folder: Path) -> str:
    """What the first server is now, as the option by which the lab makes the others from it."""
    if not bare():
        call("podman", "commit", "--quiet", f"{LAB}-{FIRST}", COPY)
        return f"-elab_node_image={COPY}"
    root = CACHE / "labs" / LAB / FIRST / "root"
    argv = ["tar", "--create", "--numeric-owner", f"--file={folder / 'root.tar'}", f"--directory={root}", "."]
    if (code := subprocess.run(argv, stderr=subprocess.DEVNULL).returncode) > 1:  # 1: a log grew meanwhile
        sys.exit(f"not measured: tar of {root} ended with {code}")
    return f"-elab_node_tree={folder}"


def within(name: str, command: str) -> str:
    """What a command prints in a server, past ssh, with either engine of the lab."""
    state = CACHE / "labs" / LAB
    argv = [CHECKOUT / "lab/nodes/podman", state / f"{name}.pid", "exec", name, "sh", "-c", command]
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout


def up(size: str, inventory: Path, *options: str) -> None:
    call(ANSIBLE_PLAYBOOK, "lab/nodes/create.yml", *options, LAB=LAB, LAB_SIZE=size, LAB_INVENTORY=str(inventory))


def call(*argv: str, **environment: str) -> None:
    subprocess.run(argv, cwd=CHECKOUT, check=True, stdout=sys.stderr, env=os.environ | environment)


if __name__ == "__main__":
    main()
