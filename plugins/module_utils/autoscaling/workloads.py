# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Finds missing workloads of an inventory's autoscalers, and HPAs whose workload is missing.

Autoscalers are not validated here; the module gpu_autoscaler does that later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..kube.api_versions import HPA_VERSION
from .spec import API_VERSIONS

Given = Mapping[str, Any]
Query = dict[str, Any]
DEFAULT_KIND, DEFAULT_NAMESPACE = "Deployment", "default"


@dataclass(frozen=True)
class Workloads:
    """queries: queries for the targets, for objects_info. missing: names of missing targets.

    wanted:      autoscalers whose target exists or has no name.
    hpa_queries: queries for the HPAs of the others.
    namespaces:  namespaces of all autoscalers. Other namespaces may have those of another inventory.
    """

    queries: tuple[Query, ...]
    missing: tuple[str, ...]
    wanted: tuple[Given, ...]
    hpa_queries: tuple[Query, ...]
    namespaces: tuple[str, ...]


def workloads(autoscalers: Sequence[Given], found: Sequence[Sequence[Any]]) -> Workloads:
    """found: results of objects_info, one for each query. Targets without a query count as existing."""
    named = [autoscaler for autoscaler in autoscalers if _target(autoscaler).get("name")]
    missing = [_title(autoscaler) for autoscaler, objects in zip(named, found, strict=False) if not objects]
    lost = [autoscaler for autoscaler in named if _title(autoscaler) in missing]
    return Workloads(
        queries=tuple(map(_query, named)),
        missing=tuple(missing),
        wanted=tuple(autoscaler for autoscaler in autoscalers if autoscaler not in lost),
        hpa_queries=tuple(map(_hpa_query, lost)),
        namespaces=tuple(dict.fromkeys(map(_namespace, autoscalers))),
    )


def proof_targets(wanted: Sequence[Given], orphans: Sequence[Given]) -> list[Given]:
    """Autoscalers to prove, and HPAs without a target, whose proof fails."""
    names = [{key: hpa["metadata"][key] for key in ("namespace", "name")} for hpa in orphans]
    return [*wanted, *names]


def _target(autoscaler: Given) -> Given:
    target = autoscaler.get("target")
    return target if isinstance(target, Mapping) else {}


def _namespace(autoscaler: Given) -> str:
    return str(autoscaler.get("namespace") or DEFAULT_NAMESPACE)


def _kind(autoscaler: Given) -> str:
    return str(_target(autoscaler).get("kind") or DEFAULT_KIND)


def _title(autoscaler: Given) -> str:
    return f"{_kind(autoscaler)} {_namespace(autoscaler)}/{_target(autoscaler)['name']}"


def _query(autoscaler: Given) -> Query:
    target, kind = _target(autoscaler), _kind(autoscaler)
    return {
        "kind": kind,
        "api_version": target.get("api_version") or API_VERSIONS.get(kind, "v1"),
        "namespace": _namespace(autoscaler),
        "name": target["name"],
    }


def _hpa_query(autoscaler: Given) -> Query:
    return {
        "kind": "HorizontalPodAutoscaler",
        "api_version": HPA_VERSION,
        "namespace": _namespace(autoscaler),
        "name": autoscaler.get("name") or _target(autoscaler)["name"],
    }
