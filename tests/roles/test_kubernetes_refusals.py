"""What the role kubernetes refuses before anything is changed, and what it says of certificates that run out."""

from __future__ import annotations

import json
import subprocess
from base64 import b64encode
from collections.abc import Sequence
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import kubeconfigs
import pytest
import yaml
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH, ROOT
from role_values import RoleValues

FOLDER = "/etc/kubernetes/kubegpu"
WORKER = [FOLDER, f"{FOLDER}/applied.yaml", "/etc/kubernetes/kubelet.conf"]


def role(*files: str, group: str = "kube_control_plane", **variables: Any) -> RoleValues:
    """The role on cp1, a server with these files, in this group."""
    found = {"files": [{"path": path, "checksum": "0"} for path in files]}
    facts = {"hostname": "cp1", "default_ipv4": {"address": "192.0.2.1"}}
    inventory = {
        "inventory_hostname": "cp1",
        "groups": {"kube_control_plane": ["cp0"], group: ["cp1"]},
        "hostvars": {"cp0": {}, "cp1": {"__kubernetes_found": found}},
        "ansible_play_hosts": ["cp1"],
        "ansible_play_hosts_all": ["cp1"],
        "kubegpu_kubeconfig": "/nowhere/kubeconfig",
    }
    told = {
        "ansible_facts": facts,
        "__kubernetes_found": found,
        "__kubernetes_elsewhere": {"results": []},
        "_common_server": {"result": {"clusters": [], "swaps": []}},
        **{name: value for name, value in variables.items() if name.startswith("_")},
    }
    options = {name: value for name, value in variables.items() if not name.startswith("_")}
    return RoleValues("kubernetes", inventory | options, told)


def reasons(*files: str, **variables: Any) -> str:
    return "\n".join(role(*files, **variables)["__kubernetes_reasons"])


def test_a_worker_that_is_called_a_control_plane_is_refused_and_not_reset() -> None:
    assert "cp1 is a worker of the cluster and now in kube_control_plane." in reasons(*WORKER)


@pytest.mark.parametrize(
    ("files", "group"),
    [
        ([*WORKER, f"{FOLDER}/initialised"], "kube_control_plane"),
        ([path for path in WORKER if "applied" not in path], "kube_control_plane"),
        (WORKER, "kube_node"),
    ],
    ids=["a control plane", "one whose join was interrupted", "a worker that stays one"],
)
def test_others_are_not_taken_for_a_worker_that_changes(files: list[str], group: str) -> None:
    assert "is a worker of the cluster" not in reasons(*files, group=group)


@pytest.mark.parametrize(
    ("hosts", "wanted", "refused"),
    [
        (["cp0", "cp1"], "present", True),
        (["cp0", "cp1"], "absent", False),
        (["cp1"], "present", False),
    ],
    ids=["beside one that stays", "all leave", "in a run of its own"],
)
def test_a_node_leaves_in_a_run_of_its_own(hosts: list[str], wanted: str, refused: bool) -> None:
    """Only a control plane that the run does not touch is asked to drain it and to forget it."""
    control_plane = {"files": [{"path": f"{FOLDER}/initialised"}]}
    worker = {"files": [{"path": path, "checksum": "0"} for path in WORKER]}
    hostvars = {
        "cp0": {"__kubernetes_found": control_plane, "__kubernetes_asked_state": wanted},
        "cp1": {"__kubernetes_found": worker, "__kubernetes_asked_state": "absent"},
    }
    run = {"hostvars": hostvars, "ansible_play_hosts": hosts, "ansible_play_hosts_all": hosts}
    told = reasons(*WORKER, group="kube_node", kubernetes_state="absent", **run)

    assert ("cp1 is to leave the cluster, and cp0 of the same run to stay. Nothing was changed." in told) == refused


@pytest.mark.parametrize(
    ("path", "refused"),
    [("kubeconfig", True), (".kube/config", True), ("~/.kube/config", False), ("/srv/kubeconfig", False)],
)
def test_a_kubeconfig_by_a_relative_path_is_refused(path: str, refused: bool) -> None:
    """It would be written beside the playbook, which is a folder of the collection."""
    told = reasons(kubegpu_kubeconfig=path, playbook_dir="/collection/playbooks")
    said = f"kubegpu_kubeconfig is the relative path {path}, and its file would come to /collection/"
    assert (said in told) == refused


SILENCE = {"status": -1, "msg": "Request failed: <urlopen error timed out>"}
NO_NAME = {"status": -1, "msg": "Request failed: <urlopen error [Errno -2] Name or service not known>"}
REFUSED = {"status": -1, "msg": "Request failed: <urlopen error [Errno 111] Connection refused>"}
BEHIND = {"kubernetes_control_plane_endpoint": "k8s.example:8443"}


@pytest.mark.parametrize(
    ("answer", "variables", "said"),
    [
        (SILENCE, {}, "does not reach 192.0.2.1:6443"),
        (NO_NAME, {"kubernetes_api_address": "api.example"}, "does not reach api.example:6443"),
        (REFUSED, {}, ""),
        (NO_NAME, BEHIND, "does not reach k8s.example:8443"),
        (SILENCE, BEHIND, ""),
        (REFUSED, BEHIND, ""),
    ],
    ids=["firewall", "name", "nothing listens yet", "a balancer's name", "balancer without servers", "one that closes"],
)
def test_an_api_server_that_the_controller_will_not_reach_is_refused(
    answer: dict[str, Any], variables: dict[str, str], said: str
) -> None:
    told = reasons(__kubernetes_api=answer, **variables)
    assert said in told
    assert bool(said) == ("controller -> API server" in told)


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({"kubernetes_node_ip": "2001:db8::10"}, "[2001:db8::10]:6443"),
        ({"kubernetes_node_ip": "192.0.2.1,2001:db8::10"}, "192.0.2.1:6443"),
        ({"kubernetes_node_ip": "192.0.2.1", "kubernetes_api_address": "2001:db8::a"}, "[2001:db8::a]:6443"),
        ({"kubernetes_control_plane_endpoint": "[2001:db8::2]:8443"}, "[2001:db8::2]:8443"),
        ({"kubernetes_control_plane_endpoint": "k8s.example"}, "k8s.example:6443"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_api_server_is_asked_for_by_an_address_that_a_url_takes(variables: dict[str, str], asked: str) -> None:
    """The last digits of an IPv6 address are no port."""
    assert role(**variables)["__kubernetes_api_asked"] == asked


def test_a_kubeconfig_has_an_ipv6_address_in_brackets() -> None:
    fetched = {"content": b64encode(b"    server: https://192.0.2.1:6443\n").decode()}
    kubernetes = role(kubernetes_api_address="2001:db8::a", __kubernetes_admin=fetched)

    assert kubernetes["__kubernetes_kubeconfig"].strip() == "server: https://[2001:db8::a]:6443"


@pytest.mark.parametrize(
    ("left", "network", "refused"),
    [
        ("10-flannel.conflist", "bridge", True),
        ("10-flannel.conflist", "flannel", False),
        ("05-cilium.conflist", "calico", True),
        ("05-cilium.conflist", "cilium", False),
        ("87-podman-bridge.conflist", "bridge", False),
        ("10-kubegpu.conflist", "bridge", False),
    ],
)
def test_a_pod_network_that_containerd_would_take_before_ours_is_refused(
    left: str, network: str, refused: bool
) -> None:
    """`kubeadm reset` leaves it behind, and the first name is the network of all pods."""
    path = f"/etc/cni/net.d/{left}"
    told = reasons(path, group="kube_node", kubernetes_cni=network)

    assert (f"cp1 has a pod network of somebody else, {path}," in told) == refused
    assert path not in reasons(*WORKER, path, group="kube_node", kubernetes_cni=network)


@pytest.mark.parametrize("subnet", ["10.244.0.0/16", "10.244.0.0/16,2001:db8::/56"])
def test_calico_has_a_pool_for_each_subnet(subnet: str) -> None:
    """Its operator takes one network for each, and refuses two with a comma between."""
    charts = role(kubernetes_cni="calico", kubernetes_pod_subnet=subnet)["__kubernetes_cni_charts"]
    [pools] = [
        chart["values"]["installation"]["calicoNetwork"]["ipPools"]
        for chart in charts
        if chart["name"] == "tigera-operator"
    ]

    assert pools == [{"cidr": cidr, "encapsulation": "VXLANCrossSubnet"} for cidr in subnet.split(",")]


def test_a_boot_reads_ours_after_somebodys_sysctl_conf() -> None:
    """Debian and Ubuntu have it as 99-sysctl.conf, where hardened servers forward nothing: the last name wins."""
    [sysctl] = role()["__kubernetes_kernel_files"]

    assert Path(sysctl["path"]).parent == Path("/etc/sysctl.d")
    assert Path(sysctl["path"]).name > "99-sysctl.conf"


@pytest.mark.parametrize(("subnet", "forwards"), [("10.244.0.0/16", False), ("10.244.0.0/16,2001:db8::/56", True)])
def test_pods_with_ipv6_are_forwarded_by_it(subnet: str, forwards: bool) -> None:
    """kubeadm refuses to begin without it: FileContent--proc-sys-net-ipv6-conf-default-forwarding."""
    [sysctl] = role(kubernetes_pod_subnet=subnet)["__kubernetes_kernel_files"]

    assert ("net.ipv6.conf.all.forwarding = 1\n" in sysctl["content"]) == forwards
    assert sysctl["content"].endswith("net.bridge.bridge-nf-call-ip6tables = 1\n") != forwards


@pytest.mark.parametrize(("swap", "refused"), [("refuse", True), ("allow", False), ("disable", False)])
def test_swap_is_refused_only_where_it_is_asked_for(swap: str, refused: bool) -> None:
    server = {"result": {"clusters": [], "swaps": ["/swap.img"]}}
    kubernetes = role(kubernetes_swap=swap, _common_server=server)

    assert ("cp1 swaps: /swap.img." in "\n".join(kubernetes["__kubernetes_reasons"])) == refused
    assert kubernetes["__kubernetes_merged.kubelet.failSwapOn | default(true)"] == (swap != "allow")


@pytest.mark.parametrize("unit", ["zramswap.service", "zram-config.service"])
@pytest.mark.parametrize("files", [(), WORKER], ids=["a server", "a node"])
def test_swap_that_no_swap_unit_brings_back_is_refused(unit: str, files: Sequence[str]) -> None:
    """A service turns it on at each boot, so the drop-in of all swap units does not help."""
    enabled = [*files, f"/etc/systemd/system/multi-user.target.wants/{unit}"]
    told = reasons(*enabled, group="kube_node")

    assert f"Next, on the node: `systemctl disable --now {unit}`; or kubernetes_swap: allow" in told
    assert "zram" not in reasons(*enabled, group="kube_node", kubernetes_swap="allow")
    assert "zram" not in reasons(*files, f"/etc/systemd/system/{unit}", group="kube_node"), "masked"


@pytest.mark.parametrize("swaps", [["/swap.img"], []])
def test_a_run_turns_off_the_swap_of_a_node_as_well(swaps: list[str]) -> None:
    """Its kubelet would not start again."""
    tasks = yaml.safe_load((ROOT / "roles/kubernetes/tasks/kernel.yml").read_text())
    (condition,) = (task["when"] for task in tasks if task["name"] == "Do without swap")
    server = {"result": {"clusters": ["/etc/kubernetes/kubelet.conf"], "swaps": swaps}}

    assert role(*WORKER, group="kube_node", _common_server=server)[condition] is bool(swaps)


def test_the_endpoint_is_asked_before_there_is_a_cluster(tmp_path: Path) -> None:
    """By the task itself: a name that nobody has."""
    tasks = [
        {"ansible.builtin.set_fact": {"hostname": "localhost", "cacheable": True}},
        {
            "ansible.builtin.include_role": {"name": "kubegpu.autoscale.kubernetes", "tasks_from": "preflight"},
            "vars": {"_common_collects": True},
        },
        {"ansible.builtin.debug": {"msg": "answer: {{ __kubernetes_api.msg }} of {{ __kubernetes_api.url }}"}},
    ]
    known = {
        "_common_server": {"result": {"clusters": [], "swaps": []}},
        "_common_os": "Debian 12",
        "kubernetes_control_plane_endpoint": "nobody.invalid",
    }
    assert "of https://nobody.invalid:6443/version" in play(tmp_path, tasks, known)


def play(folder: Path, tasks: list[dict[str, Any]], variables: dict[str, Any]) -> str:
    """What a play of these tasks says, on this machine as a control plane."""
    book = [{"hosts": "kube_control_plane", "connection": "local", "gather_facts": False, "tasks": tasks}]
    (folder / "play.yml").write_text(json.dumps(book))
    (folder / "hosts.yml").write_text(yaml.safe_dump({"kube_control_plane": {"hosts": {"localhost": {}}}}))
    known = {
        "ansible_facts": {"user_uid": 0, "user_id": "root", "hostname": "localhost", "distribution": "Debian"},
        **variables,
    }
    words = ("-i", "hosts.yml", "play.yml", "-e", json.dumps(known))
    done = ansible_playbook(*words, cwd=folder, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH})
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 0, said
    return said


@pytest.mark.parametrize(("days", "is_said"), [(20, True), (40, False)])
def test_certificates_that_run_out_are_warned_of(tmp_path: Path, days: int, is_said: bool) -> None:
    """And what is fetched beside the inventory is kept out of git."""
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=admin", "-days", str(days)]
    subprocess.run(["openssl", *words, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    data = b64encode(certificate.read_bytes()).decode()
    admin = kubeconfigs.admin()
    admin["users"][0]["user"] = {"client-certificate-data": data}
    (tmp_path / "admin.conf").write_text(yaml.safe_dump(admin))
    fetched = tmp_path / "inventory/.kubegpu/kubeconfig"
    fetched.parent.parent.mkdir()
    role = {"name": "kubegpu.autoscale.kubernetes", "tasks_from": "kubeconfig"}
    known = {"__kubernetes_admin_conf": str(tmp_path / "admin.conf"), "kubegpu_kubeconfig": str(fetched)}
    said = play(tmp_path, [{"ansible.builtin.include_role": role}], known)

    assert ("certificates -> localhost: kubeadm's certificates are valid until" in said) == is_said
    assert yaml.safe_load(fetched.read_text()) == admin
    assert (fetched.with_name(".gitignore").read_text(), fetched.stat().st_mode & 0o777) == ("*\n", 0o600)


def test_a_kubeconfig_with_another_cluster_is_merged_and_its_context_is_known(tmp_path: Path) -> None:
    """By a run that follows as well: the current context of the file, which is production, is nobody's to change."""
    (tmp_path / "admin.conf").write_text(yaml.safe_dump(kubeconfigs.admin()))
    fetched = tmp_path / "config"
    fetched.write_text(yaml.safe_dump(kubeconfigs.production()))
    known = {"__kubernetes_admin_conf": str(tmp_path / "admin.conf"), "kubegpu_kubeconfig": str(fetched)}
    role = {"name": "kubegpu.autoscale.kubernetes", "tasks_from": "kubeconfig"}
    shown = {"msg": "context={{ kubegpu_context }}."}
    said = play(tmp_path, [{"ansible.builtin.include_role": role}], known)
    assert "changed=1" in said
    assert yaml.safe_load(fetched.read_text()) == kubeconfigs.together(kubeconfigs.production(), kubeconfigs.admin())
    assert "THE-ONLY-TOKEN" not in said

    again = [
        {"ansible.builtin.include_role": {**role, "public": True}},
        {"ansible.builtin.debug": shown},
    ]
    said = play(tmp_path, again, known)
    assert "changed=0" in said
    assert "context=kubernetes-admin@kubernetes." in said

    source = yaml.safe_load((ROOT / "roles/kubernetes/tasks/absent.yml").read_text())
    removal = next(task for task in source if "kubegpu.autoscale.kubeconfig" in task)
    said = play(tmp_path, [again[0], removal, again[1]], known)
    assert yaml.safe_load(fetched.read_text()) == kubeconfigs.production()
    assert "context=." in said


def test_routes_are_foreign_to_systemd_networkd() -> None:
    """It takes away what it does not know when it restarts, and at `netplan apply`."""
    file = role()["__kubernetes_network_files[2]"]
    settings = ConfigParser()
    settings.optionxform = str  # type: ignore[assignment]
    settings.read_string(file["content"])

    assert file["path"] == "/etc/systemd/networkd.conf.d/kubegpu.conf"
    assert dict(settings["Network"]) == {"ManageForeignRoutes": "no", "ManageForeignRoutingPolicyRules": "no"}
