"""Which backup a restore takes, from where, and what it fails for before anything is stopped."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.restore import RESTORE, restore_plan
from planned import planned

NAME = "20261127T020000Z"
OLDER = "20261126T020000Z"
PLANES = ["cp1", "cp2", "cp3"]


def row(host: str, **more: Any) -> dict[str, Any]:
    told = {
        "name": host,
        "peer": f"https://{host}:2380",
        "identity": {"uid": "1234", "name": "prod"},
        "restoring": "",
        "backups": [OLDER, NAME],
    }
    return {"host": host, "stdout": json.dumps(told | more)}


def plan(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    members = [*rows] or [row(host) for host in PLANES]
    hosts = [member["host"] for member in members]
    given = {"wanted": NAME, "folder": "/backups", "control_planes": hosts, "hosts": hosts, "members": members}
    return planned(restore_plan, RESTORE, given | more)


def test_all_control_planes_begin_with_one_backup() -> None:
    made = plan()

    assert made["refused"] == []
    assert made["members"] == "cp1=https://cp1:2380,cp2=https://cp2:2380,cp3=https://cp3:2380"
    assert (made["folder"], made["cluster"], made["missing"]) == (f"/backups/{NAME}", "prod", [])


def test_a_server_gets_the_backup_of_another_one_or_of_the_controller() -> None:
    copy = f"/home/me/.kubegpu/backups/cp1/{NAME}"
    of_another = plan(row("cp1", backups=[]), row("cp2"))
    of_controller = plan(row("cp1", backups=[]), row("cp2", backups=[]), copies=[copy])

    assert (of_another["source"], of_another["missing"]) == ({"server": "cp2", "controller": ""}, ["cp1"])
    assert (of_controller["source"], of_controller["missing"]) == ({"server": "", "controller": copy}, ["cp1", "cp2"])


def test_an_interrupted_restore_continues_with_its_backup() -> None:
    made = plan(row("cp1", restoring=OLDER, backups=[]), row("cp2", backups=[]), wanted="")

    assert (made["refused"], made["backup"], made["continues"]) == ([], OLDER, True)


REFUSED = {
    "no name": ({"wanted": ""}, f"kubernetes_restore_backup is not set. .*on cp1 {OLDER}, {NAME}; on cp2"),
    "an unknown name": ({"wanted": "20200101T000000Z"}, "no backup 20200101T000000Z was found"),
    "a control plane that does not take part": (
        {"control_planes": [*PLANES, "cp4"]},
        "cp4 of kube_control_plane is not",
    ),
    "another restore that has not ended": ({"members": [row("cp1", restoring=OLDER)]}, f"a restore of {OLDER} has not"),
    "servers of two clusters": ({"members": [row("cp1"), row("cp2", identity={"uid": "5678"})]}, "cp2: 5678"),
    "a server without a record": ({"members": [row("cp1", identity={})]}, "cp1: none"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_restored_fails(case: str) -> None:
    given, words = REFUSED[case]

    [refused] = plan(**given)["refused"]

    assert "Nothing was changed. Next: " in refused
    assert re.search(words, refused)
