# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Divides the GPUs of the nodes among autoscalers, so that all of them can run at their maximum together.

Each gets its floor first. Then the GPUs that are left are given out one replica at a time, to the highest priority as
long as something fits, and in turns among equal priorities. Each pod is placed on a node that it may run on, so the
division is one that the scheduler can carry out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import HopError, enumeration
from ..hops import Hop
from ..kube.capacity import Node, PodSpec, gpus_of, may_run_on

# Taints that Kubernetes sets and removes by itself, for example while a node is drained or does not report. Its GPUs
# come back, and workloads do not shrink meanwhile. Source: kubernetes.io/docs/reference/labels-annotations-taints.
_OF_KUBERNETES = "node.kubernetes.io/"


@dataclass(frozen=True)
class Claimant:
    """An autoscaler that wants GPUs.

    name:     names it in errors.
    pod:      spec of its pod template, which decides about nodes.
    gpus:     limits of one pod, by resource; not empty.
    pods:     of one replica.
    floor:    replicas that it gets in any case, 1 at least: an HPA's maximum cannot be 0.
    most:     replicas that it asks for.
    priority: the highest is served first.
    """

    name: str
    pod: PodSpec
    gpus: Mapping[str, int]
    floor: int
    most: int
    pods: int = 1
    priority: int = 0


def divide(claimants: Sequence[Claimant], nodes: Iterable[Node], claimable: Mapping[str, int]) -> list[int]:
    """The maximum of each, in their order.

    claimable: devices that can be claimed, by node, for limits of whole GPUs that a DeviceClass turns into claims.
    Raises: HopError if the floors do not fit on the nodes together.
    """
    room = _Room(claimants, nodes, claimable)
    given = [0] * len(claimants)

    def give(index: int) -> bool:
        taken = room.take(index)
        given[index] += taken
        return taken

    # What needs most GPUs is placed first: with sizes that divide each other, 1, 2, 4 and 8, this finds a place for all
    # if there is one.
    for index in sorted(range(len(claimants)), key=lambda index: -max(claimants[index].gpus.values())):
        while given[index] < claimants[index].floor:
            if not give(index):
                raise _floors_do_not_fit(claimants, room, claimants[index])
    for priority in sorted({claimant.priority for claimant in claimants}, reverse=True):
        open_ones = [index for index, claimant in enumerate(claimants) if claimant.priority == priority]
        while open_ones:
            # The one with the fewest replicas is next, so that equals end up with equal shares.
            index = min(open_ones, key=lambda index: (given[index], index))
            if given[index] >= claimants[index].most or not give(index):
                open_ones.remove(index)
    return given


class _Room:
    """GPUs that are free on each node, while pods are placed."""

    def __init__(self, claimants: Sequence[Claimant], nodes: Iterable[Node], claimable: Mapping[str, int]) -> None:
        meant = [_as_meant(node) for node in nodes]
        self._claimants = claimants
        self._free = [_offered(node, claimable) for node in meant]
        self.offered = _total(self._free)
        self._allowed = [
            [place for place, node in enumerate(meant) if may_run_on(claimant.pod, node)] for claimant in claimants
        ]
        self._users = Counter(place for places in self._allowed for place in places)

    def take(self, index: int) -> bool:
        """Place one replica of a claimant. Nothing is taken if a pod of it finds no node."""
        claimant, taken = self._claimants[index], list[int]()
        for _pod in range(claimant.pods):
            fitting = [place for place in self._allowed[index] if self._fits(place, claimant.gpus)]
            if not fitting:
                self._change(taken, claimant.gpus, 1)
                return False
            best = min(fitting, key=lambda place: self._worth(place, claimant.gpus))
            self._change([best], claimant.gpus, -1)
            taken.append(best)
        return True

    def _worth(self, place: int, gpus: Mapping[str, int]) -> tuple[int, int, int]:
        """Least of a node that fewest others may use, and that is fullest: large pods keep finding whole nodes."""
        return self._users[place], sum(self._free[place][name] for name in gpus), place

    def _fits(self, place: int, gpus: Mapping[str, int]) -> bool:
        return all(self._free[place].get(name, 0) >= number for name, number in gpus.items())

    def _change(self, places: Iterable[int], gpus: Mapping[str, int], sign: int) -> None:
        for place in places:
            for name, number in gpus.items():
                self._free[place][name] += sign * number


def _as_meant(node: Node) -> Node:
    """Without what is true for a while only: a cordon, a drain, a kubelet that does not report."""
    spec = node.get("spec") or {}
    taints = [taint for taint in spec.get("taints") or () if not taint["key"].startswith(_OF_KUBERNETES)]
    return {**node, "spec": {**spec, "taints": taints, "unschedulable": False}}


def _offered(node: Node, claimable: Mapping[str, int]) -> dict[str, int]:
    """As capacity.replicas_that_fit counts: devices stand for whole GPUs where the node offers none."""
    gpus = gpus_of([node])
    devices = claimable.get(node["metadata"]["name"], 0)
    return gpus if gpus.get("nvidia.com/gpu") or not devices else {**gpus, "nvidia.com/gpu": devices}


def _total(rooms: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for room in rooms:
        total.update(room)
    return total


def _floors_do_not_fit(claimants: Sequence[Claimant], room: _Room, last: Claimant) -> HopError:
    needed: Counter[str] = Counter()
    for claimant in claimants:
        for resource, number in claimant.gpus.items():
            needed[resource] += number * claimant.pods * claimant.floor
    short = {name: number for name, number in needed.items() if number > room.offered[name]}
    floors = enumeration([f"{claimant.name} {claimant.floor}" for claimant in claimants])
    if short:
        asked = enumeration([f"{number} {name}" for name, number in short.items()])
        seen = (
            f"the minima together need {asked}, and the nodes have {enumeration([f'{room.offered[n]}' for n in short])}"
        )
    else:
        gpus = enumeration([f"{number} {name}" for name, number in last.gpus.items()])
        seen = f"no node is left for a pod of {last.name} with {gpus}, once the minima of the others are placed"
    return HopError(
        Hop.SPEC,
        seen=f"divide_gpus: {seen} (minima: {floors})",
        fix="lower min_replicas, add nodes, or set divide_gpus to false",
    )
