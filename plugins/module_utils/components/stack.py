# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks the options of the monitoring stack before a change."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .receivers import Receiver, receiver_faults

Values = Mapping[str, Any]
# Services of the chart kube-prometheus-stack for Prometheus and Alertmanager, with their default types.
# Only the first is enabled by default.
_SERVICES = {
    "service": "ClusterIP",
    "servicePerReplica": "ClusterIP",
    "thanosService": "ClusterIP",
    "thanosServiceExternal": "LoadBalancer",
}
_INGRESSES = ("ingress", "ingressPerReplica", "thanosIngress")
# Gateway API filters that can require a login.
_LOGIN_FILTERS = ("ExtensionRef", "ExternalAuth")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


@dataclass(frozen=True)
class StackOptions:
    """Options of the role prometheus_stack."""

    values: Values
    receivers: Sequence[Receiver]
    without_login: bool
    storage: Values
    retention_size: str


def stack_plan(options: StackOptions, survey: Mapping[str, Any]) -> dict[str, Any]:
    """`refused`: one error per problem, with its reason and the next step. survey: `chart_values`, all of the chart."""
    checks = (_receivers(options), _exposure(options, survey["chart_values"]), _volume(options))
    return {"refused": [fault for faults in checks for fault in faults]}


def _receivers(options: StackOptions) -> Iterator[str]:
    if faults := receiver_faults(options.receivers):
        yield (
            f"prometheus_stack_receivers: {'; '.join(faults)}. Nothing was changed."
            " Next: correct it (docs/monitoring.md)."
        )


def _exposure(options: StackOptions, chart_values: Values) -> Iterator[str]:
    doors = open_doors(chart_values) if options.values and not options.without_login else []
    if doors:
        yield (
            f"prometheus_stack_values: {'; '.join(doors)}. Everyone who reaches it can read all metrics."
            " Nothing was changed. Next: put a login in front (docs/access.md),"
            " or set prometheus_stack_without_login=true where something else asks for one."
        )


def open_doors(values: Values) -> list[str]:
    """Ways to reach Prometheus or Alertmanager from outside without a login, by the chart's values."""
    return [door for part in ("prometheus", "alertmanager") for door in _doors(part, values.get(part) or {})]


def _doors(part: str, values: Values) -> Iterator[str]:
    for name, usual in _SERVICES.items():
        service = values.get(name) or {}
        if not service.get("enabled", name == "service"):
            continue
        kind = service.get("type") or usual
        if kind != "ClusterIP":
            yield f"{part}.{name}.type is {kind}"
        if service.get("externalIPs"):
            yield f"{part}.{name} has externalIPs"
    if (values.get(f"{part}Spec") or {}).get("hostNetwork"):
        yield f"{part}.{part}Spec.hostNetwork is true"
    for name in _INGRESSES:
        ingress = values.get(name) or {}
        if ingress.get("enabled") and not _asks_for_login(ingress):
            yield f"{part}.{name} has no annotation that asks for a login"
    for name, route in (values.get("route") or {}).items():
        filters = [entry.get("type") for entry in route.get("filters") or ()]
        if route.get("enabled") and not any(kind in _LOGIN_FILTERS for kind in filters):
            yield f"{part}.route.{name} has no filter that asks for a login"


def _asks_for_login(ingress: Values) -> bool:
    """Decided by its annotations. Traefik ignores those of other controllers, and then requires no login."""
    is_traefik = "traefik" in (ingress.get("ingressClassName") or "")
    pattern = r"router[.]middlewares" if is_traefik else "auth|middleware|plugin"
    return re.search(pattern, json.dumps(ingress.get("annotations") or {})) is not None


def _volume(options: StackOptions) -> Iterator[str]:
    requests = (options.storage.get("resources") or {}).get("requests") or {}
    volume, kept = str(requests.get("storage", "")), str(options.retention_size)
    if is_overfull(kept, volume):
        yield (
            f"prometheus_stack_storage: the volume has {volume}, and samples may take {kept}. Nothing was changed."
            " Next: a larger volume, or set prometheus_stack_retention_size to four fifths of it."
        )


def is_overfull(kept: str, volume: str) -> bool:
    """Whether samples may fill their volume; false if one of the sizes is unknown.

    kept: size in Prometheus' format, with 1,024 bytes per KB. volume: a quantity of Kubernetes.
    """
    size = re.fullmatch(r"([0-9.]+) *([KMGTP]?)i?B", kept)
    quantity = re.fullmatch(r"([0-9.]+)([KMGTP]?)(i?)", volume)
    if not size or not quantity:
        return False
    base = 1024 if quantity[3] else 1000
    return float(size[1]) * 1024 ** _POWERS[size[2]] >= float(quantity[1]) * base ** _POWERS[quantity[2]]


def grafana_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Values of Grafana's chart, from options of the role prometheus_stack."""
    if not options["grafana"]:
        return {"enabled": False}
    return {
        "enabled": True,
        "admin": {"existingSecret": options["grafana_secret"]},
        "sidecar": {"datasources": {"alertmanager": {"enabled": _has_alertmanager(options)}}},
    }


def _has_alertmanager(options: Mapping[str, Any]) -> bool:
    """The chart configures an Alertmanager in Grafana even if none is installed."""
    given = ((options.get("values") or {}).get("alertmanager") or {}).get("enabled")
    return bool(options["alertmanager"] if given is None else given)
