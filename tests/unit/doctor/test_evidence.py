"""Cause and fix follow what was seen."""

from __future__ import annotations

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.checks.registry import FINDING_TYPES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.diagnosis.check import CheckResult

# As Prometheus, the API server, the kubelet and the controllers write them.
SEEN = [
    ("TARGET_DOWN", "Get https://10.0.0.1:9400/metrics: x509: certificate signed by unknown authority", "certificate"),
    ("TARGET_DOWN", "Get http://10.0.0.1:9400/metrics: context deadline exceeded", "network policy"),
    ("TARGET_DOWN", "Get http://10.0.0.1:9400/metrics: dial tcp 10.0.0.1:9400: connect: connection refused", "listens"),
    ("TARGET_DOWN", "server returned HTTP status 403 Forbidden", "rejects the login"),
    ("TARGET_DOWN", "http: server gave HTTP response to HTTPS client", "disagree about https"),
    ("TARGET_DOWN", "up is 0, job dcgm-exporter, 10.0.0.1:9400", "cannot scrape it"),
    (
        "METRICS_API_UNAVAILABLE",
        "FailedDiscoveryCheck: tls: failed to verify certificate: x509: expired",
        "certificate",
    ),
    ("METRICS_API_UNAVAILABLE", "MissingEndpoints: endpoints for service/adapter have no addresses", "no pod"),
    ("METRICS_API_UNAVAILABLE", "ServiceNotFound: service/adapter is not present", "Service"),
    (
        "METRICS_API_UNAVAILABLE",
        'FailedDiscoveryCheck: Get "https://10.0.0.2:6443": context deadline exceeded',
        "firewall",
    ),
    ("METRICS_API_UNAVAILABLE", "FailedDiscoveryCheck: bad status from https://10.0.0.2: 403", "rejects"),
    ("PROMETHEUS_UNREACHABLE", "no endpoints available for service prometheus", "no ready pod"),
    ("PROMETHEUS_UNREACHABLE", "x509: certificate signed by unknown authority", "certificate"),
    ("PROMETHEUS_UNREACHABLE", "dial tcp 10.0.0.3:9090: i/o timeout", "does not answer"),
    ("PROMETHEUS_REPLICAS_DIFFER", "prometheus-1 has no namespace_pod:gpu:avg, which the other has", "different data"),
    ("PROMETHEUS_REPLICAS_DIFFER", "prometheus-1 (shard 1) has no x, which the other has", "any of its shards"),
    ("HPA_NOT_ACTIVE", "FailedGetResourceMetric: unable to fetch metrics from resource metrics API", "metrics.k8s.io"),
    ("HPA_NOT_ACTIVE", "FailedGetPodsMetric: no metrics returned", "cannot compute"),
    (
        "HPA_NOT_ACTIVE",
        "FailedGetExternalMetric: timeout while waiting to establish gRPC connection to KEDA Metrics Service server",
        "does not reach the operator",
    ),
    (
        "HPA_NOT_ACTIVE",
        "FailedGetExternalMetric: error when getting metric values metric:s0-prometheus encountered error",
        "no value from the source of a trigger",
    ),
    ("HPA_NOT_ACTIVE", "no matching metrics found for s3-prometheus", "does not have any more"),
    ("HPA_SCALED_OBJECT_FAILS", "ScaledObject doesn't have correct scaleTargetRef specification: x", "target"),
    ("HPA_SCALED_OBJECT_FAILS", "no scaler found for type: prometeus", "does not know the type"),
    ("HPA_SCALED_OBJECT_FAILS", "bearer token=[EMPTY] is required when bearer auth is enabled", "lacks the login"),
    (
        "METRIC_WITHOUT_VALUE",
        "timeout while waiting to establish gRPC connection to KEDA Metrics",
        "reach the operator",
    ),
    (
        "METRIC_WITHOUT_VALUE",
        "Max retries exceeded with url: /apis/external.metrics.k8s.io/v1beta1/namespaces/ml/s0-prometheus?labelSelector"
        "=scaledobject.keda.sh/name%3Dtheirs (Caused by ReadTimeoutError: Read timed out. (read timeout=29.9))",
        "reach the operator",
    ),
    (
        "HPA_NOT_ACTIVE",
        "unable to fetch metrics from external metrics API: the server was unable to return a response in the time "
        "allotted, but may still be processing the request (get s0-prometheus.external.metrics.k8s.io)",
        "does not reach the operator",
    ),
    ("METRIC_WITHOUT_VALUE", "error when getting metric values metric:s0-prometheus encountered error", "of a trigger"),
    ("METRIC_WITHOUT_VALUE", "no gpu for chat-0", "the series lacks them"),
    ("HPA_SCALED_OBJECT_FAILS", "doesn't have correct Idle/Min/Max Replica Counts specification", "contradict"),
    ("HPA_SCALED_OBJECT_FAILS", "metadata.labels: Invalid value: must be no more than 63 bytes", "longer than 63"),
    ("HPA_SCALED_OBJECT_FAILS", 'User "keda" cannot get resource "rollouts/scale": forbidden', "lacks a permission"),
    ("KEDA_TRIGGER_FAILS", "prometheus query sum by (pod) (x) returned multiple elements", "several results"),
    ("KEDA_TRIGGER_FAILS", "tls: failed to verify certificate: x509: unknown authority", "does not trust"),
    ("KEDA_TRIGGER_FAILS", "dial tcp: lookup prometheus: no such host", "does not reach"),
    ("KEDA_TRIGGER_FAILS", "context deadline exceeded (Client.Timeout exceeded while awaiting headers)", "not reach"),
    ("KEDA_TRIGGER_FAILS", "prometheus query api returned error. status: 401", "rejects KEDA's login"),
    ("KEDA_TRIGGER_FAILS", "prometheus query api returned error. status: 400", "rejects the query"),
    ("KEDA_TRIGGER_FAILS", "prometheus query api returned error. status: 404", "not the API of a Prometheus"),
    ("RULE_NO_POD_STATES", "it has no kube_pod_status_phase", "kube-state-metrics"),
    ("RULE_NO_POD_STATES", "it has no kube_pod_owner", "owners of pods"),
    ("HPA_AT_MAXIMUM", "ScalingLimited for 40 minutes at max_replicas 4", "more replicas than its maximum"),
    ("HPA_AT_MAXIMUM", "ScalingLimited for 40 minutes at max_replicas and min_replicas 4", "can never scale"),
    ("HPA_DOWN_DISABLED", "spec.behavior.scaleDown.selectPolicy is Disabled; ScaleDownLimit", "scaling rules"),
    ("HPA_DOWN_DISABLED", "scaleDown.tolerance is 1", "no value is low enough"),
    ("HPA_CANNOT_SCALE", "FailedUpdateScale: admission webhook denied the request", "admission webhook"),
    ("WORKLOAD_PODS_NOT_CREATED", "pods is forbidden: exceeded quota: gpus", "ResourceQuota"),
    ("WORKLOAD_PODS_NOT_CREATED", 'violates PodSecurity "restricted:latest": privileged', "Pod Security"),
    (
        "WORKLOAD_PODS_NOT_CREATED",
        'error looking up service account ml/chat: serviceaccount "chat" not found',
        "Account",
    ),
    (
        "WORKLOAD_PODS_NOT_CREATED",
        "pods is forbidden: failed quota: gpus: must specify requests.nvidia.com/gpu",
        "ResourceQuota",
    ),
    ("WORKLOAD_PODS_NOT_CREATED", "forbidden: minimum memory usage per Container is 1Gi", "LimitRange"),
    ("WORKLOAD_PODS_NOT_CREATED", 'pod rejected: RuntimeClass "nvidia" not found', "RuntimeClass"),
    ("WORKLOAD_PODS_NOT_CREATED", "forbidden: no PriorityClass with name high was found", "PriorityClass"),
    ("WORKLOAD_PODS_NOT_CREATED", "ValidatingAdmissionPolicy 'gpu' with binding 'b' denied request", "policy"),
    ("WORKLOAD_PODS_FAIL", "UnexpectedAdmissionError: Allocate failed due to can't allocate", "kubelet rejects"),
    ("WORKLOAD_PODS_FAIL", "OutOfnvidia.com/gpu: Node didn't have enough resource: nvidia.com/gpu", "kubelet rejects"),
    ("WORKLOAD_NOT_READY", 'Ready is False, ReadinessGatesNotReady: gate "x" does not exist', "readiness gate"),
    ("WORKLOAD_PODS_PENDING", "0/3 nodes are available: 3 cannot allocate all claims", "free device"),
    ("WORKLOAD_PODS_PENDING", "SchedulingGated: Scheduling is blocked due to non-empty scheduling gates", "gate"),
    (
        "WORKLOAD_PODS_PENDING",
        "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint(s).",
        "enough free GPUs for a pod",
    ),
    ("WORKLOAD_PODS_PENDING", "0/2 nodes are available: 2 Insufficient memory.", "another resource"),
    (
        "WORKLOAD_PODS_PENDING",
        "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) were unschedulable.",
        "cordoned",
    ),
    ("WORKLOAD_PODS_PENDING", "0/2 nodes are available: 2 node(s) had untolerated taint(s).", "pods cannot use"),
    (
        "WORKLOAD_PODS_PENDING",
        "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity.",
        "pods cannot use",
    ),
    ("WORKLOAD_PODS_PENDING", "0/2 nodes are available: 2 Too many pods.", "as many pods as its kubelet allows"),
    ("WORKLOAD_PODS_PENDING", "0/0 nodes are available: no nodes.", "the pods cannot be scheduled"),
    ("WORKLOAD_NOT_READY", "chat-0: ImagePullBackOff: Back-off pulling image", "pull the image"),
    ("WORKLOAD_NOT_READY", 'chat-0: CreateContainerConfigError: secret "token" not found', "Secret"),
    ("WORKLOAD_NOT_READY", "chat-0: CrashLoopBackOff; OOMKilled", "more memory"),
    ("WORKLOAD_NOT_READY", "chat-0: Unhealthy: Readiness probe failed: HTTP probe failed: 503", "probe"),
    ("WORKLOAD_PODS_FAIL", "chat-2: FailedMount: MountVolume.SetUp failed", "volume"),
    ("RULE_FAILS", "found duplicate series for the match group: many-to-many matching not allowed", "same labels"),
]


@pytest.mark.parametrize(("finding", "seen", "cause"), SEEN)
def test_the_cause_follows_the_evidence(finding: str, seen: str, cause: str) -> None:
    names = ("namespace", "name", "target", "group", "owner", "pod", "role", "queries", "addresses", "series")
    result = CheckResult(FINDING_TYPES[finding], "thing", seen, template_vars=dict.fromkeys(names, "x"))
    assert cause in result.cause
    assert result.fix
