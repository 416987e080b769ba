"""Checks of the role kubernetes before a cluster exists, and its warnings about expiring certificates."""

from __future__ import annotations

import json
import subprocess
from base64 import b64encode
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import kubeconfigs
import pytest
import yaml
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH, ROOT

PLAN = {"__kubernetes_plan": {"api": {"server": ""}}}


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
    system = {"distribution": "Debian", "kernel": "6.1.0-40-amd64", "architecture": "x86_64"}
    known = {
        "ansible_facts": {"user_uid": 0, "user_id": "root", "hostname": "localhost", **system},
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
    known = PLAN | {"__kubernetes_admin_conf": str(tmp_path / "admin.conf"), "kubegpu_kubeconfig": str(fetched)}
    said = play(tmp_path, [{"ansible.builtin.include_role": role}], known)

    assert ("certificates -> localhost: kubeadm's certificates are valid until" in said) == is_said
    assert yaml.safe_load(fetched.read_text()) == admin
    assert (fetched.with_name(".gitignore").read_text(), fetched.stat().st_mode & 0o777) == ("*\n", 0o600)


def test_a_kubeconfig_with_another_cluster_is_merged_and_its_context_is_known(tmp_path: Path) -> None:
    """By a run that follows as well: the current context of the file, which is production, is nobody's to change."""
    (tmp_path / "admin.conf").write_text(yaml.safe_dump(kubeconfigs.admin()))
    fetched = tmp_path / "config"
    fetched.write_text(yaml.safe_dump(kubeconfigs.production()))
    known = PLAN | {"__kubernetes_admin_conf": str(tmp_path / "admin.conf"), "kubegpu_kubeconfig": str(fetched)}
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
    settings = ConfigParser()
    settings.optionxform = str  # type: ignore[assignment]
    settings.read_string((ROOT / "roles/kubernetes/files/etc/systemd/networkd.conf.d/kubegpu.conf").read_text())

    assert dict(settings["Network"]) == {"ManageForeignRoutes": "no", "ManageForeignRoutingPolicyRules": "no"}
