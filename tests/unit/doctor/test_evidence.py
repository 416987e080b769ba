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
    ("TARGET_DOWN", "server returned HTTP status 403 Forbidden", "refuses the login"),
    ("TARGET_DOWN", "http: server gave HTTP response to HTTPS client", "disagree about https"),
    ("TARGET_DOWN", "up is 0, job dcgm-exporter, 10.0.0.1:9400", "cannot read it"),
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
    ("METRICS_API_UNAVAILABLE", "FailedDiscoveryCheck: bad status from https://10.0.0.2: 403", "refuses"),
    ("PROMETHEUS_UNREACHABLE", "no endpoints available for service prometheus", "no ready pod"),
    ("PROMETHEUS_UNREACHABLE", "x509: certificate signed by unknown authority", "certificate"),
    ("PROMETHEUS_UNREACHABLE", "dial tcp 10.0.0.3:9090: i/o timeout", "does not answer"),
    ("PROMETHEUS_REPLICAS_DIFFER", "prometheus-1 has no namespace_pod:gpu:avg, which the other has", "different data"),
    ("PROMETHEUS_REPLICAS_DIFFER", "prometheus-1 (shard 1) has no x, which the other has", "any of its shards"),
    ("HPA_NOT_ACTIVE", "FailedGetResourceMetric: unable to fetch metrics from resource metrics API", "metrics.k8s.io"),
    ("HPA_NOT_ACTIVE", "FailedGetPodsMetric: no metrics returned", "cannot work out"),
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
    ("HPA_AT_MAXIMUM", "ScalingLimited for 40 minutes at max_replicas 4", "more replicas than it may have"),
    ("HPA_AT_MAXIMUM", "ScalingLimited for 40 minutes at max_replicas and min_replicas 4", "can never scale"),
    ("HPA_DOWN_DISABLED", "spec.behavior.scaleDown.selectPolicy is Disabled; ScaleDownLimit", "own scaling rules"),
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
    ("WORKLOAD_PODS_FAIL", "UnexpectedAdmissionError: Allocate failed due to can't allocate", "kubelet refuses"),
    ("WORKLOAD_PODS_FAIL", "OutOfnvidia.com/gpu: Node didn't have enough resource: nvidia.com/gpu", "kubelet refuses"),
    ("WORKLOAD_NOT_READY", 'Ready is False, ReadinessGatesNotReady: gate "x" does not exist', "readiness gate"),
    ("WORKLOAD_PODS_PENDING", "0/3 nodes are available: 3 cannot allocate all claims", "free device"),
    ("WORKLOAD_PODS_PENDING", "SchedulingGated: Scheduling is blocked due to non-empty scheduling gates", "gate"),
    (
        "WORKLOAD_PODS_PENDING",
        "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint(s).",
        "free GPUs as a pod asks for",
    ),
    ("WORKLOAD_PODS_PENDING", "0/2 nodes are available: 2 Insufficient memory.", "something else"),
    (
        "WORKLOAD_PODS_PENDING",
        "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) were unschedulable.",
        "cordoned",
    ),
    ("WORKLOAD_PODS_PENDING", "0/2 nodes are available: 2 node(s) had untolerated taint(s).", "closed to the pods"),
    ("WORKLOAD_PODS_PENDING", "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity.", "closed"),
    ("WORKLOAD_PODS_PENDING", "0/2 nodes are available: 2 Too many pods.", "pods find no node"),
    ("WORKLOAD_NOT_READY", "chat-0: ImagePullBackOff: Back-off pulling image", "pull the image"),
    ("WORKLOAD_NOT_READY", 'chat-0: CreateContainerConfigError: secret "token" not found', "Secret"),
    ("WORKLOAD_NOT_READY", "chat-0: CrashLoopBackOff; OOMKilled", "more memory"),
    ("WORKLOAD_NOT_READY", "chat-0: Unhealthy: Readiness probe failed: HTTP probe failed: 503", "probe"),
    ("WORKLOAD_PODS_FAIL", "chat-2: FailedMount: MountVolume.SetUp failed", "volume"),
    ("RULE_FAILS", "found duplicate series for the match group: many-to-many matching not allowed", "same labels"),
]


@pytest.mark.parametrize(("finding", "seen", "cause"), SEEN)
def test_the_cause_follows_the_evidence(finding: str, seen: str, cause: str) -> None:
    names = ("namespace", "name", "target", "group", "owner", "pod")
    result = CheckResult(FINDING_TYPES[finding], "thing", seen, template_vars=dict.fromkeys(names, "x"))
    assert cause in result.cause
    assert result.fix
