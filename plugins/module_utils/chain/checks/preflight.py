# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks of a proposal, against itself and existing objects. They run only before a change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...autoscaling.manifests import metric_names, query_in, recordings_of, resources_of, shared_profiles
from ...autoscaling.spec import OBJECT
from ...diagnosis.check import CheckResult, FindingTypes, check
from ...errors import enumeration
from ...hops import Hop
from ...kube.capacity import gpus_of, may_run_on, replicas_that_fit
from ...kube.labels import hand_over, is_managed, is_of, maker
from ...kube.node_pools import nodes_are_added
from ...kube.objects import labels_of
from ..finding_texts import labels_text
from ..prometheus_objects import why_not_selected
from ..state.cluster import State

_SPEC = FindingTypes(Hop.SPEC)
_RULE = FindingTypes(Hop.RULE)
_WORKLOAD = FindingTypes(Hop.WORKLOAD)

SPEC_NAME_TWICE = _SPEC.error(
    "SPEC_NAME_TWICE",
    cause="an HPA has one name in its namespace",
    fix="give each autoscaler a different name",
    before="refuse",
)


@check("each autoscaler has a different name", SPEC_NAME_TWICE)
def one_name_each(state: State) -> Iterator[CheckResult]:
    for name, times in Counter(map(str, state.proposal.autoscalers)).items():
        if times > 1:
            yield CheckResult(SPEC_NAME_TWICE, "autoscalers", f"{times} autoscalers are called {name}")


SPEC_QUERY_TWICE = _SPEC.error(
    "SPEC_QUERY_TWICE",
    cause="a metric is one recording rule in its namespace",
    fix="give each query a different name",
    before="refuse",
)


@check("each metric has one query", SPEC_QUERY_TWICE)
def one_query_each(state: State) -> Iterator[CheckResult]:
    """Series of one workload have a separate rule, and external metrics have none."""
    shared = ((namespace, profile.name) for namespace, profile in shared_profiles(state.proposal.autoscalers))
    for (namespace, name), times in Counter(shared).items():
        if times > 1:
            seen = f"metric {name} has {times} queries in namespace {namespace}"
            yield CheckResult(SPEC_QUERY_TWICE, "metrics", seen)


SPEC_HPA_OF_ANOTHER = _SPEC.error(
    "SPEC_HPA_OF_ANOTHER",
    cause="the module does not change an HPA that it did not create",
    fix="set adopt: true to adopt it, delete it, or give the autoscaler another name",
    before="refuse",
)


SPEC_HPA_OF_INVENTORY = _SPEC.error(
    "SPEC_HPA_OF_INVENTORY",
    cause="a run changes only what was made for its own inventory",
    fix="set kubegpu_inventory_id (inventory_id of the module) to the id of the HPA if it is the same inventory, or "
    "set adopt: true to give the HPA to this one",
    before="refuse",
)


@check("no HPA of that name has another owner", SPEC_HPA_OF_ANOTHER, SPEC_HPA_OF_INVENTORY)
def hpa_of_another(state: State) -> Iterator[CheckResult]:
    for autoscaler in state.proposal.autoscalers:
        live = state.proposal.hpas.get(autoscaler.key)
        if live is None or autoscaler.adopt:
            continue
        if is_managed(live):
            if not is_of(live, state.proposal.inventory):
                seen = f"its HPA {maker(live)}, and this run is for inventory {state.proposal.inventory}"
                yield CheckResult(SPEC_HPA_OF_INVENTORY, f"autoscaler {autoscaler}", seen)
            continue
        makers = enumeration(state.proposal.managers.get(autoscaler.key, ()))
        seen = f"an HPA of that name exists and was not made by this module{makers and f', but by {makers}'}"
        yield CheckResult(SPEC_HPA_OF_ANOTHER, f"autoscaler {autoscaler}", seen)


SPEC_NO_RESOURCE_METRICS = _SPEC.error(
    "SPEC_NO_RESOURCE_METRICS",
    cause="CPU and memory of extra_metrics come from metrics.k8s.io; without these values an HPA never scales down",
    fix="run the playbook kubegpu.autoscale.monitoring to install metrics-server; or fix the existing server: kubectl "
    "describe apiservice v1beta1.metrics.k8s.io; or remove these metrics",
    before="await",
)


@check("CPU and memory metrics are served", SPEC_NO_RESOURCE_METRICS)
def resource_metrics(state: State) -> Iterator[CheckResult]:
    for autoscaler in state.proposal.autoscalers:
        resources = resources_of(autoscaler)
        if resources and state.proposal.no_resources:
            seen = f"asks for {enumeration(resources)}, and {state.proposal.no_resources}"
            yield CheckResult(SPEC_NO_RESOURCE_METRICS, f"autoscaler {autoscaler}", seen)


SPEC_CLUSTER_UNKNOWN = _SPEC.warning(
    "SPEC_CLUSTER_UNKNOWN",
    cause="this user has no permission to read it, so it was not checked. Unused recording rules are kept",
    fix="grant these permissions (docs/rights.yml); the change itself does not need them",
    before="warn",
)


@check("cluster-wide objects can be read", SPEC_CLUSTER_UNKNOWN)
def cluster_is_known(state: State) -> Iterator[CheckResult]:
    """For users with access to only one namespace."""
    unread = dict.fromkeys(filter(None, (state.proposal.unread, *state.unavailable.values())))
    if unread:
        yield CheckResult(SPEC_CLUSTER_UNKNOWN, "cluster", "; ".join(unread))


SPEC_RULE_NOT_SELECTED = _SPEC.warning(
    "SPEC_RULE_NOT_SELECTED",
    cause="no Prometheus object selects the new recording rules, so the metrics will have no value",
    fix="set prometheus.rule_labels and prometheus.rule_namespace to match ruleSelector and ruleNamespaceSelector "
    "(kubegpu_prometheus of the inventory)",
    before="warn",
)


@check("Prometheus selects the new rules", SPEC_RULE_NOT_SELECTED, needs=("prometheuses", "namespaces"))
def rules_will_be_selected(state: State) -> Iterator[CheckResult]:
    """A warning: a Thanos Ruler, or a Prometheus outside of the cluster, may read them as well."""
    rule = state.proposal.rule
    if rule and (why := why_not_selected(state, rule, "ruleSelector", "ruleNamespaceSelector")):
        place = f"in namespace {rule['metadata']['namespace']} with labels {labels_text(labels_of(rule))}"
        yield CheckResult(SPEC_RULE_NOT_SELECTED, "recording rules", f"they are created {place}; {why}")


SPEC_RULE_OF_OTHERS = _SPEC.error(
    "SPEC_RULE_OF_OTHERS",
    cause="a metric is one recording rule in its namespace, so a change affects other autoscalers",
    fix="give this metric another name, or change the query in all autoscalers in one run",
    before="refuse",
)


@check("no query changes the metric of another autoscaler", SPEC_RULE_OF_OTHERS)
def shared_rules(state: State) -> Iterator[CheckResult]:
    """A user who can create an HPA in a namespace can also list its HPAs."""
    wanted = {autoscaler.key for autoscaler in state.proposal.autoscalers}
    for namespace, profile in shared_profiles(state.proposal.autoscalers):
        rule_name = profile.rule_name(namespace)
        live = (state.proposal.rules or {}).get(rule_name)
        queries = {recording["record"]: recording.get("expr") for recording in recordings_of(live)} if live else {}
        for metric in profile.recorded:
            query = query_in(namespace, metric.query)
            if metric.sources or queries.get(metric.series, query) == query:
                continue
            users = [
                "/".join(key)
                for key, hpa in state.proposal.hpas.items()
                if key not in wanted and key[0] == namespace and metric.name in metric_names(dict(hpa))
            ]
            if users:
                yield CheckResult(
                    SPEC_RULE_OF_OTHERS,
                    f"metric {metric.name}",
                    f"rule {rule_name} has another query, and HPA {enumeration(sorted(users))} scales on it",
                )


SPEC_RULE_OF_INVENTORY = _SPEC.error(
    "SPEC_RULE_OF_INVENTORY",
    cause="a run changes only objects of its own inventory, and inventories that share a cluster share the recording "
    "rules",
    fix="use one version of the collection, and the same rule_labels, evaluation_interval and selectors of "
    "prometheus (kubegpu_prometheus of the inventory), in both; "
    "set kubegpu_inventory_id (inventory_id of the module) to the id of the rule if it is the same inventory; or move "
    "the rule to this one: {command}",
    before="refuse",
)


@check("no rule of another inventory must change", SPEC_RULE_OF_INVENTORY)
def rules_of_inventories(state: State) -> Iterator[CheckResult]:
    for name, (rule, missing) in state.proposal.foreign_rules.items():
        command = hand_over(rule["kind"], rule["metadata"]["namespace"], name, state.proposal.inventory)
        yield CheckResult(
            SPEC_RULE_OF_INVENTORY,
            f"PrometheusRule {name}",
            f"it {maker(rule)}, and inventory {state.proposal.inventory} needs {enumeration(missing)}",
            template_vars={"command": command},
        )


SPEC_QUERY_WRONG = _SPEC.error(
    "SPEC_QUERY_WRONG",
    cause="a query must return one series per namespace and pod",
    fix="correct the query, and test it in Prometheus",
    before="refuse",
)
SPEC_QUERY_EMPTY = _SPEC.warning(
    "SPEC_QUERY_EMPTY",
    cause="the pods that report it have not started yet, or the query is wrong",
    fix="test it in Prometheus",
    before="warn",
)


@check("queries return a series per pod", SPEC_QUERY_WRONG, SPEC_QUERY_EMPTY)
def queries(state: State) -> Iterator[CheckResult]:
    for metric, message in state.proposal.query_errors.items():
        yield CheckResult(SPEC_QUERY_WRONG, f"metric {metric}", f"its query is not usable: {message}")
    for metric in state.proposal.empty_queries:
        yield CheckResult(SPEC_QUERY_EMPTY, f"metric {metric}", "its query returns nothing at the moment")


RULE_KIND_MISSING = _RULE.error(
    "RULE_KIND_MISSING",
    cause="the Prometheus operator is not installed",
    fix="run the prometheus_stack role, which installs the Prometheus operator",
    before="await",
)


@check("PrometheusRules are served", RULE_KIND_MISSING)
def rules_are_served(state: State) -> Iterator[CheckResult]:
    if state.proposal.rules is None:
        yield CheckResult(RULE_KIND_MISSING, "cluster", "it does not serve the kind PrometheusRule")


RULE_NAMESPACE_MISSING = _RULE.error(
    "RULE_NAMESPACE_MISSING",
    cause="without their recording rules HPAs have no value",
    fix="create that namespace, or set prometheus.rule_namespace (kubegpu_prometheus of the inventory) to one that "
    "Prometheus selects rules from",
    before="await",
)


@check("the namespace of the rules exists", RULE_NAMESPACE_MISSING)
def rules_have_a_namespace(state: State) -> Iterator[CheckResult]:
    if namespace := state.proposal.no_namespace:
        yield CheckResult(RULE_NAMESPACE_MISSING, "recording rules", f"namespace {namespace} does not exist")


WORKLOAD_KIND_MISSING = _WORKLOAD.error(
    "WORKLOAD_KIND_MISSING",
    cause="the API server does not know the target's kind",
    fix="check target.kind and target.api_version, or install the CRD of that kind",
    before="await",
)
WORKLOAD_NOT_SCALABLE = _WORKLOAD.error(
    "WORKLOAD_NOT_SCALABLE",
    cause="an HPA sets replicas through the scale subresource",
    fix="choose a kind with a scale subresource, for example a Deployment",
    before="refuse",
)


@check("targets can be scaled", WORKLOAD_KIND_MISSING, WORKLOAD_NOT_SCALABLE)
def targets_can_be_scaled(state: State) -> Iterator[CheckResult]:
    for autoscaler in state.proposal.autoscalers:
        name, target = f"autoscaler {autoscaler}", autoscaler.target
        if autoscaler.key in state.proposal.unserved:
            seen = f"the cluster has no kind {target.kind} in {target.api_version}"
            yield CheckResult(WORKLOAD_KIND_MISSING, name, seen)
        elif autoscaler.key in state.proposal.unscalable:
            yield CheckResult(WORKLOAD_NOT_SCALABLE, name, f"{target.kind} has no scale subresource")


WORKLOAD_MAXIMA_OVER_GPUS = _WORKLOAD.warning(
    "WORKLOAD_MAXIMA_OVER_GPUS",
    cause="each autoscaler fits alone, but not all of them together, which is a problem if their peaks coincide",
    fix="if their peaks may coincide, lower max_replicas, add nodes, or set divide_gpus (gpu_autoscaling_divide_gpus "
    "of the role), which lowers max_replicas by priority",
    before="warn",
)


@check("the GPUs suffice for all maxima together", WORKLOAD_MAXIMA_OVER_GPUS, needs=("nodes",))
def all_maxima(state: State) -> Iterator[CheckResult]:
    if nodes_are_added(state.nodes):
        return
    needed: Counter[str] = Counter()
    for autoscaler in state.autoscalers:
        size, most = autoscaler.pods_per_replica, autoscaler.hpa["spec"]["maxReplicas"]
        if replicas_that_fit(autoscaler.template, state.nodes) // size >= most:
            needed.update({resource: number * size * most for resource, number in autoscaler.gpus.items()})
    offered = gpus_of(state.nodes)
    for resource, number in needed.items():
        if number > offered.get(resource, 0):
            yield CheckResult(
                WORKLOAD_MAXIMA_OVER_GPUS,
                "nodes",
                f"all autoscalers at their maximum need {number} {resource}, the nodes have {offered.get(resource, 0)}",
            )


SPEC_OBJECT_COMPOUNDS = _SPEC.warning(
    "SPEC_OBJECT_COMPOUNDS",
    cause="metric_type Object multiplies an average by the number of ready pods. While the average lags, each new pod "
    "makes the HPA request more",
    fix="use metric_type Pods unless something else reads the object's metric",
    before="warn",
)


@check("no average is multiplied", SPEC_OBJECT_COMPOUNDS)
def compounding(state: State) -> Iterator[CheckResult]:
    for autoscaler in state.proposal.autoscalers:
        if any(target.type == OBJECT and not target.is_total for target in autoscaler.metric_targets):
            yield CheckResult(SPEC_OBJECT_COMPOUNDS, f"autoscaler {autoscaler}", "metric_type is Object")


SPEC_SHARED_GPUS = _SPEC.warning(
    "SPEC_SHARED_GPUS",
    cause="the metric shows the whole GPU, not this pod's part",
    fix="use profile shared, or a metric of the application",
    before="warn",
)


@check("the metric fits shared GPUs", SPEC_SHARED_GPUS, needs=("nodes",))
def shared_gpus(state: State) -> Iterator[CheckResult]:
    shared = [node for node in state.nodes if labels_of(node).get("nvidia.com/gpu.sharing-strategy", "none") != "none"]
    for autoscaler in state.autoscalers if shared else ():
        names = [metric.name for metric in autoscaler.metrics if metric.is_of_gpus and metric.name != "shared"]
        nodes = [node["metadata"]["name"] for node in shared if may_run_on(autoscaler.template, node)]
        if names and nodes:
            seen = f"node {enumeration(nodes)} shares its GPUs, and it scales on {names[0]}"
            yield CheckResult(SPEC_SHARED_GPUS, f"autoscaler {autoscaler}", seen)


SPEC_CAVEAT = _SPEC.warning(
    "SPEC_CAVEAT",
    cause="the profile does not fit everywhere",
    fix="see docs/model.md",
    before="warn",
)


@check("profiles have no caveats", SPEC_CAVEAT)
def caveats(state: State) -> Iterator[CheckResult]:
    for autoscaler in state.proposal.autoscalers:
        for profile in autoscaler.profiles:
            for caveat in profile.caveats:
                yield CheckResult(SPEC_CAVEAT, f"autoscaler {autoscaler}", f"profile {profile.name}: {caveat}")
