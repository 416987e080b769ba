"""The role keda on an API server: KEDA comes for autoscalers that use it, fails beside others, and goes completely."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import keda
import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.objects import Manifest
from chart_site import Site
from control_plane import eventually, running
from kubernetes import client
from playbook import changed
from served_kinds import SERVED_S, is_served

BY_KEDA = [{"name": "chat", "namespace": "ml", "backend": "keda"}]
# As another user installs it. The lab's chart has no webhook.
THEIRS = ("webhooks.enabled=false",)
SCALED_OBJECT: Manifest = {
    "apiVersion": "keda.sh/v1alpha1",
    "kind": "ScaledObject",
    "metadata": {"name": "theirs", "namespace": "default"},
    "spec": {"scaleTargetRef": {"name": "theirs"}, "triggers": [{"type": "cron", "metadata": {}}]},
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running(tmp_path_factory.mktemp("control-plane")) as plane:
        site = Site(tmp_path_factory.mktemp("site"), *plane)
        yield site
        site.stop()


def text(output: str) -> str:
    return " ".join(output.split())


def test_keda_comes_when_it_is_asked_for_and_goes_without_a_trace(site: Site) -> None:
    before = site.objects()
    assert changed(site.bring("keda").stdout) == 0
    assert site.objects() == before

    assert changed(site.bring("keda", gpu_autoscaling_autoscalers=BY_KEDA).stdout) > 0
    api = client.ApiregistrationV1Api(site.kube).read_api_service(keda.API)
    assert (api.spec.service.namespace, api.spec.service.name) == (keda.NAMESPACE, keda.SERVICE)
    assert changed(site.bring("keda").stdout) == 0
    # The operator creates it on its own.
    site.core.create_namespaced_secret(keda.NAMESPACE, {"metadata": {"name": "kedaorg-certs"}})

    assert changed(site.bring("keda", keda_state="absent").stdout) > 0
    assert site.objects() == before
    assert changed(site.bring("keda", keda_state="absent").stdout) == 0


def test_keda_stays_while_it_has_a_scaled_object(site: Site) -> None:
    """Helm would delete the object with its CRD."""
    assert site.bring("keda", keda_state="present").returncode == 0
    served = partial(is_served, site.kube, "keda.sh", "ScaledObject")
    eventually(served, "ScaledObject is served", SERVED_S)
    keda.create_scaled_object(site.kube, SCALED_OBJECT)
    before = site.objects()
    refused = site.bring("keda", keda_state="absent")
    assert refused.returncode != 0
    assert "keda: KEDA serves ScaledObject default/theirs. Helm would delete these objects" in text(refused.stdout)
    assert site.objects() == before

    group, version, plural = keda.SCALED_OBJECTS
    client.CustomObjectsApi(site.kube).delete_namespaced_custom_object(group, version, "default", plural, "theirs")
    assert changed(site.bring("keda", keda_state="absent").stdout) > 0


def test_one_server_of_external_metrics_follows_another(site: Site) -> None:
    """The adapter has to leave the API first. With both, the run fails before it changes anything."""
    address = {"url": "http://prometheus.example:9090"}
    adapter = {"kubegpu_prometheus": address, "prometheus_adapter_external_metrics": True}
    assert site.bring("prometheus_adapter", **adapter).returncode == 0
    before = site.objects()
    both = site.bring("prometheus_adapter", "keda", **adapter, gpu_autoscaling_autoscalers=BY_KEDA)
    assert both.returncode != 0
    assert "prometheus_adapter_external_metrics is true, and KEDA serves external.metrics.k8s.io" in text(both.stdout)
    alone = site.bring("keda", gpu_autoscaling_autoscalers=BY_KEDA)
    assert alone.returncode != 0
    assert "of this collection serves external.metrics.k8s.io" in text(alone.stdout)
    assert site.objects() == before

    roles = ("prometheus_adapter", "keda")
    assert site.bring(*roles, kubegpu_prometheus=address, gpu_autoscaling_autoscalers=BY_KEDA).returncode == 0
    served_by = client.ApiregistrationV1Api(site.kube).read_api_service(keda.API).spec.service
    assert served_by.name == keda.SERVICE
    again = site.bring(*roles, kubegpu_prometheus=address, gpu_autoscaling_autoscalers=BY_KEDA)
    assert (again.returncode, changed(again.stdout)) == (0, 0)
    # No pod serves the two APIs here, so that namespaces cannot be deleted while these are registered.
    site.helm("uninstall", "keda", "-n", keda.NAMESPACE)
    site.helm("uninstall", "prometheus-adapter", "-n", "monitoring")


def test_the_keda_of_others_is_used_or_adopted(site: Site) -> None:
    site.install("keda", "keda", keda.NAMESPACE, *THEIRS)
    before = site.objects()
    used = site.bring("keda", gpu_autoscaling_autoscalers=BY_KEDA)
    assert (used.returncode, changed(used.stdout)) == (0, 0)
    refused = site.bring("keda", keda_state="present")
    assert refused.returncode != 0
    assert "adopt its release with `-e keda_adopt=true`" in text(refused.stdout)
    assert changed(site.bring("keda", keda_state="absent").stdout) == 0
    assert site.objects() == before

    assert changed(site.bring("keda", keda_state="present", keda_adopt=True).stdout) > 0
    assert changed(site.bring("keda").stdout) == 0
    assert changed(site.bring("keda", keda_state="absent").stdout) > 0
    assert "external.metrics.k8s.io" not in {api.spec.group for api in site_apis(site)}


def site_apis(site: Site) -> list[client.V1APIService]:
    return client.ApiregistrationV1Api(site.kube).list_api_service().items
