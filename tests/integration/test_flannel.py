"""flannel itself, by the chart that the role kubernetes installs: pods of servers in two networks reach each other.

Servers and pods are network namespaces, and flanneld runs in each server's with the chart's arguments. A router is
between the servers and the API server's machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from control_plane import ControlPlane, eventually, running
from kubernetes import client
from programs import FOLDER, program

# `make test` does not compile it: its own target does.
COMPILED = (FOLDER / "flanneld").exists() or bool(os.environ.get("FLANNEL"))
pytestmark = [
    pytest.mark.skipif(not COMPILED, reason="`make test-flannel` compiles it"),
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="takes root and ip"),
]

PODS = "10.252"  # and the number of the server
SEEN_S = 60
ROUTER, *SERVERS = (f"fl{os.getpid()}-{name}" for name in ("router", "1", "2"))
POD = "{}-pod"
# Answers one client with its address, and with how much it sent.
LISTEN = """
import socket
listener = socket.create_server(("", 8080))
print(flush=True)
client, (address, _) = listener.accept()
size = sum(iter(lambda: len(client.recv(65536)), 0))
client.sendall(f"{address} {size}".encode())
"""
SEND = """
import socket, sys
server = socket.create_connection((sys.argv[1], 8080), timeout=10)
server.sendall(bytes(1_000_000))
server.shutdown(socket.SHUT_WR)
print(server.recv(99).decode())
"""


def ip(*words: str, of: str = "") -> str:
    argv = ["ip", *(("-n", of) if of else ()), *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def inside(namespace: str, *argv: object) -> list[str]:
    return ["ip", "netns", "exec", namespace, *map(str, argv)]


def forward(namespace: str) -> None:
    """Have a namespace pass packets on."""
    subprocess.run(inside(namespace, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"), check=True)


def cable(one: str, end: str, other: str, address: str) -> None:
    """An interface `end` in a namespace, or in the machine's. Its other end is eth0 in the other namespace."""
    ip("link", "add", end, *(("netns", one) if one else ()), "type", "veth", "peer", "name", "eth0", "netns", other)
    ip("address", "add", address, "dev", "eth0", of=other)
    ip("link", "set", "lo", "up", of=other)
    ip("link", "set", "eth0", "up", of=other)
    ip("link", "set", end, "up", of=one)


class Servers:
    """networks: 1 if the servers share one, 2 if each is in its own."""

    def __init__(self, plane: ControlPlane, kube: client.ApiClient, networks: int) -> None:
        self.plane, self._core, self.networks = plane, client.CoreV1Api(kube), networks

    @contextmanager
    def running(self) -> Iterator[None]:
        names = [ROUTER, *SERVERS, *map(POD.format, SERVERS)]
        try:
            for name in names:
                ip("netns", "add", name)
            self._connect()
            yield
        finally:
            for name in names:
                subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    def flannel(self, backend: str) -> None:
        """Run what the chart's pods run, and the pods' network as its CNI plugin makes it."""
        arguments = self._chart(backend)
        for number, server in enumerate(SERVERS, 1):
            pods = f"{PODS}.{number}.0/24"
            # flannel adds to the annotations of a node, of which each has some.
            metadata = {"name": server, "annotations": {"node.alpha.kubernetes.io/ttl": "0"}}
            self._core.create_node({"metadata": metadata, "spec": {"podCIDR": pods, "podCIDRs": [pods]}})
        for server in SERVERS:
            files = (
                "--kubeconfig-file=kubeconfig",
                "--net-config-path=net-conf.json",
                f"--subnet-file={self._env(server)}",
            )
            self.plane.run(
                f"flanneld-{server}", *inside(server, "env", f"NODE_NAME={server}", program("flanneld"), *arguments),
                *files,
            )  # fmt: skip
        for server in SERVERS:
            eventually(self._env(server).exists, f"flannel has a subnet for {server}", SEEN_S)
            self._pod(server)

    def route(self) -> str:
        """The first server's route to the second one's pod."""
        return ip("route", "get", f"{PODS}.2.2", of=SERVERS[0])

    def log(self) -> str:
        return (self.plane.work / f"flanneld-{SERVERS[0]}.log").read_text()

    def sends(self) -> str:
        """What the pod of the second server has seen of the other pod: its address, and the number of bytes."""
        one, other = map(POD.format, SERVERS)
        with subprocess.Popen(inside(other, sys.executable, "-c", LISTEN), stdout=subprocess.PIPE) as listener:
            try:
                assert listener.stdout
                listener.stdout.readline()
                command = inside(one, sys.executable, "-c", SEND, f"{PODS}.2.2")
                return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
            finally:
                listener.kill()

    def _env(self, server: str) -> Path:
        """Where flannel writes the subnet of a server."""
        return self.plane.work / f"{server}.env"

    def _connect(self) -> None:
        cable("", ROUTER[:15], ROUTER, "10.253.0.2/24")
        ip("address", "add", "10.253.0.1/24", "dev", ROUTER[:15])
        ip("route", "add", "10.253.0.0/16", "via", "10.253.0.2")
        ip("route", "add", "default", "via", "10.253.0.1", of=ROUTER)
        forward(ROUTER)
        for network in range(1, self.networks + 1):
            ip("link", "add", f"net{network}", "type", "bridge", of=ROUTER)
            ip("address", "add", f"10.253.{network}.1/24", "dev", f"net{network}", of=ROUTER)
            ip("link", "set", f"net{network}", "up", of=ROUTER)
        for number, server in enumerate(SERVERS, 1):
            network = min(number, self.networks)
            cable(ROUTER, f"server{number}", server, f"10.253.{network}.{number + 1}/24")
            ip("link", "set", f"server{number}", "master", f"net{network}", of=ROUTER)
            ip("route", "add", "default", "via", f"10.253.{network}.1", of=server)
            forward(server)

    def _chart(self, backend: str) -> Sequence[str]:
        """Writes net-conf.json. Returns flanneld's arguments."""
        chart = program("flanneld").resolve().parent / "chart"
        values = ("--set", f"podCidr={PODS}.0.0/16,flannel.backend={backend}")
        command = [program("helm"), "template", "flannel", chart, *values]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        objects = {found["kind"]: found for found in yaml.safe_load_all(printed) if found}
        text = objects["ConfigMap"]["data"]["net-conf.json"]
        assert json.loads(text)["Backend"]["Type"] == backend
        (self.plane.work / "net-conf.json").write_text(text)
        [container] = objects["DaemonSet"]["spec"]["template"]["spec"]["containers"]
        return container["args"] if "args" in container else container["command"][1:]

    def _pod(self, server: str) -> None:
        lines = self._env(server).read_text().split()
        subnet = dict(line.split("=", 1) for line in lines)
        gateway, pod = subnet["FLANNEL_SUBNET"], POD.format(server)
        ip("link", "add", "cni0", "mtu", subnet["FLANNEL_MTU"], "type", "bridge", of=server)
        ip("address", "add", gateway, "dev", "cni0", of=server)
        ip("link", "set", "cni0", "up", of=server)
        cable(server, "pod", pod, gateway.replace(".1/", ".2/"))
        ip("link", "set", "pod", "master", "cni0", of=server)
        ip("link", "set", "eth0", "mtu", subnet["FLANNEL_MTU"], of=pod)
        ip("route", "add", "default", "via", gateway.partition("/")[0], of=pod)


@contextmanager
def made(work: Path, networks: int) -> Iterator[Servers]:
    with running(work) as (plane, kube):
        servers = Servers(plane, kube, networks)
        with servers.running():
            yield servers


def test_the_charts_own_backend_connects_two_networks(tmp_path: Path) -> None:
    """vxlan. The other pod sees the pod's own address, and packets of the length that flannel sets arrive."""
    with made(tmp_path, networks=2) as servers:
        servers.flannel("vxlan")
        eventually(lambda: "dev flannel.1" in servers.route(), "there is a route by the tunnel", SEEN_S)
        assert servers.sends() == f"{PODS}.1.2 1000000"


def test_host_gw_connects_servers_of_one_network(tmp_path: Path) -> None:
    with made(tmp_path, networks=1) as servers:
        servers.flannel("host-gw")
        eventually(lambda: "via 10.253.1.3 dev eth0" in servers.route(), "there is a route by the server", SEEN_S)
        assert servers.sends() == f"{PODS}.1.2 1000000"


def test_host_gw_does_not_connect_two_networks(tmp_path: Path) -> None:
    with made(tmp_path, networks=2) as servers:
        servers.flannel("host-gw")
        eventually(lambda: "Error adding route" in servers.log(), "flannel cannot add the route", SEEN_S)
        assert "via 10.253.1.1 dev eth0" in servers.route()
