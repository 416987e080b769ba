"""Pods that try to get GPUs that they did not request, and what they have to see."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from typing import Any

VARIABLE = "NVIDIA_VISIBLE_DEVICES"
IMAGE = "docker.io/library/python:3.11-slim"
# What a container sees, in its termination message.
LOOK = "ls /dev | grep -E '^(nvidia[0-9]|dri)' | tr '\\n' ' ' >/dev/termination-log"
NAMES = ("all", "0", "nvidia.com/gpu=all", "runtime.nvidia.com/gpu=all", "management.nvidia.com/gpu=all")
PLACES = ("containers", "sidecar", "initContainers", "restartable")


@dataclass(frozen=True)
class Attack:
    """wanted: GPUs that its containers have to see. needs_admin: whether Pod Security's baseline rejects it."""

    name: str
    pod: Mapping[str, Any]
    wanted: int = 0
    needs_admin: bool = False


def container(name: str = "main", env: Mapping[str, str] | None = None, gpus: str = "", **more: Any) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}
    variables = [{"name": key, "value": value} for key, value in (env or {}).items()]
    return {
        "name": name,
        "image": IMAGE,
        "command": ["sh", "-c", LOOK],
        "env": variables,
        "resources": resources,
        **more,
    }


def pod(
    *containers: dict[str, Any], runtime_class: str = "", notes: Mapping[str, str] | None = None, **more: Any
) -> Any:
    classed = {"runtimeClassName": runtime_class} if runtime_class else {}
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": list(containers),
        **classed,
        **more,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": dict(notes or {})}, "spec": spec}


def attacks(uuid: str, classes: tuple[str, ...] = ("nvidia",)) -> list[Attack]:
    """uuid: of a GPU that another pod has. classes: RuntimeClasses of NVIDIA's runtime."""
    found = [Attack("nothing", pod(container())), Attack("a limit", pod(container(gpus="1")), wanted=1)]
    for chosen in ("", *classes):
        its = f"class {chosen or 'none'}"
        found.append(Attack(f"{its}, no variable", pod(container(), runtime_class=chosen)))
        for value, place, gpus in product((*NAMES, uuid), PLACES, ("", "0", "1")):
            if place == "containers" or value in ("all", uuid):
                found.append(_variable(f"{its}, {value}, {place}, limit {gpus or 'none'}", chosen, value, place, gpus))
        found += _others(its, chosen)
    return found


def _variable(name: str, chosen: str, value: str, place: str, gpus: str) -> Attack:
    """The variable in a container of this place, and a limit in the same one; for a sidecar, in the other one."""
    wanted = int(gpus or 0)
    attacker, plain = container("attacker", {VARIABLE: value}, gpus), container()
    if place == "containers":
        return Attack(name, pod(attacker, runtime_class=chosen), wanted)
    if place == "sidecar":
        attacker["resources"] = {}
        return Attack(name, pod(container(gpus=gpus), attacker, runtime_class=chosen), wanted)
    if place == "restartable":  # it runs until the other one has ended
        attacker |= {
            "restartPolicy": "Always",
            "command": ["sh", "-c", f"{LOOK}; trap 'exit 0' TERM; sleep 600 & wait"],
        }
        plain["command"] = ["sleep", "2"]
    return Attack(name, pod(plain, runtime_class=chosen, initContainers=[attacker]), wanted)


def _others(its: str, chosen: str) -> list[Attack]:
    every = {VARIABLE: "all"}
    null = {"name": "list", "mountPath": "/var/run/nvidia-container-devices/all"}
    admin: dict[str, Any] = {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}
    notes = {"cdi.k8s.io/gpus": "nvidia.com/gpu=all", "nvidia.cdi.k8s.io/container.main": "nvidia.com/gpu=all"}
    variables = {
        "an image of old CUDA, without the variable": {"CUDA_VERSION": "10.0"},
        "all capabilities": {**every, "NVIDIA_DRIVER_CAPABILITIES": "all"},
        "gated devices": dict.fromkeys(("NVIDIA_GDS", "NVIDIA_MOFED", "NVIDIA_GDRCOPY"), "enabled"),
        "IMEX channels": {"NVIDIA_IMEX_CHANNELS": "0"},
        "a swarm resource": {"DOCKER_RESOURCE_GPU": "all"},
        "MIG of the host": {"NVIDIA_MIG_CONFIG_DEVICES": "all", "NVIDIA_MIG_MONITOR_DEVICES": "all"},
    }
    return [
        *(Attack(f"{its}, {name}", pod(container(env=env), runtime_class=chosen)) for name, env in variables.items()),
        Attack(f"{its}, CDI by annotations", pod(container(), runtime_class=chosen, notes=notes)),
        Attack(
            f"{its}, an empty volume as the list",
            pod(container(volumeMounts=[null]), runtime_class=chosen, volumes=[{"name": "list", "emptyDir": {}}]),
        ),
        Attack(
            f"{its}, /dev/null as the list",
            pod(
                container(volumeMounts=[null]),
                runtime_class=chosen,
                volumes=[{"name": "list", "hostPath": {"path": "/dev/null"}}],
            ),
            needs_admin=True,
        ),
        Attack(f"{its}, SYS_ADMIN", pod(container(env=every, **admin), runtime_class=chosen), needs_admin=True),
        Attack(
            f"{its}, privileged",
            pod(container(env=every, securityContext={"privileged": True}), runtime_class=chosen),
            needs_admin=True,
        ),
    ]


def named(attack: Attack, number: int, namespace: str) -> dict[str, Any]:
    made = deepcopy(dict(attack.pod))
    made["metadata"] |= {"name": f"attack-{number}", "namespace": namespace}
    return made


def seen(pod: Mapping[str, Any]) -> list[str]:
    """Devices that the containers of a pod saw. A device counts once."""
    status = pod.get("status") or {}
    ended = [
        (row.get("state") or {}).get("terminated") or {}
        for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        for row in status.get(kind) or ()
    ]
    return sorted({name for end in ended for name in str(end.get("message") or "").split()})
