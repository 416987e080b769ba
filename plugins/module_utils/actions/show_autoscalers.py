# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Collection

from ..autoscaling.behavior_texts import describe_behaviors
from ..autoscaling.manifests import metric_of
from ..autoscaling.spec import Autoscaler
from ..cluster.kube import KubeClient
from ..cluster.prometheus_client import PrometheusClient
from ..kube.labels import is_managed
from ..kube.objects import Key
from ..reading.existing_autoscalers import read_autoscalers
from ..reading.metric_values import Observer
from ..reading.prometheus_replicas import read_replicas
from .outcome import Outcome
from .verify import describe, verify
from .wait import Deadline


def show_autoscalers(
    kube: KubeClient,
    prometheus: PrometheusClient,
    *,
    namespace: str | None,
    keys: Collection[Key],
    deadline: Deadline | None,
) -> Outcome:
    """Read autoscalers: all of a namespace or the cluster, or those in `keys`. Changes nothing.

    deadline: end of the wait for the proof; None reads once without a verdict.
    Raises:   HopError if one that is named does not exist.
    """
    existing = read_autoscalers(kube, prometheus.service[0], namespace=namespace, keys=keys)
    autoscalers = [autoscaler for _hpa, autoscaler in existing]
    behaviors, places = describe_behaviors(autoscalers)
    entries = [
        {
            **_entry(autoscaler, place),
            "metric": metric_of(hpa) or autoscaler.profile.name,
            "managed": is_managed(hpa),
        }
        for (hpa, autoscaler), place in zip(existing, places, strict=True)
    ]
    outcome = Outcome(result={"autoscalers": entries, "behaviors": behaviors})
    if deadline is None:
        describe(
            kube,
            prometheus,
            autoscalers,
            Observer(kube, prometheus, read_replicas(kube, prometheus)).observe(autoscalers),
            outcome,
        )
    else:
        verify(kube, prometheus, autoscalers, deadline, outcome)
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
