# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""PromQL of the pods of workloads, by kube-state-metrics.

kube-prometheus-stack records the workload of each pod, too, but every 30 s by default, which would delay the count of
a new pod, and from every kube-state-metrics that it finds.
"""

from __future__ import annotations

from .promql import literal, quoted

_STATES = "<kube_state_metrics>"
# kube-state-metrics' series of the number of pods that exist, by kind of workload, and its label of the workload.
STATUS_REPLICAS = {
    "Deployment": ("deployment", "kube_deployment_status_replicas"),
    "StatefulSet": ("statefulset", "kube_statefulset_status_replicas"),
}
# Kubernetes' controllers renew these every few seconds. If kube-state-metrics sees no renewal, all of it is old. Users
# can create a Lease of such a name in their namespace, with a time in the future: one that is renewed is enough.
_LEASES = f'kube_lease_renew_time{{lease=~"kube-scheduler|kube-controller-manager",{_STATES}}}'
_RENEWED, _RENEWED_BEFORE = (f"max by (namespace, lease) ({_LEASES}{ago})" for ago in ("", " offset 2m"))
FROZEN_STATES = f"(count({_RENEWED} == {_RENEWED_BEFORE}) unless count({_RENEWED} != {_RENEWED_BEFORE}))"


def pods_of(kind: str, name: str, namespace: str) -> str:
    """The pods of a Deployment, Rollout or StatefulSet."""
    within = f"namespace={quoted(namespace)}"
    if kind == "StatefulSet":
        return f'kube_pod_owner{{{within},owner_kind="{kind}",owner_name={quoted(name)},{_STATES}}}'
    replica_sets = f"{within},owner_kind={quoted(kind)},owner_name={quoted(name)},{_STATES}"
    names = quoted(f"{literal(name)}-.+")
    return f"""\
(
  kube_pod_owner{{{within},owner_kind="ReplicaSet",owner_name=~{names},{_STATES}}}
  and on (namespace, owner_name)
  label_replace(kube_replicaset_owner{{{replica_sets}}}, "owner_name", "$1", "replicaset", "(.+)")
)"""


def lost_pods(kind: str, name: str, namespace: str) -> str:
    """Whether the workload has more pods than kube-state-metrics reports; empty if that is unknown for the kind."""
    if kind not in STATUS_REPLICAS:
        return ""
    label, series = STATUS_REPLICAS[kind]
    status = f"{series}{{namespace={quoted(namespace)},{label}={quoted(name)},{_STATES}}}"
    return f"(max({status}) > count(count by (pod) ({pods_of(kind, name, namespace)})))"


def owners(namespace: str) -> str:
    """The Deployment or StatefulSet of each pod. namespace: of the pods; empty for all."""
    within = f",namespace={quoted(namespace)}" if namespace else ""

    def owned(series: str, kind: str, label: str) -> str:
        rows = f'{series}{{owner_kind="{kind}",owner_is_controller="true"{within},{_STATES}}}'
        return f'label_replace({rows}, "{label}", "$1", "owner_name", "(.+)")'

    return f"""\
(
  label_replace(
    group by (namespace, workload, pod) (
      {owned("kube_pod_owner", "StatefulSet", "workload")}
    ),
    "workload_type", "statefulset", "", ""
  )
  or
  label_replace(
    group by (namespace, workload, pod) (
      group by (namespace, replicaset, pod) (
        {owned("kube_pod_owner", "ReplicaSet", "replicaset")}
      )
      * on (namespace, replicaset) group_left (workload)
      group by (namespace, replicaset, workload) (
        {owned("kube_replicaset_owner", "Deployment", "workload")}
      )
    ),
    "workload_type", "deployment", "", ""
  )
)"""
