# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads existing HPAs and recording rules, and the autoscalers that they form."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

from ..autoscaling.manifests import RecordedQueries, autoscaler_of, backend_behind, reads_recorded, recordings_of
from ..autoscaling.scaled_object import hpa_of
from ..autoscaling.spec import KEDA, Autoscaler
from ..cluster.errors import ApiError
from ..cluster.kube import HPAS, RULES, SCALED_OBJECTS, KubeClient
from ..cluster.listing import list_in, list_in_reach
from ..errors import HopError
from ..hops import Hop
from ..kube.labels import INVENTORY, MANAGED_BY, MANAGER, METRIC_LABEL, is_managed, namespace_of
from ..kube.objects import Key, Manifest, key_of, seconds
from .unread_parts import reason


@dataclass(frozen=True)
class Existing:
    """Existing objects of the kinds that form autoscalers.

    hpas:   all HPAs of the cluster by namespace and name, including others that may conflict.
    rules:  recording rules of this collection, of any inventory, by name; None if their kind is not served.
    unread: why only HPAs of the autoscalers' namespaces are known; empty if all are.
    namespaces: namespaces of the autoscalers.
    scaled_objects: ScaledObjects by namespace and name, including others. Empty if they may not be read.
    """

    hpas: dict[Key, Manifest]
    rules: dict[str, Manifest] | None
    unread: str = ""
    namespaces: frozenset[str] = frozenset()
    scaled_objects: dict[Key, Manifest] = field(default_factory=dict)

    def scaler(self, wanted: Manifest) -> Manifest | None:
        """The live object of a wanted HPA or ScaledObject."""
        return (self.hpas if wanted["kind"] == HPAS.kind else self.scaled_objects).get(key_of(wanted))

    def scalers(self, gone: Collection[Key] = (), written: Collection[Manifest] = ()) -> list[Manifest]:
        """HPAs and ScaledObjects, without removed ones, and with those just written."""
        anew = {(manifest["kind"], key_of(manifest)) for manifest in written}
        found = [*self.hpas.values(), *self.scaled_objects.values()]
        return [
            scaler for scaler in found if key_of(scaler) not in gone and (scaler["kind"], key_of(scaler)) not in anew
        ]

    def are_users_known(self, rule: Manifest) -> bool:
        """Whether all HPAs that may use the rule are known."""
        return not self.unread or namespace_of(rule) in self.namespaces


def read_existing(kube: KubeClient, rule_namespace: str, namespaces: Collection[str]) -> Existing:
    """namespaces: namespaces of the autoscalers."""
    rules = read_rules(kube, rule_namespace)
    hpas, unread = read_reachable_hpas(kube, namespaces)
    return Existing(hpas, rules, unread, frozenset(namespaces), read_scaled_objects(kube, namespaces))


def read_scaled_objects(kube: KubeClient, namespaces: Collection[str]) -> dict[Key, Manifest]:
    """None if the user may not list them: then KEDA's HPAs show which rules are used."""
    try:
        found = list_in_reach(kube, SCALED_OBJECTS, namespaces)
    except ApiError as err:
        if err.status != 403:
            raise
        return {}
    return {key_of(manifest): {**manifest, "kind": SCALED_OBJECTS.kind} for manifest in found}


def read_hpas(kube: KubeClient, namespace: str | None = None) -> dict[Key, Manifest]:
    """All HPAs, or those of a namespace. The API server omits the kind in lists.

    Raises: HopError if the kind is not served, which does not mean that no HPA exists.
    """
    found = kube.list(HPAS, namespace=namespace)
    if found is None:
        raise HopError(
            Hop.API_SERVER,
            seen=f"it does not serve {HPAS.kind} of {HPAS.api_version}, so it is unknown which HPAs exist",
            fix=f"check `kubectl get --raw /apis/{HPAS.api_version}`, and that the kubeconfig has the address of the "
            "API server itself",
        )
    return {key_of(hpa): {**hpa, "kind": HPAS.kind} for hpa in found}


def read_reachable_hpas(kube: KubeClient, namespaces: Collection[str]) -> tuple[dict[Key, Manifest], str]:
    """All HPAs. Without permission to list them, those of the namespaces, and the reason."""
    try:
        return read_hpas(kube), ""
    except ApiError as err:
        if err.status != 403 or not namespaces:
            raise
        hpas = list_in(kube, HPAS, namespaces)
        return {key: {**hpa, "kind": HPAS.kind} for key, hpa in hpas.items()}, reason(err)


def read_rules(kube: KubeClient, namespace: str) -> dict[str, Manifest] | None:
    """Rules of autoscalers by name; None if the kind is not served."""
    rules = kube.list(RULES, namespace=namespace, label_selector=f"{MANAGED_BY}={MANAGER},{METRIC_LABEL}")
    return None if rules is None else {key_of(rule)[1]: {**rule, "kind": RULES.kind} for rule in rules}


def read_autoscalers(
    kube: KubeClient, rule_namespace: str, *, namespace: str | None, keys: Collection[Key]
) -> list[tuple[Manifest, Autoscaler]]:
    """HPAs with their autoscalers: named ones, or in a namespace or the cluster those that are managed or read a metric
    that this collection records.

    keys: namespaces and names. rule_namespace: namespace of rules, if only a part of the cluster can be read.
    Raises: HopError if one that is named does not exist.
    """
    namespaces = {namespace} if namespace else {key[0] for key in keys}
    hpas = read_hpas(kube, namespace) if namespace else read_reachable_hpas(kube, namespaces)[0]
    hpas |= _awaited(hpas, read_scaled_objects(kube, namespaces), namespace)
    if missing := [f"{key[0]}/{key[1]}" for key in keys if key not in hpas]:
        raise HopError(Hop.HPA, seen=f"unknown HPA {', '.join(missing)}", fix="run gpu_autoscaler to create it")
    queries = _recorded_queries(kube, rule_namespace)
    wanted = [hpas[key] for key in keys] if keys else hpas.values()
    found = [(hpa, autoscaler_of(hpa, queries.of(hpa))) for hpa in wanted]
    return [one for one in found if keys or is_managed(one[0]) or reads_recorded(one[1])]


def _awaited(
    hpas: Mapping[Key, Manifest], scaled_objects: Mapping[Key, Manifest], namespace: str | None
) -> dict[Key, Manifest]:
    """HPAs of ScaledObjects of this collection that KEDA has not created or adopted yet."""
    return {
        key: hpa_of(found)
        for key, found in scaled_objects.items()
        if namespace in (None, key[0])
        and backend_behind(found) == KEDA
        and (key not in hpas or backend_behind(hpas[key]) != KEDA)
    }


def _recorded_queries(kube: KubeClient, namespace: str) -> RecordedQueries:
    """Recorded queries of this collection's rules: of the cluster, else of a namespace, else none."""
    for place in (None, namespace):
        with suppress(ApiError):
            rules = kube.list(RULES, namespace=place, label_selector=f"{MANAGED_BY}={MANAGER}") or ()
            return RecordedQueries(rules)
    return RecordedQueries(())


def lacks(live: Manifest, wanted: Manifest) -> list[str]:
    """What a rule of another inventory lacks of the wanted rule, for an error; empty if both can share it.

    Its further labels, annotations, groups and recordings do not matter, nor that it is evaluated more often.
    """
    needed = {
        f"the {part[:-1]} {key}: {value}"
        for part in ("labels", "annotations")
        for key, value in (wanted["metadata"].get(part) or {}).items()
        if key != INVENTORY and (live["metadata"].get(part) or {}).get(key) != value
    }
    recorded = [*_recorded(live)]
    for recording, interval in _recorded(wanted):
        often = [every for found, every in recorded if found == recording]
        if not often:
            needed.add(f"another query of {recording['record']}")
        elif min(often) > interval:
            needed.add(f"an evaluation every {interval:g} s")
    return sorted(needed)


def _recorded(rule: Manifest) -> Iterator[tuple[Manifest, float]]:
    """Each recording rule, and the seconds between its evaluations. Without them, Prometheus has a default interval."""
    for group in (rule.get("spec") or {}).get("groups") or ():
        for recording in recordings_of({"spec": {"groups": [group]}}):
            yield recording, seconds(group.get("interval")) or inf
