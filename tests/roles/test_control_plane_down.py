"""A control plane that is down does not end a limited run. Nor is a second cluster made beside its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from role_values import ROLES, RoleValues

FOLDER = "/etc/kubernetes/kubegpu"
# Nothing listens there.
DOWN = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
LOCAL = {"ansible_connection": "local"}


def test_a_limited_run_goes_on_past_it(tmp_path: Path) -> None:
    """By the tasks of the role, in a play that any error ends: upgrades are one, and others allow no server to fail."""
    survey = yaml.safe_load((ROLES / "kubernetes/tasks/survey.yml").read_text())
    looks = [task for task in survey if "this run leaves out" in task["name"] or "that answer" in task["name"]]
    assert len(looks) == 2
    told = {"ansible.builtin.debug": {"msg": "silent {{ silent }}, seen {{ seen }}"}}
    seen = "{{ __kubernetes_elsewhere.results | map(attribute='item') | sort }}"
    silent = RoleValues("kubernetes", {}, {})  # the expression is the role's own
    assert silent["__kubernetes_silent"] == []
    main = yaml.safe_load((ROLES / "kubernetes/vars/main/main.yml").read_text())
    play = {
        "hosts": "kube_node",
        "gather_facts": False,
        "any_errors_fatal": True,
        "max_fail_percentage": 0,
        "vars": {
            "__kubernetes_control_planes": ["cp1", "cp2", "cp3"],
            "__kubernetes_initialised": "/etc/hostname",
            "silent": main["__kubernetes_silent"],
            "seen": seen,
        },
        "tasks": [*looks, told],
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    planes = {"cp1": LOCAL, "cp2": DOWN, "cp3": LOCAL}
    inventory = {"kube_control_plane": {"hosts": planes}, "kube_node": {"hosts": {"gpu1": LOCAL, "gpu2": LOCAL}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
    words = ("-i", "hosts.yml", "play.yml")
    done = ansible_playbook(*words, cwd=tmp_path, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH})

    assert done.returncode == 0, done.stdout
    assert done.stdout.count("silent ['cp2'], seen ['cp1', 'cp3']") == 2


def reasons(
    *files: str, group: str = "kube_control_plane", down: tuple[str, ...] = (), up: tuple[str, ...] = (), **options: Any
) -> str:
    """What the role refuses on `new`, while these control planes are down, and these are complete."""
    found = {"files": [{"path": path, "checksum": "0"} for path in files]}
    inventory = {
        "inventory_hostname": "new",
        "groups": {"kube_control_plane": [*down, *up], group: ["new", *down, *up]},
        "hostvars": {"new": {"__kubernetes_found": found}, **{name: {} for name in (*down, *up)}},
        "ansible_play_hosts": ["new"],
        "ansible_play_hosts_all": ["new"],
        "kubegpu_kubeconfig": "/nowhere/kubeconfig",
        "kubernetes_control_plane_endpoint": "k8s.example:6443",
    }
    told = {
        "ansible_facts": {"hostname": "new", "default_ipv4": {"address": "192.0.2.1"}},
        "__kubernetes_found": found,
        "__kubernetes_elsewhere": {"results": [{"item": name, "stat": {"exists": True}} for name in up]},
        "__kubernetes_reached": {
            "results": [*({"item": name, "msg": "timed out"} for name in down), *({"item": name} for name in up)]
        },
        "_common_server": {"result": {"clusters": [], "swaps": []}},
        **{name: value for name, value in options.items() if name.startswith("_")},
    }
    settings = {name: value for name, value in options.items() if not name.startswith("_")}
    return "\n".join(RoleValues("kubernetes", inventory | settings, told)["__kubernetes_reasons"])


WORKER = (FOLDER, f"{FOLDER}/applied.yaml", "/etc/kubernetes/kubelet.conf")
ANSWERS = [{"status": 200}, {"status": 401}, {"status": 403}]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: str(answer["status"]))
def test_no_second_cluster_is_made_where_an_api_server_answers(answer: dict[str, Any]) -> None:
    said = reasons(__kubernetes_api=answer)

    assert "an API server answers at k8s.example:6443, and new, which would make the cluster there, is in none" in said
    assert "Nothing was changed." in said


@pytest.mark.parametrize("answer", [{"status": -1, "msg": "Connection refused"}, {"status": 503}])
def test_a_load_balancer_without_servers_is_no_api_server(answer: dict[str, Any]) -> None:
    assert "an API server answers" not in reasons(__kubernetes_api=answer)


@pytest.mark.parametrize("group", ["kube_control_plane", "kube_node"])
@pytest.mark.parametrize(
    ("down", "up", "is_refused"), [(("cp2",), (), True), (("cp2",), ("cp1",), False), ((), ("cp1",), False)]
)
def test_a_server_joins_by_any_control_plane_and_makes_no_cluster_beside_silent_ones(
    group: str, down: tuple[str, ...], up: tuple[str, ...], is_refused: bool
) -> None:
    said = reasons(group=group, down=down, up=up)

    assert ("new is in no cluster, and control planes that may have one do not answer: cp2." in said) == is_refused


@pytest.mark.parametrize(
    ("down", "up", "is_refused"),
    [(("cp2",), (), True), (("cp2",), ("cp1",), False), ((), (), False)],
    ids=["none answers", "one answers", "none is in the inventory"],
)
def test_a_worker_leaves_by_any_control_plane(down: tuple[str, ...], up: tuple[str, ...], is_refused: bool) -> None:
    said = reasons(*WORKER, group="kube_node", down=down, up=up, kubernetes_state="absent")

    assert ("new cannot be drained or removed from the cluster: of its control planes cp2 do not answer" in said) == (
        is_refused
    )
