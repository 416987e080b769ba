# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What speaks against making autoscalers, found before anything is changed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..autoscaling.capacity import gpus_of, gpus_per_pod, may_run_on, nodes_are_added, replicas_that_fit
from ..autoscaling.manifests import MANAGER, is_managed, metric_names, profiles_of, recordings_of
from ..autoscaling.spec import OBJECT, PODS, Autoscaler
from ..cluster.ownership import other_managers
from ..cluster.rights import right_to
from ..errors import Finding, enumeration, first_of_all, merged
from ..hops import Hop
from .backend import Backend
from .snapshot import ClusterSnapshot, Objects
from .targets import TargetState


@dataclass(frozen=True)
class Plan:
    """What is wanted, and what there is."""

    autoscalers: Sequence[Autoscaler]
    objects: Objects
    around: ClusterSnapshot
    backend: Backend
    fits: dict[str, int] = field(default_factory=dict)

    def target_of(self, autoscaler: Autoscaler) -> TargetState:
        return self.around.targets[autoscaler.key]

    def pod_of(self, autoscaler: Autoscaler) -> Mapping[str, Any]:
        """The pod template's spec; empty if the target keeps it where we do not know."""
        spec: dict[str, Any] = (self.target_of(autoscaler).manifest or {}).get("spec", {})
        template = spec.get("template") or spec.get("leaderWorkerTemplate", {}).get("workerTemplate") or {}
        return template.get("spec") or {}

    def pods_per_replica(self, autoscaler: Autoscaler) -> int:
        """A replica of a LeaderWorkerSet is a group of pods."""
        spec = (self.target_of(autoscaler).manifest or {}).get("spec", {})
        return (spec.get("leaderWorkerTemplate") or {}).get("size") or 1

    def replicas_that_fit(self, pod: Mapping[str, Any]) -> int:
        """As of the domain, but once for all workloads with the same demands."""
        demands = {key: pod.get(key) for key in ("nodeSelector", "tolerations", "affinity")}
        key = json.dumps([demands, gpus_per_pod(pod)], sort_keys=True)
        if key not in self.fits:
            self.fits[key] = replicas_that_fit(pod, self.around.nodes)
        return self.fits[key]


Check = Callable[[Plan], Iterator[Finding]]


def preflight(plan: Plan) -> list[Finding]:
    """Refusals and warnings."""
    return merged(finding for check in CHECKS for finding in check(plan))


def refuse_or_warn(findings: Sequence[Finding], *, dry_run: bool) -> list[str]:
    """The warnings. Raises: HopError with all refusals, if there is one."""
    refusals = [finding for finding in findings if finding.severity == "error" and not (dry_run and finding.awaited)]
    if refusals:
        raise first_of_all([finding.error() for finding in refusals])
    return [str(finding) for finding in findings]


def _one_name_each(plan: Plan) -> Iterator[Finding]:
    for name, times in Counter(map(str, plan.autoscalers)).items():
        if times > 1:
            yield Finding(Hop.SPEC, seen=f"{times} autoscalers are called {name}", fix="give each a name of its own")


def _one_query_each(plan: Plan) -> Iterator[Finding]:
    for name, times in Counter(profile.name for profile in profiles_of(plan.autoscalers)).items():
        if times > 1:
            yield Finding(Hop.SPEC, seen=f"metric {name} has {times} queries", fix="give each query a name of its own")


def _foreign_hpa(plan: Plan) -> Iterator[Finding]:
    for autoscaler in plan.autoscalers:
        live = plan.objects.hpas.get(autoscaler.key)
        if live is None or is_managed(live) or autoscaler.adopt:
            continue
        makers = enumeration(other_managers(live, MANAGER))
        yield Finding(
            Hop.SPEC,
            subjects=(str(autoscaler),),
            seen=f"an HPA of that name exists and was not made by this module{makers and f', but by {makers}'}",
            fix="set adopt: true to take it over, delete it, or give the autoscaler another name",
        )


def _second_autoscaler(plan: Plan) -> Iterator[Finding]:
    """Two controllers on one target undo each other's work."""
    wanted = {autoscaler.key: autoscaler for autoscaler in plan.autoscalers}
    holders: dict[tuple[str, ...], set[str]] = {}
    for autoscaler in wanted.values():
        holders.setdefault((autoscaler.namespace, *autoscaler.target.identity), set()).add(f"HPA {autoscaler}")
    for kind, others in (("HPA", plan.objects.hpas.values()), ("ScaledObject", plan.around.scaled_objects or ())):
        for other in others:
            metadata, ref = other["metadata"], other["spec"]["scaleTargetRef"]
            key = metadata["namespace"], metadata["name"]
            group = ref.get("apiVersion", "apps/v1").rpartition("/")[0]
            place = (key[0], group, ref.get("kind", "Deployment"), ref["name"])
            if place in holders and not (kind == "HPA" and key in wanted):
                holders[place].add(f"{kind} {'/'.join(key)}")
    for (namespace, _group, kind, name), its in holders.items():
        if len(its) > 1:
            yield Finding(
                Hop.SPEC,
                seen=f"{kind} {namespace}/{name} would have {len(its)} autoscalers: {', '.join(sorted(its))}",
                fix="keep one (state: absent removes ours); further metrics go into its extra_metrics",
            )


def _scaled_objects_are_known(plan: Plan) -> Iterator[Finding]:
    if plan.around.scaled_objects is None:
        yield Finding(
            Hop.SPEC,
            seen="the user may not list scaledobjects of keda.sh: a second autoscaler by KEDA would not be seen",
            fix="grant that right, docs/rights.yml has it; harmless where KEDA is not installed",
            severity="warning",
        )


def _shared_rule(plan: Plan) -> Iterator[Finding]:
    """A metric of the user's own is one rule for the cluster: changing it here changes what others scale on."""
    wanted = {autoscaler.key for autoscaler in plan.autoscalers}
    for profile in profiles_of(plan.autoscalers):
        live = (plan.objects.rules or {}).get(profile.rule_name)
        queries = {recording["record"]: recording.get("expr") for recording in recordings_of(live)} if live else {}
        for metric in profile.recorded:
            if metric.sources or queries.get(metric.series, metric.query) == metric.query:
                continue
            users = [
                "/".join(key)
                for key, hpa in plan.objects.hpas.items()
                if key not in wanted and metric.name in metric_names(hpa, (PODS,))
            ]
            if users:
                yield Finding(
                    Hop.SPEC,
                    seen=f"metric {metric.name} has another query in rule {profile.rule_name}, "
                    f"and HPA {enumeration(sorted(users))} scales on it",
                    fix="give this metric another name, or change the query in all autoscalers in one run",
                )


def _target_exists(plan: Plan) -> Iterator[Finding]:
    for autoscaler in plan.autoscalers:
        target, state = autoscaler.target, plan.target_of(autoscaler)
        if not state.served:
            yield Finding(
                Hop.WORKLOAD,
                subjects=(str(autoscaler),),
                seen=f"the cluster has no kind {target.kind} in {target.api_version}",
                fix="check target.kind and target.api_version, or install what brings that kind",
                awaited=True,
            )
        elif not state.scalable:
            yield Finding(
                Hop.WORKLOAD,
                subjects=(str(autoscaler),),
                seen=f"{target.kind} has no scale subresource",
                fix="choose a kind whose replicas can be set, a Deployment for instance",
            )
        elif state.manifest is None:
            yield Finding(
                Hop.WORKLOAD,
                subjects=(str(autoscaler),),
                seen=f"there is no {target} in namespace {autoscaler.namespace}",
                fix="create it first, or correct target.name and namespace",
                awaited=True,
            )


def _prometheus_answers(plan: Plan) -> Iterator[Finding]:
    err = plan.around.prometheus_error
    if err is None:
        return
    if err.status in (401, 403):
        fix = f"allow the user to {right_to(err.request)}, or set prometheus.url and its login"
    elif err.is_not_found:
        fix = "run the prometheus_stack role, or set prometheus.namespace, .service, .port and .path_prefix"
    else:
        fix = (
            "see that its pods are ready and that the control plane may reach its port on the nodes' network, or set "
            "prometheus.url to an address that this controller reaches"
        )
    yield Finding(Hop.LABELS, seen=f"Prometheus does not answer: {err}", fix=fix, awaited=True)


def _queries_are_right(plan: Plan) -> Iterator[Finding]:
    for metric, message in plan.around.query_errors.items():
        yield Finding(
            Hop.RULE,
            seen=f"the query of metric {metric} is not usable: {message}",
            fix="try the query in Prometheus until it gives one series per namespace and pod",
        )
    for metric in plan.around.empty_queries:
        yield Finding(
            Hop.RULE,
            seen=f"the query of metric {metric} gives nothing at the moment",
            fix="try it in Prometheus; right if the pods that report it are still to start",
            severity="warning",
        )


def _rules_served(plan: Plan) -> Iterator[Finding]:
    if plan.objects.rules is None:
        yield Finding(
            Hop.RULE,
            seen="the cluster has no kind PrometheusRule",
            fix="run the prometheus_stack role, it brings the Prometheus operator",
            awaited=True,
        )


def _metrics_apis(plan: Plan) -> Iterator[Finding]:
    metric_targets = [metric_target for autoscaler in plan.autoscalers for metric_target in autoscaler.metric_targets]
    yield from plan.backend.capabilities(plan.around.metrics_apis, metric_targets)


def _readiness_probe(plan: Plan) -> Iterator[Finding]:
    for autoscaler in plan.autoscalers:
        containers = plan.pod_of(autoscaler).get("containers")
        if containers and not any(container.get("readinessProbe") for container in containers):
            yield Finding(
                Hop.WORKLOAD,
                subjects=(str(autoscaler),),
                seen="its pods have no readiness probe",
                fix="add one: pods that count as ready while they still load make the HPA overshoot",
                severity="warning",
            )


def _gpu_limit(plan: Plan) -> Iterator[Finding]:
    for autoscaler in plan.autoscalers:
        pod = plan.pod_of(autoscaler)
        if (
            pod
            and not gpus_per_pod(pod)
            and not pod.get("resourceClaims")
            and any(metric_target.metric.is_of_gpus for metric_target in autoscaler.metric_targets)
        ):
            yield Finding(
                Hop.WORKLOAD,
                subjects=(str(autoscaler),),
                seen="its pods have no nvidia.com/gpu limit",
                fix="add it: the exporter cannot tell whose GPU it is without",
                severity="warning",
            )


def _enough_gpus(plan: Plan) -> Iterator[Finding]:
    for autoscaler in plan.autoscalers:
        pod = plan.pod_of(autoscaler)
        needs = gpus_per_pod(pod)
        fit = plan.replicas_that_fit(pod) // plan.pods_per_replica(autoscaler)
        if needs and fit < autoscaler.max_replicas and not nodes_are_added(plan.around.nodes):
            gpus = ", ".join(f"{number} {resource}" for resource, number in needs.items())
            yield Finding(
                Hop.WORKLOAD,
                subjects=(str(autoscaler),),
                seen=f"max_replicas is {autoscaler.max_replicas}, but eligible nodes have room for only {fit} replicas "
                f"({gpus} a pod)",
                fix="lower max_replicas, or add nodes: the pods over it stay Pending",
                severity="warning",
            )


def _enough_gpus_together(plan: Plan) -> Iterator[Finding]:
    """Each fits alone, but not all together. Fine if peaks do not coincide, hence a warning."""
    if nodes_are_added(plan.around.nodes):
        return
    needed: Counter[str] = Counter()
    for autoscaler in plan.autoscalers:
        pod = plan.pod_of(autoscaler)
        size = plan.pods_per_replica(autoscaler)
        if plan.replicas_that_fit(pod) // size < autoscaler.max_replicas:
            continue
        for resource, number in gpus_per_pod(pod).items():
            needed[resource] += number * size * autoscaler.max_replicas
    there = gpus_of(plan.around.nodes)
    for resource, number in needed.items():
        if number > there.get(resource, 0):
            yield Finding(
                Hop.WORKLOAD,
                seen=f"all autoscalers at their maximum need {number} {resource}, "
                f"the nodes have {there.get(resource, 0)}",
                fix="lower max_replicas, or add nodes, if their peaks may coincide",
                severity="warning",
            )


def _compounding(plan: Plan) -> Iterator[Finding]:
    for autoscaler in plan.autoscalers:
        if any(
            metric_target.type == OBJECT and not metric_target.is_total for metric_target in autoscaler.metric_targets
        ):
            yield Finding(
                Hop.SPEC,
                subjects=(str(autoscaler),),
                seen="metric_type Object multiplies an average by the number of ready pods: while the average lags, "
                "each new pod makes the HPA ask for more",
                fix="leave metric_type at Pods unless something else reads the object's metric",
                severity="warning",
            )


def _mig(plan: Plan) -> Iterator[Finding]:
    """GPU_UTIL is not there for MIG instances; the profile mig knows nothing else."""
    for autoscaler in plan.autoscalers:
        resources = gpus_per_pod(plan.pod_of(autoscaler))
        on_mig = any(resource.startswith("nvidia.com/mig-") for resource in resources)
        profile = autoscaler.profile.name
        if resources and on_mig and profile in ("gpu_util", "shared"):
            seen, fix = f"its pods have MIG instances, for which {profile} has no value", "use profile mig or gpu"
        elif resources and profile == "mig" and not on_mig and not _may_be_mig(plan):
            seen, fix = "its pods have whole GPUs, for which profile mig has no value", "use profile gpu"
        else:
            continue
        yield Finding(Hop.WORKLOAD, seen, fix, subjects=(str(autoscaler),), severity="warning")


def _may_be_mig(plan: Plan) -> bool:
    """With MIG strategy "single" instances are offered as nvidia.com/gpu; GPU feature discovery labels the node."""
    labels = (node["metadata"].get("labels") or {} for node in plan.around.nodes)
    return any(each.get("nvidia.com/mig.strategy") == "single" for each in labels)


def _shared_gpus(plan: Plan) -> Iterator[Finding]:
    shared = [
        node
        for node in plan.around.nodes
        if (node["metadata"].get("labels") or {}).get("nvidia.com/gpu.sharing-strategy", "none") != "none"
    ]
    for autoscaler in plan.autoscalers if shared else ():
        gpus = any(metric_target.metric.is_of_gpus for metric_target in autoscaler.metric_targets)
        eligible = [node["metadata"]["name"] for node in shared if may_run_on(plan.pod_of(autoscaler), node)]
        if gpus and eligible and autoscaler.profile.name != "shared":
            yield Finding(
                Hop.WORKLOAD,
                subjects=(str(autoscaler),),
                seen=f"node {enumeration(eligible)} shares its GPUs: metric {autoscaler.profile.name} shows the whole "
                "GPU, not this pod's part",
                fix="use profile shared, or a metric of the application",
                severity="warning",
            )


def _caveats(plan: Plan) -> Iterator[Finding]:
    for autoscaler in plan.autoscalers:
        for profile in autoscaler.profiles:
            for caveat in profile.caveats:
                yield Finding(
                    Hop.SPEC,
                    subjects=(str(autoscaler),),
                    seen=f"profile {profile.name}: {caveat}",
                    fix="see docs/model.md",
                    severity="warning",
                )


CHECKS: tuple[Check, ...] = (
    _one_name_each,
    _one_query_each,
    _foreign_hpa,
    _second_autoscaler,
    _scaled_objects_are_known,
    _shared_rule,
    _target_exists,
    _prometheus_answers,
    _queries_are_right,
    _rules_served,
    _metrics_apis,
    _readiness_probe,
    _gpu_limit,
    _enough_gpus,
    _enough_gpus_together,
    _compounding,
    _mig,
    _shared_gpus,
    _caveats,
)
