# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Decides which components the chart roles install, which existing ones they use, and when they fail.

One row of `COMPONENTS` per role: conflicting components, the reason, and the kinds that must be readable to
detect them. `find` detects components; the inventory has the wanted state of each role.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..autoscaling import defaults
from .detection import CUSTOM, EXTERNAL, RESOURCE

Entry = Mapping[str, Any]


_OPERATOR, _ADAPTER, _KEDA = "gpu_operator", "prometheus_adapter", "keda"


@dataclass(frozen=True)
class Wanted:
    """Options of one role in the inventory.

    state:     present, existing, absent, or auto: present unless another installation exists.
    needed:    false if `auto` installs the role only if its own release already exists.
    """

    state: str = "auto"
    namespace: str = ""
    release: str = ""
    adopt: bool = False
    needed: bool = True

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.release}"


@dataclass(frozen=True)
class Cluster:
    """Components of a cluster, and the options of the inventory.

    components:       by kind, as `find_components` returns them.
    unread:           kinds that may not be listed, each with the missing permission.
    host_engine:      whether the exporter connects to an existing DCGM, which is then not a conflict.
    external_metrics: whether the adapter also serves external.metrics.k8s.io.
    """

    context: str = ""
    components: Mapping[str, Any] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    wanted: Mapping[str, Wanted] = field(default_factory=dict)
    host_engine: bool = False
    external_metrics: bool = False

    def found(self, *kinds: str) -> list[Entry]:
        return [entry for kind in kinds for entry in self.components.get(kind) or ()]

    def metrics_servers(self, *apis: str) -> list[Entry]:
        served = self.components.get("metrics_apis") or {}
        return [{**served[api], "kind": "APIService", "name": api} for api in apis if api in served]

    def host_engines(self) -> list[Entry]:
        return [] if self.host_engine else self.found("host_engine")

    def adapter_apis(self) -> tuple[str, ...]:
        return (CUSTOM, EXTERNAL) if self.external_metrics else (CUSTOM,)

    def is_adopted(self, entry: Entry) -> bool:
        """Whether a role adopts the component's release: then it is not a conflict."""
        return any(row.adopt and entry.get("release") == row.full_name for row in self.wanted.values())

    def theirs(self, entries: Sequence[Entry]) -> list[Entry]:
        """Components that this collection neither manages nor adopts."""
        return [entry for entry in entries if not entry["owned"] and not self.is_adopted(entry)]

    def wants_operator(self) -> bool:
        """Whether the inventory installs the GPU operator, which installs a device plugin and an exporter."""
        return self._operator_state() == "present"

    def idle_operators(self) -> list[Entry]:
        """Operators that have not created a component yet, because no node has a GPU."""
        made = self.found("exporter", "host_engine", "device_plugin")
        if any(entry.get("origin") == "gpu-operator" for entry in made):
            return []
        leaving = self._operator_state() == "absent"
        return [entry for entry in self.found("gpu_operator") if not (leaving and entry["owned"])]

    def _operator_state(self) -> str:
        return self.wanted.get(_OPERATOR, Wanted("existing")).state


_OPTIONS = ("state", "namespace", "release", "adopt")


def _no_ways(_cluster: Cluster) -> list[str]:
    return []


def _always(_autoscalers: Sequence[Mapping[str, Any]], _backend: str) -> bool:
    return True


def _reads_resources(autoscalers: Sequence[Mapping[str, Any]], _backend: str) -> bool:
    """Whether an entry of extra_metrics reads CPU or memory, in an HPA's format."""
    entries = (entry for autoscaler in autoscalers for entry in autoscaler.get("extra_metrics") or ())
    return any(isinstance(entry, Mapping) and entry.get("type") in _RESOURCE_METRICS for entry in entries)


_RESOURCE_METRICS = ("Resource", "ContainerResource")


def _uses_keda(autoscalers: Sequence[Mapping[str, Any]], backend: str) -> bool:
    return _KEDA in (backend, *(autoscaler.get("backend") for autoscaler in autoscalers))


@dataclass(frozen=True)
class Component:
    """A role that installs one release, with everything specific to it.

    namespace, release, state: defaults of its options, for plays without the role.
    options:  relevant options of the role.
    is_needed: whether `auto` installs it for these autoscalers and the default of their backend, if its own release
               does not exist yet.
    rivals:   conflicting components, with any installer. reason: why they conflict.
    is_taken: whether an existing installation does what the role would install.
    reads:    kinds that are searched. If one cannot be listed, it is unknown whether a conflicting component exists.
    ways:     next steps that this component alone has.
    """

    namespace: str
    release: str
    reason: str
    reads: tuple[str, ...]
    rivals: Callable[[Cluster], list[Entry]]
    is_taken: Callable[[Cluster], bool]
    ways: Callable[[Cluster], list[str]] = _no_ways
    state: str = "auto"
    options: tuple[str, ...] = _OPTIONS
    is_needed: Callable[[Sequence[Mapping[str, Any]], str], bool] = _always

    def default(self, option: str) -> Any:
        """False for options without a value here."""
        return {"namespace": self.namespace, "release": self.release, "state": self.state}.get(option, False)


def _an_operator_will(cluster: Cluster, rivals: Sequence[Entry]) -> bool:
    """Whether a GPU operator installs it: the inventory's, or one that has not done so yet."""
    ours = any(entry["owned"] for entry in rivals)
    return cluster.wants_operator() or (bool(cluster.idle_operators()) and not ours)


def _stack_is_taken(cluster: Cluster) -> bool:
    if cluster.theirs(_operators(cluster)):
        return True
    prometheuses = cluster.found("prometheus")
    answering = [entry for entry in cluster.theirs(prometheuses) if entry.get("service")]
    return bool(answering) and not any(entry["owned"] for entry in prometheuses)


def _operators(cluster: Cluster) -> list[Entry]:
    return cluster.found("prometheus_operator")


def _exporters(cluster: Cluster) -> list[Entry]:
    return [*cluster.found("exporter"), *cluster.host_engines()]


def _plugins(cluster: Cluster) -> list[Entry]:
    return cluster.found("device_plugin", "dra_driver")


def _adapters(cluster: Cluster) -> list[Entry]:
    return cluster.metrics_servers(*cluster.adapter_apis())


def _exporter_is_taken(cluster: Cluster) -> bool:
    """A DCGM without an exporter conflicts with the role's exporter, but does not replace it."""
    theirs = cluster.theirs(cluster.found("exporter"))
    return bool(theirs) or _an_operator_will(cluster, _exporters(cluster))


def _plugin_is_taken(cluster: Cluster) -> bool:
    return bool(cluster.theirs(_plugins(cluster))) or _an_operator_will(cluster, _plugins(cluster))


def _operator_rivals(cluster: Cluster) -> list[Entry]:
    """Components that allocate or read the same GPUs, except for the release's own operator and its objects."""
    prefix = f"{cluster.wanted[_OPERATOR].namespace}/"

    def is_own(entry: Entry) -> bool:
        return bool(entry["name"].startswith(prefix))

    drivers = cluster.found("device_plugin", "dra_driver", "exporter", "host_engine")
    return [
        *(entry for entry in drivers if entry.get("origin") != "gpu-operator" or not is_own(entry)),
        *(entry for entry in cluster.found("gpu_operator") if not entry["owned"] and not is_own(entry)),
    ]


ONE_SERVER = "a metrics API has one server in a cluster"
COMPONENTS: Mapping[str, Component] = {
    "prometheus_stack": Component(
        namespace=defaults.NAMESPACE,
        release=defaults.RELEASE,
        reason="two operators overwrite the same objects",
        reads=("DaemonSet", "Deployment", "Prometheus", "Service", "StatefulSet"),
        rivals=_operators,
        is_taken=_stack_is_taken,
    ),
    "dcgm_exporter": Component(
        namespace="monitoring",
        release="dcgm-exporter",
        options=(*_OPTIONS, "host_engine"),
        reason="of two DCGMs on a node only one reads the profiling counters",
        reads=("DaemonSet",),
        rivals=_exporters,
        is_taken=_exporter_is_taken,
        ways=lambda cluster: (
            ["set dcgm_exporter_host_engine to connect the exporter to that DCGM"] if cluster.host_engines() else []
        ),
    ),
    "nvidia_device_plugin": Component(
        namespace="nvidia-device-plugin",
        release="nvidia-device-plugin",
        reason="two of them allocate the same GPUs",
        reads=("DaemonSet", "Deployment"),
        rivals=_plugins,
        is_taken=_plugin_is_taken,
    ),
    _ADAPTER: Component(
        namespace="monitoring",
        release="prometheus-adapter",
        options=(*_OPTIONS, "external_metrics"),
        reason=ONE_SERVER,
        reads=("APIService",),
        rivals=_adapters,
        is_taken=lambda cluster: bool(cluster.theirs(cluster.metrics_servers(CUSTOM))),
        ways=lambda cluster: (
            ["set prometheus_adapter_external_metrics=false to leave the other API alone"]
            if cluster.external_metrics
            else []
        ),
    ),
    "metrics_server": Component(
        namespace="kube-system",
        release="metrics-server",
        is_needed=_reads_resources,
        reason=ONE_SERVER,
        reads=("APIService",),
        rivals=lambda cluster: cluster.metrics_servers(RESOURCE),
        is_taken=lambda cluster: bool(cluster.theirs(cluster.metrics_servers(RESOURCE))),
    ),
    _KEDA: Component(
        namespace="keda",
        release="keda",
        is_needed=_uses_keda,
        reason=ONE_SERVER,
        reads=("APIService",),
        rivals=lambda cluster: cluster.metrics_servers(EXTERNAL),
        is_taken=lambda cluster: bool(cluster.theirs(cluster.metrics_servers(EXTERNAL))),
    ),
    # It is installed only if the inventory enables it, and no other component allocates or reads the same GPUs.
    _OPERATOR: Component(
        namespace="gpu-operator",
        release="gpu-operator",
        state="existing",
        options=("state", "namespace", "release"),
        reason="two device plugins allocate the same GPUs, and of two DCGMs on a node only one reads the profiling"
        " counters",
        reads=("DaemonSet", "Deployment"),
        rivals=_operator_rivals,
        is_taken=lambda _cluster: False,
    ),
}
# Components that the GPU operator installs.
_OF_OPERATOR = ("dcgm_exporter", "nvidia_device_plugin")


def place(role: str, cluster: Cluster) -> dict[str, Any]:
    """Decides what one role does in a cluster.

    Returns: its resolved `state`, `refused` with the error that stops it before a change, and a `warning`; both texts
    can be empty.
    """
    if role == _OPERATOR:
        wanted = cluster.wanted[role]
        refused = _operator_refused(cluster) if wanted.state == "present" else ""
        return {"state": wanted.state, "refused": refused, "warning": ""}
    state = _resolved(role, cluster)
    reasons = (_both_serve, _unread, _second_of_theirs, _second_of_ours, _still_served, _beside_operator)
    texts = (reason(role, state, cluster) for reason in reasons)
    return {"state": state, "refused": next(filter(None, texts), ""), "warning": _stays(role, cluster)}


def _resolved(role: str, cluster: Cluster) -> str:
    wanted = cluster.wanted[role]
    if wanted.state != "auto":
        return wanted.state
    if COMPONENTS[role].is_taken(cluster):
        return "existing"
    has_own = any(entry.get("release") == wanted.full_name for entry in COMPONENTS[role].rivals(cluster))
    return "present" if wanted.needed or has_own else "existing"


def _named(entries: Sequence[Entry]) -> str:
    return ", ".join(f"{entry['kind']} {entry['name']}" for entry in entries)


def _error(role: str, cluster: Cluster, seen: str, following: str) -> str:
    return f"cluster {cluster.context} -> {role}: {seen} Nothing was changed. Next: {following}"


def _unread_error(role: str, reads: Sequence[str], cluster: Cluster) -> str:
    missing = [right for kind, right in cluster.unread.items() if kind in reads]
    if not missing:
        return ""
    return _error(
        role,
        cluster,
        f"{'; '.join(missing)}. So another installation may exist.",
        f"run it with the rights of an administrator, or set {role}_state=existing.",
    )


def _unread(role: str, state: str, cluster: Cluster) -> str:
    return _unread_error(role, COMPONENTS[role].reads, cluster) if state == "present" else ""


def _second_of_theirs(role: str, state: str, cluster: Cluster) -> str:
    """A release beside one that is not managed by this collection; with `auto`, if both exist."""
    component, wanted = COMPONENTS[role], cluster.wanted[role]
    rivals = component.rivals(cluster)
    theirs, ours = cluster.theirs(rivals), [entry for entry in rivals if entry["owned"]]
    if not theirs or (state != "present" and not (wanted.state == "auto" and ours)):
        return ""
    ways = [f"set {role}_state=absent to remove the collection's" if ours else f"set {role}_state=existing to use it"]
    ways.append("remove the existing one first")
    if wanted.full_name in (entry.get("release") for entry in theirs):
        ways.append(f"adopt its release with `-e {role}_adopt=true`; `--check` shows what that changes")
    return _error(
        role,
        cluster,
        f"{_named(theirs)} was not created by this collection, and {component.reason}.",
        f"{'; or '.join([*ways, *component.ways(cluster)])} (docs/existing-clusters.md).",
    )


def _releases(role: str, cluster: Cluster) -> list[str]:
    """Managed releases of the conflicting components. Leftovers of an interrupted run may have no release."""
    ours = [entry for entry in COMPONENTS[role].rivals(cluster) if entry["owned"] and entry.get("release")]
    return list(dict.fromkeys(str(entry["release"]) for entry in ours))


def _elsewhere(role: str, cluster: Cluster) -> list[str]:
    """Managed releases of the role with another name or namespace."""
    known = [wanted.full_name for wanted in cluster.wanted.values()]
    return [release for release in _releases(role, cluster) if release not in known]


def _options(role: str, release: str) -> str:
    namespace, _slash, name = release.partition("/")
    return f"{role}_namespace={namespace} and {role}_release={name}"


def _second_of_ours(role: str, state: str, cluster: Cluster) -> str:
    """With another namespace or name, helm would install a second release and keep the first."""
    elsewhere = _elsewhere(role, cluster)
    if state != "present" or not elsewhere:
        return ""
    return _error(
        role,
        cluster,
        f"this collection created release {', '.join(elsewhere)}, and {COMPONENTS[role].reason}.",
        f"set {_options(role, elsewhere[0])} to keep it;"
        f" to move it, run this once with these two and {role}_state=absent.",
    )


# Each can serve external.metrics.k8s.io.
_OTHER_SERVER = {_ADAPTER: _KEDA, _KEDA: _ADAPTER}


def _both_serve(role: str, state: str, cluster: Cluster) -> str:
    """The inventory requests external.metrics.k8s.io from both the adapter and KEDA."""
    other = _OTHER_SERVER.get(role)
    if not other or not cluster.external_metrics or {state, _resolved(other, cluster)} != {"present"}:
        return ""
    return (
        f"inventory -> {role}: prometheus_adapter_external_metrics is true, and KEDA serves {EXTERNAL} too;"
        f" {ONE_SERVER}. Nothing was changed."
        " Next: set prometheus_adapter_external_metrics to false, or use the backend adapter and set keda_state to"
        " absent."
    )


def _still_served(role: str, state: str, cluster: Cluster) -> str:
    """The other one serves external.metrics.k8s.io, and has not been changed yet."""
    other = _OTHER_SERVER.get(role)
    if state != "present" or not other or cluster.wanted[other].full_name not in _releases(role, cluster):
        return ""
    following = (
        "run the role prometheus_adapter with prometheus_adapter_external_metrics=false first"
        if role == _KEDA
        else "run this once with keda_state=absent and prometheus_adapter_external_metrics=false"
    )
    return _error(
        role,
        cluster,
        f"release {cluster.wanted[other].full_name} of this collection serves {EXTERNAL}, and {ONE_SERVER}.",
        f"{following}.",
    )


def _beside_operator(role: str, _state: str, cluster: Cluster) -> str:
    if role not in _OF_OPERATOR or not cluster.wants_operator() or cluster.wanted[role].state != "present":
        return ""
    return (
        f"inventory -> {role}: gpu_operator_state is present, and the operator installs its own;"
        f" {COMPONENTS[role].reason}. Nothing was changed."
        f" Next: leave {role}_state at auto, or set gpu_operator_state to absent (docs/clusters/gpu-operator.md)."
    )


def _stays(role: str, cluster: Cluster) -> str:
    elsewhere = _elsewhere(role, cluster)
    if cluster.wanted[role].state != "absent" or not elsewhere:
        return ""
    return (
        f"WARNING: cluster {cluster.context} -> {role}: {role}_state is absent, and release {', '.join(elsewhere)},"
        f" which this collection created, is kept. Next: to remove it, set {_options(role, elsewhere[0])} too."
    )


def _operator_refused(cluster: Cluster) -> str:
    role, component = _OPERATOR, COMPONENTS[_OPERATOR]
    rivals = component.rivals(cluster)
    if unread := _unread_error(role, component.reads, cluster):
        return unread
    if not rivals:
        return ""
    ours = any(entry["owned"] for entry in rivals)
    following = (
        "run the playbooks gpu and monitoring with gpu_operator_state=existing, nvidia_device_plugin_state=absent"
        " and dcgm_exporter_state=absent; then this again"
        if ours
        else "remove what exists first, or leave gpu_operator_state at existing"
    )
    return _error(
        role,
        cluster,
        f"{_named(rivals)} {'exist' if len(rivals) > 1 else 'exists'}, and {component.reason}.",
        f"{following} (docs/clusters/gpu-operator.md).",
    )
