# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ..autoscaling.spec import Target
from ..chain.check import CheckResult, FindingType
from ..cluster.errors import ApiError
from ..cluster.kube import PODS, KubeClient
from ..cluster.metrics_api import CUSTOM_METRICS, MetricsApi, MetricValue
from ..cluster.rights import right_to
from ..errors import HopError, enumeration
from ..hops import Hop
from .condition import Condition
from .metric_answer import Answer, MetricQuery, TargetPods
from .metric_hops import broken_hop
from .wait import Deadline, wait_until

# Not a hop of the chain, but what the user waits for.
CONDITION = "condition"

API_SERVER_AWAY = FindingType(
    "API_SERVER_AWAY",
    Hop.API_SERVER,
    "error",
    cause="the API server does not answer",
    fix="see that the API server is up, and that the address in the kubeconfig is right and reachable",
)
EXAMPLE = Answer(
    MetricQuery(CUSTOM_METRICS, "gpu", "ml"),
    items=(MetricValue("Pod", "ml", "inference-0", 41.5, "2026-01-01T00:00:00Z"),),
)


def metric_condition(expression: str) -> Condition:
    """A condition on what the module returns: its paths begin with ``result``.

    Raises: HopError if it is no JMESPath.
    """
    return Condition(expression, option="until", example=_returned(EXAMPLE))


def read_metric(kube: KubeClient, query: MetricQuery) -> Answer:
    """One look. What is not served, not listed or has no value is in the answer, not an error.

    Raises: HopError that names the right if one is missing; ApiError if the query itself is refused, or if the API
            server does not answer.
    """
    with _naming_rights():
        answer = _look(kube, query)
        return replace(answer, finding=broken_hop(kube, answer))


def read_metric_until(
    kube: KubeClient, query: MetricQuery, condition: Condition, deadline: Deadline, *, poll_s: float
) -> tuple[Answer, HopError | None]:
    """Look until the condition holds. What may pass by itself, a restart or a relist of the adapter, is waited out.

    Returns: the last answer; and, if the deadline was over first, the first broken hop.
    Raises:  HopError or ApiError at once for what does not pass.
    """

    def holds(answer: Answer) -> bool:
        return condition.holds(_returned(answer))

    answer = wait_until(lambda: _ask_patiently(kube, query), holds, deadline, poll_s=poll_s)
    if holds(answer):
        return answer, None
    return answer, answer.finding.error() if answer.finding else _unfulfilled(condition, answer)


def _look(kube: KubeClient, query: MetricQuery) -> Answer:
    api = MetricsApi(kube.get_raw)  # a new one for each look: what serves the API may change its version
    answer = Answer(query)
    try:
        answer = replace(answer, version=api.version(query.group))
        answer = replace(answer, names=frozenset(api.listed(query.group)))
    except ApiError as err:
        return replace(answer, outage=_passing(err))
    selector = query.label_selector
    if query.target:
        answer = replace(answer, target=_target_pods(kube, query.target, query.namespace))
        selector = answer.target.selector if answer.target else ""
        if not selector:
            return answer
    try:
        return replace(answer, items=tuple(query.values(api, selector)))
    except ApiError as err:
        return replace(answer, refusal=_passing(err).message)


def _target_pods(kube: KubeClient, target: Target, namespace: str | None) -> TargetPods:
    kind = kube.discover(target.api_version).get(target.kind)
    if kind is None or not kind.scalable:
        return TargetPods()
    found = TargetPods(is_scalable=True, scale=kube.get(kind, target.name, namespace, subresource="scale"))
    if not found.selector:
        return found
    return replace(found, pods=kube.list(PODS, namespace=namespace, label_selector=found.selector) or ())


def _ask_patiently(kube: KubeClient, query: MetricQuery) -> Answer:
    try:
        return read_metric(kube, query)
    except ApiError as err:
        if err.status != 0:
            _passing(err)
        return Answer(query, finding=CheckResult(API_SERVER_AWAY, "API server", str(err)))


@contextmanager
def _naming_rights() -> Iterator[None]:
    """What is forbidden becomes a HopError that says which right is missing."""
    try:
        yield
    except ApiError as err:
        if err.status != 403:
            raise
        fix = f"allow the user of the kubeconfig to {right_to(err.request)}"
        raise HopError(Hop.API_SERVER, seen=str(err), fix=fix) from err


def _passing(err: ApiError) -> ApiError:
    """The error, if it may pass by itself; otherwise it is raised."""
    if err.status in (404, 429) or err.status >= 500:
        return err
    raise err


def _unfulfilled(condition: Condition, answer: Answer) -> HopError:
    values = [f"{item.name or dict(item.labels)} {item.value:g}" for item in answer.items]
    return HopError(
        CONDITION,
        seen=f"every hop answers, but {condition.expression} {condition.outcome(_returned(answer))}; last values: "
        f"{enumeration(values)}",
        fix="raise wait_timeout, or correct until: its paths begin with result, as in result.items[].value, and one "
        "that leads nowhere is null",
    )


def _returned(answer: Answer) -> dict[str, Any]:
    return {"changed": False, "result": answer.result}
