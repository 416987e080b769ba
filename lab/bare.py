"""Servers without a container engine: namespaces, a control group and a network, with util-linux only.

lab/nodes calls `python -m lab.bare` if the machine has no podman. A container here is a folder,
unpacked from an artifact's root.tar. It has a process id in `<state>/<name>.pid`, and an interface on the lab's bridge.
It has the machine's devices if its GPUs are the machine's. Otherwise it has its own devices, and does not see
the machine's driver, because simulated device nodes must not replace real ones.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
# Parent of all labs' groups in version 2, because the rest of the tree is systemd's.
SLICE = "kubegpu-lab"

# Runs in the new namespaces, with the container's root as its working folder. A machine whose root cannot be pivoted,
# an initramfs, keeps it: commands use the root of the first process, which is right in both cases.
ENTER = r"""
set -eu
name=$1 devices=$2
shift 2
hostname "$name"
mount -t proc proc proc
mount -t sysfs sysfs sys
if [ "$devices" = machine ]; then
    mount --rbind /dev dev
else
    mount -t tmpfs -o mode=755 tmpfs dev
    for device in null zero full random urandom tty kmsg fuse; do
        [ ! -e "/dev/$device" ] || cp --archive "/dev/$device" "dev/$device"
    done
    mkdir dev/pts dev/shm dev/mqueue
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    [ ! -e proc/driver/nvidia ] || mount -t tmpfs -o mode=555 tmpfs proc/driver
fi
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o mode=755 tmpfs run
mkdir run/lock
mount -t tmpfs -o mode=1777 tmpfs tmp
while [ "$1" != -- ]; do
    case $1 in
        cgroup2) mount -t cgroup2 cgroup2 sys/fs/cgroup ;;
        cgroup1:*)
            hierarchy=${1#cgroup1:}
            [ -d sys/fs/cgroup/init ] || { mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup; mkdir sys/fs/cgroup/init; }
            mkdir "sys/fs/cgroup/${hierarchy#name=}"
            mount -t cgroup -o "$hierarchy" cgroup "sys/fs/cgroup/${hierarchy#name=}"
            ;;
        *)
            mount --bind "${1%%:*}" ".${1#*:}"
            mount -o remount,bind,ro ".${1#*:}"
            ;;
    esac
    shift
done
shift
[ ! -d sys/fs/cgroup/init ] || rmdir sys/fs/cgroup/init
mkdir -p .machine
if pivot_root . .machine 2>/dev/null; then
    exec chroot . /bin/sh -c 'umount --lazy /.machine; rmdir /.machine; mount --make-rshared /; exec env -i "$@"' _ "$@"
fi
rmdir .machine
mount --make-rshared .
exec chroot . /usr/bin/env -i "$@"
"""
ENVIRONMENT = ("container=lab", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")


def short(text: str) -> str:
    """A name for an interface, which has at most 15 letters."""
    return f"kg{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def subnet(lab: str) -> str:
    """The first three numbers of the lab's addresses."""
    return f"10.77.{int(hashlib.sha256(lab.encode()).hexdigest()[:2], 16)}"


def addresses(lab: str, names: list[str]) -> dict[str, str]:
    """Addresses by container, in order; the machine has the first one."""
    return {name: f"{subnet(lab)}.{number}" for number, name in enumerate(names, 2)}


def version_2() -> bool:
    return (CGROUP / "cgroup.controllers").exists()


def hand_down(controllers_of: Path) -> None:
    """Enable all controllers that a group of version 2 has for its children, except those that the kernel rejects."""
    for controller in (controllers_of / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):
            (controllers_of / "cgroup.subtree_control").write_text(f"+{controller}")


def origins() -> list[Path]:
    """The groups of this process, to which processes return after work in a container."""
    if not version_2():
        return list(hierarchies().values())
    path = Path("/proc/self/cgroup").read_text().rpartition("0::")[2]
    return [CGROUP / path.strip().lstrip("/")]


def hierarchies() -> dict[str, Path]:
    """Locations of control groups by the container's mount: `cgroup2`, or a controller of version 1."""
    if version_2():
        return {"cgroup2": CGROUP / SLICE}
    found = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, _ = line.split(":", 2)
        folder = CGROUP / controllers.removeprefix("name=")
        if controllers and folder.is_dir():
            found[f"cgroup1:{controllers}"] = folder
    return found


def join(group: str) -> list[str]:
    """Put this process into a new control group in each hierarchy. Returns the container's mounts of them."""
    for folder in hierarchies().values():
        own = folder / group
        own.mkdir(parents=True, exist_ok=True)
        if version_2():
            hand_down(CGROUP)
            hand_down(folder)
        for setting in ("cpuset.cpus", "cpuset.mems"):  # of version 1 begin empty, and cannot be entered
            if (folder / setting).exists() and not (own / setting).read_text().strip():
                (own / setting).write_text((folder / setting).read_text())
        (own / "cgroup.procs").write_text(str(os.getpid()))
    return list(hierarchies())


def leave(group: str) -> None:
    """Remove the control groups of a container without processes."""
    for folder in hierarchies().values():
        for own in sorted((folder / group).rglob("*"), key=lambda path: -len(path.parts)):
            if own.is_dir():
                _patiently_removed(own)
        if (folder / group).is_dir():
            _patiently_removed(folder / group)


def _patiently_removed(group: Path) -> None:
    """A killed process remains in its group until it is reaped."""
    for _ in range(100):
        with contextlib.suppress(FileNotFoundError):
            try:
                group.rmdir()
            except OSError:
                time.sleep(0.05)
                continue
        return


def ip(state: Path, *argv: str, of: int | None = None) -> None:
    """Run `ip`, of the machine or a server, in the network of the machine or a process."""
    enter = ["nsenter", f"--net=/proc/{of}/ns/net"] if of else []
    own = shutil.which("ip")
    tool = [own] if own else ["chroot", str(next(state.glob("*/root/usr/sbin/..")).parent.parent), "ip"]
    subprocess.run([*enter, *tool, *argv], check=True)


def unpack(tree: Path, root: Path) -> None:
    """Give a container its own copy of a folder."""
    if not root.exists():
        partial = root.with_name("root.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        subprocess.run(["tar", "--extract", "--numeric-owner", "--file", tree, "--directory", partial], check=True)
        partial.rename(root)


def mount_point(root: Path, volume: str) -> None:
    """Create a mount point of the same kind for a file or folder of the machine."""
    source, target = volume.split(":")
    at = root / target.lstrip("/")
    if Path(source).is_dir():
        at.mkdir(parents=True, exist_ok=True)
    else:
        at.parent.mkdir(parents=True, exist_ok=True)
        if not (at.exists() or at.is_symlink()):
            at.touch()


def network(lab: str, state: Path) -> None:
    """The lab's bridge, with the machine's own address on it."""
    if not Path("/sys/class/net", short(lab)).exists():
        ip(state, "link", "add", short(lab), "type", "bridge")
        ip(state, "address", "add", f"{subnet(lab)}.1/24", "dev", short(lab))
    ip(state, "link", "set", short(lab), "up")


def lives(state: Path, name: str) -> int | None:
    """The container's first process, if it runs."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((state / f"{name}.pid").read_text())
        if Path("/proc", str(pid), "root", "etc").exists():
            return pid
    return None


def start(
    lab: str, state: Path, name: str, address: str, volumes: list[str], command: list[str], devices: str = "own"
) -> None:
    """Start a container with an unpacked root, unless it runs. devices: its `own`, or those of the `machine`."""
    if lives(state, name):
        return
    root = state / name / "root"
    for volume in volumes:
        mount_point(root, volume)
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{address} {name}\n")
    (root / "etc/hostname").write_text(f"{name}\n")
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    (root / "etc/resolv.conf").write_text(f"nameserver {subnet(lab)}.1\n")
    log = (state / name / "log").open("w")
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.close(reading)
        before = origins()
        mounted = join(f"{lab}-{name}")
        namespaces = ("--pid", "--fork", "--mount", "--uts", "--ipc", "--cgroup", "--net")
        script = f"mount --make-rprivate / && mount --bind {root} {root} && cd {root}\n{ENTER}"
        given = [name, devices, *mounted, *volumes, "--", *ENVIRONMENT, *command]
        entered = subprocess.Popen(
            ["unshare", *namespaces, "sh", "-c", script, "_", *given],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        for pid in _children(entered):
            for folder in before:  # a group with a process enables no controllers for its children
                (folder / "cgroup.procs").write_text(str(entered.pid))
            os.write(writing, f"{pid}\n".encode())
            break
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        first = answer.read().strip()
    if not first:
        sys.exit(f"lab: {name} did not start: {(state / name / 'log').read_text().strip()}")
    plug_in(lab, state, name, address, int(first))
    (state / f"{name}.pid").write_text(f"{first}\n")


def _children(parent: subprocess.Popen[bytes]) -> Iterator[str]:
    """Its first process, when it exists."""
    while parent.poll() is None:
        yield from Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        time.sleep(0.01)


def plug_in(lab: str, state: Path, name: str, address: str, pid: int) -> None:
    """An interface eth0 in the container, whose other end is on the lab's bridge."""
    end = short(f"{lab}-{name}")
    ip(state, "link", "add", end, "type", "veth", "peer", "name", f"{end}p")
    ip(state, "link", "set", end, "master", short(lab), "up")
    ip(state, "link", "set", f"{end}p", "netns", str(pid))
    for argv in (
        f"link set {end}p name eth0",
        f"address add {address}/24 dev eth0",
        "link set lo up",
        "link set eth0 up",
        f"route add default via {subnet(lab)}.1",
    ):
        ip(state, *argv.split(), of=pid)


def destroy(lab: str, state: Path) -> None:
    """End all processes of the lab and remove its network; the caller removes the folder."""
    for name in [folder.parent.name for folder in state.glob("*/root")]:
        if pid := lives(state, name):
            os.kill(pid, signal.SIGKILL)  # the kernel ends the others of its namespace
        (state / f"{name}.pid").unlink(missing_ok=True)
        leave(f"{lab}-{name}")
    with contextlib.suppress(OSError):  # missing, or of another lab
        (CGROUP / SLICE).rmdir()
    if Path("/sys/class/net", short(lab)).exists():
        ip(state, "link", "delete", short(lab))


def main() -> None:
    parser = argparse.ArgumentParser(prog="lab.bare", description=__doc__)
    parser.add_argument("--lab", required=True)
    parser.add_argument("--state", type=Path, required=True)
    commands = parser.add_subparsers(required=True, dest="command")
    for name in ("unpack", "network", "start"):
        sub = commands.add_parser(name)
        if name != "network":
            sub.add_argument("name")
        if name == "unpack":
            sub.add_argument("tree", type=Path)
        if name == "start":
            sub.add_argument("--address", required=True)
            sub.add_argument("--devices", choices=["own", "machine"], default="own")
            sub.add_argument("--volume", action="append", default=[], help="SOURCE:TARGET, read-only")
            sub.add_argument("argv", nargs="+")
    args = parser.parse_args()
    if args.command == "unpack":
        unpack(args.tree, args.state / args.name / "root")
    elif args.command == "network":
        network(args.lab, args.state)
    else:
        start(args.lab, args.state, args.name, args.address, args.volume, args.argv, args.devices)


if __name__ == "__main__":
    main()
