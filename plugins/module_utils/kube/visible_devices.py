# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Containers that get GPUs without a request: NVIDIA's runtime adds those that an environment variable names.

The toolkit can ignore the variable of unprivileged containers. A component that depends on it then finds no GPU.
"""

from __future__ import annotations

from typing import Any

from .capacity import gpus_per_pod
from .known_components import EXPORTER, HOST_ENGINE, Container, plugin_container
from .objects import Manifest, containers_of, environment, flag
from .pods import phase

VARIABLE = "NVIDIA_VISIBLE_DEVICES"
# What the toolkit takes for a privileged container.
_ADMIN = {"SYS_ADMIN", "CAP_SYS_ADMIN", "ALL"}
# With another switch, the toolkit adds the GPUs that mounts of /dev/null below this path name.
_MOUNTS = "/var/run/nvidia-container-devices"
_CDI = "cdi"
_DEVICES = "/dev"
# Values of the variable that name no GPU.
_NO_GPUS = ("", "void", "none")


def is_admin(container: Container) -> bool:
    """Whether it is privileged for the toolkit: it has the capability SYS_ADMIN."""
    context = container.get("securityContext") or {}
    added = (context.get("capabilities") or {}).get("add") or ()
    return bool(context.get("privileged")) or not _ADMIN.isdisjoint(added)


def depends_on_variable(daemon_set: Manifest) -> bool:
    """Whether this device plugin, exporter or host engine stops working if the toolkit ignores the variable.

    So may the pods that a plugin gives GPUs to. Pods from before the last change may too, see `is_rolled_out`.
    """
    plugin = plugin_container(daemon_set)
    container = plugin or EXPORTER.container(daemon_set) or HOST_ENGINE.container(daemon_set)
    if container is None:
        return False
    gives = plugin is not None and _CDI not in _strategy(plugin)
    return gives or not is_admin(container)


def is_rolled_out(daemon_set: Manifest) -> bool:
    """Whether its pods are all from after its last change. Not while a node of it is away."""
    status: dict[str, Any] = daemon_set.get("status") or {}
    is_seen = status.get("observedGeneration") == daemon_set["metadata"].get("generation")
    return is_seen and status.get("updatedNumberScheduled", 0) >= status.get("desiredNumberScheduled", 0)


def got_by_variable(daemon_set: Manifest) -> bool:
    """Whether its pods, if they see GPUs, show that the toolkit accepts the variable of unprivileged containers."""
    container = plugin_container(daemon_set)
    template = daemon_set["spec"]["template"]
    notes = (template.get("metadata") or {}).get("annotations") or {}
    paths = [(volume.get("hostPath") or {}).get("path") for volume in template["spec"].get("volumes") or ()]
    return (
        container is not None
        and not is_admin(container)
        and _DEVICES not in paths
        and not any(mount["mountPath"].startswith(_MOUNTS) for mount in container.get("volumeMounts") or ())
        and not any(f"{_CDI}.k8s.io/" in name for name in notes)
    )


def takes_gpus(pod: Manifest, *, has_default: bool) -> list[str]:
    """Its unprivileged containers without a request that NVIDIA's runtime may give GPUs to.

    The variable may also be set by the image, which the API does not show. Of a pod with a request, and of one without
    the RuntimeClass, only containers that set it themselves are returned.
    has_default: whether NVIDIA's runtime is that of the nodes.
    """
    spec = pod["spec"]
    is_classed = "nvidia" in str(spec.get("runtimeClassName") or "")
    if phase(pod) != "Running" or not (is_classed or has_default):
        return []
    may_be_of_image = is_classed and not gpus_per_pod(spec) and not spec.get("resourceClaims")
    containers = [*containers_of(pod), *(spec.get("ephemeralContainers") or ())]
    return [
        container["name"]
        for container in containers
        if not gpus_per_pod({"containers": [container]})
        and not is_admin(container)
        and environment(container).get(VARIABLE, "all" if may_be_of_image else "void") not in _NO_GPUS
    ]


def _strategy(container: Container) -> str:
    """How the plugin gives GPUs to containers; empty for its default, which is the variable."""
    return environment(container).get("DEVICE_LIST_STRATEGY") or flag(container, "--device-list-strategy")
