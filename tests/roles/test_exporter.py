"""What the exporter is given for a scrape each second on a node of eight GPUs."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.checks.exporter import (
    EXPORTER_OUT_OF_MEMORY,
    EXPORTER_PROBES_KILL,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.diagnosis.check import FindingType
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.quantity import parse_quantity
from collection import ROOT
from playbook import local, run_playbook
from programs import program
from role_values import RoleValues


def test_the_exporter_has_room_for_a_scrape_each_second() -> None:
    """By the chart's own 200m and 512Mi it is throttled, and killed (NVIDIA/dcgm-exporter#599)."""
    values = RoleValues("dcgm_exporter", {}, {})["__dcgm_exporter_values"]
    env = {row["name"]: row["value"] for row in values["extraEnv"]}

    assert values["resources"]["limits"] == {"cpu": "2", "memory": "2Gi"}
    assert values["resources"]["requests"] == {"cpu": "200m", "memory": "512Mi"}
    # What its Go runtime keeps to. Go 1.25 and later look at the limit of processors, not at that of memory.
    assert (env["GOMAXPROCS"], env["GOMEMLIMIT"]) == ("2", "1024MiB")
    assert values["serviceMonitor"]["scrapeTimeout"] == values["serviceMonitor"]["interval"]


def test_a_change_reaches_many_nodes_and_a_slow_answer_ends_no_exporter(tmp_path: Path) -> None:
    """The chart changes one node at a time, and ends an exporter whose answers take a second three times in a row."""
    values = RoleValues("dcgm_exporter", {}, {})["__dcgm_exporter_values"]
    (tmp_path / "values.yml").write_text(
        json.dumps({name: values[name] for name in ("rollingUpdate", "livenessProbe", "readinessProbe")})
    )
    argv = [program("helm"), "template", "x", ROOT / "lab/charts/dcgm-exporter", "--values", tmp_path / "values.yml"]
    rendered = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout
    [made] = [manifest for manifest in yaml.safe_load_all(rendered) if manifest and manifest["kind"] == "DaemonSet"]
    [container] = made["spec"]["template"]["spec"]["containers"]

    assert made["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": "25%", "maxSurge": 0}
    assert (container["livenessProbe"]["initialDelaySeconds"], container["livenessProbe"]["periodSeconds"]) == (45, 30)


@pytest.mark.parametrize("role", ["dcgm_exporter", "nvidia_device_plugin"])
@pytest.mark.parametrize(("nodes", "seconds"), [(0, 300), (200, 1100)])
def test_a_wait_for_a_pod_on_each_node_follows_their_number(role: str, nodes: int, seconds: int) -> None:
    values = RoleValues(role, {"kubegpu_fleet": {"nodes": nodes}}, {"kubegpu_cluster": {}})
    assert int(values[f"{role}_wait_timeout"]) == seconds


def test_what_the_inventory_adds_to_a_list_leaves_the_role_s_entries() -> None:
    """The doctor's fixes add a variable or a toleration, which is to make the exporter neither slow nor leave nodes."""
    own = {"name": "GOMAXPROCS", "value": "4"}, {"name": "NVIDIA_RESOURCE_NAMES", "value": "example.com/gpu"}
    taint = {"key": "pool", "operator": "Exists"}
    given = {"dcgm_exporter_values": {"extraEnv": [*own], "tolerations": [taint]}}
    values = RoleValues("dcgm_exporter", given, {})["__dcgm_exporter_chart"]["values"]
    env = {row["name"]: row["value"] for row in values["extraEnv"]}

    assert len(env) == len(values["extraEnv"])
    assert env["DCGM_EXPORTER_INTERVAL"] == "1000"
    assert (env["GOMAXPROCS"], env["NVIDIA_RESOURCE_NAMES"]) == ("4", "example.com/gpu")
    assert [row["key"] for row in values["tolerations"]][-2:] == ["nvidia.com/gpu", "pool"]


@pytest.mark.parametrize("type_", [EXPORTER_OUT_OF_MEMORY, EXPORTER_PROBES_KILL], ids=lambda type_: type_.id)
def test_a_fix_of_the_doctor_gives_more_than_there_is(type_: FindingType) -> None:
    """Whose exporter has the role's values, or the chart's, gains by it."""
    [shown] = re.findall(r"dcgm_exporter_values: ({.+})", type_.fix.format())
    chart = yaml.safe_load((ROOT / "lab/charts/dcgm-exporter/values.yaml").read_text())
    role = RoleValues("dcgm_exporter", {}, {})["__dcgm_exporter_values"]
    for path, value in leaves(yaml.safe_load(shown)):
        before = dict(leaves(role)).get(path) or dict(leaves(chart))[path]
        assert parse_quantity(str(value)) > parse_quantity(str(before))


def leaves(values: Mapping[str, Any], *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, *path, key)
        else:
            yield (*path, key), value


@pytest.mark.parametrize("release", ["dcgm-exporter", "site-dcgm-exporter", "gpu", "x" * 53])
def test_an_idle_gpu_has_no_names_whatever_the_release_is_called(release: str) -> None:
    """Its sample comes with those of the exporter's own pod, whose name is the DaemonSet's and five letters."""
    known = {"dcgm_exporter_release": release, "dcgm_exporter_namespace": "gpus"}
    values = RoleValues("dcgm_exporter", known, {})["__dcgm_exporter_values"]
    first = values["serviceMonitor"]["metricRelabelings"][0]
    (daemon_set,) = _daemon_sets(release)

    assert re.fullmatch(first["regex"], f"gpus;{daemon_set}-x7k2p;exporter")
    assert not re.fullmatch(first["regex"], "gpus;worker-x7k2p;exporter")


def test_gke_lets_pods_of_the_exporter_be_made() -> None:
    """It gives system-node-critical to pods of kube-system alone, and the chart asks for that (NVIDIA/aicr#915)."""
    (page,) = re.findall(r"```yaml\n(# group_vars/all.yml\n.*?)```", (ROOT / "docs/clusters/gke.md").read_text(), re.S)
    values = RoleValues("dcgm_exporter", yaml.safe_load(page), {"kubegpu_cluster": {}})["__dcgm_exporter_chart"][
        "values"
    ]

    assert values.get("priorityClassName") == ""
    own = RoleValues("dcgm_exporter", {}, {})["__dcgm_exporter_chart"]["values"]
    assert {row["name"] for row in own["extraEnv"]} <= {row["name"] for row in values["extraEnv"]}, (
        "a list replaces a list"
    )


PLAIN = {"name": "x/plain", "owned": False, "release": "", "service": "web", "namespace": "x", "monitor_labels": {}}


@pytest.mark.parametrize(
    ("served", "there", "options", "has_monitor"),
    [
        (False, [PLAIN], {}, False),
        (True, [PLAIN], {}, True),
        (False, [], {}, True),
        (False, [PLAIN], {"prometheus_stack_state": "present"}, True),
        (False, [], {"prometheus_stack_state": "existing"}, False),
    ],
    ids=["a plain one", "with the kind", "ours comes", "ours comes beside it", "one that is not seen"],
)
def test_a_monitor_is_made_only_where_its_kind_is_or_comes(
    served: bool, there: list[dict[str, Any]], options: dict[str, str], has_monitor: bool
) -> None:
    """The chart makes one without a look, and the API server refuses a kind that it does not know."""
    seen = {"kubegpu_cluster": {"components": {"prometheus": there}, "serves_monitors": served}}
    values = RoleValues("dcgm_exporter", options, seen)["__dcgm_exporter_chart"]["values"]
    assert values["serviceMonitor"].get("enabled", True) is has_monitor
    assert values["serviceMonitor"]["honorLabels"]


def _daemon_sets(release: str) -> list[str]:
    """What the chart calls its DaemonSet; the lab's chart gives the names that the original gives."""
    argv = [program("helm"), "template", release, ROOT / "lab" / "charts" / "dcgm-exporter"]
    rendered = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = [manifest for manifest in yaml.safe_load_all(rendered) if manifest]
    return [manifest["metadata"]["name"] for manifest in found if manifest["kind"] == "DaemonSet"]


DRIVER = {"kind": "DaemonSet", "name": "dra/kubelet-plugin", "release": "dra/driver", "owned": False}
BY_DRA = {"dcgm_exporter_values": {"kubernetesDRA": {"enabled": True}}}


@pytest.mark.parametrize(
    ("drivers", "options", "is_told"),
    [([DRIVER], {}, True), ([DRIVER], BY_DRA, False), ([], {}, False)],
    ids=["claims are given", "and read", "no claims"],
)
def test_that_claimed_gpus_name_no_pod_is_told(
    tmp_path: Path, drivers: list[dict[str, Any]], options: dict[str, Any], is_told: bool
) -> None:
    """By the chart's values it reads no claims."""
    role = {"ansible.builtin.include_role": {"name": "kubegpu.autoscale.dcgm_exporter", "tasks_from": "preflight"}}
    cluster = {"context": "test", "components": {"dra_driver": drivers}, "serves_monitors": True}
    done = run_playbook(tmp_path, local(role), {"kubegpu_cluster_ready": True, "kubegpu_cluster": cluster, **options})
    assert done.returncode == 0
    said = " ".join(done.stdout.split())
    assert (
        "WARNING: cluster -> exporter: DaemonSet dra/kubelet-plugin allocates GPUs by resource claims" in said
    ) is is_told
