"""The cluster after it was joined, upgraded, changed, and lost a control plane: whole again, all at one version."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from kubectl import kubectl
from testinfra.host import Host

testinfra_hosts = ["ansible://cp2"]

VERSIONS = Path(__file__).parents[3] / "roles" / "_common" / "defaults" / "main" / "versions.yml"
CONTROL_PLANES = ["cp1", "cp2", "cp3"]
ETCD = "/etc/kubernetes/pki/etcd"
MEMBERS = f"""
import json, ssl, urllib.request
context = ssl.create_default_context(cafile="{ETCD}/ca.crt")
context.load_cert_chain("{ETCD}/healthcheck-client.crt", "{ETCD}/healthcheck-client.key")
request = urllib.request.Request("https://127.0.0.1:2379/v3/cluster/member/list", b"{{}}")
print(json.dumps(json.load(urllib.request.urlopen(request, context=context))["members"]))
"""


def test_every_server_is_a_ready_node_of_the_version_it_was_upgraded_to(host: Host) -> None:
    nodes = json.loads(kubectl(host, "get nodes --output=json"))["items"]

    assert [node["metadata"]["name"] for node in nodes] == [*CONTROL_PLANES, "gpu1", "gpu2"]
    wanted = yaml.safe_load(VERSIONS.read_text())["kubegpu_pinned_versions"]["packages"]["kubernetes"].partition("-")[0]
    assert {node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes} == {f"v{wanted}"}
    ready = [
        next(condition for condition in node["status"]["conditions"] if condition["type"] == "Ready") for node in nodes
    ]
    assert {condition["status"] for condition in ready} == {"True"}


def test_etcd_has_one_vote_a_control_plane(host: Host) -> None:
    """The lost one's vote would count for ever: of four, two more could not be lost."""
    members = json.loads(host.check_output(f"python3 -c '{MEMBERS}'"))

    assert sorted(member["name"] for member in members) == CONTROL_PLANES
    assert not any(member.get("isLearner") for member in members)


def test_every_control_plane_runs_the_version_of_its_kubelet(host: Host) -> None:
    version = kubectl(host, "get node cp2 --output=jsonpath={.status.nodeInfo.kubeletVersion}")
    images = kubectl(
        host, "get pods -n kube-system -l tier=control-plane --output=jsonpath={.items[*].spec.containers[*].image}"
    )

    servers = [image for image in images.split() if "/kube-" in image]
    assert len(servers) == 3 * len(CONTROL_PLANES)
    assert {image.rpartition(":")[2] for image in servers} == {version}


def test_the_controllers_decide_at_their_default_period_again(host: Host) -> None:
    assert "--horizontal-pod-autoscaler-sync-period=2s" in host.check_output("ps -C kube-controller-manager -o args=")
