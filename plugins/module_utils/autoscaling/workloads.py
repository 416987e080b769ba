# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Finds missing workloads of an inventory's autoscalers, and HPAs whose workload is missing.

Autoscalers are not validated here; the module gpu_autoscaler does that later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ..errors import enumeration
from ..kube.api_versions import HPA_VERSION
from .spec import API_VERSIONS

Given = Mapping[str, Any]
Query = dict[str, Any]
DEFAULT_KIND, DEFAULT_NAMESPACE = "Deployment", "default"


# Kinds among which a missing target is searched by its name, in all namespaces.
USUAL_KINDS = ("Deployment", "StatefulSet")


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


def search_queries() -> list[Query]:
    """Queries for the workloads among which a missing target may be."""
    return [{"kind": kind, "api_version": API_VERSIONS[kind]} for kind in USUAL_KINDS]


def missing_texts(missing: Sequence[str], found: Sequence[Sequence[Given]]) -> list[str]:
    """Each missing target, with workloads of almost its name under another kind, namespace or spelling.

    missing: titles as in Workloads. found: results of the `search_queries`; empty if they may not be listed.
    """
    there = [
        f"{kind} {one['metadata']['namespace']}/{one['metadata']['name']}"
        for kind, objects in zip(USUAL_KINDS, found, strict=False)
        for one in objects
    ]
    return [_missing_text(title, there) for title in missing]


def _missing_text(title: str, there: Sequence[str]) -> str:
    name = _name_in(title)
    same = [other for other in there if _name_in(other).lower() == name.lower()]
    alike = get_close_matches(name, [_name_in(other) for other in there], n=1, cutoff=0.8)
    near = same or [other for other in there if _name_in(other) in alike]
    return f"{title} does not exist" + (f" (found: {enumeration(sorted(near))})" if near else "")


def _name_in(title: str) -> str:
    return title.rpartition("/")[2]


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
