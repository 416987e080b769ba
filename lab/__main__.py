"""The lab's command line: `python -m lab COMMAND`. The Makefile calls it.

Commands that show or remove a lab need only podman and Python, because they must work when nothing else does.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import bare, forwarding, preflight, real_gpus
from lab.artifacts import CACHE
from lab.gpu.pci import MODELS as GPU_MODELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.graph import Graph

CHECKOUT = preflight.CHECKOUT
LABEL = "kubegpu-lab"
NODES = CHECKOUT / "lab" / "nodes"
INVENTORY = CHECKOUT / "inventories" / "lab" / "hosts.yml"

SIZES: dict[str, list[dict[str, Any]]] = {
    "one": [{"name": "node1", "groups": ["kube_control_plane", "kube_node"], "gpus": 8}],
    "two": [
        {"name": "cp1", "groups": ["kube_control_plane"], "gpus": 0},
        {"name": "gpu1", "groups": ["kube_node"], "gpus": 8},
    ],
    # The sample needs more GPUs than the first GPU server has.
    "pool": [
        {"name": "cp1", "groups": ["kube_control_plane"], "gpus": 0},
        {"name": "gpu1", "groups": ["kube_node"], "gpus": 2},
        {"name": "gpu2", "groups": ["kube_node"], "gpus": 6},
    ],
    # For `make bench`: some two hundred GPUs, five to ten for each of its workloads.
    "bench": [
        {"name": "cp1", "groups": ["kube_control_plane"], "gpus": 0},
        *({"name": f"gpu{number}", "groups": ["kube_node"], "gpus": 120} for number in (1, 2)),
    ],
    # The same for a machine with many processors.
    "bench-wide": [
        {"name": "cp1", "groups": ["kube_control_plane"], "gpus": 0},
        *({"name": f"gpu{number}", "groups": ["kube_node"], "gpus": 120} for number in (1, 2, 3, 4)),
    ],
    # For `make bench-servers`.
    "fifty": [
        {"name": "node1", "groups": ["kube_control_plane", "kube_node"], "gpus": 8},
        *({"name": f"node{number}", "groups": ["kube_node"], "gpus": 8} for number in range(2, 51)),
    ],
    "three": [
        *({"name": f"cp{number}", "groups": ["kube_control_plane"], "gpus": 0} for number in (1, 2, 3)),
        *({"name": f"gpu{number}", "groups": ["kube_node"], "gpus": 1} for number in (1, 2)),
    ],
}
# With a load balancer for the control planes, and the older Kubernetes in the mirror: minutes of compiling.
LARGE = {"three"}


def engine() -> str:
    """What runs the containers: podman, or `bare`, which is lab/bare.py (LAB_ENGINE=podman|bare)."""
    return "bare" if preflight.bare() else "podman"


def found_gpus(wish: str) -> int:
    """Number of GPUs of the machine that the lab uses; 0 for simulated ones."""
    found = 0 if wish == "mock" else real_gpus.count()
    if wish == "real" and not found:
        sys.exit("lab: LAB_GPU=real, and `nvidia-smi -L` shows no GPU here: see that it does, or leave LAB_GPU out")
    return found


def podman(*argv: str) -> str:
    return subprocess.run(["podman", *argv], check=True, capture_output=True, text=True).stdout


def containers(lab: str | None = None) -> list[dict[str, Any]]:
    """The lab's containers in podman; without a name those of all labs."""
    label = f"{LABEL}={lab}" if lab else LABEL
    return json.loads(podman("ps", "--all", "--filter", f"label={label}", "--format", "json"))


def stats(ids: Sequence[str]) -> list[dict[str, Any]]:
    """Resources of these containers. podman fails if a process no longer exists, and lists all without a name."""
    return json.loads(podman("stats", "--no-stream", "--format", "json", *ids)) if ids else []


def networks() -> list[str]:
    return podman("network", "ls", "--format", "{{.Name}}").split()


def labs(name: str, *, scenarios: bool) -> list[str]:
    """The lab of this name, and with `scenarios` also molecule's labs. A remaining network counts as a lab."""
    if not scenarios:
        return [name]
    found = {folder.name for folder in (CACHE / "labs").glob("*")}
    if engine() == "podman":
        found |= {*networks(), *(container["Labels"][LABEL] for container in containers())}
    return sorted({name, *(lab for lab in found if lab.startswith(f"{name}-"))})


def clear_dead() -> None:
    """Remove containers of any lab whose processes no longer exist, which a killed session leaves.

    Nothing else removes those of a deleted checkout. A container that another checkout is just creating does not
    run yet, and stays.
    """
    for container in containers():
        if container["State"] not in ("created", "initialized") and not lives(container):
            print(f"clearing {container['Names'][0]}, whose processes are gone")
            remove(container["Id"])


def remove(*ids: str) -> None:
    """Remove containers, running or not.

    podman's first attempt detects the missing process and fails; the second finds the container stopped.
    """
    argv = ("rm", "--force", "--ignore", "--volumes", "--time", "0", *ids)
    try:
        podman(*argv)
    except subprocess.CalledProcessError:
        podman(*argv)


def lives(container: dict[str, Any]) -> bool:
    """Whether the container's process exists, is not a zombie (which has no root), and belongs to the container."""
    process = Path("/proc", str(container["Pid"]))
    try:
        return (process / "root" / "etc").exists() and container["Id"] in (process / "cgroup").read_text()
    except OSError:
        return False


def living() -> set[str]:
    """Labs with running parts."""
    found = {
        state.name for state in (CACHE / "labs").glob("*") for pid in state.glob("*.pid") if bare.lives(state, pid.stem)
    }
    if engine() == "podman":
        found |= {container["Labels"][LABEL] for container in containers() if lives(container)}
    return found


def bridge(lab: str) -> str:
    """The bridge of the lab's servers."""
    if engine() == "bare":
        return bare.short(lab)
    return podman("network", "inspect", lab, "--format", "{{.NetworkInterface}}").strip()


def destroy(lab: str) -> None:
    """Remove the whole lab: containers with volumes, network, folder and firewall rule."""
    forwarding.forbid(lab)
    bare.destroy(lab, CACHE / "labs" / lab)
    if engine() == "podman" and (found := containers(lab)):
        remove(*(container["Id"] for container in found))
    if engine() == "podman" and lab in networks():
        podman("network", "rm", "--force", lab)
    shutil.rmtree(CACHE / "labs" / lab, ignore_errors=True)


def system(args: argparse.Namespace) -> str:
    from lab.systems import DEFAULT, systems

    name = args.system or DEFAULT
    if name not in systems():
        sys.exit(f"lab: no server runs {name}: LAB_SYSTEM is one of {', '.join(systems())}")
    return name


def graph(args: argparse.Namespace) -> Graph:
    from lab.graph import Graph

    return Graph(large=args.size in LARGE, system=system(args), driver=args.driver)


def machine() -> dict[str, bool]:
    """What the servers inherit from this machine: cgroup v2, and the right to raise limits (CAP_SYS_RESOURCE)."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "cgroup_v2": Path("/sys/fs/cgroup/cgroup.controllers").exists(),
        "raises_limits": bool(int(status["CapBnd"], 16) >> 24 & 1),
    }


def describe(args: argparse.Namespace) -> None:
    """Print the parts of the lab, as the variables of lab/nodes."""
    from lab.systems import systems

    state, nodes, gpus = CACHE / "labs" / args.lab, SIZES[args.size], args.gpus
    if gpus:  # all of them on the first server that has some
        first = next(node["name"] for node in nodes if node["gpus"])
        nodes = [node | ({"gpus": gpus, "real": True} if node["name"] == first else {"gpus": 0}) for node in nodes]
    described = {
        "name": args.lab,
        "state": str(state),
        "inventory": str(args.inventory.absolute()),
        "engine": engine(),
        "addresses": bare.addresses(args.lab, ["mirror", *(node["name"] for node in nodes)]),
        "nodes": nodes,
        "gpu": {"real": gpus, "driver": str(state / "driver"), "model": args.gpu_model},
        "machine": machine(),
        "system": {"name": system(args), **systems()[system(args)]},
        "artifacts": graph(args).mounted(),
    }
    print(json.dumps(described))


def connect(args: argparse.Namespace) -> None:
    """Allow the servers' traffic through the machine's firewall. Prints the changes."""
    for dead in forwarding.sweep(living() | {args.lab}):
        print(f"removed the firewall rule of the lab {dead}, which does not run")
    if forwarding.allow(args.lab, bridge(args.lab)):
        print(f"added a firewall rule for the lab {args.lab}")


def build(args: argparse.Namespace) -> None:
    """Build the artifacts, and link the programs into build/bin."""
    made_from = graph(args)
    if code := made_from.build():
        sys.exit(code)
    made_from.link_programs(CHECKOUT / "build" / "bin")


def program(args: argparse.Namespace) -> None:
    """Compile a program for a bench or a test, and link it into build/bin."""
    from lab.graph import link, make
    from lab.programs import added_programs

    if args.program not in (known := added_programs()):
        sys.exit(f"lab: there is no program {args.program}: it is one of {', '.join(known)}")
    made, names = known[args.program]
    if code := make([made]):
        sys.exit(code)
    link(CHECKOUT / "build" / "bin", {name: made.path / name for name in names})


def up(args: argparse.Namespace) -> None:
    """Start the servers and the mirror."""
    started = time.monotonic()
    build(args)
    if engine() == "podman":
        clear_dead()
    gpus = found_gpus(args.gpu)
    if gpus:
        real_gpus.stage(CACHE / "labs" / args.lab / "driver")
    told = {"LAB_REAL_GPUS": str(gpus), "LAB_ENGINE": engine()}
    told |= {
        "LAB_GPU_MODEL": args.gpu_model,
        "LAB": args.lab,
        "LAB_SIZE": args.size,
        "LAB_SYSTEM": system(args),
        "LAB_INVENTORY": str(args.inventory),
        "LAB_DRIVER": "1" if args.driver else "",
    }
    playbook = [Path(sys.prefix) / "bin" / "ansible-playbook", NODES / "create.yml"]
    subprocess.run(playbook, check=True, cwd=CHECKOUT, env=os.environ | told)
    took = time.strftime("%M:%S", time.gmtime(time.monotonic() - started))
    print(f"lab {args.lab} is up after {took}; inventory: {args.inventory}")


def add(args: argparse.Namespace) -> None:
    """Add an image to the running lab. Its content is made the first time."""
    from lab.graph import added_images, make
    from lab.images import serve

    if args.image not in (known := added_images()):
        sys.exit(f"lab: there is no image {args.image} to add: it is one of {', '.join(known)}")
    if not (served := CACHE / "labs" / args.lab / "images").is_dir():
        sys.exit(f"lab: {args.lab} is not up, or was started before images could be added: `make lab-up` starts it")
    *_, image = made_from = known[args.image]
    if code := make(() if image.is_built() else made_from):  # after unpacking, its inputs are missing
        sys.exit(code)
    serve(served, image.path)


def down(args: argparse.Namespace) -> None:
    """Remove the lab."""
    for lab in labs(args.lab, scenarios=args.scenarios):
        destroy(lab)
    args.inventory.unlink(missing_ok=True)
    shutil.rmtree(args.inventory.parent / ".kubegpu", ignore_errors=True)


def status(args: argparse.Namespace) -> None:
    """Show what runs."""
    if engine() == "bare":
        for file in sorted((CACHE / "labs" / args.lab).glob("*.pid")):
            print(f"  {file.stem:8}  {'running' if bare.lives(file.parent, file.stem) else 'gone'}")
        return
    found = containers(args.lab)
    if not found:
        print(f"lab {args.lab} is down; `make lab-up` starts it")
        return
    living = [container["Id"] for container in found if lives(container)]
    usage = {row["name"]: row["mem_usage"] for row in stats(living)}
    rows = [("container", "state", "since", "memory")]
    for container in found:
        name = container["Names"][0]
        gone = container["State"] == "running" and container["Id"] not in living
        rows.append((name, "gone" if gone else container["State"], container["Status"], usage.get(name, "-")))
    print(f"lab {args.lab}")
    for name, state, since, memory in rows:
        print(f"  {name:{max(len(row[0]) for row in rows)}}  {state:10}  {since:24}  {memory}")
    if any(state == "gone" for _name, state, _since, _memory in rows):
        print("gone: the machine was restarted, or its session was killed; `make lab-up` starts the lab anew")


def shell(args: argparse.Namespace) -> None:
    """Open a shell on a server."""
    if engine() == "bare":
        pid = CACHE / "labs" / args.lab / f"{args.node}.pid"
        os.execv(NODES / "podman", [str(NODES / "podman"), str(pid), "exec", args.node, "bash", "-l"])
    os.execvp("podman", ["podman", "exec", "--interactive", "--tty", f"{args.lab}-{args.node}", "bash", "-l"])


def clean(args: argparse.Namespace) -> None:
    """Remove the cache, and the labs that use it."""
    with_podman = engine() == "podman"
    found = {folder.name for folder in (CACHE / "labs").glob("*")}
    for lab in found | ({container["Labels"][LABEL] for container in containers()} if with_podman else set()):
        destroy(lab)
    down(args)
    forwarding.sweep(())  # of labs without other parts
    if with_podman:
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
        help="servers: one for all; a control plane and GPU servers (two, pool, bench, fifty); three control planes",
    )
    parser.add_argument(
        "--system", default=os.environ.get("LAB_SYSTEM"), help="what the servers run, one of lab/systems.yml"
    )
    parser.add_argument(
        "--driver",
        action="store_true",
        default=bool(os.environ.get("LAB_DRIVER")),
        help="have Debian's own NVIDIA driver in the mirror (LAB_DRIVER=1)",
    )
    parser.add_argument(
        "--gpu",
        choices=("auto", "real", "mock"),
        default=os.environ.get("LAB_GPU") or "auto",
        help="the machine's own GPUs where it has some (auto), those or nothing (real), or the stand-in (mock)",
    )
    parser.add_argument(
        "--gpu-model",
        choices=tuple(GPU_MODELS),
        default=os.environ.get("LAB_GPU_MODEL") or "L4",
        help="which GPU the stand-in plays; an H100 can be split by MIG (LAB_GPU_MODEL=H100)",
    )
    # Set by `up` for the playbook: molecule's scenarios always use the simulated driver.
    parser.set_defaults(gpus=int(os.environ.get("LAB_REAL_GPUS") or 0))
    commands = parser.add_subparsers(required=True)
    for command in (build, program, up, add, down, status, shell, clean, describe, connect):
        sub = commands.add_parser(command.__name__, help=command.__doc__)
        sub.set_defaults(command=command, scenarios=False)
        if command is shell:
            sub.add_argument("node")
        if command is add:
            sub.add_argument("image")
        if command is program:
            sub.add_argument("program")
        if command is down:
            sub.add_argument("--scenarios", action="store_true", help="remove the labs of molecule's scenarios as well")
    args = parser.parse_args()
    settings = preflight.ENGINE if preflight.ENGINE.exists() else NODES / "containers.conf"
    os.environ["CONTAINERS_CONF"] = str(settings)
    try:
        args.command(args)
    except FileNotFoundError as absent:
        sys.exit(f"lab: {absent.filename} is not on this machine: `make lab-env` installs what the lab needs")
    except subprocess.CalledProcessError as failed:
        sys.exit(f"lab: {failed.cmd[0]} ended with {failed.returncode}\n{failed.stderr or ''}".rstrip())


if __name__ == "__main__":
    main()
