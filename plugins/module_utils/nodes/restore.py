# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan of a restore: which backup, where it is, and the members with which etcd begins again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .host import Host

_NAMES: dict[str, Any] = {"type": "list", "elements": "str"}
_ROWS: dict[str, Any] = {"type": "list", "elements": "dict", "default": []}
RESTORE: dict[str, Any] = {
    "wanted": {"type": "str", "default": ""},
    "folder": {"type": "str", "required": True},
    "control_planes": _NAMES | {"required": True},
    "hosts": _NAMES | {"required": True},
    "members": _ROWS,
    "copies": _NAMES | {"default": []},
}
_NOTHING = "Nothing was changed."


@dataclass(frozen=True)
class Member:
    """A control plane server as `kubegpu_upkeep.py member` describes it.

    name, peer: of its member of etcd. cluster: UID and name that are recorded on the server.
    restoring:  backup of a restore that has not ended; empty for none.
    backups:    names of the complete backups on it, the oldest first.
    """

    host: str
    name: str = ""
    peer: str = ""
    cluster: tuple[str, str] = ("", "")
    restoring: str = ""
    backups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Restore:
    """wanted: name of a backup. folder: of backups on servers. copies: folders of complete ones on the controller."""

    wanted: str
    folder: str
    control_planes: Sequence[str]
    hosts: Sequence[str]
    members: Sequence[Member] = ()
    copies: Sequence[str] = field(default_factory=tuple)

    @cached_property
    def unfinished(self) -> frozenset[str]:
        return frozenset(member.restoring for member in self.members if member.restoring)

    @property
    def name(self) -> str:
        """An interrupted restore continues with its backup."""
        return self.wanted or (next(iter(self.unfinished)) if len(self.unfinished) == 1 else "")

    @property
    def on_server(self) -> str:
        """The first server that has it; empty if it has to come from the controller."""
        return next((member.host for member in self.members if self.name in member.backups), "")

    @property
    def on_controller(self) -> str:
        return next((path for path in self.copies if _name(path) == self.name), "")

    @property
    def initial_cluster(self) -> str:
        return ",".join(f"{member.name}={member.peer}" for member in self.members)

    @property
    def refused(self) -> Iterator[str]:
        missing = sorted({*self.control_planes} - {*self.hosts})
        if missing:
            yield (
                f"restore -> etcd: {', '.join(missing)} of kube_control_plane is not in the run, or does not answer. "
                f"All members of etcd begin with the same data. {_NOTHING} Next: start it and run this for all hosts; "
                "or remove it from kube_control_plane if it is lost"
            )
            return
        clusters = {member.cluster[0] for member in self.members}
        if len(clusters) != 1 or "" in clusters:
            names = ", ".join(f"{member.host}: {member.cluster[0] or 'none'}" for member in self.members)
            yield (
                f"restore -> etcd: the control planes are not of one recorded cluster ({names}). {_NOTHING} Next: "
                "check the inventory; /etc/kubernetes/kubegpu/cluster.json on each server names its cluster"
            )
        others = self.unfinished - {self.name}
        if others:
            yield (
                f"restore -> etcd: a restore of {', '.join(sorted(others))} has not ended. {_NOTHING} Next: run this "
                f"with -e kubernetes_restore_backup={sorted(others)[0]}"
            )
        elif not self.name or not (self.on_server or self.on_controller or self.name in self.unfinished):
            seen = f"no backup {self.name} was found" if self.name else "kubernetes_restore_backup is not set"
            yield (
                f"restore -> etcd: {seen}. {_NOTHING} Next: run this with -e kubernetes_restore_backup=NAME. "
                f"Found: {self._found or 'none, neither on the control planes nor on the controller'}"
            )

    @property
    def _found(self) -> str:
        rows = [f"on {member.host} {', '.join(member.backups)}" for member in self.members if member.backups]
        names = sorted({_name(path) for path in self.copies})
        return "; ".join([*rows, *([f"on the controller {', '.join(names)}"] if names else [])])


def restore_plan(_host: Host, params: Mapping[str, Any]) -> dict[str, Any]:
    """`params` are as RESTORE has them.

    Returns: refused; backup, its name and its folder on each server; source, the server or the folder on the controller
    that it is copied from; members, as etcdutl takes them.
    """
    restore = Restore(
        wanted=params["wanted"].strip(),
        folder=params["folder"],
        control_planes=tuple(params["control_planes"]),
        hosts=tuple(params["hosts"]),
        members=tuple(_member(row) for row in params["members"]),
        copies=tuple(params["copies"]),
    )
    return {
        "refused": [*restore.refused],
        "backup": restore.name,
        "folder": f"{restore.folder}/{restore.name}",
        "source": {"server": restore.on_server, "controller": restore.on_controller},
        "missing": [member.host for member in restore.members if restore.name not in member.backups],
        "members": restore.initial_cluster,
        "cluster": next((member.cluster[1] for member in restore.members), ""),
        "continues": restore.name in restore.unfinished,
    }


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _member(row: Mapping[str, Any]) -> Member:
    """row: host, and the text that the program printed."""
    told = json.loads(row.get("stdout") or "{}")
    identity = told.get("identity") or {}
    return Member(
        host=str(row["host"]),
        name=str(told.get("name") or ""),
        peer=str(told.get("peer") or ""),
        cluster=(str(identity.get("uid") or ""), str(identity.get("name") or "")),
        restoring=str(told.get("restoring") or ""),
        backups=tuple(told.get("backups") or ()),
    )
