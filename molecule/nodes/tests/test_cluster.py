"""The cluster as its users find it: nodes are Ready, pods reach pods and services on the other node by name."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterator

import pytest
import testinfra
from kubectl import KUBECTL, kubectl
from server import EPHEMERAL, pinned
from testinfra.host import Host
from waiting import eventually

testinfra_hosts = ["ansible://kube_control_plane"]

NODES = ("cp1", "gpu1")
IMAGE = "docker.io/library/python:3.11-slim"
SERVE = "python -m http.server 8080"
API_SERVER, METRICS = 6443, {2381, 10249, 10257, 10259}
ASK = (
    "from urllib.request import urlopen; "
    "print(urlopen('http://{name}.default.svc.cluster.local:8080', timeout=5).status, end='')"
)
# kube-proxy of a busy node knows a service seconds after the API server. Its address leads out of the cluster before.
PROXY_S = 60
# A control plane that starves loses its leases: the controller manager and the scheduler begin anew, a node is lost.
BACK_S = 120
STARTED_S = 300


def answer(host: Host, source: str, target: str) -> str:
    """Status of the service's answer to a pod, or why there was none within PROXY_S."""
    words = f'exec web-{source} -- python -c "{ASK.format(name=f"web-{target}")}"'
    asked = eventually(lambda: host.run(f"{KUBECTL} {words}"), lambda asked: asked.rc == 0, PROXY_S)
    return asked.stdout or asked.stderr


@pytest.fixture(scope="module")
def servers(host: Host) -> Iterator[None]:
    """A web server with a service on each node; nodeName passes the scheduler and so the control plane's taint."""
    for node in NODES:
        overrides = json.dumps({"spec": {"nodeName": node}})
        kubectl(host, f"run web-{node} --image {IMAGE} --port 8080 --expose --overrides '{overrides}' -- {SERVE}")
    pods = " ".join(f"pod/web-{node}" for node in NODES)
    kubectl(host, f"wait --for=condition=Ready --timeout={STARTED_S}s {pods}")
    yield
    for node in NODES:
        kubectl(host, f"delete --now pod/web-{node} service/web-{node}")


def test_every_server_is_a_ready_node_of_the_pinned_version(host: Host) -> None:
    nodes = json.loads(kubectl(host, "get nodes --output=json"))["items"]

    assert [node["metadata"]["name"] for node in nodes] == list(NODES)
    assert {node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes} == {f"v{pinned('kubernetes')}"}

    def ready() -> list[str]:
        path = "{.items[*].status.conditions[?(@.type=='Ready')].status}"
        return kubectl(host, f'get nodes --output=jsonpath="{path}"').split()

    assert eventually(ready, lambda found: found == ["True", "True"], BACK_S) == ["True", "True"]


@pytest.mark.parametrize(("source", "target"), [NODES, NODES[::-1], (NODES[0], NODES[0])])
@pytest.mark.usefixtures("servers")
def test_pod_reaches_a_service_by_name_wherever_it_runs(host: Host, source: str, target: str) -> None:
    assert answer(host, source, target) == "200"


def test_the_hpa_decides_every_two_seconds(host: Host) -> None:
    asked = "ps -C kube-controller-manager -o args= | grep -c -e --horizontal-pod-autoscaler-sync-period=2s"
    assert eventually(lambda: host.run(asked).stdout.strip(), lambda count: count == "1", BACK_S) == "1"


def test_nodes_reach_the_metrics_of_the_control_plane_and_others_do_not(host: Host) -> None:
    node = testinfra.get_host("ansible://gpu1", ansible_inventory=str(EPHEMERAL / "inventory"))
    address = host.check_output("hostname -I").split()[0]

    def dropped() -> int:
        rules = host.check_output("iptables -nvxL KUBEGPU-METRICS").splitlines()
        return sum(int(rule.split()[0]) for rule in rules if " DROP " in rule)

    def other(port: int) -> bool:
        """Whether this machine reaches it. If not, the firewall has dropped a packet: a slow answer is no firewall."""
        was = dropped()
        with socket.socket() as client:
            client.setblocking(False)
            client.connect_ex((address, port))
            while not select.select([], [client], [], 0.2)[1]:
                if dropped() > was:
                    return False
            return client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0

    asked = {API_SERVER, *METRICS}

    def reached() -> set[int]:
        return {port for port in asked if node.run(f"timeout 5 bash -c '</dev/tcp/{address}/{port}'").rc == 0}

    assert eventually(reached, lambda ports: ports == asked, BACK_S) == asked
    assert {port for port in asked if other(port)} == {API_SERVER}


def test_a_source_of_the_same_repository_is_used_and_not_doubled(host: Host) -> None:
    """apt stops altogether at two sources with keys of their own: docker/for-linux#1349."""
    sources = host.check_output("grep --recursive --files-with-matches download.docker.com /etc/apt/sources.list.d")

    assert sources.split() == ["/etc/apt/sources.list.d/docker.list"]
    assert "containerd.io" in host.check_output("cat /etc/apt/preferences.d/kubegpu-docker.pref")
