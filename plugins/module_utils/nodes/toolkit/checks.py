# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks why containers of a server cannot get its GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnosis.check import CheckResult, FindingTypes, check
from ...hops import Hop
from ..findings import seen_on
from .decisions import Toolkit

_RUNTIME = FindingTypes(Hop.RUNTIME)

TOOLKIT_NEWER_INSTALLED = _RUNTIME.error(
    "TOOLKIT_NEWER_INSTALLED",
    "the role installs an older release only if you ask for it",
    'set nvidia_container_toolkit_version: "{installed}-*" to keep it, or nvidia_container_toolkit_version: '
    '"{version}" to install the older release',
    before="refuse",
)


@check("no newer toolkit is installed", TOOLKIT_NEWER_INSTALLED)
def toolkit_goes_down_on_demand(toolkit: Toolkit) -> Iterator[CheckResult]:
    if toolkit.is_wanted and toolkit.goes_down and not toolkit.options.version:
        seen = (
            f"has nvidia-container-toolkit-base {toolkit.installed}, newer than {toolkit.version} of the version file"
        )
        installed = toolkit.installed.partition("-")[0]
        yield seen_on(toolkit.host, TOOLKIT_NEWER_INSTALLED, seen, installed=installed, version=toolkit.version)


TOOLKIT_CHANGES_IN_SERVICE = _RUNTIME.error(
    "TOOLKIT_CHANGES_IN_SERVICE",
    "a new release is installed on one node after the other, each of them drained, because a faulty one stops all pods "
    "with GPUs",
    "to install it, run `ansible-playbook kubegpu.autoscale.maintain`; to keep the installed release, set "
    'nvidia_container_toolkit_version: "{installed}-*"',
    before="refuse",
)


@check("a node in service keeps its toolkit", TOOLKIT_CHANGES_IN_SERVICE)
def node_keeps_its_toolkit(toolkit: Toolkit) -> Iterator[CheckResult]:
    if toolkit.is_wanted and toolkit.changes_in_service:
        seen = f"is a node of a cluster with nvidia-container-toolkit-base {toolkit.installed}, and would get "
        installed = toolkit.installed.partition("-")[0]
        yield seen_on(toolkit.host, TOOLKIT_CHANGES_IN_SERVICE, seen + toolkit.version, installed=installed)


TOOLKIT_DEVICES_DIFFER = _RUNTIME.error(
    "TOOLKIT_DEVICES_DIFFER",
    "containers get their GPUs by the devices of the CDI specification",
    "on the node: `nvidia-smi -L`, then `systemctl restart nvidia-cdi-refresh` and `nvidia-ctk cdi list`",
)


@check("the CDI specification has the GPUs", TOOLKIT_DEVICES_DIFFER)
def devices_are_the_gpus(toolkit: Toolkit) -> Iterator[CheckResult]:
    if toolkit.survey.devices is not None and toolkit.offered != toolkit.expected:
        seen = f"has {toolkit.expected} GPUs to offer, the CDI specification has {toolkit.offered}"
        yield seen_on(toolkit.host, TOOLKIT_DEVICES_DIFFER, seen)


TOOLKIT_INSTANCES_UNUSED = _RUNTIME.warning(
    "TOOLKIT_INSTANCES_UNUSED",
    "with migStrategy none the device plugin offers whole GPUs, and a pod gets at most one instance of a GPU in MIG "
    "mode",
    "set nvidia_device_plugin_values: {{migStrategy: mixed}} (nvidia.com/mig-1g.10gb), or single (nvidia.com/gpu, all "
    "GPUs of a node alike); to use whole GPUs, on the node: `nvidia-smi --multi-instance-gpu=0`",
)


@check("MIG instances are offered to pods", TOOLKIT_INSTANCES_UNUSED)
def instances_are_offered(toolkit: Toolkit) -> Iterator[CheckResult]:
    instances = [name for name in toolkit.names if ":" in name]
    if instances and toolkit.survey.strategy == "none":
        seen = f"has {len(instances)} MIG instances, which pods do not get"
        yield seen_on(toolkit.host, TOOLKIT_INSTANCES_UNUSED, seen)


TOOLKIT_CONTAINER_WITHOUT_GPUS = _RUNTIME.error(
    "TOOLKIT_CONTAINER_WITHOUT_GPUS",
    "the runtime nvidia does not give a container all GPUs",
    "on the node: `nvidia-smi -L`, then `nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml` and `journalctl -u "
    "containerd`. nvidia_container_toolkit_verify_container: false skips this check",
)


@check("a container sees the GPUs", TOOLKIT_CONTAINER_WITHOUT_GPUS)
def a_container_sees_the_gpus(toolkit: Toolkit) -> Iterator[CheckResult]:
    shown = toolkit.survey.shown
    if shown is None:
        return
    seen, gpus = len(shown["gpus"]), len(toolkit.facts.gpus)
    if seen not in (toolkit.expected, gpus):
        words = f"gives too few: nvidia-smi in a container showed {seen} of {gpus} GPUs: {shown['output']}"
        yield seen_on(toolkit.host, TOOLKIT_CONTAINER_WITHOUT_GPUS, words)


TOOLKIT_MISSING = _RUNTIME.error(
    "TOOLKIT_MISSING",
    "without NVIDIA's container toolkit no container gets a GPU",
    "run the nvidia_container_toolkit role",
    is_consequence=True,
)


@check("the toolkit is installed", TOOLKIT_MISSING)
def toolkit_is_there(toolkit: Toolkit) -> Iterator[CheckResult]:
    if toolkit.is_wanted and toolkit.survey.installed is not None and not toolkit.installed:
        yield seen_on(toolkit.host, TOOLKIT_MISSING, "has no nvidia-container-toolkit-base")


BEFORE = (toolkit_goes_down_on_demand, node_keeps_its_toolkit)
AFTER = (devices_are_the_gpus, instances_are_offered, a_container_sees_the_gpus)
# Additional checks for the doctor.
NOW = (toolkit_is_there,)
