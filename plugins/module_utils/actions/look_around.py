# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ..cluster.errors import ApiError
from ..cluster.kube import (
    APISERVICES,
    DAEMON_SETS,
    DEPLOYMENTS,
    NAMESPACES,
    PROMETHEUSES,
    RULES,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    KubeClient,
    Resource,
)
from ..cluster.parallel import in_parallel
from ..components.find import METRICS_APIS, Objects, find_components
from ..errors import HopError
from ..hops import Hop
from ..marks import INVENTORY, RELEASE
from .outcome import Outcome
from .reading import attempt, reason
from .wait import Deadline, wait_until

_LISTS: dict[str, Resource] = {
    "daemon_sets": DAEMON_SETS,
    "deployments": DEPLOYMENTS,
    "stateful_sets": STATEFUL_SETS,
    "services": SERVICES,
    "prometheuses": PROMETHEUSES,
    "namespaces": NAMESPACES,
}


def look_around(connect: Callable[[], KubeClient], server: str, inventory: str, deadline: Deadline) -> Outcome:
    """Which components a cluster has, as soon as it answers.

    connect: a client of the cluster. server: its address, for people. inventory: whose objects are owned.
    Raises: HopError if it does not answer in time, or takes the client for nobody. ApiError if a part cannot be read
    for another reason than rights.
    """

    def ask() -> KubeClient | ApiError:
        try:
            kube = connect()
            kube.user()
        except ApiError as err:
            if err.status == 0 or err.status >= 500:
                return err
            raise
        return kube

    kube = wait_until(ask, lambda answer: isinstance(answer, KubeClient), deadline)
    if isinstance(kube, ApiError):
        fix = "kubectl get --raw /readyz, with the same kubeconfig"
        raise HopError(Hop.API_SERVER, seen=f"{server} gave no answer in time: {kube}", fix=fix)
    return _components(kube, inventory)


def _components(kube: KubeClient, inventory: str) -> Outcome:
    answers = in_parallel(lambda name: kube.list(_LISTS[name]), list(_LISTS))
    groups = list(METRICS_APIS)
    apis = in_parallel(lambda group: kube.get(APISERVICES, f"{METRICS_APIS[group]}.{group}"), groups)
    kinds = attempt(lambda: kube.discover(RULES.api_version))
    releases = _releases(kube, inventory)
    objects = Objects(
        **{
            # The objects of a list do not say their kind.
            name: [{**manifest, "kind": resource.kind} for manifest in answer] if isinstance(answer, list) else []
            for (name, resource), answer in zip(_LISTS.items(), answers, strict=True)
        },
        api_services={group: api for group, api in zip(groups, apis, strict=True) if isinstance(api, dict)},
        releases=releases or frozenset(),
        inventory=inventory,
    )
    namespaces = dict(zip(_LISTS, answers, strict=True))["namespaces"]
    objects = replace(objects, namespaces=namespaces if isinstance(namespaces, list) else None)
    return Outcome(
        result={
            "components": find_components(objects),
            "sees_releases": releases is not None,
            "serves_monitors": not isinstance(kinds, dict) or "ServiceMonitor" in kinds,
            "not_looked_at": _unread(
                [*zip(_LISTS.values(), answers, strict=True), *((APISERVICES, api) for api in apis)]
            ),
        }
    )


def _unread(answers: Iterable[tuple[Resource, Any]]) -> dict[str, str]:
    """Kinds that there is no right to, each with the right that is missing. Any other error may hide what is there."""
    unread = {}
    for resource, answer in answers:
        if isinstance(answer, ApiError) and answer.status == 403:
            unread[resource.kind] = reason(answer)
        elif isinstance(answer, (ApiError, HopError)):
            raise answer
    return unread


def _releases(kube: KubeClient, inventory: str) -> frozenset[tuple[str, str]] | None:
    """Those of the inventory; objects of one that was interrupted have no mark yet. None for who may not read them."""
    try:
        records = kube.list_metadata(SECRETS, label_selector=f"owner=helm,{RELEASE},{INVENTORY}={inventory}")
    except ApiError as err:
        if err.status == 403:
            return None
        raise
    return frozenset((record["metadata"]["namespace"], record["metadata"]["labels"][RELEASE]) for record in records)
