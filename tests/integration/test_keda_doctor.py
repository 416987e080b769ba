"""What the doctor finds where KEDA itself runs, each fault by itself. Conditions, events and HPAs are KEDA's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

import keda
import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.objects import Manifest
from control_plane import ControlPlane, eventually, running
from kubernetes import client
from metric_chain import MetricChain
from module_process import run_module
from prometheus_rules import serve_kind
from workloads import Workloads

pytestmark = keda.needs_keda

GROUP, VERSION, PLURAL = keda.SCALED_OBJECTS
NAME, HPA = "theirs", "keda-hpa-theirs"
# A poll, an HPA sync and the doctor's own requests; many seconds on a busy machine.
FOUND_S = 180
_number = count(1)


class Site(NamedTuple):
    plane: ControlPlane
    kube: client.ApiClient
    chain: MetricChain


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running(tmp_path_factory.mktemp("control-plane"), "garbage-collector-controller") as (plane, kube):
        chain = MetricChain(plane, kube)
        serve_kind(kube)
        chain.start()
        try:
            keda.start(plane, kube)
            yield Site(plane, kube, chain)
        finally:
            chain.stop()


class Namespace:
    """A workload of two pods with a GPU each, which a ScaledObject of somebody else scales."""

    def __init__(self, site: Site) -> None:
        self.site, self.name = site, f"keda-{next(_number)}"
        self.workloads = Workloads(site.kube, self.name)
        self.hpas = client.AutoscalingV2Api(site.kube)
        self.objects = client.CustomObjectsApi(site.kube)
        self.workloads.deployment("chat", replicas=2)
        self.workloads.node("gpu1", gpus=4)
        for pod in ("chat-0", "chat-1"):
            self.workloads.ready_pod(pod, app="chat")
        site.chain.exporter.gpus(self.name, {"chat-0": 50, "chat-1": 30})

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.site.chain.port}"

    def wanted(self, query: str = "", *, trigger: Manifest | None = None, name: str = NAME, **spec: Any) -> Manifest:
        """A ScaledObject as one should be: the mean, multiplied by the pods. Changed by `trigger` and `spec`."""
        metadata = {
            "serverAddress": self.address,
            "query": query or f'avg(DCGM_FI_DEV_GPU_UTIL{{namespace="{self.name}"}})',
            "threshold": "60",
            "ignoreNullValues": "false",
        }
        changed = trigger or {}
        made = {
            "type": "prometheus",
            "metricType": "Value",
            **changed,
            "metadata": {**metadata, **changed.get("metadata", {})},
        }
        return {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "ScaledObject",
            "metadata": {"name": name, "namespace": self.name},
            "spec": {
                "scaleTargetRef": {"name": "chat"},
                "pollingInterval": 1,
                "minReplicaCount": 1,
                "maxReplicaCount": 4,
                "triggers": [made],
                **spec,
            },
        }

    def scale(self, query: str = "", **changes: Any) -> None:
        keda.create_scaled_object(self.site.kube, self.wanted(query, **changes))

    def works(self, query: str = "", **changes: Any) -> None:
        """Scaled, and without any finding."""
        self.scale(query, **changes)
        self.finds()

    def patch(self, body: Manifest, name: str = NAME) -> None:
        self.objects.patch_namespaced_custom_object(GROUP, VERSION, self.name, PLURAL, name, body)

    def report(self, **options: Any) -> dict[str, Any]:
        given = {"kubeconfig": str(self.site.plane.kubeconfig), "namespace": self.name, "grace": False, **options}
        done = run_module("gpu_doctor", given)
        assert not done.get("failed"), done["msg"]
        return done["result"]

    def finds(self, *ids: str, says: str = "", of: Callable[[dict[str, Any]], Any] | None = None) -> dict[str, Any]:
        """The first report with these findings and no other; `says`: in what its first one has seen, or its cause."""
        last: list[Any] = []

        def report() -> dict[str, Any] | None:
            found = self.report()
            last[:] = [(finding["id"], finding["seen"], finding["cause"]) for finding in found["findings"]]
            is_it = [finding["id"] for finding in found["findings"]] == list(ids)
            said = not says or (ids and says in " ".join([*last[0][1], last[0][2]]))
            return found if is_it and said and (of is None or of(found)) else None

        try:
            return eventually(report, f"the doctor finds {list(ids)}", FOUND_S)
        finally:
            print("found at last:", last)  # pytest shows it when the test fails

    def remove(self) -> None:
        """With the finalizers of ScaledObjects, which an operator that is away does not remove."""
        for found in self.objects.list_namespaced_custom_object(GROUP, VERSION, self.name, PLURAL)["items"]:
            name = found["metadata"]["name"]
            self.objects.delete_namespaced_custom_object(GROUP, VERSION, self.name, PLURAL, name)
        eventually(
            lambda: not self.objects.list_namespaced_custom_object(GROUP, VERSION, self.name, PLURAL)["items"],
            "KEDA lets them go",
            FOUND_S,
        )
        self.workloads.remove()


@pytest.fixture
def theirs(site: Site) -> Iterator[Namespace]:
    namespace = Namespace(site)
    yield namespace
    namespace.remove()


@contextmanager
def without(site: Site, name: str) -> Iterator[None]:
    """One of KEDA's processes is away."""
    site.plane.end(name)
    try:
        yield
    finally:
        site.plane.again(name)


# How somebody's own ScaledObject misleads its HPA: what is changed in one that works.
MISTAKES: dict[str, Callable[[Namespace], Manifest]] = {
    "HPA_EMPTY_IS_ZERO": lambda theirs: theirs.wanted(trigger={"metadata": {"ignoreNullValues": "true"}}),
    "HPA_AVERAGE_DIVIDED": lambda theirs: theirs.wanted(trigger={"metricType": "AverageValue"}),
}


def test_a_scaled_object_that_works_has_no_finding(theirs: Namespace) -> None:
    theirs.works()
    assert theirs.report()["autoscalers"][0]["name"] == HPA


@pytest.mark.parametrize("finding", MISTAKES)
def test_a_scaled_object_that_misleads_its_hpa(theirs: Namespace, finding: str) -> None:
    keda.create_scaled_object(theirs.site.kube, MISTAKES[finding](theirs))
    theirs.finds(finding)


def test_a_pause_takes_the_hpa_away(theirs: Namespace) -> None:
    theirs.works()
    theirs.patch({"metadata": {"annotations": {"autoscaling.keda.sh/paused": "true"}}})
    theirs.finds("HPA_PAUSED", of=lambda report: not report["autoscalers"])


def test_an_orphan_asks_for_a_scaled_object_that_is_gone(theirs: Namespace) -> None:
    theirs.works()
    theirs.objects.delete_namespaced_custom_object(
        GROUP, VERSION, theirs.name, PLURAL, NAME, propagation_policy="Orphan"
    )
    theirs.finds("HPA_WITHOUT_SCALED_OBJECT", says=f"ScaledObject {theirs.name}/{NAME}, which does not exist")


@pytest.mark.parametrize(
    ("trigger", "spec", "says"),
    [
        ({"type": "prometeus"}, {}, "does not know the type of a trigger"),
        ({"metadata": {"authModes": "bearer"}}, {}, "its TriggerAuthentication is missing"),
        ({"metadata": {"threshold": "many"}}, {}, "metadata of a trigger is not valid"),
        ({}, {"scaleTargetRef": {"name": "nobody"}}, "target of the ScaledObject does not exist"),
    ],
    ids=["type", "login", "threshold", "target"],
)
def test_a_scaled_object_that_keda_rejects(theirs: Namespace, trigger: Manifest, spec: Manifest, says: str) -> None:
    theirs.scale(trigger=trigger, **spec)
    theirs.finds("HPA_SCALED_OBJECT_FAILS", says=says)


def test_a_name_that_no_label_can_hold(theirs: Namespace) -> None:
    """KEDA's webhook, which does not run here, is the only one to reject it early."""
    name = "theirs-" + "x" * 60
    theirs.scale(name=name, advanced={"horizontalPodAutoscalerConfig": {"name": "theirs"}})
    theirs.finds("HPA_SCALED_OBJECT_FAILS", says="longer than 63 characters")


@pytest.mark.parametrize(
    ("query", "trigger", "says"),
    [
        ("avg(DCGM_FI_DEV_GONE)", {}, "its series does not exist"),
        ('DCGM_FI_DEV_GPU_UTIL{namespace!=""}', {}, "several results"),
        ("avg(DCGM_FI_DEV_GPU_UTIL", {}, "rejects the query"),
        ("", {"metadata": {"serverAddress": "http://127.0.0.1:9"}}, "does not reach http://127.0.0.1:9"),
        ("", {"metadata": {"serverAddress": "http://prometheus.gone.invalid"}}, "does not reach"),
    ],
    ids=["empty", "several", "invalid", "refused", "unknown"],
)
def test_a_trigger_without_a_value(theirs: Namespace, query: str, trigger: Manifest, says: str) -> None:
    """The HPA says only that KEDA met an error; KEDA's event has the reason."""
    theirs.scale(query, trigger=trigger)
    report = theirs.finds("KEDA_TRIGGER_FAILS", says=says)
    assert any("s0-prometheus" in text for text in report["findings"][0]["consequences"])


def test_a_fallback_in_place_of_a_value(theirs: Namespace) -> None:
    fallback = {"failureThreshold": 20, "replicas": 2, "behavior": "currentReplicas"}
    theirs.scale("avg(DCGM_FI_DEV_GONE)", fallback=fallback)
    report = theirs.finds(
        "KEDA_TRIGGER_FAILS", says="Fallback is True", of=lambda found: "fallback is 2 replicas" in str(found)
    )
    assert any("At least one trigger is falling back" in text for text in report["findings"][0]["consequences"])


def test_an_operator_that_is_away(theirs: Namespace) -> None:
    """Its metrics server stays ready, and answers nothing for a minute. Its HPAs stay as they are."""
    theirs.works()
    with without(theirs.site, keda.OPERATOR):
        theirs.finds("METRIC_WITHOUT_VALUE", says="does not reach the operator")
        theirs.patch({"spec": {"maxReplicaCount": 9}})
        report = theirs.finds("HPA_BEHIND_SCALED_OBJECT", says="maxReplicas is 4, and the ScaledObject asks for 9")
        assert any("s0-prometheus" in text for text in report["findings"][0]["consequences"])
        theirs.hpas.delete_namespaced_horizontal_pod_autoscaler(HPA, theirs.name)
        theirs.finds("HPA_OF_SCALED_OBJECT_MISSING", says=f"there is no HPA {theirs.name}/{HPA}")
        theirs.objects.delete_namespaced_custom_object(GROUP, VERSION, theirs.name, PLURAL, NAME)
        theirs.finds("HPA_SCALED_OBJECT_STUCK", says="finalizer.keda.sh")
        theirs.scale(name="new")
        theirs.finds("HPA_SCALED_OBJECT_STUCK", "HPA_SCALED_OBJECT_UNSEEN")


def test_a_metrics_server_that_is_away(theirs: Namespace) -> None:
    theirs.works()
    with without(theirs.site, keda.METRICS_SERVER):
        theirs.finds("METRICS_API_UNAVAILABLE", says="external.metrics.k8s.io")
    eventually(lambda: keda.is_available(theirs.site.kube), "it is back", FOUND_S)


def test_external_metrics_of_another_server(theirs: Namespace) -> None:
    """It is prometheus-adapter's, as with its option for external metrics: KEDA's HPAs get no value."""
    theirs.works()
    services = client.ApiregistrationV1Api(theirs.site.kube)
    own = services.read_api_service(keda.API).spec.service
    adapter = {"name": "prometheus-adapter", "namespace": "monitoring"}
    services.patch_api_service(keda.API, {"spec": {"service": adapter}})
    try:
        theirs.finds("METRICS_API_OF_ANOTHER", says="prometheus-adapter does not serve")
    finally:
        services.patch_api_service(keda.API, {"spec": {"service": {"name": own.name, "namespace": own.namespace}}})
    eventually(lambda: keda.is_available(theirs.site.kube), "KEDA serves it again", FOUND_S)


def test_two_autoscalers_on_one_workload(theirs: Namespace) -> None:
    """Without KEDA's webhook nothing prevents it."""
    theirs.works()
    theirs.scale(name="second")
    theirs.finds("WORKLOAD_TWO_AUTOSCALERS", says=f"ScaledObject {theirs.name}/second")


def test_a_webhook_that_nobody_answers(theirs: Namespace) -> None:
    """As KEDA's chart registers it with webhooks.failurePolicy: Fail."""
    hooks = client.AdmissionregistrationV1Api(theirs.site.kube)
    hook = {
        "name": "vscaledobject.kb.io",
        "clientConfig": {"service": {"namespace": keda.NAMESPACE, "name": "keda-admission-webhooks"}},
        "rules": [
            {
                "apiGroups": [GROUP],
                "apiVersions": ["*"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["scaledobjects"],
            }
        ],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    theirs.works()
    hooks.create_validating_webhook_configuration({"metadata": {"name": "keda-admission"}, "webhooks": [hook]})
    try:
        theirs.finds("HPA_WEBHOOK_UNSERVED", says="there is no Service keda/keda-admission-webhooks")
    finally:
        hooks.delete_validating_webhook_configuration("keda-admission")


def test_decisions_without_states_of_pods(theirs: Namespace) -> None:
    """Prometheus has the load, and no kube-state-metrics."""
    site = theirs.site
    wanted = {"namespace": theirs.name, "target": {"name": "chat"}, "max_replicas": 4, "backend": "keda"}
    address = {"url": theirs.address}
    options = {"kubeconfig": str(site.plane.kubeconfig), "verify": False, "autoscalers": [wanted]}
    done = run_module("gpu_autoscaler", {**options, "prometheus": address})
    assert not done.get("failed"), done.get("msg")
    theirs.finds("RULE_NO_POD_STATES", says="kube_pod_status_phase")
    run_module("gpu_autoscaler", {**options, "prometheus": address, "state": "absent"})
