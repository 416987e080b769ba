# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from ..autoscaling.behaviors import describe_behaviors
from ..autoscaling.manifests import RecordedQueries, autoscaler_of
from ..autoscaling.spec import Autoscaler
from ..chain.objects import Key
from ..cluster.errors import ApiError
from ..cluster.kube import RULES, KubeClient
from ..cluster.prometheus import PrometheusClient
from ..errors import HopError
from ..hops import Hop
from ..marks import MANAGED_BY, MANAGER, is_managed
from .backend import Backend
from .observe import Observer
from .outcome import Outcome
from .prometheus_replicas import read_replicas
from .snapshot import metric_of, read_hpas, read_reachable_hpas
from .verify import describe, verify
from .wait import Deadline


def read_autoscalers(
    kube: KubeClient,
    prometheus: PrometheusClient,
    backend: Backend,
    *,
    namespace: str | None,
    keys: Collection[Key],
    deadline: Deadline | None,
) -> Outcome:
    """Read autoscalers back: all of a namespace or of the cluster, or those that `keys` names. Changes nothing.

    deadline: until when to wait for the proof; None looks once and judges nothing.
    Raises:   HopError if one that is named does not exist.
    """
    hpas = read_hpas(kube, namespace) if namespace else read_reachable_hpas(kube, {key[0] for key in keys})[0]
    if missing := [f"{key[0]}/{key[1]}" for key in keys if key not in hpas]:
        raise HopError(Hop.HPA, seen=f"there is no HPA {', '.join(missing)}", fix="run gpu_autoscaler to make it")
    wanted = [hpas[key] for key in keys] if keys else [hpa for hpa in hpas.values() if is_managed(hpa)]
    queries = recorded_queries(kube, prometheus.service[0])
    autoscalers = [autoscaler_of(hpa, queries.of(hpa)) for hpa in wanted]
    behaviors, places = describe_behaviors(autoscalers)
    entries = [
        {
            **_entry(autoscaler, place),
            "metric": metric_of(hpa) or autoscaler.profile.name,
            "managed": is_managed(hpa),
        }
        for autoscaler, place, hpa in zip(autoscalers, places, wanted, strict=True)
    ]
    outcome = Outcome(result={"autoscalers": entries, "behaviors": behaviors})
    if deadline is None:
        describe(
            kube,
            prometheus,
            autoscalers,
            Observer(kube, prometheus, backend, read_replicas(kube, prometheus)).observe(autoscalers),
            outcome,
        )
    else:
        verify(kube, prometheus, backend, autoscalers, deadline, outcome)
    return outcome


def _entry(autoscaler: Autoscaler, behavior: int) -> dict[str, object]:
    target = autoscaler.target
    return {
        "namespace": autoscaler.namespace,
        "name": autoscaler.name,
        "target": {"api_version": target.api_version, "kind": target.kind, "name": target.name},
        "min_replicas": autoscaler.min_replicas,
        "max_replicas": autoscaler.max_replicas,
        "behavior": behavior,
    }


def recorded_queries(kube: KubeClient, namespace: str) -> RecordedQueries:
    """What the rules of this collection record: those of the cluster, else those that lie in a namespace, else none."""
    for place in (None, namespace):
        with suppress(ApiError):
            rules = kube.list(RULES, namespace=place, label_selector=f"{MANAGED_BY}={MANAGER}") or ()
            return RecordedQueries(rules)
    return RecordedQueries(())
