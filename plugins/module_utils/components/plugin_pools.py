# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Configurations of the device plugin for node pools, and the node label that selects one.

A pool has a `name`, the labels of its `nodes`, and how its GPUs are shared: `sharing`, `replicas`, and a `config` that
is merged over both. All other nodes have the configuration `default`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..formats.mappings import merged
from ..formats.yaml import to_yaml
from ..kube.label_selectors import labels_match
from ..kube.labels import DEFAULT_INVENTORY, DEVICE_PLUGIN_CONFIG, is_annotated_by
from ..kube.objects import Manifest, labels_of, name_of
from ..kube.visible_devices import is_admin
from .gpu_nodes import label_values

Pool = Mapping[str, Any]
CONFIG_LABEL = "nvidia.com/device-plugin.config"
# Names in the plugin's configuration.
_STRATEGIES = {"time-slicing": "timeSlicing", "mps": "mps"}
DEFAULT = "default"
_CDI_HOOK = "/usr/bin/nvidia-cdi-hook"
# As the chart sets it for MIG.
_ADMIN = {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}


@dataclass(frozen=True)
class Sharing:
    """Options of the role nvidia_device_plugin: sharing and replicas for nodes in no pool, and the pools.

    driver_root: location of the driver for the plugin's CDI specification; empty if it writes none.
    strategy:    how containers get their GPUs. values: the user's chart values, which are merged over the role's.
    unrequested: `allow` if unprivileged containers may get GPUs by the environment variable.
    inventory:   ID of the inventory.
    """

    sharing: str = "none"
    replicas: int = 1
    pools: Sequence[Pool] = field(default_factory=tuple)
    feature_discovery: bool = True
    driver_root: str = ""
    strategy: str = "cdi-cri"
    values: Mapping[str, Any] = field(default_factory=dict)
    unrequested: str = "auto"
    inventory: str = DEFAULT_INVENTORY

    def all(self) -> list[Pool]:
        return [{"name": DEFAULT, "sharing": self.sharing, "replicas": self.replicas}, *self.pools]


@dataclass(frozen=True)
class Label:
    """A node with a label to change. config: None to remove it. present: its current label."""

    node: str
    config: str | None
    is_own: bool
    present: str


def configurations(options: Sharing) -> dict[str, str]:
    """The plugin's configuration files by name; empty if nothing differs from its defaults."""
    if not options.pools and options.sharing == "none":
        return {}
    return {str(pool["name"]): _text(pool) for pool in options.all()}


def chart_values(options: Sharing) -> dict[str, Any]:
    """Values of the plugin's chart. With CDI, the path of the hook must be that on the node."""
    configs = configurations(options)
    cdi = {"nvidiaDriverRoot": options.driver_root, "cdi": {"nvidiaHookPath": _CDI_HOOK}}
    return {
        **({"config": {"map": configs, "default": DEFAULT}} if configs else {}),
        **(cdi if options.driver_root else {}),
        # The plugin itself requests no GPU. The chart makes it privileged for the CPU manager.
        **({} if options.values.get("compatWithCPUManager") else _ADMIN),
    }


def shares_gpus(options: Sharing) -> bool:
    """Whether several pods may run on one GPU of some node."""
    shared = (pool for pool in options.all() if pool.get("sharing", "none") != "none")
    return any(shared) or any("sharing" in (pool.get("config") or {}) for pool in options.pools)


def faults(options: Sharing) -> list[str]:
    return [*_wrong_names(options), *_alone(options), *_without_discovery(options), *_by_variable(options)]


def selector(pool: Pool) -> str:
    """A label selector of the pool's nodes."""
    return ",".join(f"{key}={value}" for key, value in label_values(pool["nodes"]).items())


def labels_to_change(options: Sharing, nodes: Sequence[Manifest]) -> list[Label]:
    """A node gets the configuration of the first pool whose labels it has."""
    rows = []
    for node in nodes:
        config, present = _config_of(node, options.pools), labels_of(node).get(CONFIG_LABEL)
        is_own = is_annotated_by(node, DEVICE_PLUGIN_CONFIG, options.inventory)
        if (config or is_own) and present != config:
            rows.append(Label(name_of(node), config, is_own, present or ""))
    return rows


def conflict(labels: Sequence[Label]) -> str:
    """The error if a user or another inventory gave a node another configuration; can be empty."""
    theirs = [label for label in labels if label.present and not label.is_own]
    if not theirs:
        return ""
    named = "; ".join(f"{row.node} needs configuration {row.config}, but has {row.present}" for row in theirs)
    return (
        f"inventory -> device plugin: {named}, which was not set for this inventory. No label was changed."
        f" Next: remove {CONFIG_LABEL} from the node, or the node from nvidia_device_plugin_pools."
    )


def _config_of(node: Manifest, pools: Sequence[Pool]) -> str | None:
    fitting = (
        pool["name"] for pool in pools if labels_match({"matchLabels": label_values(pool["nodes"])}, labels_of(node))
    )
    return next(fitting, None)


def _sharing(pool: Pool) -> str:
    return str(pool.get("sharing") or "none")


def _text(pool: Pool) -> str:
    config: dict[str, Any] = {"version": "v1"}
    if _sharing(pool) != "none":
        offered = {"name": "nvidia.com/gpu", "replicas": int(pool.get("replicas") or 1)}
        config["sharing"] = {_STRATEGIES[_sharing(pool)]: {"resources": [offered]}}
    return to_yaml([merged(config, pool.get("config") or {})]).removeprefix("---\n")


def _wrong_names(options: Sharing) -> Iterator[str]:
    names = [str(pool["name"]) for pool in options.pools]
    wrong = [name for name in names if not re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) or name == DEFAULT]
    if wrong or len(set(names)) < len(names):
        yield (
            f"inventory -> device plugin: nvidia_device_plugin_pools has the names {', '.join(names)}."
            " Nothing was changed. Next: give each pool a unique name of letters a-z, digits and `-`,"
            f" but not `{DEFAULT}`, which all other nodes have."
        )


def _alone(options: Sharing) -> Iterator[str]:
    for pool in options.all():
        replicas = int(pool.get("replicas") or 1)
        if _sharing(pool) == "none" or replicas >= 2:
            continue
        of_pool = pool["name"] != DEFAULT
        whose = f"pool {pool['name']}" if of_pool else "nvidia_device_plugin_sharing"
        option = "`replicas` of the pool" if of_pool else "nvidia_device_plugin_sharing_replicas"
        yield (
            f"inventory -> device plugin: {whose} has {_sharing(pool)} with {replicas} replicas. Nothing was changed."
            f" Next: set {option} to the number of pods that share a GPU, 2 or more."
        )


def _by_variable(options: Sharing) -> Iterator[str]:
    """Nodes may ignore the variable by which such a plugin, or the pods that it gives GPUs to, would get GPUs."""
    if options.unrequested == "allow":
        return
    fix = "or set kubegpu_unrequested_gpus to allow (docs/isolation.md)."
    effective = merged(chart_values(options), options.values)
    if not options.values.get("compatWithCPUManager") and not is_admin(effective):
        yield (
            "inventory -> device plugin: securityContext of nvidia_device_plugin_values has no capability SYS_ADMIN, "
            f"so the plugin finds GPUs only by NVIDIA_VISIBLE_DEVICES. Nothing was changed. Next: add SYS_ADMIN, {fix}"
        )
    strategy = str(effective.get("deviceListStrategy") or options.strategy)
    if options.unrequested == "deny" and "cdi" not in strategy:
        yield (
            f"inventory -> device plugin: with the strategy {strategy}, pods get GPUs only by NVIDIA_VISIBLE_DEVICES. "
            f"Nothing was changed. Next: set nvidia_device_plugin_device_list_strategy to cdi-cri, {fix}"
        )


def _without_discovery(options: Sharing) -> Iterator[str]:
    if not options.feature_discovery and any(_sharing(pool) == "mps" for pool in options.all()):
        yield (
            "inventory -> device plugin: MPS needs nvidia_device_plugin_feature_discovery. Its daemon runs on nodes"
            " that GPU feature discovery labels nvidia.com/mps.capable. Nothing was changed."
            " Next: set nvidia_device_plugin_feature_discovery to true, or use time-slicing."
        )


def plugin_pools(options: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The plugin's configurations, the label changes of the nodes, and errors.

    options: fields of Sharing, whose `replicas` may be text. nodes: of the cluster.
    Raises: ValueError if a number of replicas is not a number.
    """
    try:
        sharing = Sharing(**{**options, "replicas": int(options.get("replicas", 1))})
        labels = labels_to_change(sharing, nodes)
        return {
            "configurations": configurations(sharing),
            "chart_values": chart_values(sharing),
            "faults": faults(sharing),
            "labels": [asdict(label) for label in labels],
            "conflict": conflict(labels),
            "commands": [
                f"kubectl label nodes --selector {selector(pool)} {CONFIG_LABEL}={pool['name']}"
                for pool in sharing.pools
            ],
        }
    except ValueError as err:
        raise ValueError(
            f"inventory -> device plugin: replicas have to be whole numbers ({err}). Nothing was changed."
            " Next: set nvidia_device_plugin_sharing_replicas, or `replicas` of the pool, to 2 or more."
        ) from err
