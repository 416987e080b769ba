# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks what limits or sets the replicas of a workload: another autoscaler, a manifest, GPUs, quotas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from ...diagnosis.check import CheckResult, Evidence, FindingTypes, check
from ...errors import counted
from ...hops import Hop
from ...kube.capacity import pods_within, replicas_that_fit
from ...kube.node_pools import nodes_are_added
from ...kube.objects import Manifest, clock, condition, key_of, made_s, name_of, owners, unix, youngest
from ...kube.resource_claims import limits_of
from ..controller_reports import undone_rescales
from ..finding_texts import condition_text
from ..state.autoscaler import AutoscalerState
from ..state.cluster import State
from ..state.nodes import lost_gpus
from .workload_pods import PLACES, is_paused, place_of_workload, progress_text

_WORKLOAD = FindingTypes(Hop.WORKLOAD)

# A pause can be a step of a release.
_PAUSE_S = 1800
# The HPA controller's manager, before the API server recorded the subresource in managedFields.
_SCALERS = ("kube-controller-manager",)

WORKLOAD_TWO_AUTOSCALERS = _WORKLOAD.error(
    "WORKLOAD_TWO_AUTOSCALERS",
    cause="two autoscalers scale one workload: Kubernetes blocks both, or they undo each other's changes",
    fix="keep one of them (state: absent removes the autoscaler). To adopt an existing HPA, give the autoscaler its "
    "name, and set adopt: true. Add other metrics to extra_metrics",
    before="refuse",
)


@check("it has one autoscaler", WORKLOAD_TWO_AUTOSCALERS, needs=("hpas", "scaled_objects"))
def one_autoscaler(state: State) -> Iterator[CheckResult]:
    holders = holders_of_targets(state)
    for autoscaler in state.autoscalers:
        names = holders.get(target_of(autoscaler.hpa), set())
        if len(names) > 1:
            seen, affected = ", ".join(sorted(names)), state.affected_by([autoscaler])
            yield CheckResult(WORKLOAD_TWO_AUTOSCALERS, autoscaler.workload, seen, affected)


def holders_of_targets(state: State) -> dict[tuple[str, ...], set[str]]:
    """Autoscalers by target; KEDA's HPA and its ScaledObject count as one."""
    holders: dict[tuple[str, ...], set[str]] = {}
    for hpa in state.hpas:
        owner = next((name for kind, name in owners(hpa) if kind == "ScaledObject"), None)
        name = f"ScaledObject {hpa['metadata']['namespace']}/{owner}" if owner else f"HPA {name_of(hpa)}"
        holders.setdefault(target_of(hpa), set()).add(name)
    for scaled_object in state.scaled_objects:
        holders.setdefault(target_of(scaled_object), set()).add(f"ScaledObject {name_of(scaled_object)}")
    return holders


def target_of(scaler: Manifest) -> tuple[str, ...]:
    """Namespace, API group, kind and name, which identify the object in any API version."""
    reference = scaler["spec"]["scaleTargetRef"]
    group = (reference.get("apiVersion") or "apps/v1").rpartition("/")[0]
    return scaler["metadata"]["namespace"], group, reference.get("kind", "Deployment"), reference["name"]


WORKLOAD_NO_READINESS_PROBE = _WORKLOAD.warning(
    "WORKLOAD_NO_READINESS_PROBE",
    cause="pods count as ready while they still load their model, so the HPA adds more",
    fix="add a readinessProbe to the pod template that answers once requests are served",
    before="warn",
)


@check("it has a readiness probe", WORKLOAD_NO_READINESS_PROBE, needs=("targets",))
def readiness_probe(state: State) -> Iterator[CheckResult]:
    for autoscaler in state.autoscalers:
        if autoscaler.template and not autoscaler.has_readiness_probe:
            seen = "no container of its pod template has a readinessProbe"
            age_s = state.clock.last_change_age_s(autoscaler.target) if autoscaler.target else None
            yield CheckResult(WORKLOAD_NO_READINESS_PROBE, autoscaler.workload, seen, age_s=age_s)


WORKLOAD_GRACE_TOO_SHORT = _WORKLOAD.warning(
    "WORKLOAD_GRACE_TOO_SHORT",
    cause="a pod that ends does not complete its longest answers, so each scale-down breaks streams",
    fix="add a preStop hook to the pod template that sleeps until no proxy sends requests to the pod, raise "
    "terminationGracePeriodSeconds to that time plus the longest answer, and set vLLM's --shutdown-timeout to the "
    "longest answer: docs/vllm.md",
)
# The API server's default.
_GRACE_S = 30


@check("its pods have time to end", WORKLOAD_GRACE_TOO_SHORT, needs=("targets", "metrics"))
def time_to_end(state: State) -> Iterator[CheckResult]:
    """By what pods reported in the last hour. Hooks other than a sleep may end once no request is left."""
    for autoscaler in state.autoscalers:
        names = {pod["metadata"]["name"] for pod in autoscaler.pods}
        longest_s = max((time_s for pod, time_s in autoscaler.answer_times.items() if pod in names), default=0.0)
        grace_s = int(autoscaler.template.get("terminationGracePeriodSeconds", _GRACE_S))
        containers = autoscaler.template.get("containers") or ()
        hooks = [(container.get("lifecycle") or {}).get("preStop") or {} for container in containers]
        sleep_s = max(map(_sleep_s, hooks), default=0)
        aborts = bool(longest_s) and any(map(_aborts_streams, containers))
        if autoscaler.template and (aborts or longest_s > grace_s - sleep_s):
            how = [f"one of 100 answers takes {longest_s:.0f} s or longer, and pods have {grace_s} s to end"]
            how += [f"a preStop hook sleeps for {sleep_s} s"] if sleep_s else [] if any(hooks) else ["no preStop hook"]
            how += ["vLLM has no --shutdown-timeout"] if aborts else []
            age_s = state.clock.last_change_age_s(autoscaler.target) if autoscaler.target else None
            yield CheckResult(WORKLOAD_GRACE_TOO_SHORT, autoscaler.workload, ", ".join(how), age_s=age_s)


def _sleep_s(hook: Manifest) -> int:
    words = " ".join((hook.get("exec") or {}).get("command") or ())
    of_command = re.search(r"\bsleep (\d+)", words)
    return int((hook.get("sleep") or {}).get("seconds") or (of_command[1] if of_command else 0))


def _aborts_streams(container: Manifest) -> bool:
    """Whether this is vLLM that ends its streams at SIGTERM, however long it is given. A file may have its options."""
    program = " ".join(container.get("command") or [container.get("image", "")])  # a command replaces the image's
    words = " ".join([program, *(container.get("args") or [])])
    return "vllm" in words and not any(option in words for option in ("--shutdown-timeout", "--config"))


WORKLOAD_MAXIMUM_OVER_GPUS = _WORKLOAD.warning(
    "WORKLOAD_MAXIMUM_OVER_GPUS",
    cause="the nodes do not have enough GPUs for the HPA's maximum",
    fix="lower max_replicas, or add nodes: the remaining pods stay Pending",
    is_consequence=True,
    explained_by=(Hop.NODE, Hop.DEVICE_PLUGIN, Hop.NODE_LABELS),
    before="warn",
)


@check("the GPUs suffice for its maximum", WORKLOAD_MAXIMUM_OVER_GPUS, needs=("targets", "nodes"))
def capacity(state: State) -> Iterator[CheckResult]:
    """Unhealthy GPUs are a separate finding. Node groups with a cluster autoscaler have no limit."""
    if not (state.gpu_nodes or state.is_before) or _is_short(state) or nodes_are_added(state.nodes):
        return
    known: dict[str, int | None] = {}
    for autoscaler in state.autoscalers:
        wanted = _gpus_of_a_pod(state, autoscaler)
        if not wanted or (fit := _fit(state, autoscaler, known)) is None:
            continue
        fit //= autoscaler.pods_per_replica
        most = autoscaler.hpa["spec"]["maxReplicas"]
        if fit < most:
            seen = f"max_replicas is {most}, but eligible nodes have room for only {fit} replicas ({wanted} a pod)"
            yield CheckResult(WORKLOAD_MAXIMUM_OVER_GPUS, autoscaler.workload, seen, state.affected_by([autoscaler]))


def _gpus_of_a_pod(state: State, autoscaler: AutoscalerState) -> str:
    """Its limits of GPUs, or the GPUs that it claims; empty if it has none, or if that is unknown."""
    if autoscaler.gpus:
        return ", ".join(f"{number} {resource}" for resource, number in autoscaler.gpus.items())
    needs = state.needs(autoscaler) or ()
    return ", ".join(" or ".join(map(str, found)) for found in needs if any(need.is_of_gpus for need in found))


def _fit(state: State, autoscaler: AutoscalerState, known: dict[str, int | None]) -> int | None:
    """Pods that fit, counted once for all workloads with the same demands; None if that is unknown."""
    pod = autoscaler.template
    demands = [pod.get(key) for key in ("nodeSelector", "tolerations", "affinity", "resourceClaims")]
    key = json.dumps([demands, autoscaler.key[0] if demands[-1] else "", limits_of(pod)], sort_keys=True)
    if key not in known:
        by_claims = state.pods_by_claims(autoscaler)
        fit = None if by_claims is None else replicas_that_fit(pod, state.gpu_nodes.values(), by_claims)
        known[key] = fit
    return known[key]


def _is_short(state: State) -> bool:
    """Whether GPUs are only temporarily missing: unhealthy, or on a cordoned node, for example during an upgrade."""
    nodes = state.gpu_nodes.values()
    return not state.is_before and (
        bool(state.bare_nodes) or any(lost_gpus(node) or node["spec"].get("unschedulable") for node in nodes)
    )


WORKLOAD_MAXIMUM_OVER_QUOTA = _WORKLOAD.warning(
    "WORKLOAD_MAXIMUM_OVER_QUOTA",
    cause="a ResourceQuota of the namespace does not allow the HPA's maximum",
    fix="raise the quota, or lower max_replicas: kubectl -n {namespace} describe resourcequota {quota}",
    is_consequence=True,
    explained_by=(Hop.WORKLOAD,),
)


@check("the quotas allow its maximum", WORKLOAD_MAXIMUM_OVER_QUOTA, needs=("targets", "quotas"))
def quota(state: State) -> Iterator[CheckResult]:
    """Ignores its current usage. Quotas with a scope may not apply to these pods, and are not checked."""
    for autoscaler in state.autoscalers:
        for resource_quota in state.quotas:
            spec = resource_quota.get("spec") or {}
            if key_of(resource_quota)[0] != autoscaler.key[0] or spec.get("scopes") or spec.get("scopeSelector"):
                continue
            room = pods_within(autoscaler.template, spec.get("hard") or {}) if autoscaler.template else None
            most = autoscaler.hpa["spec"]["maxReplicas"]
            if room and (fit := room[0] // autoscaler.pods_per_replica) < most:
                name, resource = key_of(resource_quota)[1], room[1]
                yield CheckResult(
                    WORKLOAD_MAXIMUM_OVER_QUOTA,
                    autoscaler.workload,
                    f"max_replicas is {most}, but ResourceQuota {name} has room for only {fit} replicas "
                    f"({resource}: {spec['hard'][resource]})",
                    state.affected_by([autoscaler]),
                    youngest([state.clock.age_s(resource_quota), state.clock.age_s(autoscaler.hpa)]),
                    template_vars={"namespace": autoscaler.key[0], "quota": name},
                )


WORKLOAD_REPLICAS_OWNED = _WORKLOAD.warning(
    "WORKLOAD_REPLICAS_OWNED",
    cause="{manager} applies a manifest with replicas, and each time undoes the HPA's decision",
    fix="remove spec.replicas from the manifest, chart or role; Argo CD: ignoreDifferences for /spec/replicas",
)


@check("only the HPA sets the replicas", WORKLOAD_REPLICAS_OWNED, needs=("hpas", "targets"))
def replicas_are_not_owned(state: State) -> Iterator[CheckResult]:
    """Scaling removes the field from its manager. So a manager that owns it afterwards has written it again.

    Not for a target at 0, which has its own finding.
    """
    for autoscaler in state.autoscalers:
        scaled_s, target = unix((autoscaler.hpa.get("status") or {}).get("lastScaleTime")), autoscaler.target
        if scaled_s is None or target is None or not autoscaler.replicas or made_s(target) > scaled_s:
            continue
        writers = [(written_s, manager) for manager, written_s in _writers_of_replicas(target) if written_s > scaled_s]
        if writers:
            written_s, manager = max(writers)
            yield CheckResult(
                WORKLOAD_REPLICAS_OWNED,
                autoscaler.workload,
                f"{manager} wrote spec.replicas at {clock(written_s)}, after the HPA had scaled at {clock(scaled_s)}",
                age_s=state.now_s - written_s,
                template_vars={"manager": manager},
            )


def _writers_of_replicas(target: Manifest) -> Iterator[tuple[str, float]]:
    """Managers that set spec.replicas without scaling, and the time of their last write."""
    for entry in target["metadata"].get("managedFields") or ():
        fields = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        scales = entry.get("subresource") or entry.get("manager") in _SCALERS
        if "f:replicas" in fields and not scales and (written_s := unix(entry.get("time"))):
            yield entry.get("manager", "another client"), written_s


WORKLOAD_SCALED_BY_ANOTHER = _WORKLOAD.warning(
    "WORKLOAD_SCALED_BY_ANOTHER",
    cause="another client also scales the workload: the HPA and that client undo each other's decisions",
    fix="stop the other client: kubectl -n {namespace} get {target} -o yaml --show-managed-fields shows which one "
    "wrote spec.replicas",
    evidence=(
        Evidence(
            r"last set by",
            "{manager} also scales the workload: it and the HPA undo each other's decisions",
            "stop {manager} from scaling it: it can be a CronJob, a script or an operator",
        ),
    ),
)


@check("nothing else scales it", WORKLOAD_SCALED_BY_ANOTHER, needs=("hpas", "targets", "controller_events"))
def nobody_else_scales(state: State) -> Iterator[CheckResult]:
    """Uses the HPA's own events. A manager that applies replicas is WORKLOAD_REPLICAS_OWNED."""
    for autoscaler in state.autoscalers:
        target, undone = autoscaler.target, undone_rescales(state, autoscaler)
        if target is None or undone is None or any(_writers_of_replicas(target)):
            continue
        manager = next(_other_scalers(target), "")
        yield CheckResult(
            WORKLOAD_SCALED_BY_ANOTHER,
            autoscaler.workload,
            f"{undone.text}{f'; spec.replicas was last set by {manager}' if manager else ''}",
            age_s=undone.age_s,
            template_vars={**place_of_workload(autoscaler), "manager": manager},
        )


def _other_scalers(target: Manifest) -> Iterator[str]:
    """Managers other than the HPA controller that set spec.replicas through the scale subresource."""
    for entry in target["metadata"].get("managedFields") or ():
        fields = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        if "f:replicas" in fields and entry.get("subresource") == "scale" and entry.get("manager") not in _SCALERS:
            yield entry["manager"]


WORKLOAD_PAUSED = _WORKLOAD.warning(
    "WORKLOAD_PAUSED",
    cause="the rollout of the workload is paused: it is scaled, but its pods do not get changes of its pod template",
    fix="kubectl -n {namespace} rollout resume {target}",
    grace_s=_PAUSE_S,
)
WORKLOAD_ROLLOUT_STUCK = _WORKLOAD.error(
    "WORKLOAD_ROLLOUT_STUCK",
    cause="an update of the workload has not ended within progressDeadlineSeconds, so old pods stay beside new ones",
    fix="kubectl -n {namespace} rollout status {target}; kubectl -n {namespace} rollout undo {target} reverts it",
    is_consequence=True,
    explained_by=(*PLACES, Hop.WORKLOAD),
)


@check("its rollout progresses", WORKLOAD_PAUSED, WORKLOAD_ROLLOUT_STUCK, needs=("targets", "metrics"))
def rollout_goes_on(state: State) -> Iterator[CheckResult]:
    """Uses the conditions of a Deployment or a Rollout. If pods have the reason, it is a consequence."""
    for autoscaler in state.autoscalers:
        target = autoscaler.target
        if target is None or state.is_before:
            continue
        progress, affected = condition(target, "Progressing"), state.affected_by([autoscaler])
        age_s = state.clock.condition_age_s(target, "Progressing")
        if progress.get("reason") == "ProgressDeadlineExceeded":
            yield CheckResult(
                WORKLOAD_ROLLOUT_STUCK,
                autoscaler.workload,
                condition_text(progress),
                affected,
                age_s,
                template_vars=place_of_workload(autoscaler),
            )
        elif is_paused(target) and autoscaler.pods:
            seen = progress_text(progress)
            yield CheckResult(
                WORKLOAD_PAUSED, autoscaler.workload, seen, age_s=age_s, template_vars=place_of_workload(autoscaler)
            )


def summary(state: State) -> str:
    return f"{counted(sum(len(autoscaler.ready_pods) for autoscaler in state.autoscalers), 'pod')} ready"


def nothing(state: State) -> str:
    return "" if state.autoscalers else "no autoscaler is checked"
