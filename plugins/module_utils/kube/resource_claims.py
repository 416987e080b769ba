# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Devices that pods claim through dynamic resource allocation (DRA), and how many pods they suffice for.

Shapes are those of resource.k8s.io/v1. What cannot be judged for certain, a selector in CEL for example that compares
more than texts, makes the answer unknown (None), and never a number that is too low.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from .capacity import PodSpec, gpus_per_pod, tolerates
from .objects import Manifest
from .quantity import exact_quantity

# The DRA driver of NVIDIA's GPUs, and the type of its devices that are whole GPUs.
GPU_DRIVER, _WHOLE = "gpu.nvidia.com", "gpu"
_NVIDIA = "nvidia.com"
# A limit of this and the name of a DeviceClass is a claim of it. Source: KEP-5004.
_BY_CLASS = "deviceclass.resource.kubernetes.io/"
# The classes of NVIDIA's driver, for users who are not allowed to list DeviceClasses.
_KNOWN_CLASSES = {
    name: (f'device.driver == "{GPU_DRIVER}" && device.attributes["{GPU_DRIVER}"].type == "{kind}"',)
    for name, kind in ((GPU_DRIVER, _WHOLE), ("mig.nvidia.com", "mig"))
}
_DRIVER_IS = re.compile(r"device\.driver\s*==\s*(?P<value>\"[^\"]*\"|'[^']*')")
_ATTRIBUTE_IS = re.compile(
    r"device\.attributes\[(?P<domain>\"[^\"]*\"|'[^']*')\]\.(?P<name>\w+)\s*==\s*(?P<value>\"[^\"]*\"|'[^']*')"
)

# Of a shared counter: driver, pool, counter set, counter.
_Counter = tuple[str, str, str, str]


@dataclass(frozen=True, eq=False)
class Device:
    """One device of a node.

    attributes: texts by name; the domain is that of the driver.
    counters:   what it takes of counters that several devices of its GPU share.
    is_shared:  several claims may have a part of it.
    """

    driver: str
    pool: str
    name: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, Any]] = ()
    counters: Mapping[_Counter, Decimal] = field(default_factory=dict)
    is_shared: bool = False

    @property
    def is_whole_gpu(self) -> bool:
        return self.driver == GPU_DRIVER and self.attributes.get("type", _WHOLE) == _WHOLE


@dataclass(frozen=True)
class Devices:
    """Those of one node. room: what its shared counters hold."""

    devices: Sequence[Device] = ()
    room: Mapping[_Counter, Decimal] = field(default_factory=dict)


@dataclass(frozen=True)
class Need:
    """Devices of one kind for one pod.

    name:        of the class.
    expressions: in CEL, all of which have to hold.
    count:       None for all such devices of the node.
    """

    name: str
    expressions: Sequence[str]
    count: int | None = 1
    tolerations: Sequence[Mapping[str, Any]] = ()

    @property
    def is_of_gpus(self) -> bool:
        return any(_NVIDIA in text for text in (self.name, *self.expressions))

    def __str__(self) -> str:
        return f"{'all' if self.count is None else self.count} {self.name}"


# Alternatives, the preferred one first.
Needs = Sequence[Sequence[Need]]


def devices_of(resource_slices: Iterable[Manifest]) -> dict[str, Devices]:
    """By node: of each pool the newest generation, and nothing of a pool that is not published completely.

    Pools without a node, for network-attached devices, are left out.
    """
    pools: dict[tuple[str, str], list[Manifest]] = {}
    for resource_slice in resource_slices:
        spec = resource_slice["spec"]
        pools.setdefault((spec["driver"], (spec.get("pool") or {}).get("name", "")), []).append(spec)
    found: dict[str, tuple[list[Device], dict[_Counter, Decimal]]] = {}
    for (driver, pool), specs in pools.items():
        newest = max(_generation(spec) for spec in specs)
        current = [spec for spec in specs if _generation(spec) == newest]
        if len(current) < (current[0].get("pool") or {}).get("resourceSliceCount", 1):
            continue
        for spec in current:
            if not spec.get("nodeName"):
                continue
            devices, room = found.setdefault(spec["nodeName"], ([], {}))
            devices += [_device(driver, pool, device) for device in spec.get("devices") or ()]
            room |= _counters(driver, pool, spec.get("sharedCounters"), "name")
    return {node: Devices(devices, room) for node, (devices, room) in found.items()}


def whole_gpus(devices: Devices) -> int:
    """Whole GPUs of a node; its MIG devices, where each GPU is split."""
    gpus = [device for device in devices.devices if device.driver == GPU_DRIVER]
    return sum(device.is_whole_gpu for device in gpus) or len(gpus)


def class_of(resource: str, device_classes: Iterable[Manifest]) -> str | None:
    """The DeviceClass that a limit of this resource claims; of several the youngest, as the scheduler decides."""
    if resource.startswith(_BY_CLASS):
        return resource.removeprefix(_BY_CLASS)
    named = [found for found in device_classes if found["spec"].get("extendedResourceName") == resource]
    youngest = max(named, key=lambda found: str(found["metadata"].get("creationTimestamp")), default=None)
    return youngest["metadata"]["name"] if youngest else None


def limits_of(pod: PodSpec) -> dict[str, int]:
    """Limits of a pod that may be GPUs: NVIDIA's resources, and those that name a DeviceClass."""
    limits = gpus_per_pod(pod)
    for container in pod.get("containers") or ():
        for resource, amount in ((container.get("resources") or {}).get("limits") or {}).items():
            if resource.startswith(_BY_CLASS) and str(amount) != "0":
                limits[resource] = limits.get(resource, 0) + int(exact_quantity(str(amount)))
    return limits


def needs_of(
    pod: PodSpec, claim_templates: Mapping[str, Manifest], device_classes: Sequence[Manifest] | None
) -> Needs | None:
    """What one pod claims, by its limits or by its claims; None if that is unknown.

    A limit that no class turns into a claim has no alternative.
    claim_templates: of its namespace, by name. device_classes: None if they could not be read.
    """
    needs: list[Sequence[Need]] = []
    for resource, count in limits_of(pod).items():
        # Without a right to list classes, one is assumed.
        name = GPU_DRIVER if device_classes is None else class_of(resource, device_classes)
        need = _need({"deviceClassName": name, "count": count}, device_classes) if name else None
        if name and need is None:
            return None
        needs.append([need] if need else [])
    for claim in pod.get("resourceClaims") or ():
        # All replicas share a claim that the pod names itself.
        template = claim_templates.get(claim.get("resourceClaimTemplateName") or "")
        if template is None:
            return None
        for request in (template["spec"]["spec"].get("devices") or {}).get("requests") or ():
            alternatives = request.get("firstAvailable") or [request.get("exactly") or request]
            if any(alternative.get("adminAccess") for alternative in alternatives):
                continue
            found = [_need(alternative, device_classes) for alternative in alternatives]
            known = [need for need in found if need is not None]
            if len(known) < len(found):
                return None
            needs.append(known)
    return needs


def pods_on(devices: Devices, needs: Needs) -> int | None:
    """Pods that the devices of one node suffice for, if nothing else claims them; None if that is unknown."""
    matching: dict[int, list[Device]] = {}
    for need in (need for alternatives in needs for need in alternatives):
        found = [(device, _matches(need, device)) for device in devices.devices]
        if any(match is None or (match and device.is_shared) for device, match in found):
            return None
        matching[id(need)] = [device for device, match in found if match]
    if not needs:
        return 0
    pods, taken, room = 0, set[Device](), dict(devices.room)
    while all(_take(matching, alternatives, taken, room) for alternatives in needs):
        pods += 1
    return pods


def _take(
    matching: Mapping[int, Sequence[Device]],
    alternatives: Sequence[Need],
    taken: set[Device],
    room: dict[_Counter, Decimal],
) -> bool:
    """Take the devices of the first alternative that there are enough of."""
    for need in alternatives:
        devices = matching[id(need)]
        free = [device for device in devices if device not in taken]
        if need.count is None and (not devices or len(free) < len(devices)):
            continue
        left, chosen = dict(room), list[Device]()
        for device in free:
            if (need.count is None or len(chosen) < need.count) and _draw(left, device):
                chosen.append(device)
        if len(chosen) == (len(devices) if need.count is None else need.count):
            taken |= set(chosen)
            room |= left
            return True
    return False


def _draw(room: dict[_Counter, Decimal], device: Device) -> bool:
    """A whole GPU and its MIG devices draw on the same counters. Nothing is drawn if one of them lacks."""
    if any(room.get(counter, Decimal(0)) < amount for counter, amount in device.counters.items()):
        return False
    for counter, amount in device.counters.items():
        room[counter] -= amount
    return True


def _need(request: Mapping[str, Any], device_classes: Sequence[Manifest] | None) -> Need | None:
    name = request["deviceClassName"]
    of_class = next((found for found in device_classes or () if found["metadata"]["name"] == name), None)
    selectors = [*((of_class or {}).get("spec") or {}).get("selectors", ()), *(request.get("selectors") or ())]
    known = () if of_class else _KNOWN_CLASSES.get(name)
    # A request for a part of a device leaves the rest of it to others.
    if known is None or request.get("capacity") or not all("cel" in selector for selector in selectors):
        return None
    return Need(
        name,
        (*known, *(selector["cel"]["expression"] for selector in selectors)),
        None if request.get("allocationMode") == "All" else request.get("count", 1),
        request.get("tolerations") or (),
    )


def _matches(need: Need, device: Device) -> bool | None:
    """Whether a pod may get the device; None if an expression cannot be evaluated, and no other rules it out."""
    answers = [_holds(expression, device) for expression in need.expressions]
    barred = any(
        taint.get("effect") in ("NoSchedule", "NoExecute") and not tolerates(taint, need.tolerations)
        for taint in device.taints
    )
    if barred or False in answers:
        return False
    return None if None in answers else True


def _holds(expression: str, device: Device) -> bool | None:
    """Comparisons with texts that are joined by &&, as in NVIDIA's classes; None for all else."""
    answers = [_compares(term.strip(), device) for term in expression.split("&&")]
    if None in answers and re.search(r"\|\||[!?(){}]", expression):
        return None
    return False if False in answers else None if None in answers else True


def _compares(term: str, device: Device) -> bool | None:
    if found := _DRIVER_IS.fullmatch(term):
        return device.driver == found["value"][1:-1]
    if found := _ATTRIBUTE_IS.fullmatch(term):
        in_domain = found["domain"][1:-1] == device.driver
        return in_domain and device.attributes.get(found["name"]) == found["value"][1:-1]
    return None


def _generation(spec: Mapping[str, Any]) -> int:
    return int((spec.get("pool") or {}).get("generation", 0))


def _device(driver: str, pool: str, device: Mapping[str, Any]) -> Device:
    return Device(
        driver,
        pool,
        device["name"],
        {
            name.removeprefix(f"{driver}/"): value["string"]
            for name, value in (device.get("attributes") or {}).items()
            if "string" in value
        },
        device.get("taints") or (),
        dict(_counters(driver, pool, device.get("consumesCounters"), "counterSet")),
        bool(device.get("allowMultipleAllocations")),
    )


def _counters(driver: str, pool: str, sets: Any, name: str) -> dict[_Counter, Decimal]:
    return dict(_each_counter(driver, pool, sets or (), name))


def _each_counter(
    driver: str, pool: str, sets: Iterable[Mapping[str, Any]], name: str
) -> Iterator[tuple[_Counter, Decimal]]:
    for counter_set in sets:
        for counter, amount in (counter_set.get("counters") or {}).items():
            yield (driver, pool, counter_set[name], counter), exact_quantity(str(amount["value"]))
