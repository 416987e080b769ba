# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads a metrics API and the adapter behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from ..chain.adapter_config import adapter_config, config_map_of
from ..chain.metrics_owner import Owner
from ..chain.state.api import AdapterConfig, ApiState
from ..cluster.errors import ApiError
from ..cluster.kube import CONFIG_MAPS, DEPLOYMENTS
from ..cluster.metrics_api import MetricsApi
from ..formats.yaml import from_yaml
from ..kube.label_selectors import labels_match
from ..kube.objects import Key, Manifest
from .prometheus_replicas import pods_of_service
from .reader import Reader
from .unread_parts import attempt, message_of


def service_of(api_service: Manifest | None) -> Key:
    service = ((api_service or {}).get("spec") or {}).get("service") or {}
    return service.get("namespace", ""), service.get("name", "")


def read_api(
    reader: Reader, group: str, api_service: Manifest | None, service: Manifest, pods: Sequence[Manifest]
) -> ApiState:
    """service: service in its APIService. pods: pods of the components, including those of the service."""
    owner = Owner(group, api_service)
    listed = attempt(lambda: frozenset(MetricsApi(reader.kube.get_raw).listed(group))) if api_service else None
    if isinstance(listed, ApiError) and listed.status in (401, 403):
        reader.gaps.lack("metrics", listed)
    adapter = _adapter(reader, service)
    return ApiState(
        group,
        api_service,
        owner=str(owner),
        is_prometheus_adapter=owner.is_prometheus_adapter,
        is_keda=owner.is_keda,
        unavailable=owner.unavailable,
        listed=listed if isinstance(listed, frozenset) else None,
        silence=f": {message_of(listed)}" if isinstance(listed, Exception) else "",
        adapter=adapter,
        pods=pods_of_service(service, pods),
        config=_adapter_config(reader, adapter) if adapter and owner.is_prometheus_adapter else None,
    )


def _adapter(reader: Reader, service: Manifest) -> Manifest | None:
    """The Deployment behind a service."""
    selector = (service.get("spec") or {}).get("selector") or {}
    deployments: Sequence[Manifest] = ()
    if namespace := service["metadata"]["namespace"]:
        with suppress(ApiError):  # evidence only
            deployments = reader.kube.list(DEPLOYMENTS, namespace=namespace) or ()
    return next((deployment for deployment in deployments if _makes(deployment, selector)), None)


def _makes(deployment: Manifest, selector: Mapping[str, str]) -> bool:
    """Whether a Deployment's pods are a Service's."""
    labels = (deployment["spec"]["template"].get("metadata") or {}).get("labels") or {}
    return bool(selector) and labels_match({"matchLabels": selector}, labels)


def _adapter_config(reader: Reader, adapter: Manifest) -> AdapterConfig | None:
    place = config_map_of(adapter)
    if place is None:
        return None
    (name, key), namespace = place, adapter["metadata"]["namespace"]
    config_map = reader.take("adapter_config", lambda: reader.kube.get(CONFIG_MAPS, name, namespace), None)
    text = ((config_map or {}).get("data") or {}).get(key)
    if text is None:
        return None
    try:
        return adapter_config(config_map, from_yaml(text))
    except ValueError as err:
        return AdapterConfig(config_map, error=str(err))
