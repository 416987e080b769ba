# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Backups, renewal of certificates and status of a node: the settings and the systemd units of kubegpu_upkeep.py."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..driver.branch_ends import BRANCH_ENDS
from ..survey.files import WantedFile
from . import paths as files

_WRITTEN = "# Written by kubegpu.autoscale\n"
# Between the control planes of a cluster, so that never two of them restart their components at the same time.
STAGGER_HOURS = 1
WEEK_HOURS = 24


@dataclass(frozen=True)
class UpkeepOptions:
    """The role's options by their names without `kubernetes_`.

    backup_copy:    folder of a mounted file system, to which each backup is copied; empty for none.
    backup_keep:    how many backups stay in each folder.
    renew_days:     certificates that expire within this many days are renewed.
    metrics_folder: of node-exporter's textfile collector; empty for no metrics.
    """

    backup: bool
    backup_schedule: str
    backup_folder: str
    backup_copy: str
    backup_keep: int
    renew_certificates: bool
    renew_days: int
    metrics_folder: str


@dataclass(frozen=True)
class Upkeep:
    """What one node gets.

    node:      its name; position: its place among the control planes, None for a worker.
    has_etcd:  whether etcd runs on the control planes.
    installed: paths that exist on the server.
    """

    options: UpkeepOptions
    node: str
    position: int | None
    has_etcd: bool
    installed: Collection[str] = ()

    @property
    def backs_up(self) -> bool:
        return self.position is not None and self.has_etcd and self.options.backup

    @property
    def renews(self) -> bool:
        return self.position is not None and self.options.renew_certificates

    @property
    def settings(self) -> dict[str, object]:
        """As kubegpu_upkeep.py reads them. branch_ends: Unix seconds by driver branch."""
        options = self.options
        return {
            "node": self.node,
            "is_control_plane": self.position is not None,
            "backup": self.backs_up,
            "backup_folder": options.backup_folder,
            "backup_copy": options.backup_copy,
            "backup_keep": options.backup_keep,
            "renew_days": options.renew_days,
            "metrics_folder": options.metrics_folder,
            "branch_ends": {str(branch): end for branch, end in BRANCH_ENDS.items()},
        }

    @property
    def jobs(self) -> Mapping[str, tuple[str, str, str]]:
        """Description, command and schedule of each timer that this node has, by its name."""
        hours = (self.position or 0) * STAGGER_HOURS
        found = {"status": ("metrics of certificates, backups and driver", "status", "hourly")}
        if self.backs_up:
            found["backup"] = ("backup of etcd and its certificates", "backup", self.options.backup_schedule)
        if self.renews:
            day, hour = divmod(3 + hours, WEEK_HOURS)
            days = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
            found["certificates"] = (
                "renewal of certificates that expire soon",
                "certificates",
                f"{days[day % len(days)]} *-*-* {hour:02}:30:00",
            )
        return found

    @property
    def timers(self) -> list[str]:
        return [f"kubegpu-{name}.timer" for name in self.jobs]

    @property
    def is_enabled(self) -> bool:
        """Whether each timer starts at boot: a killed run may have written the units alone."""
        return all(f"{files.TIMERS}/{timer}" in self.installed for timer in self.timers)

    @property
    def wanted(self) -> tuple[WantedFile, ...]:
        """But for the program itself, which is a file of the role."""
        return (
            WantedFile(files.UPKEEP_SETTINGS, json.dumps(self.settings, indent=1, sort_keys=True) + "\n", "0600"),
            *(file for name, job in self.jobs.items() for file in _units(name, *job)),
        )

    @property
    def unwanted(self) -> tuple[str, ...]:
        """Units that the node has and does not need any more."""
        wanted = {file.path for file in self.wanted}
        return tuple(path for path in files.UPKEEP_UNITS if path in self.installed and path not in wanted)


def _units(name: str, description: str, command: str, schedule: str) -> tuple[WantedFile, WantedFile]:
    service = (
        f"{_WRITTEN}[Unit]\nDescription=kubegpu: {description}\nAfter=network-online.target containerd.service\n\n"
        f"[Service]\nType=oneshot\nExecStart=/usr/bin/python3 {files.UPKEEP} {command}\n"
        # A restart of four components, each of which may take its time.
        "TimeoutStartSec=45min\nUMask=0077\n"
    )
    timer = (
        f"{_WRITTEN}[Unit]\nDescription=kubegpu: {description}\n\n"
        f"[Timer]\nOnCalendar={schedule}\nPersistent=true\nRandomizedDelaySec=15min\n\n[Install]\nWantedBy=timers.target\n"
    )
    path = f"/etc/systemd/system/kubegpu-{name}"
    return WantedFile(f"{path}.service", service), WantedFile(f"{path}.timer", timer)
