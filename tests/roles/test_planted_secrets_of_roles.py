"""A secret in each option of a role that can hold one: no Git folder, output, argument or file shows it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.plans import PLANS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.role_plan import variables_of
from collection import ROOT
from planted import HOLDERS, LOGIN, PLANT, VALUES, hides, watched_processes
from playbook import local, run_playbook
from role_values import RoleValues

ROLES = sorted(path.parents[1].name for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"))
CHARTS = [
    "dcgm_exporter",
    "gpu_operator",
    "keda",
    "metrics_server",
    "nvidia_device_plugin",
    "prometheus_adapter",
    "prometheus_stack",
]
# Values that a user writes freely, by what is done with them. A new option has to be named here.
OF_CHARTS = {f"{role}_values" for role in CHARTS} | {"kubernetes_cni_values"}  # module chart_release
OF_MODULES = {
    *(f"{role}_prometheus" for role in ("gpu_autoscaling", "gpu_doctor", "gpu_loadtest", "gpu_proof")),
    *("gpu_autoscaling_autoscalers", "gpu_autoscaling_metrics", "gpu_loadtest_headers"),
}
OF_KUBERNETES = (
    *("kubernetes_cluster_config", "kubernetes_kubelet_config", "kubernetes_kubeproxy_config", "kubernetes_patches"),
    *("kubernetes_controller_manager_args", "kubernetes_cni_values"),
)
OF_SERVERS = {"containerd_config", *OF_KUBERNETES} - OF_CHARTS
# Labels, selectors and settings of kubectl: everybody who reads the cluster reads them.
PUBLIC = re.compile(
    r"_(labels|annotations|node_selector|tolerations|drain_options|storage|source)$|^_common_|^kubegpu_versions$"
)


def free_options() -> set[str]:
    """Options of all roles that take a value of any shape."""
    found = set()
    for role in ROLES:
        specs = yaml.safe_load((ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text())["argument_specs"]
        for spec in specs.values():
            for name, option in (spec.get("options") or {}).items():
                kind, elements = option.get("type", "str"), option.get("elements", "str")
                is_free = kind in ("dict", "raw") or (kind == "list" and elements in ("dict", "raw"))
                found |= {name} if is_free and "options" not in option else set()
    return found


def test_each_free_option_of_a_role_is_one_that_is_tested() -> None:
    free = free_options()
    assert len(free) > 35
    assert {name for name in free if not PUBLIC.search(name)} == OF_CHARTS | OF_MODULES | OF_SERVERS


@pytest.mark.parametrize("charts", [[role for role in CHARTS if role != "gpu_operator"], ["gpu_operator"]], ids=len)
def test_no_secret_gets_into_a_git_folder_or_an_output(tmp_path: Path, charts: list[str]) -> None:
    """Each shape of a secret in the values of each chart: all are named, and none is shown or written."""
    folder = tmp_path / "gpus"
    variables = {
        "gitops_folder": str(folder),
        "gitops_path": "clusters/gpus",
        "gitops_roles": charts,
        **{f"{role}_state": "present" for role in charts},
        **{f"{role}_values": VALUES for role in charts},
    }
    with watched_processes() as lines:
        done = run_playbook(tmp_path, "kubegpu.autoscale.gitops", variables, "-vvv", "--diff")
    assert done.returncode == 2
    said = " ".join((done.stdout + done.stderr).partition("PLAY [")[2].split())
    missed = [(role, key) for role in charts for key in VALUES if f"{role}: {key}" not in said]
    assert missed == []
    assert hides(said)
    assert lines == []
    assert not folder.exists()


@pytest.mark.parametrize("name", ["kubegpu_apt_mirror", "kubegpu_chart_mirror", "kubegpu_image_mirror"])
@pytest.mark.parametrize("tasks", ["node", "cluster"])
def test_a_mirror_with_a_login_fails_the_run_first(tmp_path: Path, tasks: str, name: str) -> None:
    role = {"name": "kubegpu.autoscale._common", "tasks_from": tasks}
    variables = {name: LOGIN, "kubegpu_kubeconfig": "/nowhere", "_common_server": {}}
    done = run_playbook(tmp_path, local({"ansible.builtin.include_role": role}), variables, "-vvv")
    said = " ".join((done.stdout + done.stderr).partition("PLAY [")[2].split())
    assert done.returncode == 2
    assert f"{name}: the address has a login" in said
    assert PLANT not in said


def test_a_mirror_without_a_login_does_not() -> None:
    role = RoleValues("_common", {"kubegpu_apt_mirror": "https://mirror.example/apt"}, {})
    assert role["_common_addresses_with_login"] == []


@pytest.mark.parametrize(
    ("url", "arguments", "fails"),
    [
        (LOGIN, [], True),
        (LOGIN, ["--prometheus-auth-config=/etc/login/config"], False),
        (LOGIN, ["--prometheus-token-file=/etc/login/token"], False),
        ("https://metrics.example", [], False),
    ],
)
def test_no_login_gets_into_the_arguments_of_the_adapter(url: str, arguments: list[str], fails: bool) -> None:
    tasks = yaml.safe_load((ROOT / "roles" / "prometheus_adapter" / "tasks" / "preflight.yml").read_text())
    [task] = [task for task in tasks if task["name"] == "Fail if the adapter would get a login as an argument"]
    given = {"kubegpu_prometheus": {"url": url}, "prometheus_adapter_values": {"extraArguments": arguments}}
    role = RoleValues("prometheus_adapter", given | {"prometheus_adapter_state": "present"}, {"groups": {}})
    assert all(role[condition] for condition in task["when"]) is fails
    assert PLANT not in str(role["__prometheus_adapter_chart['values']"])
    assert PLANT not in role.text(task["ansible.builtin.fail"]["msg"])


def slurped(text: str) -> dict[str, str]:
    return {"content": b64encode(text.encode()).decode()}


MAIN = f'version = 3\n[plugins.x.registry.auth]\npassword = "{PLANT}"\n'
# Settings of the drop-in, and the existing configuration.
HOLDING: dict[str, tuple[dict[str, Any], str]] = {
    "settings of containerd": ({"auth": {"password": PLANT}}, "version = 3\n"),
    "an existing configuration of containerd": ({}, MAIN),
}


@pytest.mark.parametrize("name", HOLDING)
def test_a_plan_shows_no_secret_of_a_file(tmp_path: Path, name: str) -> None:
    config, main = HOLDING[name]
    survey = {
        "host": {"name": "gpu1", "system": "Debian 12", "kernel": "6.1.0", "architecture": "x86_64"},
        "paths": RoleValues("containerd", {}, {})["__containerd_paths"],
        "drop_in": {"name": "50-kubegpu.toml", "settings": {"2": {}, "3": {}}, "config": config},
        "found": {"files": []},
        "main": slurped(main),
    }
    task = {"role": "containerd", "subject": "drop_in", "survey": survey}
    plan = {"kubegpu.autoscale.plan": task, "register": "plan"}
    check = {"ansible.builtin.assert": {"that": f"'{PLANT}' in plan.files | string"}}

    done = run_playbook(tmp_path, local(plan, check), {}, "-vv", "--diff")
    assert done.returncode == 0, done.stdout + done.stderr
    assert PLANT not in (done.stdout + done.stderr).partition("PLAY [")[2]


def test_a_secret_of_a_server_is_in_no_difference() -> None:
    holder, public = {"all": list(HOLDERS.values())}, {"plugins": {"x": {"max": 8}}}
    for name in OF_KUBERNETES:
        for given, is_hidden in ((holder, True), (public, False)):
            assert RoleValues("kubernetes", {name: given}, {})["__kubernetes_has_secrets"] is is_hidden


def test_a_plan_is_hidden_where_its_options_have_secrets() -> None:
    """Its result has the documents with them."""
    [plan] = yaml.safe_load((ROOT / "roles/kubernetes/tasks/plan.yml").read_text())
    kinds = PLANS["kubernetes"].options
    options = {variable for kind in kinds for variable in variables_of(kind, "kubernetes").values()}

    assert plan["no_log"] == "{{ __kubernetes_has_secrets }}"
    assert {*OF_KUBERNETES} <= options


def environments(node: Any) -> Iterator[Any]:
    """What tasks give to their commands by the environment, blocks included."""
    if isinstance(node, dict):
        yield from [node["environment"]] if "environment" in node else []
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from environments(inner)


def test_no_task_gives_a_proxy_by_the_environment_of_a_command() -> None:
    """Ansible writes a task's environment into the command line of the shell that it starts."""
    tasks = [*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("roles/*/handlers/*.yml"), *ROOT.glob("playbooks/*.yml")]
    found = [str(given) for path in tasks for given in environments(yaml.safe_load(path.read_text()))]
    assert found
    assert [given for given in found if re.search("proxy|password|token", given, re.I)] == []
