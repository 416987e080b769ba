"""Docker itself beside containerd and a cluster: its containers get GPUs, and neither notices the other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from server import PLAYBOOKS, Run, Server, pinned, run
from testinfra.host import Host

testinfra_hosts = ["ansible://kube_node"]

GPUS = 8
NODES = PLAYBOOKS / "nodes.yml"
DAEMON = "/etc/docker/daemon.json"
RUNTIME = {"path": "/usr/bin/nvidia-container-runtime", "args": []}
KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf --cache-dir /dev/null"
IMAGE = "docker.io/library/python:3.11-slim"
# What a container has of GPUs: the devices, and the library that a driver's programs load.
SEEN = "import ctypes, glob; ctypes.CDLL('libnvidia-ml.so.1'); print(*sorted(glob.glob('/dev/nvidia[0-9]*')))"
DEVICES = [f"/dev/nvidia{number}" for number in range(GPUS)]


def docker(*flags: str, tags: str = "nvidia_container_toolkit,docker", **variables: Any) -> Run:
    """Runs the playbook that installs Docker again."""
    return run(NODES, "--tags", tags, *flags, **{"docker_state": "present"} | variables)


@pytest.fixture
def server(host: Host) -> Server:
    return Server(host)


@pytest.fixture
def image(server: Server) -> str:
    """An image as its users pull it, of the lab's registry."""
    registry = server.host.ansible.get_variables()["kubegpu_image_mirror"].removeprefix("http://")
    server.sh(f"docker pull --quiet {registry}/{IMAGE}")
    return f"{registry}/{IMAGE}"


@pytest.fixture
def running(server: Server, image: str) -> Iterator[str]:
    """A container of Docker with the GPUs 2 and 3."""
    asked = "--runtime nvidia --env NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=2,nvidia.com/gpu=3"
    server.sh(f"docker run --detach --name running {asked} {image} sleep 900")
    yield "running"
    server.sh("docker rm --force running")


def info(server: Server) -> dict[str, Any]:
    return json.loads(server.sh("docker info --format json"))


def state(server: Server, name: str) -> dict[str, Any]:
    """Of a container of Docker, with the number of its process."""
    return json.loads(server.sh(f"docker inspect {name}"))[0]["State"]


def settings(server: Server) -> dict[str, Any]:
    return json.loads(server.sh(f"cat {DAEMON}"))


def theirs(server: Server) -> dict[str, Any]:
    """What prepare.yml has written."""
    registry = server.host.ansible.get_variables()["kubegpu_image_mirror"].removeprefix("http://")
    return {
        "log-opts": {"max-size": "10m"},
        "features": {"time-namespaces": False},
        "insecure-registries": [registry],
    }


def pods(server: Server) -> dict[str, Any]:
    """Whether each pod is ready, and how often its containers have started, by its UID."""
    found = json.loads(server.sh(f"{KUBECTL} get pods --all-namespaces --output json"))["items"]
    return {
        pod["metadata"]["uid"]: [(row["ready"], row["restartCount"]) for row in pod["status"]["containerStatuses"]]
        for pod in found
    }


def process(server: Server, unit: str) -> str:
    """Another one after each restart."""
    return server.sh(f"systemctl show --property MainPID --value {unit}")


def test_docker_runs_by_the_containerd_that_is_there(server: Server) -> None:
    told = info(server)

    assert told["ServerVersion"] == pinned("docker-ce").partition(":")[2]
    assert told["Containerd"]["Address"] == "/run/containerd/containerd.sock"
    assert server.host.service("docker").is_enabled
    assert server.sh("pgrep --count --exact containerd") == "1"


def test_settings_of_somebody_stay_and_docker_follows_them(server: Server) -> None:
    told = info(server)

    assert settings(server) == theirs(server) | {"runtimes": {"nvidia": RUNTIME}}
    assert server.host.file(DAEMON).mode == 0o600
    assert told["DefaultRuntime"] == "runc"
    assert {"nvidia", "runc"} <= set(told["Runtimes"])
    assert set(theirs(server)["insecure-registries"]) <= set(told["RegistryConfig"]["IndexConfigs"])


@pytest.mark.parametrize(
    ("asked", "devices"),
    [
        ("", []),
        ("--runtime nvidia --env NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0", DEVICES[:1]),
        ("--runtime nvidia --env NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=all", DEVICES),
        ("--runtime nvidia --env NVIDIA_VISIBLE_DEVICES=3", DEVICES[3:4]),
        ("--device nvidia.com/gpu=2", DEVICES[2:3]),
        ("--gpus all", DEVICES),
        ("--gpus device=1", DEVICES[1:2]),
    ],
)
def test_a_container_gets_the_gpus_that_it_asks_for(server: Server, image: str, asked: str, devices: list[str]) -> None:
    seen = server.host.run(f'docker run --rm {asked} {image} python -c "{SEEN}"')

    assert seen.stdout.split() == devices
    assert (seen.rc == 0) == bool(devices)


def test_nvidia_smi_is_in_a_container(server: Server, image: str) -> None:
    shown = server.sh(f"docker run --rm --runtime nvidia --env NVIDIA_VISIBLE_DEVICES=all {image} nvidia-smi -L")

    assert len(re.findall(r"^GPU \d+: ", shown, re.MULTILINE)) == GPUS


def test_neither_sees_containers_of_the_other(server: Server, running: str) -> None:
    of_docker = server.sh("docker ps --quiet --no-trunc").split()
    of_pods = server.sh("ctr --namespace k8s.io containers list --quiet").split()

    assert of_docker == server.sh("ctr --namespace moby containers list --quiet").split()
    assert len(of_docker) == 1
    assert of_pods
    assert set(of_docker) & set(of_pods) == set()


def test_pods_reach_each_other_though_docker_forbids_forwarding(server: Server) -> None:
    """It has switched forwarding on, before there was a cluster. Pods of a bridge are forwarded all the same."""
    addresses = server.sh(
        f"{KUBECTL} --namespace kube-system get pods --selector k8s-app=kube-dns --output "
        "jsonpath='{.items[*].status.podIP}'"
    ).split()
    service = server.sh(f"{KUBECTL} --namespace kube-system get service kube-dns --output jsonpath={{.spec.clusterIP}}")
    ask = "import socket, sys; [socket.create_connection((at, 53), 5) for at in sys.argv[1:]]; print('reached')"

    answered = server.sh(
        f"{KUBECTL} run asks --image {IMAGE} --restart Never --rm --attach --quiet "
        f'--pod-running-timeout 60s --command -- python -c "{ask}" {" ".join([*addresses, service])}'
    )

    assert "-P FORWARD DROP" in server.sh("iptables --list-rules FORWARD")
    assert len(addresses) == 2
    assert "reached" in answered  # attached late, it is shown twice


def test_a_container_reaches_others_beside_the_pods(server: Server, image: str) -> None:
    """By Docker's own bridge, and out of the server."""
    registry = image.partition("/")[0]
    ask = f"import urllib.request; print(urllib.request.urlopen('http://{registry}/v2/', timeout=5).status)"

    assert server.sh(f'docker run --rm {image} python -c "{ask}"') == "200"


def test_a_port_of_a_container_is_reached_from_the_server(server: Server, image: str) -> None:
    server.sh(f"docker run --detach --name web --publish 18080:8000 {image} python -m http.server")
    try:
        answered = server.sh(
            'python3 -c "import time, urllib.request; time.sleep(2); '
            "print(urllib.request.urlopen('http://127.0.0.1:18080', timeout=5).status)\""
        )
    finally:
        server.sh("docker rm --force web")

    assert answered == "200"


def test_containers_of_docker_go_on_when_containerd_restarts(server: Server, running: str) -> None:
    """A role restarts it when its settings change."""
    before = state(server, running)["Pid"]
    server.sh("systemctl restart containerd")
    server.sh(f"timeout 30 sh -c 'until docker exec {running} true; do sleep 1; done'")

    assert state(server, running)["Pid"] == before
    assert server.sh(f'docker exec {running} python -c "{SEEN}"').split() == DEVICES[2:4]


def test_a_change_of_its_runtimes_restarts_nothing(server: Server, running: str) -> None:
    before, pods_before = process(server, "docker"), pods(server)
    asked = docker(nvidia_container_toolkit_default_runtime=True)
    default = info(server)["DefaultRuntime"]
    taken_back = docker()

    assert (asked.succeeded, default) == (True, "nvidia")
    assert (taken_back.succeeded, info(server)["DefaultRuntime"]) == (True, "runc")
    assert settings(server) == theirs(server) | {"runtimes": {"nvidia": RUNTIME}}
    assert process(server, "docker") == before
    assert state(server, running)["Running"]
    assert pods(server) == pods_before


def test_gpus_that_do_not_arrive_are_told(server: Server) -> None:
    server.sh("mv /var/run/cdi/nvidia.yaml /root/; cp /usr/bin/nvidia-container-runtime /root/")
    try:
        server.sh("printf '#!/bin/sh\\nexec runc \"$@\"\\n' >/usr/bin/nvidia-container-runtime")
        broken = docker(tags="docker_verify")
    finally:
        server.sh("mv /root/nvidia.yaml /var/run/cdi/; mv /root/nvidia-container-runtime /usr/bin/")
    whole = docker(tags="docker_verify")

    assert not broken.succeeded
    assert f"nvidia-smi in a container of Docker showed 0 of {GPUS} GPUs" in broken.text
    assert (whole.succeeded, whole.changed) == (True, 0)
    assert "kubegpu" not in server.sh("docker images; docker ps --all")


def test_a_docker_of_somebody_else_forgets_the_runtime(server: Server, running: str) -> None:
    """At a reload it keeps what its file does not name, also a default whose program is gone: nothing would start."""
    default = docker(nvidia_container_toolkit_default_runtime=True)
    gone = docker(
        docker_state="existing",
        nvidia_container_toolkit_state="absent",
        nvidia_container_toolkit_runtimes=["containerd", "docker"],
    )
    told, left, lives = info(server), settings(server), state(server, running)["Running"]
    starts = server.host.run(f"docker run --rm {server.sh('docker images --quiet').split()[0]} true").rc
    back = docker()

    assert (default.succeeded, gone.succeeded, back.succeeded) == (True, True, True)
    assert (told["DefaultRuntime"], "nvidia" in told["Runtimes"]) == ("runc", False)
    assert left == theirs(server)
    assert (lives, starts) == (True, 0)


def test_absent_takes_docker_away_and_leaves_the_rest(server: Server, running: str) -> None:
    """The container ends with it. Its image stays, and what the packet filter has got until the next boot."""
    was_running = pods(server)
    would = docker("--check", docker_state="absent")
    still = state(server, running)["Running"]

    gone = docker(docker_state="absent")
    again = docker(docker_state="absent")
    packages = server.sh(r"dpkg-query --show --showformat '${Package} ${db:Status-Status}\n'").splitlines()
    left, after = settings(server), pods(server)
    files = server.sh("find /etc/apt /lib/systemd /etc/systemd /usr/bin -name '*docker*' -not -name kubegpu-docker.*")
    back = docker()

    assert (would.succeeded, still) == (True, True)
    assert gone.succeeded
    assert again.changed == 0
    assert [row for row in packages if "docker" in row] == []
    assert "containerd.io installed" in packages
    assert left == theirs(server)
    assert files == ""
    assert after == was_running
    assert back.succeeded
    assert not state(server, running)["Running"]
    assert server.sh("docker images --quiet")
