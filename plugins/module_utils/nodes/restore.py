# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The plan of a restore: one backup by its digest, where it is, the members that begin with it, and each step."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

_NOTHING = "Nothing was changed."
# Of a server's own restore: those in which its control plane runs, beside none.
_RUNNING = ("", "prepared", "started")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PLACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")


@dataclass(frozen=True)
class RestoreOptions:
    restore_backup: str
    restore_state: str
    backup: bool
    backup_folder: str


@dataclass(frozen=True)
class Backup:
    """A backup as `kubegpu_upkeep.py` describes it.

    host: the server that has it, empty for the controller. cluster: UID. node: whose member of etcd it is of.
    sha256: of the snapshot. is_complete: with all files; of the wanted name, also with this digest.
    """

    host: str
    name: str
    path: str
    sha256: str
    cluster: str
    node: str
    is_complete: bool


@dataclass(frozen=True)
class Unfinished:
    """A restore that has not ended on a server. members: as etcdutl takes them. step: the last one; empty for none."""

    name: str = ""
    sha256: str = ""
    members: str = ""
    step: str = ""


@dataclass(frozen=True)
class Member:
    """A control plane server as `kubegpu_upkeep.py member` describes it.

    name, peer: of its member of etcd. cluster: UID and name that are recorded on the server.
    living:     names by peer URL of the other members that answer.
    """

    host: str
    name: str = ""
    peer: str = ""
    cluster: tuple[str, str] = ("", "")
    unfinished: Unfinished = Unfinished()
    backups: tuple[Backup, ...] = ()
    living: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Restore:
    """wanted: name of a backup. folder: of backups on servers. copies: backups on the controller.

    ends: discard what is prepared, and restore nothing. save: back up first what is replaced.
    """

    wanted: str
    folder: str
    control_planes: Sequence[str]
    hosts: Sequence[str]
    members: Sequence[Member] = ()
    copies: Sequence[Backup] = ()
    ends: bool = False
    save: bool = True

    @property
    def is_list(self) -> bool:
        return not self.wanted and not self.ends

    @property
    def backups(self) -> list[Backup]:
        """Those on the controller first: they need not be copied to it."""
        return [*self.copies, *(backup for member in self.members for backup in member.backups)]

    @cached_property
    def uid(self) -> str:
        return self.members[0].cluster[0] if self.members else ""

    @cached_property
    def candidates(self) -> list[Backup]:
        """Complete ones with the wanted name, of this cluster."""
        return [row for row in self.backups if row.name == self.wanted and row.is_complete and row.cluster == self.uid]

    @cached_property
    def begun(self) -> tuple[Unfinished, ...]:
        """The restore that has stopped a control plane, without its steps. Of more than one, something is wrong."""
        rows = (member.unfinished for member in self.members if member.unfinished.step not in ("", "prepared"))
        return tuple({Unfinished(row.name, row.sha256, row.members): None for row in rows})

    @property
    def is_at_end(self) -> bool:
        """Whether all have the data, and some may have ended the restore already."""
        return bool(self.begun) and all(member.unfinished.step in ("", "started") for member in self.members)

    @property
    def target(self) -> Unfinished:
        """What all servers get: that of the restore that has begun, or the wanted one with the members of the run."""
        if self.begun:
            return self.begun[0]
        digest = next((row.sha256 for row in self.candidates), "")
        prepared = (m.unfinished for m in self.members if m.unfinished.name == self.wanted)
        return Unfinished(self.wanted, digest or next((row.sha256 for row in prepared), ""), self.run_members)

    @property
    def run_members(self) -> str:
        return ",".join(f"{member.name}={member.peer}" for member in self.members)

    @property
    def lacking(self) -> list[str]:
        """Servers that have not prepared it."""
        target = self.target
        wanted = (target.name, target.sha256, target.members)
        found = {m.host: (m.unfinished.name, m.unfinished.sha256, m.unfinished.members) for m in self.members}
        return [] if self.is_at_end else [host for host, row in found.items() if row != wanted]

    @property
    def source(self) -> Backup | None:
        return next((row for row in self.candidates if row.sha256 == self.target.sha256), None)

    @property
    def copied_to(self) -> list[str]:
        """Each server that lacks it but the source: a copy there may be damaged, and is written again."""
        source = self.source
        return [host for host in self.lacking if source and host != source.host]

    @property
    def commands(self) -> list[list[str]]:
        """Arguments of the program. All servers take each one before the next."""
        target = self.target
        ours = ["--sha256", target.sha256]
        if self.is_list or [*self.refused]:
            return []
        if self.ends:
            return [["restore-abort"]]
        end = ["restore-end", *ours, "--members", self.run_members]
        if self.is_at_end:
            return [end]
        folder = f"{self.folder}/{target.name}"
        return [
            ["restore-prepare", "--backup", folder, *ours, "--members", target.members],
            *([["restore-save", *ours]] if self.save else []),
            *([f"restore-{step}", *ours] for step in ("stop", "swap", "start")),
            end,
        ]

    @property
    def refused(self) -> Iterator[str]:
        if self.is_list:
            return
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
            return
        yield from self._refused_end if self.ends else self._refused_restore

    @property
    def _refused_end(self) -> Iterator[str]:
        stopped = [member for member in self.members if member.unfinished.step not in _RUNNING]
        if stopped:
            rows = ", ".join(f"{member.host}: {member.unfinished.step}" for member in stopped)
            name = stopped[0].unfinished.name
            yield (
                f"restore -> etcd: the restore of {name} has stopped control planes ({rows}), so it must be finished. "
                f"{_NOTHING} Next: run this with -e kubernetes_restore_backup={name}"
            )

    @property
    def _refused_restore(self) -> Iterator[str]:
        outside = {
            f"{name or 'a member'} at {url}"
            for member in self.members
            for url, name in member.living.items()
            if url not in {own.peer for own in self.members}
        }
        if outside and not self.is_at_end:
            yield (
                f"restore -> etcd: {', '.join(sorted(outside))} answers and is not in the run. It would "
                f"remain as a second cluster. {_NOTHING} Next: add it to kube_control_plane, or stop its server"
            )
        names = {row.name for row in self.begun}
        if len(self.begun) > 1:
            yield (
                f"restore -> etcd: the control planes are in different restores ({', '.join(sorted(names))}). "
                f"{_NOTHING} Next: compare /etc/kubernetes/kubegpu/restoring.json on each server"
            )
            return
        if self.begun and self.wanted not in names:
            yield (
                f"restore -> etcd: the restore of {self.target.name} has not ended. {_NOTHING} Next: run this with "
                f"-e kubernetes_restore_backup={self.target.name}"
            )
        elif self.begun and {*self.run_members.split(",")} - {*self.target.members.split(",")}:
            yield (
                f"restore -> etcd: the restore of {self.target.name} has begun with other members "
                f"({self.target.members}). {_NOTHING} Next: run this for these control planes"
            )
        digests = {row.sha256 for row in self.candidates}
        if len(digests) > 1:
            yield (
                f"restore -> etcd: {self.wanted} is the name of {len(digests)} different backups. {_NOTHING} Next: "
                f"remove the wrong one. Found: {'; '.join(self.listing)}"
            )
        elif self.lacking and not self.source:
            yield (
                f"restore -> etcd: no complete backup {self.wanted} of this cluster was found. {_NOTHING} Next: "
                f"run this with -e kubernetes_restore_backup=NAME. Found: {'; '.join(self.listing)}"
            )

    @property
    def listing(self) -> list[str]:
        """What there is: each backup with its places, and each restore that has not ended."""
        found: dict[str, list[str]] = {}
        for row in self.backups:
            state = "" if row.is_complete else ", damaged"
            other = "" if row.cluster == self.uid else f", of another cluster ({row.cluster or 'unknown'})"
            found.setdefault(row.name, []).append(f"{row.host or 'the controller'}{state}{other}")
        return [
            *(f"{name} on {', '.join(places)}" for name, places in sorted(found.items())),
            *([] if found else ["no backup, neither on the control planes nor on the controller"]),
            *(
                f"{member.host}: the restore of {member.unfinished.name} has not ended ({member.unfinished.step}): "
                f"run this with -e kubernetes_restore_backup={member.unfinished.name}, or end it with "
                "-e kubernetes_restore_state=absent"
                for member in self.members
                if member.unfinished.step
            ),
        ]


def restore_plan(options: RestoreOptions, survey: Mapping[str, Any]) -> dict[str, Any]:
    """survey: `hosts` and `control_planes` of the run, and what the program printed on them and on the `controller`.

    Returns: refused; listing, what there is; commands, arguments of the program for all servers, none if it only lists;
    backup, its name; folder, its path on each server; source, the server that it is copied from or its path on the
    controller, and place, its path below the controller's folder; copied_to, the hosts that get it; cluster, the name.
    """
    restore = Restore(
        wanted=options.restore_backup.strip(),
        ends=options.restore_state == "absent",
        save=options.backup,
        folder=options.backup_folder,
        control_planes=tuple(survey["control_planes"]),
        hosts=tuple(survey["hosts"]),
        members=tuple(_member(row) for row in survey["members"]),
        copies=_backups("", survey["controller"]),
    )
    source = restore.source
    return {
        "refused": [*restore.refused],
        "listing": restore.listing,
        "commands": restore.commands,
        "backup": restore.wanted,
        "folder": f"{restore.folder}/{restore.wanted}",
        "source": {
            "server": source.host if source else "",
            "controller": source.path if source and not source.host else "",
            "place": f"{source.cluster}/{source.node}/{source.name}" if source else "",
        },
        "copied_to": restore.copied_to,
        "cluster": next((member.cluster[1] for member in restore.members), ""),
    }


def _backups(host: str, text: str) -> tuple[Backup, ...]:
    """text: JSON of the program. A name of a cluster or node that is no name of a folder is none."""
    rows = json.loads(text or "{}").get("backups") or ()
    return tuple(
        Backup(
            host=host,
            name=str(row["name"]),
            path=str(row["path"]),
            sha256=str(row["sha256"]),
            cluster=str(row["cluster"]),
            node=str(row["node"]),
            is_complete=bool(row["complete"])
            and bool(_DIGEST.fullmatch(str(row["sha256"])))
            and all(_PLACE.fullmatch(str(row[key])) for key in ("cluster", "node", "name")),
        )
        for row in rows
    )


def _member(row: Mapping[str, Any]) -> Member:
    """row: host, and the text that the program printed."""
    told = json.loads(row.get("stdout") or "{}")
    identity, unfinished = told.get("identity") or {}, told.get("restoring") or {}
    return Member(
        host=str(row["host"]),
        name=str(told.get("name") or ""),
        peer=str(told.get("peer") or ""),
        cluster=(str(identity.get("uid") or ""), str(identity.get("name") or "")),
        unfinished=Unfinished(**{key: str(unfinished.get(key) or "") for key in ("name", "sha256", "members", "step")}),
        backups=_backups(str(row["host"]), row.get("stdout") or ""),
        living=told.get("living") or {},
    )
