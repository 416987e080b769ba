# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Selects the Prometheus of an inventory: its own release, an existing one, or one at an address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..autoscaling import defaults
from ..secrets import without_login
from .places import Cluster, Entry, place

# Facts of an existing Prometheus that are not options of the modules.
_FACTS = (
    "kind",
    "name",
    "owned",
    "release",
    "rule_namespaces",
    "monitor_labels",
    "monitor_namespaces",
    "scrape_interval",
    "reads_rules",
)


@dataclass(frozen=True)
class Choice:
    """given: kubegpu_prometheus. serves_monitors: whether the cluster has the kind ServiceMonitor."""

    cluster: Cluster
    given: Mapping[str, Any] = field(default_factory=dict)
    serves_monitors: bool = True

    def others(self) -> list[Entry]:
        """Prometheus objects not managed by this collection that answer queries."""
        theirs = self.cluster.theirs(self.cluster.found("prometheus"))
        return [entry for entry in theirs if entry.get("service")]

    def comes(self) -> bool:
        """Whether the role prometheus_stack installs one."""
        return bool(place("prometheus_stack", self.cluster)["state"] == "present")

    def is_ours(self) -> bool:
        owned = any(entry["owned"] for entry in self.cluster.found("prometheus"))
        return not self._named() and (owned or self.comes())

    def has_monitors(self) -> bool:
        """Whether ServiceMonitors can be created: the kind exists, or comes with the managed release."""
        return self.serves_monitors or self.comes()

    def address(self) -> dict[str, Any]:
        """Its location and the labels for rules and monitors, as far as known; `given` takes precedence."""
        candidates = [*self._named(), *([] if self.is_ours() else self._near())]
        return {**(candidates[0] if candidates else self._own()), **self.given}

    def options(self, interval_s: int) -> dict[str, Any]:
        """The option `prometheus` of the modules. interval_s: scrape interval, by the size of the fleet."""
        interval = {"evaluation_interval": interval_s} if interval_s != defaults.EVALUATION_INTERVAL_S else {}
        return interval | {key: value for key, value in self.address().items() if key not in _FACTS}

    def url(self) -> str:
        """The address for pods of the cluster."""
        it = self._own() | self.address()
        service = (
            f"{it.get('scheme') or 'http'}://{it['service']}.{it['namespace']}.svc:{it['port']}{it['path_prefix']}"
        )
        return str(it.get("url") or service)

    def public_url(self) -> str:
        """The address without a login, for arguments of programs and for output."""
        return without_login(self.url())

    def several(self) -> str:
        """The error if several exist and none is selected; can be empty."""
        if not self._is_unknown() or len(self.others()) < 2:
            return ""
        names = " and ".join(str(entry["name"]) for entry in self.others())
        return (
            f"controller -> Prometheus: the cluster has {names}. Nothing was changed."
            " Next: set kubegpu_prometheus to the namespace and service of the one that scrapes the GPUs."
        )

    def missing(self) -> str:
        """The error if no Prometheus can be queried, or empty."""
        if not self._is_unknown() or self.others():
            return ""
        theirs = self.cluster.theirs(self.cluster.found("prometheus_operator"))
        names = ", ".join(f"{entry['kind']} {entry['name']}" for entry in theirs)
        beside = f", and the collection does not install one beside {names}" if theirs else ""
        return (
            f"controller -> Prometheus: the cluster has no Prometheus that answers queries{beside}."
            " Nothing was changed. Next: set kubegpu_prometheus to the namespace and service, or the url,"
            " of what answers in its place, for example Thanos."
        )

    def _is_unknown(self) -> bool:
        return not self.is_ours() and not self.given.get("url") and not self.given.get("service")

    def _named(self) -> list[Entry]:
        """Those that `given` selects; by service only, if it has no namespace."""
        service, namespace = self.given.get("service", ""), self.given.get("namespace")
        return [
            entry for entry in self.others() if entry["service"] == service and namespace in (None, entry["namespace"])
        ]

    def _near(self) -> list[Entry]:
        """Those of the namespace in `given`, or else all."""
        others = self.others()
        return [entry for entry in others if entry["namespace"] == self.given.get("namespace", "")] or others

    def _own(self) -> dict[str, Any]:
        stack = self.cluster.wanted["prometheus_stack"]
        labels = {"release": stack.release}
        return {
            "namespace": stack.namespace,
            "service": f"{full_name(stack.release)}-prometheus",
            "port": defaults.PORT,
            "path_prefix": "",
            "rule_labels": labels,
            "monitor_labels": labels,
        }


def full_name(release: str) -> str:
    """The chart's name for its objects: kube-prometheus-stack.fullname of its _helpers.tpl, truncated to 26."""
    name = release if "kube-prometheus-stack" in release else f"{release}-kube-prometheus-stack"
    return name[:26].removesuffix("-")
