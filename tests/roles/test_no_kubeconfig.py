"""A removal that reaches no cluster because of a wrong path is no success: in a cluster nothing was removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from role_tasks import reached
from task_walk import PLAYBOOKS, role_file
from test_confirmed_removals import REMOVING

ABSENT = {f"{role}_state": "absent" for role in REMOVING}
DOWN = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}  # nothing listens there


def removes_in_a_cluster(playbook: Path) -> bool:
    """Whether a play on the controller has a task of a role that may be absent, in what connects to the cluster."""
    return any(
        found.path == role_file("_common", "cluster") and found.keywords["hosts"] == "localhost"
        for found in reached(playbook)
    )


def said_by(folder: Path, playbook: Path, children: dict[str, object]) -> tuple[int, str]:
    inventory = {"all": {"hosts": {"localhost": {"ansible_connection": "local"}}, "children": children}}
    (folder / "hosts.yml").write_text(json.dumps(inventory))
    told = {"kubegpu_kubeconfig": str(folder / "typo"), "kubegpu_confirm": folder.name, **ABSENT}
    told |= {
        "gpu_loadtest_namespace": "ml",
        "gpu_loadtest_name": "chat",
        "gpu_loadtest_url": "http://chat/",
        "gpu_loadtest_high": 40,
    }
    words = ("-i", "hosts.yml", playbook, "-e", json.dumps(told), "--limit", "localhost")
    done = ansible_playbook(*words, cwd=folder, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH})
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("playbook", [*filter(removes_in_a_cluster, PLAYBOOKS)], ids=lambda path: path.stem)
def test_no_removal_ends_well_without_a_cluster(
    tmp_path: Path, playbook: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("prod", "lab")]
    config.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "contexts": contexts}))
    monkeypatch.setenv("KUBECONFIG", str(config))
    code, said = said_by(tmp_path, playbook, {})

    assert code == 2, said
    assert f"Not used: $KUBECONFIG is {config} with the contexts lab, prod" in said, said
    assert f"there is no kubeconfig at {tmp_path}/typo. Nothing was changed." in said, said


def test_where_the_cluster_may_be_gone_the_run_says_that_it_reached_none(tmp_path: Path) -> None:
    """The removal of the nodes removes the kubeconfig, too, and is run again."""
    [uninstall] = [path for path in PLAYBOOKS if path.stem == "uninstall"]
    code, said = said_by(tmp_path, uninstall, {"kube_node": {"hosts": {"gpu1": DOWN}}})

    assert code == 0, said
    assert said.count("so nothing is removed in a cluster.") == 1


def has_a_play_on_the_controller(playbook: Path) -> bool:
    return any(found.keywords.get("hosts") == "localhost" for found in reached(playbook))


@pytest.mark.parametrize("playbook", [*filter(has_a_play_on_the_controller, PLAYBOOKS)], ids=lambda path: path.stem)
def test_a_misspelled_inventory_is_an_error_and_not_a_run_without_one(tmp_path: Path, playbook: Path) -> None:
    """Ansible warns only, and gitops wrote a folder without any autoscaler of the inventory."""
    words = ("-i", "prodd", playbook, "-e", json.dumps({"gitops_folder": str(tmp_path / "folder")}))
    done = ansible_playbook(*words, cwd=tmp_path, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH})
    said = " ".join((done.stdout + done.stderr).split())

    assert done.returncode == 2, said
    assert f"controller -> inventory: there is no inventory {tmp_path}/prodd. Nothing was changed." in said, said
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize("rows", ['[{"namespace": "ml"}]', "ml/chat"])
def test_autoscalers_as_text_are_one_sentence(tmp_path: Path, rows: str) -> None:
    [autoscaling] = [path for path in PLAYBOOKS if path.stem == "autoscaling"]
    words = ("-i", "localhost,", autoscaling, "-e", f"gpu_autoscaling_autoscalers='{rows}'")
    done = ansible_playbook(*words, cwd=tmp_path, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH})
    said = " ".join((done.stdout + done.stderr).split())

    assert done.returncode == 2, said
    assert "autoscaler spec: gpu_autoscaling_autoscalers is text, which is what -e name=value makes" in said, said
