# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Whether a control plane may be drained, rebooted or upgraded now: only while each of the others works."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...kube.labels import CORDONED
from ...kube.objects import is_ready
from ..membership.etcd_members import Member, members_of
from ..membership.liveness import Known
from ..survey.host import Host


@dataclass(frozen=True)
class Turn:
    """Of one control plane.

    inventory: whose run this is.
    own:       its addresses; empty if they were not gathered. Its machine ID has been compared before.
    batch:     hosts that the play changes at the same time.
    nodes:     control plane nodes of the cluster.
    apis:      names of those whose API server is ready.
    members:   of etcd; empty for an external one.
    """

    host: str
    node: str
    inventory: str
    own: Collection[str]
    batch: Sequence[str]
    nodes: Sequence[Mapping[str, Any]]
    apis: Collection[str]
    members: Sequence[Member]

    @property
    def refused(self) -> Iterator[str]:
        if len(self.batch) > 1:
            others = ", ".join(name for name in self.batch if name != self.host)
            yield self._error(
                f"{others} would be changed at the same time",
                f"add {self.host} to the group kube_control_plane, whose hosts are changed one at a time",
            )
        if self.node not in {node["metadata"]["name"] for node in self.nodes}:
            yield self._error(
                f"the cluster lists no control plane {self.node}, so the others may be missing as well",
                "`kubectl get nodes --selector node-role.kubernetes.io/control-plane` has to show all of them",
            )
        life = Known(self.nodes, self.members).life(self.node, self.own) if self.own else None
        if life:
            yield self._error(
                f"{life.text} at {life.address or 'an unknown address'}, which {self.host} does not have",
                f"on {self.host}: `hostnamectl set-hostname NAME`",
            )
        for name, mark, inventory in self._marked:
            yield self._error(
                f"{name} has the annotation {mark}: another run, for inventory {inventory}, takes it out of service, "
                "or was killed",
                f"wait for that run, or repeat it with inventory {inventory} and --limit for {name}. If no run is at "
                f"work and that fails as well: `kubectl annotate node {name} {mark}-` and `kubectl uncordon {name}`",
            )
        broken = [*self._silent, *self._unhealthy]
        if broken:
            yield self._error(
                "; ".join(broken),
                "fix that control plane first: `journalctl -u kubelet` on it, or run this with --limit for it. If "
                "it is lost: `ansible-playbook kubegpu.autoscale.cluster -e kubernetes_lost_nodes=NAME`",
            )

    @property
    def _marked(self) -> Iterator[tuple[str, str, str]]:
        """Control planes that another run takes, each with the annotation and the inventory of that run."""
        for node in self.nodes:
            name, annotations = node["metadata"]["name"], node["metadata"].get("annotations") or {}
            marks = [(mark, value) for mark, value in annotations.items() if mark.startswith(CORDONED)]
            theirs = [row for row in marks if (name, row[1]) != (self.node, self.inventory)]
            if theirs:
                yield (name, *theirs[0])

    @property
    def _silent(self) -> Iterator[str]:
        for node in self.nodes:
            name = str(node["metadata"]["name"])
            if name != self.node and name not in self.apis:
                yield f"the API server of {name} is not ready"
            elif name != self.node and not is_ready(node):
                yield f"the node {name} is not Ready"

    @property
    def _unhealthy(self) -> Iterator[str]:
        for member in self.members:
            if member.name != self.node and not member.is_learner and not member.is_healthy:
                yield f"the etcd member {member.name or '(never started)'} is not healthy"

    def _error(self, seen: str, fix: str) -> str:
        return (
            f"etcd -> {self.host}: {seen}. Without {self.node} as well, etcd could lose its majority. Nothing "
            f"more was changed on {self.host}. Next: {fix}"
        )


def turn_plan(survey: Mapping[str, Any]) -> dict[str, Any]:
    """survey: the host, its `node` and `addresses`, the `batch` of the play, and results of the tasks that have run."""
    turn = Turn(
        host=Host.of(survey["host"]).name,
        node=survey["node"],
        inventory=survey["inventory"],
        own=survey.get("addresses", ()),
        batch=survey["batch"],
        nodes=survey.get("nodes", ()),
        apis={str(row["item"]["metadata"]["name"]) for row in survey.get("apis", ()) if row.get("status") == 200},
        members=members_of(survey.get("etcd", {}).get("json") or {}, survey.get("etcd_health", ())),
    )
    return {"refused": [*turn.refused]}
