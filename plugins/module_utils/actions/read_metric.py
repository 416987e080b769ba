# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Queries a metrics API. The checks of the last hops evaluate the answer as if an HPA had asked."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from ..autoscaling.spec import EXTERNAL, Target
from ..autoscaling.spec import PODS as PODS_METRIC
from ..chain.metrics_owner import Owner
from ..chain.state.api import ApiState
from ..chain.state.autoscaler import AutoscalerState
from ..chain.state.cluster import State
from ..chain.state.metric import MetricState
from ..cluster.errors import ApiError
from ..cluster.kube import APISERVICES, PODS, KubeClient
from ..cluster.metrics_api import CUSTOM_METRICS, MetricsApi, MetricValue
from ..cluster.rights import refused
from ..errors import HopError, enumeration
from ..hops import Hop
from ..kube.objects import Manifest
from .condition import Condition
from .metric_query import ALL, MetricQuery
from .wait import Deadline, wait_until

# Not a hop of the chain, but the user's condition.
CONDITION = "condition"

# For an API that answers or is registered.
_SERVED: Manifest = {"metadata": {}}

# The answer in the module's format, and what blocks it from having values.
Answer = tuple[dict[str, Any], "HopError | None"]


def metric_condition(expression: str) -> Condition:
    """A condition on the module's result, whose paths begin with ``result``.

    Raises: HopError if it is not a JMESPath expression.
    """
    value = MetricValue("Pod", "ml", "inference-0", 41.5, "2026-01-01T00:00:00Z")
    result, _broken = _answer(MetricQuery(CUSTOM_METRICS, "gpu", "ml"), [value], is_listed=True)
    return Condition(expression, option="until", example=_returned(result))


def read_metric(kube: KubeClient, query: MetricQuery) -> Answer:
    """One query. Missing APIs, metrics and values are part of the answer, not errors.

    Raises: HopError if a permission is missing; ApiError if the query is rejected, or if the API
            server does not answer.
    """
    try:
        return _look(kube, query)
    except ApiError as err:
        if not err.refused_user:
            raise
        raise refused(err) from err


def read_metric_until(
    kube: KubeClient, query: MetricQuery, condition: Condition, deadline: Deadline, *, poll_s: float
) -> Answer:
    """Query until the condition is true. Temporary problems are waited out, such as a restart or relist of the adapter.

    Returns: the last answer, with an error only if the time ran out first.
    Raises:  HopError or ApiError at once for permanent problems.
    """

    def look() -> Answer:
        try:
            return read_metric(kube, query)
        except ApiError as err:
            if err.status != 0:
                _passing(err)
            fix = "check that the API server is up, and that the address in the kubeconfig is right and reachable"
            return _answer(query, [], broken=HopError(Hop.API_SERVER, seen=str(err), fix=fix))

    result, broken = wait_until(look, lambda answer: condition.holds(_returned(answer[0])), deadline, poll_s=poll_s)
    if condition.holds(_returned(result)):
        return result, None
    return result, broken or _unfulfilled(condition, result)


def _look(kube: KubeClient, query: MetricQuery) -> Answer:
    metrics_api = MetricsApi(kube.get_raw)  # a new one each time, because the version of the API may change
    version, asking = "v1beta1", _asking(query)
    try:
        version = metrics_api.version(query.group)
        names = frozenset(metrics_api.listed(query.group))
    except ApiError as err:
        api = _silent_api(_owner(kube, query, version), _passing(err))
        return _answer(query, [], broken=_first_error(api, asking, {"apis"}))
    is_listed, selector, refusal = query.discovery_name in names, query.label_selector, ""
    items: list[MetricValue] = []
    if query.target:
        kind = kube.discover(query.target.api_version).get(query.target.kind)
        if kind is None or not kind.scalable:
            return _answer(query, [], is_listed=is_listed, broken=_not_scalable(query.target))
        scale = kube.get(kind, query.target.name, query.namespace, subresource="scale")
        selector = ((scale or {}).get("status") or {}).get("selector", "")
        asking = _with_target(asking, scale, _pods(kube, query, selector) if selector else ())
    if selector or not query.target:
        try:
            items = query.values(metrics_api, selector)
        except ApiError as err:
            refusal = _passing(err).message
    missing = sorted({pod["metadata"]["name"] for pod in asking.ready_pods} - {item.name for item in items})
    broken = None
    if missing or not items:
        owner = _owner(kube, query, version)
        api = ApiState(
            query.group,
            _SERVED,
            owner=str(owner),
            is_prometheus_adapter=owner.is_prometheus_adapter,
            listed=names,
        )
        metric = replace(
            asking.metrics[0],
            series=query.series if owner.is_prometheus_adapter else "",
            expected_objects=frozenset(missing if query.target else [str(query)]),
            # KEDA lists one name for all metrics.
            listed=is_listed or (None if query.is_external else False),
            refusal=refusal,
        )
        broken = _first_error(api, *_with_pods(kube, query, replace(asking, metrics=[metric])))
    return _answer(query, items, is_listed=is_listed, missing=missing, broken=broken)


def _asking(query: MetricQuery) -> AutoscalerState:
    """The HPA that would send this query."""
    target = query.target
    reference = {
        "kind": target.kind if target else "Pod",
        "name": target.name if target else query.label_selector or query.name,
    }
    metadata = {"namespace": query.namespace or "", "name": query.metric}
    hpa = {"metadata": metadata, "spec": {"scaleTargetRef": reference}}
    kind = EXTERNAL if query.is_external else PODS_METRIC
    metric = MetricState(query.metric, query.group, kind, listed=None)
    return AutoscalerState(hpa, metrics=[metric], title=f"metric {query.metric}")


def _with_target(asking: AutoscalerState, scale: Manifest | None, pods: Sequence[Manifest]) -> AutoscalerState:
    if scale is None:
        return asking
    metadata = {"namespace": asking.key[0], "name": asking.reference["name"]}
    replicas = (scale.get("spec") or {}).get("replicas")
    return replace(asking, target={"kind": "Scale", **scale, "metadata": metadata}, pods=pods, replicas=replicas)


def _with_pods(kube: KubeClient, query: MetricQuery, asking: AutoscalerState) -> tuple[AutoscalerState, set[str]]:
    """The pods of a query without a target, and what is known about them. Without pods there is no workload."""
    if query.target or query.is_external or query.resource != "pods":
        return asking, {"apis", "metrics", *(["targets"] if query.target else [])}
    try:
        pods = _pods(kube, query, query.label_selector)
    except ApiError:  # evidence only: permission to query metrics does not imply permission to list pods
        return asking, {"apis", "metrics"}
    return replace(asking, pods=pods), {"apis", "metrics", *([] if pods else ["targets"])}


def _pods(kube: KubeClient, query: MetricQuery, label_selector: str) -> list[Manifest]:
    """Pods that are not being deleted."""
    if query.name == ALL:
        pods = kube.list(PODS, namespace=query.namespace, label_selector=label_selector) or ()
    else:
        pod = kube.get(PODS, query.name, query.namespace)
        pods = [pod] if pod else []
    return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]


def _owner(kube: KubeClient, query: MetricQuery, version: str) -> Owner:
    with suppress(ApiError):  # evidence only, as above
        return Owner(query.group, kube.get(APISERVICES, f"{version}.{query.group}"))
    return Owner(query.group, None)


def _silent_api(owner: Owner, outage: ApiError) -> ApiState:
    """An API that does not answer is still registered, unless it has no APIService."""
    service = owner.api_service or (None if outage.is_not_found else _SERVED)
    silence = f": {outage.message.strip()}"
    return ApiState(
        owner.group,
        service,
        owner=str(owner),
        is_prometheus_adapter=owner.is_prometheus_adapter,
        unavailable=owner.unavailable,
        silence=silence,
    )


def _first_error(api: ApiState, asking: AutoscalerState, read: AbstractSet[str]) -> HopError:
    """Run the checks that need only what has been read."""
    # Imported here, because the checks are not needed if all objects have a value.
    from ..chain.checks import metric, metrics_api, workload, workload_pods
    from ..chain.first_error import first_error
    from ..diagnosis.check import checks_in
    from ..diagnosis.findings import first_causes

    state = State(time.time(), apis=[api], autoscalers=[asking])
    results = (
        result
        for check in checks_in(metrics_api, metric, workload_pods, workload)
        if read >= set(check.needs)
        for result in check.judge(state)
    )
    return first_error(asking, first_causes(results, grace=False))


def _not_scalable(target: Target) -> HopError:
    from ..chain.checks.preflight import WORKLOAD_NOT_SCALABLE
    from ..diagnosis.check import CheckResult

    seen = f"the cluster has no kind {target.kind} with a scale subresource in {target.api_version}"
    return CheckResult(WORKLOAD_NOT_SCALABLE, str(target), seen).error()


def _answer(
    query: MetricQuery,
    items: Sequence[MetricValue],
    *,
    is_listed: bool = False,
    missing: Sequence[str] = (),
    broken: HopError | None = None,
) -> Answer:
    """missing: ready pods of the target without a value."""
    return {
        "api": "external" if query.is_external else "custom",
        "metric": query.metric,
        "namespace": query.namespace,
        "samples": [asdict(item) for item in items],
        "listed": is_listed,
        "missing": list(missing),
        "hop": broken and broken.hop,
        "seen": broken and broken.seen,
        "fix": broken and broken.fix,
    }, broken


def _passing(err: ApiError) -> ApiError:
    """Returns the error if it can be temporary; otherwise raises it."""
    if err.status in (404, 429) or err.status >= 500:
        return err
    raise err


def _unfulfilled(condition: Condition, result: Mapping[str, Any]) -> HopError:
    values = [f"{item['name'] or dict(item['labels'])} {item['value']:g}" for item in result["samples"]]
    return HopError(
        CONDITION,
        seen=f"every hop answers, but {condition.expression} {condition.outcome(_returned(result))}; last values: "
        f"{enumeration(values)}",
        fix="raise wait_timeout, or correct until: its paths begin with result, as in result.samples[].value, and a "
        "path that does not exist is null",
    )


def _returned(result: Mapping[str, Any]) -> dict[str, Any]:
    return {"changed": False, "result": result}
