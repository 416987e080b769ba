"""Module gpu_hours_info and the playbook hours on a real Prometheus. A sample a second stands for one a minute."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from control_plane import ControlPlane, eventually
from kubernetes import client
from metric_chain import MetricChain
from playbook import run_playbook
from test_examples import examples
from test_examples import run as run_tasks
from workloads import Workloads

HOURS = "gpu_hours_info"
RECORDED = """\
namespace_workload:gpus_held:sum{namespace="ml",workload="chat"} 3
namespace_workload:gpus_busy:sum{namespace="ml",workload="chat"} 1
namespace_workload:gpus_idle:sum{namespace="ml",workload="chat"} 2
namespace_workload:gpus_held:sum{namespace="lab",workload="notebook"} 1
cluster:gpus_offered:sum 6
cluster:gpus_free:sum 2
"""


def test_hours_of_a_prometheus(
    run: Callable[..., dict[str, Any]],
    chain: MetricChain,
    plane: tuple[ControlPlane, client.ApiClient],
    workloads: Workloads,
    tmp_path: Path,
) -> None:
    missing = run(HOURS)
    assert (missing["failed"], missing["hop"]) == (True, "rule")
    assert "it has no rule that records namespace_workload:gpus_held:sum" in missing["msg"]
    assert "run playbooks/monitoring.yml" in missing["fix"]

    chain.exporter.text = RECORDED
    seen = "count_over_time(cluster:gpus_offered:sum[1h]) >= 5"
    eventually(lambda: '"value"' in chain.answer(seen), "some samples are there", 120)
    found = run(HOURS)
    assert not found.get("failed")
    assert not found["changed"]
    assert any("the data of Prometheus begin at" in warning for warning in found["warnings"])
    weeks = found["result"]["weeks"]
    assert len(weeks) == 4
    assert [week["recorded_hours"] for week in weeks[:2]] == [0, 0]
    chat, notebook = found["result"]["workloads"]
    assert (chat["namespace"], chat["workload"]) == ("ml", "chat")
    assert 0.6 <= chat["idle_share"] <= 0.7
    assert abs(chat["gpu_hours"] - 3 * notebook["gpu_hours"]) < 0.1
    assert notebook["unknown_hours"] == notebook["gpu_hours"] > 0
    assert sum(week["offered_hours"] for week in weeks) > chat["gpu_hours"]

    few = run(HOURS, namespaces=["lab"], weeks=1)["result"]
    assert [row["workload"] for row in few["workloads"]] == ["notebook"]

    (tmp_path / "hosts.yml").write_text(json.dumps({"all": {"hosts": {"localhost": {"ansible_connection": "local"}}}}))
    options = {"kubegpu_kubeconfig": str(plane[0].kubeconfig), "gpu_hours_weeks": 2}
    done = run_playbook(tmp_path, "kubegpu.autoscale.hours", options, inventory="hosts.yml")
    assert done.returncode == 0
    assert "Pods held" in done.stdout
    folder = tmp_path / ".kubegpu" / "hours"
    assert {path.name for path in folder.iterdir()} == {"hours.json", "hours.html", "hours.csv"}
    assert len(json.loads((folder / "hours.json").read_text())["weeks"]) == 2
    assert "ml,chat," in (folder / "hours.csv").read_text()

    run_tasks(tmp_path, examples(HOURS), kubeconfig=plane[0].kubeconfig)
