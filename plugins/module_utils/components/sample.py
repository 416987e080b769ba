# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The sample workload: a check of CUDA in a pod, a service that computes on a GPU, and a load generator."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from ..kube.labels import PART_OF, labels
from ..kube.objects import Manifest
from .object_owners import kind_and_name, owned

Object = dict[str, Any]
NAME_LABEL = "app.kubernetes.io/name"
_SCRIPTS = "scripts"
_DIGEST_LENGTH = 10


@dataclass(frozen=True)
class SampleOptions:
    """Options of the role gpu_workload."""

    state: str
    name: str
    namespace: str
    inventory_id: str
    image: str
    runtime_class: str
    node_selector: Mapping[str, str]
    tolerations: Sequence[Mapping[str, Any]]
    check: bool
    service: bool
    load: bool
    monitor: bool
    monitor_labels: Mapping[str, str]
    scrape_interval: int
    queue: int
    request_ms: float
    load_gpus: float


@dataclass(frozen=True)
class Sample(SampleOptions):
    """The sample of an inventory. scripts: texts by file name."""

    scripts: Mapping[str, str]

    @property
    def labels(self) -> dict[str, str]:
        return {**labels(self.inventory_id), PART_OF: self.name}

    @property
    def scripts_name(self) -> str:
        """Named by the content, which never changes: other scripts are another ConfigMap, and so new pods."""
        return f"{self.name}-scripts-{_digest(self.scripts)}"

    @property
    def check_name(self) -> str:
        """Named by everything that the check depends on: another check is another Job."""
        facts = [self.scripts_name, self.image, self.runtime_class, self.node_selector, self.tolerations]
        return f"{self.name}-check-{_digest(facts)}"

    @property
    def load_name(self) -> str:
        return f"{self.name}-load"

    @property
    def deployments(self) -> list[str]:
        return [self.name] * self.service + [self.load_name] * self.load

    @property
    def is_scraped(self) -> bool:
        return self.service and self.monitor

    @property
    def is_wanted(self) -> bool:
        return self.check or self.service or self.load


POD_MONITORS = "podmonitors.monitoring.coreos.com"  # the CRD, which the Prometheus operator installs
# Kinds of all objects that the role may have created.
API_VERSIONS = {
    "ConfigMap": "v1",
    "Deployment": "apps/v1",
    "Job": "batch/v1",
    "PodMonitor": "monitoring.coreos.com/v1",
    "Service": "v1",
}


def queries(sample: Sample) -> list[dict[str, str]]:
    """Queries of the role: the namespace, its objects, and the CRD of the PodMonitor."""
    definitions = [POD_MONITORS] if sample.is_scraped else []
    return [
        {"kind": "Namespace", "name": sample.namespace},
        *(
            {"kind": kind, "api_version": version, "namespace": sample.namespace}
            for kind, version in API_VERSIONS.items()
        ),
        *(
            {"kind": "CustomResourceDefinition", "api_version": "apiextensions.k8s.io/v1", "name": name}
            for name in definitions
        ),
    ]


def refusals(sample: Sample, foreign: Sequence[str], found: Sequence[Manifest] | None) -> Iterator[str]:
    """Errors before a change.

    foreign: conflicting objects by kind and name. found: results of `queries`; None if no cluster was queried.
    """
    if foreign:
        yield (
            f"sample -> cluster: {', '.join(foreign)} in namespace {sample.namespace} "
            "was not created by this collection."
            " Nothing was changed. Next: set gpu_workload_namespace or gpu_workload_name to another name."
        )
    served = {obj["metadata"]["name"] for obj in found or () if obj["kind"] == "CustomResourceDefinition"}
    if found is not None and sample.is_scraped and POD_MONITORS not in served:
        yield (
            "sample -> cluster: gpu_workload_monitor needs the kind PodMonitor, which the cluster does not serve. It "
            "comes with the Prometheus operator. Nothing was changed."
            " Next: install that, or leave gpu_workload_monitor out."
        )


def base(sample: Sample, found: Sequence[Manifest]) -> list[Object]:
    """The scripts, and the namespace unless it exists: an existing one is not managed."""
    exists = any(obj["kind"] == "Namespace" for obj in found)
    scripts = _object(sample, "v1", "ConfigMap", sample.scripts_name, immutable=True, data=dict(sample.scripts))
    # All parts share the scripts, so they have no name of a part.
    scripts["metadata"]["labels"] = sample.labels
    return [scripts] if exists else [_namespace(sample), scripts]


def objects(sample: Sample) -> list[Object]:
    """All objects except the base and the check, which runs before them."""
    return [
        *(_service(sample) if sample.service else ()),
        *([_monitor(sample)] if sample.is_scraped else []),
        *(_load(sample) if sample.load else ()),
    ]


def wanted(sample: Sample) -> list[Object]:
    """All wanted objects in the namespace."""
    if not sample.is_wanted:
        return []
    scripts = base(sample, [])[-1]
    return [scripts, *([check(sample)] if sample.check else []), *objects(sample)]


def check(sample: Sample) -> Object:
    return _object(
        sample,
        "batch/v1",
        "Job",
        sample.check_name,
        part=f"{sample.name}-check",
        spec={
            "backoffLimit": 0,
            "template": {
                "metadata": {"labels": _labels(sample, f"{sample.name}-check")},
                "spec": {
                    "restartPolicy": "Never",
                    **_pod(sample, gpu=True),
                    "containers": [{"name": "check", **_container(sample, ["vector_add.py"], gpu=True)}],
                },
            },
        },
    )


def _service(sample: Sample) -> list[Object]:
    health = {"path": "/healthz", "port": "http"}
    container = {
        "name": "service",
        **_container(sample, ["sample_service.py", "--queue", sample.queue], gpu=True),
        "ports": [{"name": "http", "containerPort": 8000}],
        # An HPA counts a pod once it is ready, so it must not be ready before its GPU has run a kernel.
        "readinessProbe": {"httpGet": health, "periodSeconds": 1},
        "livenessProbe": {"httpGet": health, "initialDelaySeconds": 10},
    }
    deployment = {
        # Without `replicas`, which the autoscaler sets. A new pod may find no free GPU before an old one ends.
        "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "pod": {"terminationGracePeriodSeconds": 30, **_pod(sample, gpu=True), "containers": [container]},
    }
    return _deployed(sample, sample.name, **deployment)


def _load(sample: Sample) -> list[Object]:
    arguments: list[str | float] = [f"http://{sample.name}", "--cost-ms", sample.request_ms, "--gpus", sample.load_gpus]
    container = {
        "name": "load",
        **_container(sample, ["load.py", *arguments], gpu=False),
        "ports": [{"name": "http", "containerPort": 8000}],
        "readinessProbe": {"httpGet": {"path": "/stats", "port": "http"}, "periodSeconds": 1},
    }
    # It need not finish anything when it is stopped.
    pod = {"terminationGracePeriodSeconds": 0, **_pod(sample, gpu=False), "containers": [container]}
    return _deployed(sample, sample.load_name, replicas=1, pod=pod)


def _deployed(sample: Sample, name: str, pod: Mapping[str, Any], **spec: Any) -> list[Object]:
    """A Deployment and its Service."""
    template = {"metadata": {"labels": _labels(sample, name)}, "spec": pod}
    deployment = {**spec, "selector": {"matchLabels": {NAME_LABEL: name}}, "template": template}
    service = {"selector": {NAME_LABEL: name}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]}
    return [
        _object(sample, "apps/v1", "Deployment", name, spec=deployment),
        _object(sample, "v1", "Service", name, spec=service),
    ]


def _monitor(sample: Sample) -> Object:
    seconds = f"{sample.scrape_interval}s"
    endpoint = {"port": "http", "interval": seconds, "scrapeTimeout": seconds}
    spec = {"selector": {"matchLabels": {NAME_LABEL: sample.name}}, "podMetricsEndpoints": [endpoint]}
    monitor = _object(sample, API_VERSIONS["PodMonitor"], "PodMonitor", sample.name, spec=spec)
    monitor["metadata"]["labels"] = {**sample.monitor_labels, **monitor["metadata"]["labels"]}
    return monitor


def _namespace(sample: Sample) -> Object:
    secured = {**labels(sample.inventory_id), "pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": sample.namespace, "labels": secured}}


def _object(sample: Sample, api_version: str, kind: str, name: str, *, part: str = "", **content: Any) -> Object:
    """part: value of its label; by default its name."""
    metadata = {"name": name, "namespace": sample.namespace, "labels": _labels(sample, part or name)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def _labels(sample: Sample, name: str) -> dict[str, str]:
    return {**sample.labels, NAME_LABEL: name}


def _pod(sample: Sample, *, gpu: bool) -> Object:
    """Satisfies the strictest Pod Security Standard."""
    placed = {"nodeSelector": sample.node_selector, "tolerations": list(sample.tolerations)} if gpu else {}
    classed = {"runtimeClassName": sample.runtime_class} if gpu and sample.runtime_class else {}
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "runAsGroup": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [{"name": _SCRIPTS, "configMap": {"name": sample.scripts_name}}],
        **placed,
        **classed,
    }


def _container(sample: Sample, call: Sequence[str | float], *, gpu: bool) -> Object:
    """call: a script and its arguments."""
    script, *arguments = call
    gpus = {"nvidia.com/gpu": 1} if gpu else {}
    return {
        "image": sample.image,
        "command": ["python3", "-B", f"/scripts/{script}"],
        "args": [str(argument) for argument in arguments],
        "volumeMounts": [{"name": _SCRIPTS, "mountPath": "/scripts", "readOnly": True}],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi", **gpus}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:_DIGEST_LENGTH]


def sample_plan(options: SampleOptions, survey: Mapping[str, Any]) -> dict[str, Any]:
    """What the role queries, checks, applies and removes.

    survey: `scripts`, texts by file name, and `found`, objects that the `queries` found; None before they ran.
    """
    it, is_present = Sample(**vars(options), scripts=survey["scripts"]), options.state == "present"
    found: Sequence[Manifest] | None = survey["found"]
    desired = wanted(it) if is_present else []
    seen = found or ()
    in_namespace = [obj for obj in seen if obj["kind"] in API_VERSIONS]
    sorted_out = owned(in_namespace, it.labels, list(map(kind_and_name, desired)))
    checks = [obj for obj in sorted_out.found if obj["metadata"]["name"] == it.check_name]
    return {
        "queries": queries(it),
        "refused": list(refusals(it, sorted_out.foreign, found)) if is_present else [],
        "base": base(it, seen),
        "check": check(it),
        "check_name": it.check_name,
        "objects": objects(it),
        "deployments": it.deployments,
        "labels": it.labels,
        "left": list(sorted_out.left),
        "checked": checks[0] if checks else {},
        "is_wanted": it.is_wanted,
        "namespace_exists": any(obj["kind"] == "Namespace" for obj in seen),
    }
