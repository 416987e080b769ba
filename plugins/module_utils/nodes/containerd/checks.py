# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks why a server cannot get containerd, or does not use the installed one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...diagnosis.check import CheckResult, FindingTypes, check
from ...hops import Hop
from ..findings import seen_on
from ..survey.program_output import lines_of
from .decisions import PACKAGE, Containerd

_RUNTIME = FindingTypes(Hop.RUNTIME)

OTHER_RUNTIME = _RUNTIME.error(
    "CONTAINERD_OTHER_RUNTIME",
    "containerd.io would run beside it or replace it, and apt would remove what depends on it, docker.io for instance",
    "on a node of an existing cluster, leave the role containerd out: nvidia_container_toolkit adds its runtime to any "
    "containerd 2. Otherwise drain the node and remove the other runtime first",
    before="refuse",
)


@check("no other container runtime is installed", OTHER_RUNTIME)
def no_other_runtime_is_installed(containerd: Containerd) -> Iterator[CheckResult]:
    if containerd.is_wanted and containerd.others:
        seen = f"has a container runtime that is not managed by this collection ({', '.join(containerd.others)})"
        yield seen_on(containerd.host, OTHER_RUNTIME, seen)


NEWER_INSTALLED = _RUNTIME.error(
    "CONTAINERD_NEWER_INSTALLED",
    "the role installs an older release only if you ask for it, and Docker uses the same containerd",
    'set containerd_version: "{installed}-*" to keep it, or containerd_version: "{version}" to install the older '
    "release",
    before="refuse",
)


@check("no newer containerd is installed", NEWER_INSTALLED)
def containerd_goes_down_on_demand(containerd: Containerd) -> Iterator[CheckResult]:
    if containerd.is_wanted and containerd.goes_down and not containerd.options.version:
        seen = f"has {PACKAGE} {containerd.installed}, newer than {containerd.version} of the version file"
        installed = re.match("[0-9.]*", containerd.installed)
        words = {"installed": installed[0] if installed else "", "version": containerd.version}
        yield seen_on(containerd.host, NEWER_INSTALLED, seen, **words)


CHANGES_IN_SERVICE = _RUNTIME.error(
    "CONTAINERD_CHANGES_IN_SERVICE",
    "a new release is installed on one node after the other, each of them drained, because a faulty one stops all pods",
    "to install it, run `ansible-playbook kubegpu.autoscale.maintain`; to keep the installed release, set "
    'containerd_version: "{installed}-*"',
    before="refuse",
)


@check("a node in service keeps its containerd", CHANGES_IN_SERVICE)
def node_keeps_its_containerd(containerd: Containerd) -> Iterator[CheckResult]:
    if containerd.is_wanted and containerd.changes_in_service:
        seen = f"is a node of a cluster with {PACKAGE} {containerd.installed}, and would get {containerd.version}"
        installed = re.match("[0-9.]*[0-9]", containerd.installed)
        yield seen_on(containerd.host, CHANGES_IN_SERVICE, seen, installed=installed[0] if installed else "")


INTERFACE_MISSING = _RUNTIME.error(
    "CONTAINERD_INTERFACE_MISSING",
    "the kubelet starts containers through containerd's plugin cri",
    "on the node: `systemctl restart containerd`, then `journalctl -u containerd`",
)
_PLUGIN = re.compile(r"io\.containerd\.grpc\.v1\s+cri\s.*")


@check("containerd serves the kubelet's interface", INTERFACE_MISSING)
def interface_is_offered(containerd: Containerd) -> Iterator[CheckResult]:
    answer = containerd.survey.plugins
    rows = [line.rstrip() for line in lines_of(answer) if _PLUGIN.match(line)]
    if answer is not None and not any(re.search(r"\sok$", row) for row in rows):
        seen = f"has a containerd without the interface of Kubernetes; plugin cri: {'; '.join(rows) or 'not loaded'}"
        yield seen_on(containerd.host, INTERFACE_MISSING, seen)


KEPT = _RUNTIME.warning(
    "CONTAINERD_KEPT",
    "the role removes only what this collection installed and nothing else needs. Its own files are removed",
    "to remove it anyway, run `apt-get purge containerd.io` on the node",
)


@check("containerd can be removed", KEPT)
def containerd_can_be_removed(containerd: Containerd) -> Iterator[CheckResult]:
    if containerd.is_wanted:
        return
    if containerd.users:
        seen = f"keeps containerd, with its images and containers: {'; '.join(containerd.users)}"
        yield seen_on(containerd.host, KEPT, seen)
    elif containerd.remaining:
        programs = ", ".join(containerd.remaining)
        seen = f"keeps containerd, with its images and containers: this collection did not install {programs}"
        yield seen_on(containerd.host, KEPT, seen)


BEFORE = (no_other_runtime_is_installed, containerd_goes_down_on_demand, node_keeps_its_containerd)
AFTER = (interface_is_offered, containerd_can_be_removed)
