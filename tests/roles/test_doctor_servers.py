"""The playbook doctor.yml on servers without a cluster: what the plans of the roles find there is in the report."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH, ROOT
from driver_machines import B200, L4, V100, Machine, machine_host
from jsonschema import Draft202012Validator

SCHEMA = json.loads((ROOT / "docs" / "doctor" / "report.schema.json").read_text())
MACHINES = {
    "bare": Machine(devices=(L4,)),
    "mixed": Machine(devices=(V100, B200)),
    "plain": Machine(devices=()),
    # Debian's own driver needs components that apt does not report before its first update.
    "archive": Machine(devices=(L4,), components=(), options={"nvidia_driver_source": "debian"}),
    "old": Machine(system="Debian 11"),
    "failing": Machine(devices=(L4,)),
    "gone": Machine(devices=(L4,)),
}
COLLECTION = "ansible_collections/lab/machines/plugins/modules"
# Facts of a machine in the place of those of this one.
KNOWN_FACTS = """
import json, os
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({}, supports_check_mode=True)
with open(os.environ["MACHINE_FACTS"]) as file:
    module.exit_json(ansible_facts=json.load(file))
"""
GONE = """
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.local import Connection as Local

class Connection(Local):
    transport = "gone"

    def _connect(self):
        raise AnsibleConnectionFailure("no route to host")
"""


@dataclass(frozen=True)
class Run:
    """status: of ansible-playbook. report: what it wrote."""

    status: int
    output: str
    report: dict[str, Any]
    before: dict[str, str]
    after: dict[str, str]

    def findings(self, server: str) -> list[dict[str, Any]]:
        return [finding for finding in self.report["findings"] if server in finding["servers"]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("servers")
    hosts = {name: host(folder / name, machine) for name, machine in MACHINES.items()}
    hosts["gone"]["ansible_connection"] = "gone"
    (folder / "failing" / "bin" / "dpkg-query").write_text("#!/bin/sh\necho cannot read the database >&2\nexit 2\n")
    groups = {"kube_control_plane": {"hosts": {"plain": {}}}, "kube_node": {"hosts": hosts}}
    (folder / "hosts.json").write_text(json.dumps({"all": {"children": groups}}))
    for place, text in ((f"{COLLECTION}/known_facts.py", KNOWN_FACTS), ("connection_plugins/gone.py", GONE)):
        (folder / place).parent.mkdir(parents=True)
        (folder / place).write_text(text)
    (folder / "doctor.yml").write_text(json.dumps(doctor()))
    before = digests(folder)
    settings = {
        "ANSIBLE_COLLECTIONS_PATH": f"{COLLECTIONS_PATH}:{folder}",
        "ANSIBLE_CONNECTION_PLUGINS": str(folder / "connection_plugins"),
    }
    told = json.dumps({"kubegpu_kubeconfig": str(folder / "none"), "kubegpu_free_gib": {}})
    done = ansible_playbook("-i", "hosts.json", "doctor.yml", "-e", told, cwd=folder, env=settings)
    output = done.stdout + done.stderr
    print(output)
    report = json.loads((folder / ".kubegpu" / "doctor" / "report.json").read_text())
    return Run(done.returncode, output, report, before, digests(folder))


def host(folder: Path, machine: Machine) -> dict[str, Any]:
    variables = machine_host(folder, machine)
    for known in ("_common_gpu_facts", "_common_server"):
        del variables[known]
    facts = {name: value for name, value in variables["machine_facts"].items() if name != "gpu_facts"}
    (folder / "facts.json").write_text(json.dumps(facts))
    return {**variables, "ansible_facts_modules": ["lab.machines.known_facts"]}


def doctor() -> list[dict[str, Any]]:
    """The playbook, whose first play reads the machines' folders."""
    servers, cluster = yaml.safe_load((ROOT / "playbooks" / "doctor.yml").read_text())
    root = {"root": "{{ machine_folder }}/root"}
    played = {
        "become": False,
        "environment": {
            "PATH": "{{ machine_folder }}/bin:{{ lookup('ansible.builtin.env', 'PATH') }}",
            "MACHINE_FACTS": "{{ machine_folder }}/facts.json",
        },
        "module_defaults": {
            "kubegpu.autoscale.gpu_facts": root,
            "kubegpu.autoscale.server_info": root,
        },
    }
    return [servers | played, cluster]


def digests(folder: Path) -> dict[str, str]:
    """Of the files of all machines."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for name in MACHINES
        for path in sorted((folder / name).rglob("*"))
        if path.is_file()
    }


def test_the_report_is_written_and_the_chain_is_broken(run: Run) -> None:
    Draft202012Validator(SCHEMA).validate(run.report)
    assert (run.status, run.report["verdict"]) == (2, "broken")
    assert "No cluster was reached. Broken on the servers: Server before it becomes a node" in run.output
    assert run.findings("bare") != []


def test_a_bare_server_lacks_its_driver_and_so_its_toolkit(run: Run) -> None:
    [finding] = run.findings("bare")
    assert (finding["id"], finding["severity"]) == ("DRIVER_MISSING", "error")
    assert finding["seen"] == ["has 1 GPUs (ada) and no NVIDIA driver"]
    assert any("server bare: has no nvidia-container-toolkit-base" in words for words in finding["consequences"])


def test_a_refusal_of_a_role_is_a_finding(run: Run) -> None:
    [finding] = run.findings("mixed")
    assert finding["id"] == "DRIVER_FLAVOUR_MIXED"
    assert "no single driver supports them" in finding["seen"][0]
    assert finding["doc"] == "docs/doctor/driver.md#driver_flavour_mixed"


def test_a_server_of_another_system_is_examined_no_further(run: Run) -> None:
    [finding] = run.findings("old")
    assert finding["id"] == "SERVER_SYSTEM_UNSUPPORTED"
    assert finding["seen"] == ["runs Debian 11, which is not supported"]


def test_a_server_without_gpus_has_none(run: Run) -> None:
    assert run.findings("plain") == []


def test_a_server_that_does_not_answer_is_one_finding(run: Run) -> None:
    [finding] = run.findings("gone")
    assert finding["id"] == "SERVER_UNREACHABLE"
    assert "no route to host" in finding["seen"][0]


def test_a_server_that_cannot_be_read_is_one_finding(run: Run) -> None:
    [finding] = run.findings("failing")
    assert finding["id"] == "SERVER_NOT_EXAMINED"


def test_each_server_is_listed_with_how_far_it_was_examined(run: Run) -> None:
    wanted = dict.fromkeys(MACHINES, "examined") | {"gone": "unreachable", "failing": "failed"}
    assert {server["name"]: server["status"] for server in run.report["servers"]} == wanted


def test_nothing_is_changed_on_a_server(run: Run) -> None:
    """Not even apt's lists, which the role updates where apt reports no component."""
    counted = dict(re.findall(r"^(\w+) +: .*?changed=(\d+)", run.output, re.MULTILINE))
    assert {counted[name] for name in MACHINES} == {"0"}
    assert run.after == run.before
    assert "Update apt's lists" in run.output
    assert [finding["id"] for finding in run.findings("archive")] == ["DRIVER_MISSING"]


def test_a_misspelled_variable_fails_before_a_cluster_is_read(tmp_path: Path) -> None:
    told = {"gpu_doctor_namespaces": ["ml"], "kubegpu_kubeconfig": str(tmp_path / "none")}
    words = ("-i", "localhost,", "kubegpu.autoscale.doctor", "-e", json.dumps(told))
    done = ansible_playbook(*words, cwd=tmp_path, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH})
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2
    assert 'unknown variable "gpu_doctor_namespaces". Nothing was changed. Next: did you mean gpu_doctor_name' in said
    assert "there is no kubeconfig" not in said
