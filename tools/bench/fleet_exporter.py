"""One process that answers as the dcgm-exporter of each node does: `/NAME/metrics`, with the pods that hold its GPUs.

It watches the pods of the API server and gives each the first free GPUs of its node. Pods of one workload, by their
label app, share a load that rises and falls, as requests do: more replicas make each of them less busy. A pod with
several GPUs is one that trains, and always busy.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import ssl
import sys
import threading
import time
import urllib.request
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
GPUS_PER_NODE = 8
RESOURCE = "nvidia.com/gpu"
PERIOD_S = 600  # of the load
MODEL = "NVIDIA H100 80GB HBM3"
MEMORY_MIB = 81_559
XID = "DCGM_FI_DEV_XID_ERRORS"


@dataclass(frozen=True)
class Counted:
    """A row of the exporter's counter file."""

    field: str
    kind: str
    help: str


@dataclass(frozen=True)
class Holder:
    namespace: str
    pod: str
    container: str
    workload: str


@dataclass(frozen=True)
class Reading:
    """A GPU at a moment. busy: from 0 to 1. since_s: since the process began."""

    busy: float
    since_s: float


Values = Callable[[Reading], str]


def _constant(text: str) -> Values:
    return lambda _reading: text


# What changes from one look to the next, as DCGM prints it; all else is 0.
VALUES: dict[str, Values] = {
    "DCGM_FI_DEV_SM_CLOCK": lambda gpu: "1980" if gpu.busy > 0.02 else "345",
    "DCGM_FI_DEV_MEM_CLOCK": _constant("2619"),
    "DCGM_FI_DEV_MEMORY_TEMP": lambda gpu: f"{40 + 30 * gpu.busy:.0f}",
    "DCGM_FI_DEV_GPU_TEMP": lambda gpu: f"{32 + 35 * gpu.busy:.0f}",
    "DCGM_FI_DEV_POWER_USAGE": lambda gpu: f"{72 + 600 * gpu.busy:.6f}",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": lambda gpu: f"{400_000 * gpu.since_s:.0f}",
    "DCGM_FI_DEV_GPU_UTIL": lambda gpu: f"{100 * gpu.busy:.0f}",
    "DCGM_FI_DEV_MEM_COPY_UTIL": lambda gpu: f"{60 * gpu.busy:.0f}",
    "DCGM_FI_DEV_FB_FREE": lambda gpu: f"{MEMORY_MIB - 70_000 * min(1, 50 * gpu.busy):.0f}",
    "DCGM_FI_DEV_FB_USED": lambda gpu: f"{70_000 * min(1, 50 * gpu.busy):.0f}",
    "DCGM_FI_DEV_FB_RESERVED": _constant("551"),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": lambda gpu: f"{1_000_000 * gpu.since_s:.0f}",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": lambda gpu: f"{gpu.busy:.6f}",
    "DCGM_FI_PROF_SM_ACTIVE": lambda gpu: f"{0.9 * gpu.busy:.6f}",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": lambda gpu: f"{0.5 * gpu.busy:.6f}",
    "DCGM_FI_PROF_DRAM_ACTIVE": lambda gpu: f"{0.6 * gpu.busy:.6f}",
    "DCGM_FI_PROF_PCIE_TX_BYTES": lambda gpu: f"{2_000_000_000 * gpu.busy:.0f}",
    "DCGM_FI_PROF_PCIE_RX_BYTES": lambda gpu: f"{3_000_000_000 * gpu.busy:.0f}",
}


def counted() -> list[Counted]:
    """The counters that our roles tell the exporter to report."""
    text = yaml.safe_load((ROOT / "roles" / "_common" / "vars" / "main.yml").read_text())["_common_gpu_counters"]
    return [Counted(*(cell.strip() for cell in row.split(",", 2))) for row in text.splitlines()]


def load(workload: str, at_s: float) -> float:
    """How many GPUs' worth of work a workload has: between 0.3 and 3, each with a phase of its own."""
    phase = zlib.crc32(workload.encode()) / 2**32
    return 1.65 + 1.35 * math.sin(2 * math.pi * (at_s / PERIOD_S + phase))


class Node:
    """The GPUs of a node, and its page; the parts of the page that stay are put together once a change of pods."""

    def __init__(self, name: str, counters: Sequence[Counted]) -> None:
        self.name = name
        self.gpus: list[Holder | None] = [None] * GPUS_PER_NODE
        self._counters = counters
        self._page = ""
        self._readers: list[tuple[int, Values]] = []
        self.lay_out()

    def take(self, holder: Holder, number: int) -> None:
        """A pod that is there already keeps what it has."""
        if holder in self.gpus:
            return
        free = [index for index, held_by in enumerate(self.gpus) if held_by is None]
        for index in free[:number]:
            self.gpus[index] = holder
        self.lay_out()

    def release(self, namespace: str, pod: str) -> None:
        self.gpus = [None if gpu and (gpu.namespace, gpu.pod) == (namespace, pod) else gpu for gpu in self.gpus]
        self.lay_out()

    def lay_out(self) -> None:
        parts: list[str] = []
        readers: list[tuple[int, Values]] = []
        for counter in self._counters:
            head = f"# HELP {counter.field} {counter.help}\n# TYPE {counter.field} {counter.kind}\n"
            parts.append(head.replace("%", "%%"))
            reader = VALUES.get(counter.field)
            for gpu in range(GPUS_PER_NODE):
                parts.append(f"{counter.field}{{{self._labels(counter.field, gpu)}}} {'%s' if reader else 0}\n")
                if reader:
                    readers.append((gpu, reader))
        self._page, self._readers = "".join(parts), readers

    def _labels(self, field: str, gpu: int) -> str:
        """In the exporter's order: which GPU it is, then what is known of it, by name."""
        number = zlib.crc32(self.name.encode())
        identity = {
            "gpu": str(gpu),
            "UUID": f"GPU-{number:08x}-0000-0000-0000-{gpu:012d}",
            "pci_bus_id": f"00000000:{gpu + 1:02X}:00.0",
            "device": f"nvidia{gpu}",
            "modelName": MODEL,
            "hostname": self.name,
        }
        attributes = {"err_code": "0", "err_msg": "No Error"} if field == XID else {}
        if holder := self.gpus[gpu]:
            attributes |= {"container": holder.container, "namespace": holder.namespace, "pod": holder.pod}
        return ",".join(f'{name}="{value}"' for name, value in (*identity.items(), *sorted(attributes.items())))

    def page(self, at_s: float, replicas: Mapping[tuple[str, str], int]) -> str:
        """replicas: pods of each workload, by namespace and name, that share its load."""
        readings = [Reading(self._busy(gpu, at_s, replicas), at_s) for gpu in range(GPUS_PER_NODE)]
        return self._page % tuple(reader(readings[gpu]) for gpu, reader in self._readers)

    def _busy(self, gpu: int, at_s: float, replicas: Mapping[tuple[str, str], int]) -> float:
        holder = self.gpus[gpu]
        if not holder:
            return 0.0
        workload = (holder.namespace, holder.workload)
        trains = self.gpus.count(holder) > 1
        share = 0.9 if trains else load("/".join(workload), at_s) / max(1, replicas.get(workload, 1))
        unrest = 0.02 * math.sin(at_s + gpu)
        return min(1.0, max(0.0, share + unrest))


class Fleet:
    """All nodes, as the API server's pods say. Other threads change it than those that read it."""

    def __init__(self, counters: Sequence[Counted]) -> None:
        self._counters = counters
        self.nodes: dict[str, Node] = {}
        self._places: dict[tuple[str, str], tuple[Node, tuple[str, str]]] = {}
        self.replicas: Counter[tuple[str, str]] = Counter()
        self._began = time.time()

    def saw(self, kind: str, pod: Mapping[str, Any]) -> None:
        """An event of the watch."""
        name = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        finished = kind == "DELETED" or pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if finished:
            self._gone(name)
        elif name not in self._places and (node := pod["spec"].get("nodeName")) and (number := gpus_of(pod)):
            workload = pod["metadata"].get("labels", {}).get("app", name[1])
            holder = Holder(*name, pod["spec"]["containers"][0]["name"], workload)
            self.node(node).take(holder, number)
            self._places[name] = (self.node(node), (name[0], workload))
            self.replicas[name[0], workload] += 1

    def _gone(self, name: tuple[str, str]) -> None:
        if name in self._places:
            node, workload = self._places.pop(name)
            node.release(*name)
            self.replicas[workload] -= 1

    def keep(self, pods: Iterable[tuple[str, str]]) -> None:
        """Only those are there: what was removed while nobody watched is gone."""
        for name in set(self._places) - set(pods):
            self._gone(name)

    def node(self, name: str) -> Node:
        if name not in self.nodes:
            self.nodes[name] = Node(name, self._counters)
        return self.nodes[name]

    def page(self, name: str) -> str:
        return self.node(name).page(time.time() - self._began, self.replicas)


def gpus_of(pod: Mapping[str, Any]) -> int:
    limits = (container.get("resources", {}).get("limits", {}) for container in pod["spec"]["containers"])
    return sum(int(limit.get(RESOURCE, 0)) for limit in limits)


def follow(fleet: Fleet, kubeconfig: Path) -> None:
    """List and watch, again whenever the watch ends."""
    cluster = json.loads(kubeconfig.read_text())
    server = cluster["clusters"][0]["cluster"]
    headers = {"Authorization": f"Bearer {cluster['users'][0]['user']['token']}"}
    trust = ssl.create_default_context(cafile=server["certificate-authority"])

    def get(query: str) -> Any:
        request = urllib.request.Request(f"{server['server']}/api/v1/pods{query}", headers=headers)
        return urllib.request.urlopen(request, context=trust)

    while True:
        try:
            with get("") as answer:
                listed = json.load(answer)
            fleet.keep((pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in listed["items"])
            for pod in listed["items"]:
                fleet.saw("ADDED", pod)
            with get(f"?watch=1&resourceVersion={listed['metadata']['resourceVersion']}") as events:
                for line in events:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    fleet.saw(event["type"], event["object"])
        except OSError as err:
            print(f"watch: {err}", file=sys.stderr)
        time.sleep(1)


class Answers(asyncio.Protocol):
    """HTTP as Prometheus speaks it: GET after GET on one connection."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._got += data
        while b"\r\n\r\n" in self._got:
            head, _, self._got = self._got.partition(b"\r\n\r\n")
            name = head.split(b" ", 2)[1].decode().split("/")[1]
            body = self._fleet.page(name).encode()
            said = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\n\r\n"
            self._transport.write(said.encode() + body)


async def serve(fleet: Fleet, port: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Answers(fleet), "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("port", type=int)
    arguments = parser.parse_args()
    fleet = Fleet(counted())
    threading.Thread(target=follow, args=(fleet, arguments.kubeconfig), daemon=True).start()
    asyncio.run(serve(fleet, arguments.port))


if __name__ == "__main__":
    main()
