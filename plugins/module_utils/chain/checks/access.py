# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks whether the cluster could be read. Hops that could not be read are not ok."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnosis.check import CheckResult, FindingTypes, check
from ...hops import Hop
from ..state.cluster import State

_ACCESS = FindingTypes(Hop.ACCESS)

_SERVICE_ACCOUNT = "system:serviceaccount:"

RIGHTS_MISSING = _ACCESS.warning(
    "RIGHTS_MISSING",
    cause="the user lacks permissions that the doctor needs. The checks that need them were skipped, so it is unknown "
    "whether their hops work",
    fix="kubectl apply -f docs/doctor/rights.yml; kubectl create clusterrolebinding gpu-doctor "
    "--clusterrole gpu-doctor {subject}",
)


@check("the user may read the chain", RIGHTS_MISSING)
def rights(state: State) -> Iterator[CheckResult]:
    user = f"user {state.user}" if state.user else "the user of the kubeconfig"
    for right in sorted(set(state.denied.values())):
        yield CheckResult(RIGHTS_MISSING, user, f"no right to {right}", template_vars={"subject": _subject(state.user)})


CLUSTER_MISSING = _ACCESS.warning(
    "CLUSTER_MISSING",
    cause="no kubeconfig was found, so only the servers of the inventory were examined",
    fix="ansible-playbook kubegpu.autoscale.site creates a cluster on the servers; for an existing cluster set "
    "kubegpu_kubeconfig",
)
CLUSTER_UNREACHABLE = _ACCESS.error(
    "CLUSTER_UNREACHABLE",
    cause="the cluster could not be used, so only the servers of the inventory were examined",
    fix="follow the message; check kubegpu_kubeconfig and kubegpu_context with kubectl get --raw /readyz",
)


@check("the cluster can be reached", CLUSTER_MISSING, CLUSTER_UNREACHABLE)
def cluster(state: State) -> Iterator[CheckResult]:
    if gap := state.no_cluster:
        yield CheckResult(CLUSTER_MISSING if gap.is_missing else CLUSTER_UNREACHABLE, "the cluster", gap.why)


def _subject(user: str) -> str:
    """The subject of a role in kubectl's format."""
    if user.startswith(_SERVICE_ACCOUNT):
        return f"--serviceaccount {user.removeprefix(_SERVICE_ACCOUNT)}"
    return f"--user {user or 'USER'}"


def summary(state: State) -> str:
    user = state.user or "the user of the kubeconfig"
    return f"{user} has all permissions that the checks need"


def nothing(state: State) -> str:
    return ""
