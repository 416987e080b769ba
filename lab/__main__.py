"""The lab's command line: `python -m lab COMMAND`. The Makefile calls it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lab.artifacts import CACHE
from lab.graph import Graph
from lab.progress import clock
from lab.systems import DEFAULT, systems
from lab.versions import CHECKOUT

LABEL = "kubegpu-lab"
NODES = CHECKOUT / "lab" / "nodes"
INVENTORY = CHECKOUT / "inventories" / "lab" / "hosts.yml"

SIZES: dict[str, list[dict[str, Any]]] = {
    "one": [{"name": "node1", "groups": ["kube_control_plane", "kube_node"], "gpus": 8}],
    "two": [
        {"name": "cp1", "groups": ["kube_control_plane"], "gpus": 0},
        {"name": "gpu1", "groups": ["kube_node"], "gpus": 8},
    ],
    "three": [
        *({"name": f"cp{number}", "groups": ["kube_control_plane"], "gpus": 0} for number in (1, 2, 3)),
        *({"name": f"gpu{number}", "groups": ["kube_node"], "gpus": 1} for number in (1, 2)),
    ],
}
# With a load balancer before the control planes, and the older Kubernetes in the mirror: minutes of compiling.
LARGE = {"three"}

console = Console(highlight=False)


def podman(*argv: str) -> str:
    return subprocess.run(["podman", *argv], check=True, capture_output=True, text=True).stdout


def containers(lab: str | None = None) -> list[dict[str, Any]]:
    """The lab's containers as podman lists them; those of all labs without a name."""
    label = f"{LABEL}={lab}" if lab else LABEL
    return json.loads(podman("ps", "--all", "--filter", f"label={label}", "--format", "json"))


def clear_dead() -> None:
    """Remove containers that podman believes in but whose processes are gone: what a killed session leaves.

    Of any lab: nobody else comes for those of a checkout that is gone. One that another checkout is just creating does
    not run yet and stays.
    """
    for container in containers():
        if container["State"] not in ("created", "initialized") and not lives(container):
            console.print(f"clearing {container['Names'][0]}, whose processes are gone")
            remove(container["Id"])


def remove(container: str) -> None:
    """Remove a container, running or not.

    podman's first attempt notices that a process is gone and fails over it; the second finds the container stopped.
    """
    argv = ("rm", "--force", "--volumes", "--time", "0", container)
    try:
        podman(*argv)
    except subprocess.CalledProcessError:
        podman(*argv)


def lives(container: dict[str, Any]) -> bool:
    """Whether the process that podman names is there, is no zombie (it has no root), and is still the container's."""
    process = Path("/proc", str(container["Pid"]))
    try:
        return (process / "root" / "etc").exists() and container["Id"] in (process / "cgroup").read_text()
    except OSError:
        return False


def playbook(name: str, lab: str, args: argparse.Namespace) -> None:
    told = {"LAB": lab, "LAB_SIZE": args.size, "LAB_SYSTEM": args.system, "LAB_INVENTORY": str(args.inventory)}
    quiet = {"ANSIBLE_DISPLAY_OK_HOSTS": "false", "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false"}
    subprocess.run(
        [Path(sys.prefix) / "bin" / "ansible-playbook", NODES / name],
        check=True,
        cwd=CHECKOUT,
        env=os.environ | quiet | told,
    )


def graph(args: argparse.Namespace) -> Graph:
    return Graph(large=args.size in LARGE, system=args.system)


def describe(args: argparse.Namespace) -> None:
    """Print what the lab consists of, as the variables of lab/nodes."""
    described = {
        "name": args.lab,
        "state": str(CACHE / "labs" / args.lab),
        "inventory": str(args.inventory.absolute()),
        "nodes": SIZES[args.size],
        "system": {"name": args.system, **systems()[args.system]},
        "artifacts": graph(args).mounted(),
    }
    print(json.dumps(described))


def build(args: argparse.Namespace) -> None:
    """Make the artifacts, and link the programs into build/bin."""
    made_from = graph(args)
    if code := made_from.build():
        sys.exit(code)
    made_from.link_programs(CHECKOUT / "build" / "bin")


def up(args: argparse.Namespace) -> None:
    """Start the servers and the mirror."""
    started = time.monotonic()
    build(args)
    clear_dead()
    playbook("create.yml", args.lab, args)
    console.print(f"lab {args.lab} is up after {clock(time.monotonic() - started)}; inventory: {args.inventory}")


def down(args: argparse.Namespace) -> None:
    """Remove the lab."""
    playbook("destroy.yml", args.lab, args)


def status(args: argparse.Namespace) -> None:
    """Show what runs."""
    found = containers(args.lab)
    if not found:
        console.print(f"lab {args.lab} is down; `make lab-up` starts it")
        return
    table = Table(title=f"lab {args.lab}")
    for column in ("container", "state", "since", "memory"):
        table.add_column(column)
    usage = {
        row["name"]: row["mem_usage"]
        for row in json.loads(podman("stats", "--no-stream", "--format", "json", *(row["Id"] for row in found)))
    }
    for container in found:
        name = container["Names"][0]
        table.add_row(name, container["State"], container["Status"], usage.get(name, "-"))
    console.print(table)


def shell(args: argparse.Namespace) -> None:
    """Open a shell on a server."""
    os.execvp("podman", ["podman", "exec", "--interactive", "--tty", f"{args.lab}-{args.node}", "bash", "-l"])


def clean(args: argparse.Namespace) -> None:
    """Drop the cache, with the labs that live on it."""
    for lab in {container["Labels"][LABEL] for container in containers()} | {args.lab}:
        playbook("destroy.yml", lab, args)
    for image in podman("images", "--quiet", "--filter", "reference=localhost/kubegpu-lab/*").split():
        podman("rmi", "--force", image)
    shutil.rmtree(CACHE, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="lab", description=__doc__)
    parser.add_argument(
        "--lab", default=os.environ.get("LAB"), required="LAB" not in os.environ, help="name of the lab (default: LAB)"
    )
    parser.add_argument(
        "--inventory", type=Path, default=os.environ.get("LAB_INVENTORY") or INVENTORY, help="inventory to write"
    )
    parser.add_argument(
        "--size",
        choices=SIZES,
        default=os.environ.get("LAB_SIZE") or "two",
        help="servers: one for all; a control plane and a GPU server; or three control planes and two GPU servers",
    )
    parser.add_argument(
        "--system", choices=systems(), default=os.environ.get("LAB_SYSTEM") or DEFAULT, help="what the servers run"
    )
    commands = parser.add_subparsers(required=True)
    for command in (build, up, down, status, shell, clean, describe):
        sub = commands.add_parser(command.__name__, help=command.__doc__)
        sub.set_defaults(command=command)
        if command is shell:
            sub.add_argument("node")
    args = parser.parse_args()
    try:
        args.command(args)
    except subprocess.CalledProcessError as failed:
        sys.exit(f"lab: {failed.cmd[0]} ended with {failed.returncode}\n{failed.stderr or ''}".rstrip())


if __name__ == "__main__":
    main()
