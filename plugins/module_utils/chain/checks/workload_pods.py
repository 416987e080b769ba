# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks that the pods of a workload exist, are scheduled and become ready."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from ...diagnosis.check import CheckResult, Evidence, FindingTypes, check
from ...hops import Hop
from ...kube.objects import (
    Manifest,
    condition,
    got_on_s,
    is_ready,
    last_seen,
    made_s,
    name_of,
    statuses,
    trouble,
    unix,
    youngest,
)
from ...kube.pods import NO_DEVICES_LEFT, phase
from ..controller_reports import SCHEDULER, SILENT_S, silence_s
from ..finding_texts import condition_text
from ..state.autoscaler import AutoscalerState
from ..state.cluster import State

_WORKLOAD = FindingTypes(Hop.WORKLOAD)

_START_GRACE_S = 120
# The image of a model server, and its model, take minutes.
_POD_GRACE_S = 600
# Pods start even if other hops are broken.
PLACES = (Hop.NODE, Hop.DEVICE_PLUGIN)
# The kubelet's reasons for a container that will not start by itself.
_FAILURES = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ImageInspectError",
    "ErrImageNeverPull",
    "RegistryUnavailable",
    "SignatureValidationFailed",
    "ImageVolumeMountFailed",
    "RROUnsupported",
    "CreateContainerConfigError",
    "PreCreateHookError",
    "CreateContainerError",
    "PreStartHookError",
    "RunContainerError",
    "PostStartHookError",
    "CrashLoopBackOff",
)
# Texts of users in messages of Kubernetes: quoted names, values, names of containers and pods, what a probe returned.
_OF_USERS = re.compile(
    r'"(?:[^"\\]|\\.)*"|(?<=\w)=\S+|container \S+ in pod \S+|(?<=pod\(s\) )\S+|(?<=service account )\S+'
    r"|(?<=probe failed: ).*|(?<=probe errored: ).*",
    re.DOTALL,
)
# Kinds whose pods are created by no other object of the same name.
_MAKERS = ("Deployment", "StatefulSet", "ReplicaSet")

# Why a container does not run, by the messages of the kubelet and the container runtime. What says more comes first.
_POD_EVIDENCE = (
    Evidence(
        r"no space left on device|DiskPressure|ephemeral[- ]storage",
        "the disk of the node is full, or the pod uses more of it than it may",
        "free space on the node, or raise resources.limits.ephemeral-storage; kubectl -n {namespace} describe pods",
    ),
    Evidence(
        r"exec format error|no match for platform|no matching manifest",
        "the image is built for another processor architecture than the node's",
        "use an image for the node's architecture, or a nodeSelector kubernetes.io/arch",
    ),
    Evidence(
        r"(ErrImage|ImagePull).*(unauthorized|denied|authentication|authorization)",
        "the registry rejects the login of the pods",
        "correct imagePullSecrets of the pod template or its ServiceAccount; kubectl -n {namespace} describe pods",
    ),
    Evidence(
        r"(ErrImage|ImagePull).*(toomanyrequests|too many requests|429|rate limit)",
        "the registry limits the pulls of this address",
        "log in to the registry with imagePullSecrets, or use a mirror",
    ),
    Evidence(
        r"ErrImageNeverPull",
        "imagePullPolicy is Never, and the node does not have the image",
        "load the image on the node, or change imagePullPolicy of the pod template",
    ),
    Evidence(
        r"ErrImage|ImagePull|InvalidImageName|ImageInspectError|InspectFailed|RegistryUnavailable"
        r"|SignatureValidationFailed|Back-off pulling",
        "the node cannot pull the image",
        "correct the image, its registry or imagePullSecrets; kubectl -n {namespace} describe pods",
    ),
    Evidence(
        r"runAsNonRoot|run as root|non-numeric user",
        "the pods must not run as root, but their image does",
        "set securityContext.runAsUser of the pod template to a user of the image other than 0",
    ),
    Evidence(
        r"executable file not found|StartError|ContainerCannotRun|exec: .*(no such file|permission denied)",
        "the command of the container cannot be started: the image does not have it, or it is not executable",
        "correct command and args of the container; kubectl -n {namespace} describe pods",
    ),
    Evidence(
        r"PostStartHook",
        "the postStart hook of the container fails, so the kubelet kills the container",
        "correct lifecycle.postStart of the container; kubectl -n {namespace} describe pods",
    ),
    Evidence(
        r"CreateContainerConfigError(?!.*subPath)",
        "a ConfigMap or Secret that the pods refer to, or a key of it, does not exist",
        "create it, or correct the pod template; kubectl -n {namespace} describe pods",
    ),
    Evidence(
        r"OOMKilled",
        "a container needs more memory than its limit",
        "raise resources.limits.memory of the container",
    ),
    Evidence(
        r"Startup probe failed",
        "the kubelet restarts the container, because its startupProbe fails",
        "raise failureThreshold of the startupProbe to the time that the start takes, or correct its port and path; "
        "kubectl -n {namespace} logs {pod} --previous",
    ),
    Evidence(
        r"Liveness probe failed",
        "the kubelet restarts the container, because its livenessProbe fails",
        "correct port and path of the livenessProbe; for a slow start add a startupProbe; "
        "kubectl -n {namespace} logs {pod} --previous",
    ),
    Evidence(
        r"FailedSync|FailedKillPod|FailedPodSandBoxStatus|Kill(Container|PodSandbox)Error|RemoveContainerError"
        r"|(Create|Run)ContainerError.*(context deadline exceeded|is reserved for)",
        "the container runtime of the node does not answer the kubelet, or cannot end a container",
        "on that node: systemctl status containerd; journalctl -u containerd",
    ),
    Evidence(
        r"Evicted|Preempt|DeadlineExceeded|Terminated: .*(shutdown|imminent)",
        "the kubelet or the scheduler has ended the pods",
        "follow the message; kubectl -n {namespace} describe pods",
    ),
    Evidence(
        r"no runtime for|runtime ?handler",
        "containerd on the node does not have the runtime that the RuntimeClass of the pods names",
        "run the nvidia_container_toolkit role, or correct runtimeClassName of the pod template",
    ),
    Evidence(
        r"sandbox image",
        "the node cannot pull the pause image of containerd",
        "on that node, correct the sandbox image in the configuration of containerd, or open its registry",
    ),
    Evidence(
        r"DynamicResources",
        "the driver of the pods' ResourceClaims cannot prepare a device on the node",
        "check the pods of that driver on the node; kubectl -n {namespace} get resourceclaims -o yaml",
    ),
    Evidence(
        r"VolumePermissionChange",
        "the kubelet changes the owner of each file of a volume before the pods start",
        "set securityContext.fsGroupChangePolicy: OnRootMismatch in the pod template",
    ),
    Evidence(
        r"nvidia-(container|ctk)|libnvidia|nvml|CDI device",
        "the container runtime cannot give the container its GPU",
        "run the nvidia_container_toolkit role; kubectl -n {namespace} describe pods",
    ),
    Evidence(
        r"MountVolume|FailedMount|VolumeMountFailed|AttachVolume|Unable to attach or mount|MapVolume"
        r"|FileSystemResizeFailed|VolumeResizeFailed|RROUnsupported|subPath|mount.*not a directory",
        "a volume of the pods cannot be mounted",
        "follow the message; kubectl -n {namespace} describe pods",
    ),
    Evidence(
        r"(Create|Config)PodSandBox|network",
        "the node cannot configure the pod's network",
        "check the pods of the network plugin on that node; on the node: journalctl -u kubelet",
    ),
    Evidence(
        r"(Run|Create)ContainerError|Pre(Create|Start)HookError|FailedCreatePodContainer",
        "the container runtime cannot create or start the container",
        "follow the message; kubectl -n {namespace} describe pods",
    ),
    Evidence(
        r"ReadinessGatesNotReady",
        "the containers are ready, but a readiness gate of the pods is not",
        "check the controller that sets the gate, for example of a load balancer: kubectl -n {namespace} describe pods",
    ),
    Evidence(
        NO_DEVICES_LEFT.pattern,
        "the kubelet rejects pods that were scheduled to its node, because their GPUs are missing or in use",
        "check the device plugin's pods on that node and their log; kubectl -n {namespace} describe pods",
    ),
    Evidence(
        r"pods were rejected",
        "the kubelet rejects pods that were scheduled to its node",
        "follow the message; kubectl -n {namespace} describe pods",
    ),
    Evidence(
        r"CrashLoopBackOff|Back-off restarting|(?-i:\bError\b)|exit code",
        "a container exits by itself",
        "kubectl -n {namespace} logs {pod} --previous",
    ),
    Evidence(
        r"probe (failed|errored)",
        "the pods run, but their probe fails",
        "check what the probe requests and the container's log: kubectl -n {namespace} logs {pod}",
    ),
)

WORKLOAD_MISSING = _WORKLOAD.error(
    "WORKLOAD_MISSING",
    cause="the target of the HPA does not exist",
    fix="create it, or correct target.name and namespace (scaleTargetRef of the HPA)",
    grace_s=_START_GRACE_S,
    before="await",
)
WORKLOAD_AT_ZERO = _WORKLOAD.error(
    "WORKLOAD_AT_ZERO",
    cause="an HPA does not scale a workload with 0 replicas",
    fix="kubectl -n {namespace} scale {target} --replicas=1; to scale to zero and back, set min_replicas: 0 "
    "(docs/backends.md)",
)
WORKLOAD_NOT_READY = _WORKLOAD.error(
    "WORKLOAD_NOT_READY",
    cause="no pod of the workload is ready, so there is nothing to scale on",
    fix="kubectl -n {namespace} describe pods; kubectl -n {namespace} logs {pod}",
    grace_s=_POD_GRACE_S,
    is_consequence=True,
    explained_by=(*PLACES, Hop.WORKLOAD),
    evidence=(
        Evidence(
            r"has no selector",
            "an HPA finds the pods of its target by the selector of the scale subresource",
            "check status.selector of {target}, which its controller sets",
        ),
        *_POD_EVIDENCE,
    ),
)
WORKLOAD_PODS_NOT_CREATED = _WORKLOAD.error(
    "WORKLOAD_PODS_NOT_CREATED",
    cause="the controller of the workload cannot create its pods",
    fix="kubectl -n {namespace} describe {target}; kubectl -n {namespace} get events",
    grace_s=_START_GRACE_S,
    evidence=(
        Evidence(
            r"exceeded quota|failed quota|LimitRange|(maximum|minimum) .* usage",
            "a ResourceQuota or a LimitRange of the namespace does not allow the pods",
            "raise it, or lower max_replicas: kubectl -n {namespace} describe resourcequota,limitrange",
        ),
        Evidence(
            r"PodSecurity",
            "the namespace's Pod Security level does not allow the pods",
            "change the pod template, or the label pod-security.kubernetes.io/enforce of namespace {namespace}",
        ),
        Evidence(
            r"serviceaccount|service account",
            "the pods' ServiceAccount does not exist",
            "create it, or correct serviceAccountName of the pod template",
        ),
        Evidence(
            r"RuntimeClass",
            "the RuntimeClass of the pods does not exist",
            "run the nvidia_device_plugin role, or correct runtimeClassName of the pod template",
        ),
        Evidence(
            r"PriorityClass",
            "the PriorityClass of the pods does not exist",
            "create it, or correct priorityClassName of the pod template",
        ),
        Evidence(
            r"DeploymentPaused",
            "the rollout was paused before its first pods, so none is created",
            "kubectl -n {namespace} rollout resume {target}",
        ),
        Evidence(
            r"webhook|ValidatingAdmissionPolicy",
            "an admission webhook or policy rejects the pods, or does not answer",
            "follow the message; kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations,"
            "validatingadmissionpolicies",
        ),
    ),
)


@check("its pods exist", WORKLOAD_PODS_NOT_CREATED, needs=("targets", "metrics"))
def pods_exist(state: State) -> Iterator[CheckResult]:
    """Uses the conditions of a Deployment; for other kinds the events since the last pod was created.

    ReplicaFailure counts even if enough pods exist: the new pods of an update cannot be created, and old ones remain.
    """
    for autoscaler in state.autoscalers:
        target, wanted = autoscaler.target, autoscaler.replicas or 0
        is_failing = condition(target or {}, "ReplicaFailure").get("status") == "True"
        if target is None or (len(autoscaler.pods) >= wanted and not is_failing):
            continue
        failure, progress = condition(target, "ReplicaFailure"), condition(target, "Progressing")
        newest = max(autoscaler.pods, key=made_s, default=None)
        events = [
            event
            for event in (*_own_events(state, autoscaler, target), *state.warnings.about_replica_sets(target))
            if event.get("reason") == "FailedCreate"
            and (newest is None or (unix(last_seen(event)) or math.inf) >= made_s(newest))
        ]
        if failure.get("status") == "True":
            seen, age_s = condition_text(failure), state.clock.condition_age_s(target, "ReplicaFailure")
        elif progress.get("reason") == "ReplicaSetCreateError" or (not autoscaler.pods and is_paused(target)):
            seen, age_s = progress_text(progress), state.clock.condition_age_s(target, "Progressing")
        elif events:
            seen = str(events[-1].get("message"))
            began = events[0].get("firstTimestamp") or events[0].get("eventTime")
            age_s = youngest([state.clock.seconds_since(began), state.clock.age_s(newest) if newest else None])
        else:
            continue
        yield CheckResult(
            WORKLOAD_PODS_NOT_CREATED,
            autoscaler.workload,
            f"{len(autoscaler.pods)} of {wanted} pods exist: {seen}",
            state.affected_by([autoscaler]),
            age_s,
            template_vars=place_of_workload(autoscaler),
            reported=_without_names(seen),
        )


def _without_names(text: str) -> str:
    return _OF_USERS.sub("", text)


def is_paused(target: Manifest) -> bool:
    return bool((target.get("spec") or {}).get("paused"))


def progress_text(progress: Mapping[str, str]) -> str:
    """A paused Deployment may have no condition that shows it."""
    return condition_text(progress) if progress else "DeploymentPaused: spec.paused is true"


def _own_events(state: State, autoscaler: AutoscalerState, target: Manifest) -> list[Manifest]:
    """Objects of another kind may have the target's name, such as the StatefulSet of a LeaderWorkerSet."""
    kind, events = autoscaler.reference.get("kind", "Deployment"), state.warnings.about(target)
    return [event for event in events if event["involvedObject"].get("kind") == kind] if kind in _MAKERS else events


@check(
    "the workload exists and is ready",
    WORKLOAD_MISSING,
    WORKLOAD_AT_ZERO,
    WORKLOAD_NOT_READY,
    needs=("targets", "metrics"),
)
def workload_is_ready(state: State) -> Iterator[CheckResult]:
    for autoscaler in state.autoscalers:
        affected, template_vars = state.affected_by([autoscaler]), place_of_workload(autoscaler)
        name, pods = autoscaler.workload, autoscaler.pods
        placed = [pod for pod in pods if not _is_pending(pod)]
        if autoscaler.target is None:
            age_s = state.clock.age_s(autoscaler.hpa)
            yield CheckResult(WORKLOAD_MISSING, name, "not found", affected, age_s, template_vars=template_vars)
        elif autoscaler.replicas == 0:
            if not autoscaler.is_meant_to_be_at_zero:
                age_s = state.clock.last_change_age_s(autoscaler.target)
                yield CheckResult(WORKLOAD_AT_ZERO, name, "replicas is 0", affected, age_s, template_vars=template_vars)
        elif not pods and is_paused(autoscaler.target):
            continue  # reported as WORKLOAD_PODS_NOT_CREATED
        elif not autoscaler.ready_pods and (placed or not pods) and not state.is_before:
            judged = _worst_first(state, placed)
            named, reason, reported = next((found[:3] for found in judged if found[1]), (None, "", ""))
            why = f": {name_of(named)}: {reason}" if named else _without_selector(autoscaler.target)
            yield CheckResult(
                WORKLOAD_NOT_READY,
                name,
                f"0 of {len(pods)} pods are ready{why}{_without_ready_pods(autoscaler)}",
                affected,
                youngest([state.clock.age_s(autoscaler.target), _not_ready_s(state, autoscaler, placed)]),
                -_POD_GRACE_S if "CrashLoopBackOff" in reported else 0,  # a container that was restarted has started
                template_vars=place_of_workload(autoscaler, named or next((pod for pod, *_rest in judged), None)),
                reported=reported if named else why,
            )


def _without_selector(target: Manifest) -> str:
    """For a target that is known only by its scale subresource."""
    is_scale = target.get("kind") == "Scale"
    lacks_it = is_scale and not (target.get("status") or {}).get("selector")
    return ": the scale subresource has no selector" if lacks_it else ""


def place_of_workload(autoscaler: AutoscalerState, pod: Manifest | None = None) -> dict[str, str]:
    """pod: pod whose log has more details; without one the target is named instead."""
    reference = autoscaler.reference
    target = f"{reference.get('kind')}/{reference['name']}".lower()
    return {"namespace": autoscaler.key[0], "target": target, "pod": pod["metadata"]["name"] if pod else target}


def _why_not_ready(state: State, pod: Manifest) -> tuple[str, str]:
    """In full, and without texts of users.

    Uses the kubelet's messages for its containers, and the latest warning about the pod if it is still valid.
    """
    text, own, ready = trouble(pod), trouble(pod, with_logs=False), condition(pod, "Ready")
    if ready.get("reason") == "ReadinessGatesNotReady":
        text = own = condition_text(ready)
    events = [event for event in state.warnings.about(pod) if (unix(last_seen(event)) or math.inf) >= got_on_s(pod)]
    shown = dict.fromkeys(map(_event_text, [*_killing_probes(pod, events), *events[-1:]]))
    return "; ".join(filter(None, (text, *shown))), "; ".join(map(_without_names, filter(None, (own, *shown))))


def _killing_probes(pod: Manifest, events: Sequence[Manifest]) -> list[Manifest]:
    """The latest failure of a liveness or startup probe during the previous run of a container."""
    ended = ((status.get("lastState") or {}).get("terminated") or {} for status in statuses(pod))
    began = max((unix(run.get("startedAt")) or 0.0 for run in ended), default=0.0)
    return [
        event
        for event in events
        if str(event.get("message")).startswith(("Liveness probe failed", "Startup probe failed"))
        and (unix(last_seen(event)) or math.inf) >= began
    ][-1:]


def _event_text(event: Manifest) -> str:
    return f"{event.get('reason')}: {event.get('message')}"


def _without_ready_pods(autoscaler: AutoscalerState) -> str:
    """A Value is multiplied by the number of ready pods. Source: kubernetes/kubernetes#130130."""
    entries = [entry.get(entry.get("type", "").lower()) or {} for entry in autoscaler.hpa["spec"].get("metrics") or ()]
    if any((entry.get("target") or {}).get("type") == "Value" for entry in entries):
        minimum = autoscaler.hpa["spec"].get("minReplicas", 1)
        return f"; its HPA has a target of type Value, so it goes to the minimum of {minimum}"
    return ""


def _not_ready_s(state: State, autoscaler: AutoscalerState, placed: Sequence[Manifest]) -> float | None:
    """Age of the oldest scheduled pod: a rolling update adds younger pods, and a crash loop does not change it.

    If an update deletes the old pods first, no pod exists for a moment, and the workload's status is written.
    """
    if not autoscaler.pods and autoscaler.target:
        return state.clock.last_write_age_s(autoscaler.target)
    ages = [state.clock.age_s(pod) for pod in placed]
    return max((age for age in ages if age is not None), default=None)


WORKLOAD_PODS_PENDING = _WORKLOAD.error(
    "WORKLOAD_PODS_PENDING",
    cause="the pods cannot be scheduled",
    fix="add nodes, or lower max_replicas to what the GPUs allow; kubectl -n {namespace} describe pods",
    grace_s=_POD_GRACE_S,
    is_consequence=True,
    explained_by=PLACES,
    evidence=(
        Evidence(
            r"no scheduler has looked",
            "the scheduler in the pods' schedulerName does not run",
            "correct schedulerName of {target}, or check that the scheduler runs: kubectl -n kube-system get pods",
        ),
        Evidence(
            r"SchedulingGated|scheduling gate",
            "a scheduling gate blocks the pods: a queue such as Kueue has not admitted them",
            "check the owner of the gate: kubectl -n {namespace} get pods -o jsonpath='{{..spec.schedulingGates}}'",
        ),
        Evidence(
            r"volume count",
            "the nodes have as many volumes attached as their CSI driver allows",
            "add nodes, or let the pods share volumes; kubectl get csinodes -o yaml shows the limit",
        ),
        Evidence(
            r"PersistentVolumeClaim|pvc\(s\)|volume node affinity|volume zone|available disk|free storage|CSI driver",
            "a volume of the pods is not bound, in use, or out of reach of the nodes",
            "kubectl -n {namespace} get pvc; kubectl -n {namespace} describe pods",
        ),
        Evidence(
            r"resourceclaim|cannot allocate all claims|device class",
            "no node has a free device for the pods' ResourceClaims",
            "kubectl get resourceslices; kubectl -n {namespace} get resourceclaims; add nodes, or lower max_replicas",
        ),
        # The scheduler lists a reason for each node, and nodes without GPUs also lack GPUs: a cordon is more specific.
        Evidence(
            r"unschedulable",
            "a node is cordoned, and the others have no capacity",
            "kubectl get nodes shows which one: kubectl uncordon it, or add nodes",
        ),
        Evidence(
            r"Insufficient nvidia\.com/",
            "no node that the pods can use has enough free GPUs for a pod",
            "add nodes, or lower max_replicas to what the GPUs allow; kubectl describe nodes shows other reasons",
        ),
        Evidence(
            r"Insufficient ",
            "nodes have free GPUs, but too little of another resource that the pods request",
            "lower the requests in the pods of {target}, or add nodes; kubectl describe nodes shows what is free",
        ),
        Evidence(
            r"topology spread",
            "enough GPUs are free, but the topologySpreadConstraints of the pods allow none of their nodes",
            "relax topologySpreadConstraints of {target}, or add nodes in the other domains",
        ),
        Evidence(
            r"free ports",
            "the host ports that the pods request are in use on each node with free GPUs",
            "remove hostPort from {target}, or add nodes",
        ),
        Evidence(
            r"Too many pods",
            "each node with free GPUs runs as many pods as its kubelet allows",
            "raise maxPods of the kubelet, or add nodes; kubectl describe nodes shows the pods",
        ),
        Evidence(
            r"taint|affinity|node name|required features|unknown conditions",
            "enough GPUs are free, but the pods cannot use their nodes",
            "compare taints and labels of kubectl describe nodes with tolerations and selectors of {target}",
        ),
    ),
)


def _is_pending(pod: Manifest) -> bool:
    return condition(pod, "PodScheduled").get("status") == "False" or _is_unseen_by_schedulers(pod)


def _is_unseen_by_schedulers(pod: Manifest) -> bool:
    """A running scheduler assigns a node to the pod, or reports the reason in a condition."""
    is_waiting = phase(pod) == "Pending" and not pod["spec"].get("nodeName")
    return is_waiting and not condition(pod, "PodScheduled")


def _why_pending(state: State, pod: Manifest) -> str:
    scheduled = condition(pod, "PodScheduled")
    if not scheduled:
        silent_s = silence_s(state, SCHEDULER)
        silence = f"; {SCHEDULER} renewed its lease {silent_s:.0f} s ago" if (silent_s or 0) > SILENT_S else ""
        return f"no scheduler has looked at them, schedulerName is {pod['spec'].get('schedulerName')}{silence}"
    gated = "SchedulingGated: " if scheduled.get("reason") == "SchedulingGated" else ""
    return f"{gated}{scheduled.get('message')}"


@check("its pods are scheduled", WORKLOAD_PODS_PENDING, needs=("metrics",))
def pods_find_nodes(state: State) -> Iterator[CheckResult]:
    for autoscaler in state.autoscalers:
        pods = [pod for pod in autoscaler.pods if _is_pending(pod)]
        if pods:
            ages = [state.clock.condition_age_s(pod, "PodScheduled") for pod in pods]
            why = _why_pending(state, pods[0])
            yield CheckResult(
                WORKLOAD_PODS_PENDING,
                autoscaler.workload,
                f"{len(pods)} of {len(autoscaler.pods)} pods: {why}",
                state.affected_by([autoscaler]),
                max((age for age in ages if age is not None), default=None),
                template_vars=place_of_workload(autoscaler),
                reported=_without_names(why),
            )


WORKLOAD_PODS_FAIL = _WORKLOAD.error(
    "WORKLOAD_PODS_FAIL",
    cause="some pods of the workload do not become ready, so the workload does not reach the HPA's replicas",
    fix="kubectl -n {namespace} describe pods; kubectl -n {namespace} logs {pod}",
    grace_s=_START_GRACE_S,
    is_consequence=True,
    explained_by=PLACES,
    evidence=_POD_EVIDENCE,
)


@check("all its pods become ready", WORKLOAD_PODS_FAIL, needs=("targets", "metrics"))
def pods_become_ready(state: State) -> Iterator[CheckResult]:
    """Only if other pods are ready. A starting pod has more time than one with a failing container."""
    for autoscaler in state.autoscalers if not state.is_before else ():
        yield from _rejected(state, autoscaler)
        waiting = [pod for pod in autoscaler.pods if not is_ready(pod) and not _is_pending(pod)]
        judged = _worst_first(state, waiting) if autoscaler.ready_pods else []
        for pod, reason, reported, is_failing, age_s in judged[:1]:
            seen = f"{len(waiting)} of {len(autoscaler.pods)} pods are not ready: {name_of(pod)}"
            yield CheckResult(
                WORKLOAD_PODS_FAIL,
                autoscaler.workload,
                f"{seen}: {reason}" if reason else seen,
                state.affected_by([autoscaler]) | {f"node {pod['spec'].get('nodeName', '')}"},
                age_s,
                0 if is_failing else _POD_GRACE_S - _START_GRACE_S,
                place_of_workload(autoscaler, pod),
                reported=reported,
            )


def _worst_first(state: State, pods: Sequence[Manifest]) -> list[tuple[Manifest, str, str, bool, float | None]]:
    """Pods that are not ready: reason, in full and without texts of users; whether a container fails, and since when.

    Failing ones first, then longest.
    """
    judged = []
    for pod in pods:
        reason, reported = _why_not_ready(state, pod)
        is_failing = any(failure in reported for failure in _FAILURES)
        age_s = state.clock.age_s(pod) if is_failing else state.clock.condition_age_s(pod, "Ready")
        judged.append((pod, reason, reported, is_failing, age_s))
    return sorted(judged, key=lambda seen: (seen[3], seen[4] or 0.0), reverse=True)


def _rejected(state: State, autoscaler: AutoscalerState) -> Iterator[CheckResult]:
    """Pods that a kubelet recently rejected while pods are missing: each is recreated and rejected again."""
    ages = {name_of(pod): state.clock.age_s(pod) or 0.0 for pod in autoscaler.rejected_pods}
    lately = [pod for pod in autoscaler.rejected_pods if ages[name_of(pod)] < _POD_GRACE_S]
    if lately and len(autoscaler.ready_pods) < (autoscaler.replicas or 0):
        last = min(lately, key=lambda pod: ages[name_of(pod)])
        status = last["status"]
        why = f"{status.get('reason')}: {status.get('message')}"
        yield CheckResult(
            WORKLOAD_PODS_FAIL,
            autoscaler.workload,
            f"{len(lately)} pods were rejected: {name_of(last)}: {why}",
            state.affected_by([autoscaler]) | {f"node {last['spec'].get('nodeName', '')}"},
            max(ages[name_of(pod)] for pod in lately),
            template_vars=place_of_workload(autoscaler, last),
            reported=_without_names(f"pods were rejected: {why}"),
        )
