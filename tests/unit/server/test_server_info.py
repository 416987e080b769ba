"""What a server has before it becomes a node: swap, others' sources of packages, runtimes and clusters."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.kubegpu.autoscale.plugins.modules import server_info

DESCRIBED = yaml.safe_load(server_info.RETURN)["result"]["contains"]
DOCKER = {
    "file": "/etc/apt/sources.list.d/docker",
    "uri": "https://download.docker.com/linux/ubuntu",
    "suite": "noble",
    "components": ["stable"],
}


def look(capsys: pytest.CaptureFixture[str], root: Path, files: dict[str, str], **options: Any) -> dict[str, Any]:
    """What the module returns for a machine with these files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    with patch_module_args({"root": str(root), **options}), pytest.raises(SystemExit):
        server_info.main()
    return json.loads(capsys.readouterr().out)["result"]


def test_a_bare_server_has_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even apt: the doctor reads nodes of other systems."""
    monkeypatch.setenv("PATH", str(tmp_path))
    files = {"proc/swaps": "Filename\tType\tSize\tUsed\tPriority\n", "sys/class/dmi/id/sys_vendor": "Amazon EC2\n"}
    seen = look(capsys, tmp_path, files)

    assert {name: seen[name] for name in seen if name != "free_gib"} == {
        "swaps": [],
        "apt_sources": [],
        "runtimes": [],
        "clusters": [],
        "identity": {"node": "", "machine_id": "", "authorities": [], "is_member": False, "record": {}},
        "clock_ahead": 0.0,
        "vendor": "Amazon EC2",
        "reboots_alone": False,
    }
    assert seen["free_gib"].keys() == DESCRIBED["free_gib"]["sample"].keys()
    assert min(seen["free_gib"].values()) > 0


REBOOTS = "Unattended-Upgrade::Automatic-Reboot"


@pytest.mark.skipif(not shutil.which("apt-config"), reason="apt-config is missing")
@pytest.mark.parametrize(
    ("files", "reboots"),
    [
        ({"50u": f'//{REBOOTS} "true";'}, False),
        ({"50u": f'/* {REBOOTS} "true"; */'}, False),
        ({"50u": f'/*\n{REBOOTS} "true";\n*/'}, False),
        ({"50u": f'{REBOOTS}-Time "02:00";'}, False),
        ({"50u": 'Other::Automatic-Reboot "true";'}, False),
        ({"50u.dpkg-old": f'{REBOOTS} "true";'}, False),
        ({"50u": f'{REBOOTS} "true";'}, True),
        ({"50u": f"{REBOOTS} enable;"}, True),
        ({"50u": f'{REBOOTS.lower()} "with";'}, True),
        ({"52local.conf": 'Unattended-Upgrade {\n  Automatic-Reboot "1";\n};'}, True),
        ({"50u": f'{REBOOTS} "true";', "99x": f'{REBOOTS} "false";'}, False),
        ({"50u": f'{REBOOTS} "true";', "99x": f"#clear {REBOOTS};"}, False),
    ],
    ids=lambda value: " ".join([*value, *value.values()]) if isinstance(value, dict) else None,
)
def test_a_server_that_reboots_by_itself_is_told(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    reboots: bool,
) -> None:
    """As apt reads its settings."""
    (tmp_path / "apt.conf").write_text(f'Dir "{tmp_path}";\n')
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    settings = {f"etc/apt/apt.conf.d/{name}": f"{text}\n" for name, text in files.items()}
    assert look(capsys, tmp_path, settings)["reboots_alone"] is reboots


def test_room_is_told_of_folders_that_are_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Images may have a disk of their own."""
    seen = look(capsys, tmp_path, {}, folders=["/var/lib/containerd"])

    assert seen["free_gib"].keys() == {"/var/lib/containerd"}


def test_every_key_is_described_and_no_other(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    of_other_questions = {
        name for name, key in DESCRIBED.items() if re.search(r"O\((apt_key|apt_offer|ports)\)", str(key["description"]))
    }
    assert look(capsys, tmp_path, {}).keys() == DESCRIBED.keys() - of_other_questions


def test_ports_are_the_only_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with patch_module_args({"ports": []}), pytest.raises(SystemExit):
        server_info.main()
    assert json.loads(capsys.readouterr().out)["result"] == {"unreached": {}}


def test_swap_runtimes_and_clusters_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    swaps = "Filename\t\t\t\tType\t\tSize\n/swap.img    file\t4194300\t0\t-2\n/dev/zram0 partition\t1\t0\t100\n"
    files = {"proc/swaps": swaps, "usr/local/bin/containerd": "", "etc/rancher/k3s/k3s.yaml": ""}
    seen = look(capsys, tmp_path, files)

    assert seen["swaps"] == ["/swap.img", "/dev/zram0"]
    assert seen["runtimes"] == ["/usr/local/bin/containerd"]
    assert seen["clusters"] == ["/etc/rancher/k3s"]


def test_an_agent_of_k3s_is_a_node(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Its installer makes no folder of settings, which is the server's."""
    password, kubelet = "etc/rancher/node/password", "var/lib/rancher/k3s/agent/kubelet.kubeconfig"

    assert look(capsys, tmp_path, {password: "", kubelet: ""})["clusters"] == ["/var/lib/rancher/k3s"]


def test_one_that_has_left_is_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Its uninstaller leaves the node's password behind."""
    assert look(capsys, tmp_path, {"etc/rancher/node/password": ""})["clusters"] == []


FORMS = {
    "a line": ("list", "deb [arch=amd64 signed-by=/etc/apt/keyrings/docker.asc] {uri} noble stable # theirs\n"),
    "a line without options": ("list", "deb {uri}/ noble stable\n"),
    "a stanza": ("sources", "# Docker's\nTypes: deb\nURIs: {uri}/\nSuites: noble\nComponents: stable\nSigned-By: /x\n"),
    "a stanza with its key": (
        "sources",
        "Types: deb deb-src\nURIs: {uri}\nSuites: noble\nComponents: stable\nSigned-By:\n -----BEGIN\n .\n -----END\n",
    ),
    "the second stanza": (
        "sources",
        "Enabled: no\nTypes: deb\nURIs: http://a\nSuites: b\n\n"
        "Types: deb\nURIs: {uri}\nSuites: noble\nComponents:\n stable\n",
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_source_is_read_in_both_formats(capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str) -> None:
    ending, text = FORMS[form]
    path = f"etc/apt/sources.list.d/docker.{ending}"

    (source,) = look(capsys, tmp_path, {path: text.format(uri=DOCKER["uri"])})["apt_sources"]

    assert source == {**DOCKER, "file": f"/{path}"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("docker.list", "# deb http://a b c\ndeb-src http://a b c\n"),
        ("docker.sources", "Types: deb-src\nURIs: http://a\nSuites: b\n"),
        ("docker.sources", "Enabled: no\nTypes: deb\nURIs: http://a\nSuites: b\n"),
        ("docker.sources", "Enabled: False\nTypes: deb\nURIs: http://a\nSuites: b\n"),
        ("docker.list.save", "deb http://a b c\n"),
    ],
)
def test_a_source_that_apt_does_not_read_is_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, text: str
) -> None:
    assert look(capsys, tmp_path, {f"etc/apt/sources.list.d/{name}": text})["apt_sources"] == []


def test_a_flat_source_is_the_same_however_it_is_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """NVIDIA's guide has $(ARCH) in the address; apt fills it in."""
    text = "deb https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH) /\ndeb https://pkgs.k8s.io/deb/ ./\n"
    first, second = look(capsys, tmp_path, {"etc/apt/sources.list": text})["apt_sources"]

    assert first["uri"].rpartition("/")[2] in {"amd64", "arm64"}
    assert (first["suite"], first["components"]) == ("/", [])
    assert (second["uri"], second["suite"]) == ("https://pkgs.k8s.io/deb", "/")


def certificate(content: str) -> str:
    body = base64.b64encode(content.encode()).decode()
    return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"


def digest(content: str) -> str:
    return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"


KUBELET = "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    server: https://x:6443\n"


@pytest.mark.parametrize(
    ("files", "authorities"),
    [
        ({"etc/kubernetes/pki/ca.crt": certificate("a") + certificate("b")}, {digest("a"), digest("b")}),
        ({"var/lib/rancher/k3s/agent/server-ca.crt": certificate("a")}, {digest("a")}),
        (
            {
                "etc/kubernetes/kubelet.conf": KUBELET.format(base64.b64encode(certificate("a").encode()).decode()),
                "etc/kubernetes/pki/ca.crt": certificate("of a cluster before"),
            },
            {digest("a")},
        ),
        ({"etc/kubernetes/kubelet.conf": KUBELET.format("AA==")}, set()),
    ],
    ids=["kubeadm, in a rotation", "k3s", "the kubelet's comes first", "no certificate"],
)
def test_a_server_knows_the_authority_of_its_cluster(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, files: dict[str, str], authorities: set[str]
) -> None:
    assert set(look(capsys, tmp_path, files)["identity"]["authorities"]) == authorities


def test_a_server_knows_its_machine_and_what_was_recorded(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    record = {"name": "prod", "uid": "1", "machine_id": "ab12", "authorities": []}
    files = {"etc/machine-id": "ab12\n", "proc/sys/kernel/hostname": "GPU1.example.com\n"}
    files["etc/kubernetes/kubegpu/cluster.json"] = json.dumps(record)
    seen = look(capsys, tmp_path, files)["identity"]

    assert (seen["node"], seen["machine_id"], seen["record"]) == ("gpu1", "ab12", record)
    assert look(capsys, tmp_path, {"etc/kubernetes/kubegpu/cluster.json": "[]"})["identity"]["record"] == {}
