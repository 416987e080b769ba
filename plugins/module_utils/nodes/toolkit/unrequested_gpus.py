# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans whether the toolkit gives an unprivileged container the GPUs that its environment names, without a request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import enumeration
from ..survey.files import slurped
from ..survey.host import Host

KEY = "accept-nvidia-visible-devices-envvar-when-unprivileged"
DENIED, DEFAULT = f"{KEY} = false", f"#{KEY} = true"
_LINE = rf"^\s*#?\s*{KEY}\s*="
_SET = re.compile(rf"^\s*{KEY}\s*=\s*(true|false)\b", re.MULTILINE)


@dataclass(frozen=True)
class UnrequestedOptions:
    """unrequested_gpus: `auto` denies on nodes of clusters that this collection created."""

    state: str
    unrequested_gpus: str


@dataclass(frozen=True)
class Unrequested:
    """may_deny:   whether the cluster's device plugin is already installed by this run.
    text:       configuration of the toolkit; empty without a toolkit.
    is_ours:    whether this collection has changed it.
    is_created: whether the role kubernetes created the node.
    dependent:  DaemonSets that need GPUs by the variable; None if the cluster was not read.
    unsettled:  DaemonSets that may have pods from before their last change, which may need it.
    """

    options: UnrequestedOptions
    may_deny: bool
    text: str
    is_ours: bool
    is_created: bool
    dependent: tuple[str, ...] | None
    unsettled: tuple[str, ...]

    @property
    def wanted(self) -> str:
        return self.options.unrequested_gpus

    @property
    def is_denied(self) -> bool:
        return _SET.findall(self.text)[-1:] == ["false"]

    @property
    def is_asked(self) -> bool:
        is_wanted = self.wanted == "deny" or (self.wanted == "auto" and self.is_created)
        return self.options.state == "present" and self.may_deny and is_wanted and bool(self.text)

    @property
    def denies(self) -> bool:
        return self.is_asked and not self.is_denied and self.dependent == () and not self.unsettled

    @property
    def accepts(self) -> bool:
        """Whether a change by this collection is undone, also because a component depends on the variable.

        A roll-out that is not complete, as while a node is away, undoes nothing.
        """
        is_over = self.options.state == "absent" or self.wanted == "allow"
        return self.is_denied and self.is_ours and (is_over or bool(self.dependent))

    @property
    def forgets(self) -> bool:
        """Whether the mark is removed: the toolkit has its default again."""
        return self.is_ours and (self.options.state == "absent" or self.wanted == "allow" or self.accepts)

    def obstacle(self, host: Host) -> str:
        """Why unrequested GPUs are not denied; empty if they are, or if nothing asks for it."""
        waits_for = () if self.is_denied else self.unsettled
        if not self.is_asked or not (self.dependent or waits_for):
            return ""
        open_gpus = (
            f"cluster -> device plugin: {host.name} still gives every container of the runtime nvidia the GPUs that "
            "NVIDIA_VISIBLE_DEVICES names, because"
        )
        if not self.dependent:
            return (
                f"{open_gpus} {enumeration(waits_for)} may have pods from before its last change. Next: when it has "
                "replaced them on each node, run the playbook gpu again"
            )
        return (
            f"{open_gpus} {enumeration(self.dependent)} depends on it. Next: give the "
            "container the capability SYS_ADMIN, and a device plugin the strategy cdi-cri; or set "
            "kubegpu_unrequested_gpus: allow (docs/isolation.md)"
        )


def unrequested_plan(options: UnrequestedOptions, survey: Mapping[str, Any]) -> dict[str, Any]:
    """survey: the host, whether it `may_deny`, and results of the tasks that have run."""
    dependent = survey.get("dependent")
    plan = Unrequested(
        options,
        may_deny=survey["may_deny"],
        text=slurped(survey["file"]),
        is_ours=bool((survey["mark"].get("stat") or {}).get("exists")),
        is_created=bool(survey["record"]),
        dependent=None if dependent is None else tuple(dependent),
        unsettled=tuple(survey.get("unsettled", ())),
    )
    obstacle = plan.obstacle(Host.of(survey["host"]))
    return {
        "refused": [obstacle] if plan.wanted == "deny" and obstacle else [],
        "notices": [obstacle] if plan.wanted != "deny" and obstacle else [],
        "line": {"regexp": _LINE, "denied": DENIED, "default": DEFAULT},
        "steps": {"deny": plan.denies, "accept": plan.accepts, "forget": plan.forgets},
        "is_denied": plan.denies or (plan.is_denied and not plan.accepts),
    }
