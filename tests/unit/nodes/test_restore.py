"""Which backup a restore takes, from where, and what it fails for before anything is stopped."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planned import plan_of

NAME = "20261127T020000Z-111111111111"
OLDER = "20261126T020000Z-222222222222"
DIGESTS = {NAME: "1" * 64, OLDER: "2" * 64}
PLANES = ["cp1", "cp2", "cp3"]
MEMBERS = ",".join(f"{host}=https://{host}:2380" for host in PLANES)


def backup(name: str = NAME, **more: Any) -> dict[str, Any]:
    told = {"path": f"/x/{name}", "name": name, "sha256": DIGESTS.get(name, "3" * 64), "complete": True}
    return told | {"cluster": "1234", "node": "cp1", "members": {}, "created": 1} | more


def row(host: str, *backups: dict[str, Any], **more: Any) -> dict[str, Any]:
    told = {"name": host, "peer": f"https://{host}:2380", "identity": {"uid": "1234", "name": "prod"}}
    return {"host": host, "stdout": json.dumps(told | {"restoring": {}, "backups": backups, "living": {}} | more)}


def restoring(step: str, name: str = NAME, members: str = MEMBERS) -> dict[str, str]:
    return {"name": name, "sha256": DIGESTS[name], "members": members, "step": step}


def plan(*rows: dict[str, Any], copies: tuple[dict[str, Any], ...] = (), **more: Any) -> dict[str, Any]:
    members = [*rows] or [row("cp1", backup(), backup(OLDER)), row("cp2"), row("cp3")]
    hosts = [member["host"] for member in members]
    survey = {
        "control_planes": hosts,
        "hosts": hosts,
        "members": members,
        "controller": json.dumps({"backups": copies}),
    }
    return plan_of(
        "kubernetes.restore",
        {name: more.pop(name, value) for name, value in survey.items()},
        **{"restore_backup": NAME, "backup_folder": "/backups", **more},
    )


def test_all_control_planes_begin_with_one_digest() -> None:
    made = plan()

    assert made["refused"] == []
    assert made["commands"][0] == [
        *("restore-prepare", "--backup", f"/backups/{NAME}", "--sha256", "1" * 64, "--members", MEMBERS)
    ]
    assert {word for step in made["commands"] for word in step if word in DIGESTS.values()} == {"1" * 64}
    assert (made["cluster"], made["source"]["server"], made["copied_to"]) == ("prod", "cp1", ["cp2", "cp3"])


def test_copies_on_other_servers_are_written_again() -> None:
    of_controller = plan(*(row(host, backup()) for host in PLANES), copies=(backup(),))

    assert plan(*(row(host, backup()) for host in PLANES))["copied_to"] == ["cp2", "cp3"]
    assert of_controller["source"] == {"server": "", "controller": f"/x/{NAME}", "place": f"1234/cp1/{NAME}"}
    assert of_controller["copied_to"] == PLANES


ROWS = st.builds(
    backup,
    st.sampled_from([NAME, OLDER]),
    sha256=st.sampled_from(["1" * 64, "2" * 64]),
    complete=st.booleans(),
    cluster=st.sampled_from(["1234", "5678", ""]),
    node=st.sampled_from([*PLANES, "../x"]),
)
STATES = st.one_of(
    st.just({}),
    st.builds(
        restoring,
        st.sampled_from(["prepared", "stopping", "stopped", "swapped", "started"]),
        st.sampled_from([NAME, OLDER]),
    ),
)


@given(
    st.lists(st.tuples(st.lists(ROWS, max_size=3), STATES), min_size=1, max_size=3),
    st.lists(ROWS, max_size=2),
    st.booleans(),
)
def test_all_servers_end_with_one_digest_or_nothing_is_done(
    servers: list[tuple[list[Any], dict[str, str]]], copies: list[Any], wants: bool
) -> None:
    """Whatever lies where, under any name. A server has the data of the digest that it is given or has prepared."""
    rows = [row(host, *found, restoring=state) for host, (found, state) in zip(PLANES, servers, strict=False)]
    made = plan(*rows, copies=tuple(copies), restore_backup=NAME if wants else "")

    if not made["commands"]:
        assert not wants or made["refused"]
        return
    digests = {step[step.index("--sha256") + 1] for step in made["commands"]}
    assert len(digests) == 1
    [digest] = digests
    states = {member["host"]: state for member, (_, state) in zip(rows, servers, strict=False)}
    has = {host for host, state in states.items() if state and state["sha256"] == digest and state["name"] == NAME}
    ended = {host for host, state in states.items() if not state} if len(made["commands"]) == 1 else set()
    source = made["source"]["server"]
    assert has | ended | {*made["copied_to"]} | ({source} if source else set()) == {*states}
    if made["copied_to"]:
        [*pool] = copies if made["source"]["controller"] else servers[PLANES.index(source)][0]
        good = [
            b for b in pool if (b["name"], b["sha256"], b["cluster"], b["complete"]) == (NAME, digest, "1234", True)
        ]
        assert good
        assert ".." not in made["source"]["place"]
    assert all(state["name"] == NAME for state in states.values() if state and state["step"] != "prepared")


def test_an_interrupted_restore_continues_with_its_name_alone() -> None:
    stopped = row("cp1", restoring=restoring("stopped")), row("cp2", restoring=restoring("prepared"))

    made = plan(*stopped, row("cp3", restoring=restoring("prepared")))
    assert (made["refused"], made["copied_to"], len(made["commands"])) == ([], [], 6)
    assert plan(*stopped, restore_backup="")["commands"] == []
    assert re.search("cp1: the restore of .* has not ended", "\n".join(plan(*stopped, restore_backup="")["listing"]))


def test_servers_that_have_ended_are_not_restored_again() -> None:
    """A run that was killed in its last step has ended on some of them."""
    made = plan(row("cp1", restoring=restoring("started")), row("cp2", backup()), row("cp3"))

    assert [step[0] for step in made["commands"]] == ["restore-end"]


def test_a_member_that_was_lost_since_is_none_of_the_run() -> None:
    made = plan(row("cp1", restoring=restoring("stopped")), row("cp2", restoring=restoring("stopped")))

    assert made["commands"][0][-1] == MEMBERS
    assert made["commands"][-1][-1] == MEMBERS.rpartition(",")[0]


LIVES = {"living": {"https://cp2:2380": "cp2", "https://192.0.2.9:2380": "cp9"}}
REFUSED = {
    "an unknown name": (
        {"restore_backup": "20200101T000000Z"},
        f"no complete backup 20200101T000000Z of this cluster was found. .*{OLDER} on cp1; {NAME} on cp1",
    ),
    "a damaged one": ({"members": [row("cp1", backup(complete=False))]}, f"{NAME} on cp1, damaged"),
    "one of another cluster": ({"members": [row("cp1", backup(cluster="5678"))]}, r"of another cluster \(5678\)"),
    "one name of two digests": (
        {"members": [row("cp1", backup()), row("cp2", backup(sha256="2" * 64))]},
        "is the name of 2 different backups",
    ),
    "a control plane that does not take part": (
        {"control_planes": [*PLANES, "cp4"]},
        "cp4 of kube_control_plane is not",
    ),
    "a member that lives outside": (
        {"members": [row("cp1", backup(), **LIVES), row("cp2")]},
        "cp9 at https://192.0.2.9:2380 answers and is not in the run",
    ),
    "another restore that has stopped a server": (
        {"members": [row("cp1", backup(), restoring=restoring("stopping", OLDER))]},
        f"the restore of {OLDER} has not ended",
    ),
    "a server that the restore has begun without": (
        {"members": [row("cp1", restoring=restoring("stopped")), row("cp9", backup())]},
        "has begun with other members",
    ),
    "servers in two restores": (
        {"members": [row("cp1", restoring=restoring("stopped")), row("cp2", restoring=restoring("stopped", OLDER))]},
        "are in different restores",
    ),
    "servers of two clusters": ({"members": [row("cp1"), row("cp2", identity={"uid": "5678"})]}, "cp2: 5678"),
    "a server without a record": ({"members": [row("cp1", identity={})]}, "cp1: none"),
    "the end of one that has stopped a server": (
        {
            "members": [row("cp1", restoring=restoring("swapped")), row("cp2")],
            "restore_state": "absent",
            "restore_backup": "",
        },
        f"the restore of {NAME} has stopped control planes .cp1: swapped.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_restored_fails(case: str) -> None:
    more, words = REFUSED[case]
    if "members" in more:
        hosts = [member["host"] for member in more["members"]]
        more = {"hosts": hosts, "control_planes": hosts} | more

    made = plan(**more)

    [refused] = made["refused"]
    assert "Nothing was changed. Next: " in refused
    assert re.search(words, refused)
    assert made["commands"] == []
