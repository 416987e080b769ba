# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""A temporary workload with an autoscaler: from a busy GPU to the decision of its HPA, with the seconds of each hop."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from ..autoscaling.manifests import RuleOptions
from ..autoscaling.reaction_budget import ReactionBudget
from ..autoscaling.spec import Autoscaler, read_specs
from ..chain.state.autoscaler import AutoscalerState
from ..cluster.errors import ApiError, QueryError
from ..cluster.kube import DEPLOYMENTS, HPAS, PODS, KubeClient
from ..cluster.prometheus_client import PrometheusClient
from ..errors import HopError
from ..hops import Hop
from ..kube.labels import NAME_LABEL
from ..kube.objects import Manifest, condition, is_ready, trouble
from ..proof import manifests
from ..proof.decision import pods_value, wanted_replicas
from ..proof.nodes import ProofNode
from ..reading.intervals import Intervals
from ..reading.metric_values import Observer
from ..reading.prometheus_replicas import read_replicas
from .proof_of_metrics import gpu_series, scrape_service, served_requests
from .reconcile import reconcile
from .verify import first_errors
from .wait import Deadline, wait_until

# NVIDIA's utilization is an average over about one second, so a step is complete only after that time.
DRIVER_S = 1.0
# Seconds of a request, and number of concurrent requests: one runs, one waits for the GPU.
REQUEST_MS, REQUESTS = 500, 2
# Time to wait for a decision beyond twice its budget, to distinguish a late decision from none.
PATIENCE_S = 30.0
# Time to wait until the HPA wants one replica for an idle GPU: several sync periods, which can be 15 s.
REST_S = 60.0
# Time to wait until the HPA wants one replica after the load. Longer if the way down is needed as evidence.
DOWN_S, LONGEST_DOWN_S = 20.0, 90.0
# Time to wait until the second pod is gone, after the HPA wants one replica.
LEFT_S = 60.0
LOOK_S = 0.25

POD, RECORDED, SERVED, ACTED, DECIDED, RELEASED = "pod", "rule", "metrics_api", "hpa", "decision", "release"
TITLES = {
    POD: "A pod is ready with a GPU",
    RECORDED: "Prometheus records its value",
    SERVED: "The metrics API serves it",
    ACTED: "The HPA acts on it",
    DECIDED: "The HPA decides after a load step",
    RELEASED: "The HPA scales down after the load",
}


class ChainProof:
    """One proof of the chain. The result of `describe` grows while it runs."""

    def __init__(
        self,
        kube: KubeClient,
        prometheus: PrometheusClient,
        rules: RuleOptions,
        options: manifests.Options,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube, self._prometheus, self._rules = kube, prometheus, rules
        self._options, self._clock = options, clock
        self._hops: list[dict[str, Any]] = []
        self._decision: dict[str, Any] = {}
        self._metrics: dict[str, Any] = {}

    def describe(self) -> dict[str, Any]:
        return {"hops": self._hops, "decision": self._decision, "metrics": self._metrics}

    def prove(self, nodes: Sequence[ProofNode], gpus: int, gpu_nodes: Collection[str]) -> None:
        """Prove the chain on the nodes. gpu_nodes: names of all nodes whose series are evidence.

        Raises: HopError for the first hop that does not work, ApiError.
        """
        self._kube.apply(DEPLOYMENTS, manifests.workload(self._options, nodes))
        with self._timed(POD):
            self._ready_pod()
        needs_metrics = self._options.conformance
        unscraped = scrape_service(self._kube, self._options, self._rules) if needs_metrics else ""
        (autoscaler,) = read_specs([manifests.autoscaler(self._options, gpus)])
        self._follow(autoscaler)
        budget = Intervals(self._kube, self._prometheus).budget(autoscaler.metric_targets[0])
        self._wait_for_rest(autoscaler)
        self._step(autoscaler, self._ready_pod(), budget)
        if needs_metrics:
            self._metrics = self._read_metrics(gpu_nodes, unscraped)

    def _read_metrics(self, gpu_nodes: Collection[str], unscraped: str) -> dict[str, Any]:
        """What Prometheus has, as evidence. If it cannot be read, the chain is proven nevertheless."""
        try:
            served = 0.0 if unscraped else served_requests(self._prometheus, self._options)
            series = gpu_series(self._prometheus, gpu_nodes, self._rules.selectors)
        except (HopError, ApiError, QueryError) as err:
            return {"unread": f"Prometheus did not answer: {err}"}
        return {"series": series, "served": served, "unscraped": unscraped}

    @contextmanager
    def _timed(self, hop: str) -> Iterator[None]:
        began = self._clock()
        yield
        self._hop(hop, self._clock() - began)

    def _hop(self, hop: str, seconds: float) -> None:
        self._hops.append({"hop": hop, "title": TITLES[hop], "seconds": round(seconds, 1)})

    # The workload.

    def _list_pods(self) -> Sequence[Manifest]:
        selector = f"{NAME_LABEL}={manifests.WORKLOAD}"
        return self._kube.list(PODS, namespace=self._options.namespace, label_selector=selector) or ()

    def _pods(self, number: int, seconds: float) -> Sequence[Manifest]:
        """The pods, once there are so many and all are ready, or after these seconds."""

        def is_settled(pods: Sequence[Manifest]) -> bool:
            return len(pods) == number and all(map(is_ready, pods))

        return wait_until(self._list_pods, is_settled, Deadline(seconds), poll_s=LOOK_S)

    def _ready_pod(self) -> str:
        """Wait for the pod. Raises: HopError if it is not ready in time."""
        deadline = Deadline(self._options.timeout_s)
        pods = wait_until(self._list_pods, lambda pods: any(map(is_ready, pods)), deadline, poll_s=LOOK_S)
        ready = [pod["metadata"]["name"] for pod in pods if is_ready(pod)]
        if ready:
            return str(ready[0])
        reasons = [condition(pod, "PodScheduled").get("message") or trouble(pod) for pod in pods]
        raise HopError(
            Hop.WORKLOAD,
            seen=f"no pod of {self._options.namespace}/{manifests.WORKLOAD} was ready within "
            f"{self._options.timeout_s} s: {next(filter(None, reasons), 'no reason is reported')}",
            fix="check that a node whose GPUs are proven can run a pod with gpu_proof_tolerations and "
            "gpu_proof_runtime_class, and can pull gpu_proof_image",
        )

    # The value.

    def _follow(self, autoscaler: Autoscaler) -> None:
        """Wait until the autoscaler is proven. The time of each hop starts when the previous one worked.

        Raises: HopError, ApiError.
        """
        began = self._clock()
        made = reconcile(self._kube, self._prometheus, [autoscaler], self._rules)
        if made.errors:
            raise made.errors[0]
        observer = Observer(self._kube, self._prometheus, read_replicas(self._kube, self._prometheus))
        seen: dict[str, float] = {}

        def look() -> AutoscalerState:
            state = observer.observe([autoscaler])[autoscaler.key]
            for hop, works in _works(state).items():
                if works:
                    seen.setdefault(hop, self._clock())
            return state

        state = wait_until(look, lambda state: state.is_proven, Deadline(self._options.timeout_s), poll_s=LOOK_S)
        before = began
        for hop in (RECORDED, SERVED, ACTED):
            if hop in seen:
                self._hop(hop, max(seen[hop] - before, 0.0))
                before = max(seen[hop], before)
        if not state.is_proven:
            raise first_errors(self._kube, self._prometheus, [autoscaler])[0]

    # The decision.

    def _hpa(self, autoscaler: Autoscaler) -> Manifest:
        return self._kube.get(HPAS, autoscaler.name, autoscaler.namespace) or {}

    def _value(self, autoscaler: Autoscaler, hpa: Manifest) -> float:
        """The load that the HPA evaluated. KEDA's HPA shows a replica count, so the value is read from the pods."""
        value = pods_value(hpa)
        if value is not None:
            return value
        state = Observer(self._kube, self._prometheus).observe([autoscaler])[autoscaler.key]
        return max(state.metrics[0].values.values(), default=0.0)

    def _wait_for_rest(self, autoscaler: Autoscaler) -> None:
        """Wait until the HPA wants one replica, because a starting program may keep its GPU busy for a moment.

        Raises: HopError if the HPA wants more without a load, because then a decision would prove nothing.
        """
        idle = Deadline(REST_S)
        hpa = wait_until(lambda: self._hpa(autoscaler), lambda hpa: wanted_replicas(hpa) <= 1, idle, poll_s=LOOK_S)
        if wanted_replicas(hpa) > 1:
            raise HopError(
                Hop.HPA,
                seen=f"{autoscaler}: the HPA wants {wanted_replicas(hpa)} replicas before the load step, and sees "
                f"{self._value(autoscaler, hpa):g} for target {manifests.TARGET_VALUE}",
                cause="another process uses the pod's GPU, or the value is not that of the pod",
                fix="on the pod's node: `nvidia-smi`; then run the playbook kubegpu.autoscale.doctor",
            )

    def _step(self, autoscaler: Autoscaler, pod: str, budget: ReactionBudget) -> None:
        """Keep the pod's GPU busy until the HPA has decided. Raises: HopError if it does not."""
        allowed_s = budget.worst_s + DRIVER_S
        began = self._clock()
        with Load(self._kube, self._options.namespace, pod) as load:
            hpa = wait_until(
                lambda: self._hpa(autoscaler),
                lambda hpa: wanted_replicas(hpa) > 1 or bool(load.error),
                Deadline(2 * allowed_s + PATIENCE_S),
                poll_s=LOOK_S,
            )
            seconds = self._clock() - began
            value, wanted = self._value(autoscaler, hpa), wanted_replicas(hpa)
            is_followed = self._options.conformance and wanted > 1 and autoscaler.max_replicas > 1
            ready = self._pods(2, self._options.timeout_s) if is_followed else []
        if wanted <= 1:
            raise _undecided(autoscaler, hpa, seconds, value, load.error)
        self._hop(DECIDED, seconds)
        self._decision = {
            "before": 1,
            "after": wanted,
            "dry": autoscaler.max_replicas == 1,
            "value": value,
            "target_value": manifests.TARGET_VALUE,
            "seconds": round(seconds, 1),
            "budget_s": round(budget.worst_s, 1),
            "driver_s": DRIVER_S,
            "late": seconds > allowed_s + LOOK_S,
            "budget": budget.describe(),
            "down_s": self._release(autoscaler),
            "ready": sum(map(is_ready, ready)),
            "left": len(self._pods(1, LEFT_S)) if is_followed else 0,
        }

    def _release(self, autoscaler: Autoscaler) -> float | None:
        """Seconds until the HPA wants one replica again; None if it does not in time."""
        began = self._clock()
        idle = Deadline(LONGEST_DOWN_S if self._options.conformance else DOWN_S)
        hpa = wait_until(lambda: self._hpa(autoscaler), lambda hpa: wanted_replicas(hpa) <= 1, idle, poll_s=LOOK_S)
        if wanted_replicas(hpa) > 1:
            return None
        seconds = self._clock() - began
        self._hop(RELEASED, seconds)
        return round(seconds, 1)


class Load:
    """Sends requests through the API server that keep a pod's GPU busy, until the block ends.

    error: why the last request failed; empty if it succeeded.
    """

    def __init__(self, kube: KubeClient, namespace: str, pod: str) -> None:
        self._kube, self._ended, self.error = kube, Event(), ""
        self._path = f"{PODS.path(namespace, f'{pod}:{manifests.PORT}')}/proxy/work"
        self._threads = [Thread(target=self._send, daemon=True) for _number in range(REQUESTS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        while not self._ended.is_set():
            try:
                self._kube.get_raw(self._path, {"ms": str(REQUEST_MS)})
            except (ApiError, HopError) as err:
                self.error = str(err)
                return


def _works(state: AutoscalerState) -> Mapping[str, bool]:
    metric = state.metrics[0]
    has_pods = bool(metric.expected_objects)
    return {
        RECORDED: has_pods and not metric.missing_in_prometheus,
        SERVED: has_pods and not metric.missing_in_api,
        ACTED: state.is_proven,
    }


def _undecided(autoscaler: Autoscaler, hpa: Manifest, seconds: float, value: float, error: str) -> HopError:
    if error:
        return HopError(
            Hop.WORKLOAD,
            seen=f"the load of {autoscaler} did not reach its pod through the API server: {error}",
            fix="check that the pod still runs, and that the pod network and NetworkPolicies let the API server "
            "connect to pods, as for the metrics API",
        )
    text = condition(hpa, "ScalingLimited").get("message") or condition(hpa, "AbleToScale").get("message") or ""
    return HopError(
        Hop.HPA,
        seen=f"{autoscaler}: its GPU was busy for {seconds:.0f} s, and the HPA saw {value:g} for target "
        f"{manifests.TARGET_VALUE} and did not scale up. {text}".rstrip(),
        fix="the playbook kubegpu.autoscale.doctor names the hop where the value is lost",
    )
