# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

import re
from collections.abc import Iterator

from ...autoscaling.spec import KEDA
from ...diagnosis.check import ALL, CheckResult, Evidence, FindingTypes, check
from ...errors import enumeration
from ...hops import Hop
from ...kube.objects import Manifest, clock, made_s, name_of, seconds, statuses, unix, youngest
from ..adapter_config import fault_of, takes_all
from ..daemon_sets import place_of
from ..finding_texts import quote
from ..scaled_objects import served_for
from ..state.api import ApiState
from ..state.autoscaler import AutoscalerState
from ..state.cluster import State

_METRICS_API = FindingTypes(Hop.METRICS_API)

_START_GRACE_S = 120
# Older restarts are ignored.
_RECENT_S = 3600
# Default of client-go, and so of the adapter. Source: custom-metrics-apiserver, pkg/cmd/builder.go
_STOCK_QPS = 5.0
_URL = re.compile(r"https?://(?P<host>[^/:]+)(?::(?P<port>\d+))?(?:/.*)?")

ADAPTER_RULE_WRONG = _METRICS_API.error(
    "ADAPTER_RULE_WRONG",
    cause="one invalid rule blocks all metrics: the adapter does not start with it, or Prometheus rejects its series "
    "query",
    fix="correct the rule in the adapter's values or ConfigMap and restart the adapter; its log has the details",
)


# Precedes the checks of the consequences of a wrong configuration.
@check("the adapter's rules are valid", ADAPTER_RULE_WRONG, needs=("apis", "adapter_config", "metrics"))
def adapter_rules(state: State) -> Iterator[CheckResult]:
    """Only if nothing is listed: with such a rule the adapter cannot have started, or cannot list."""
    for api in state.apis:
        if api.config is None or api.listed or api.service is None:
            continue
        faults = [
            f"rule {number} of {len(api.config.rules)}, for {quote(_query_of(rule))}: {fault}"
            for number, rule in enumerate(api.config.rules, 1)
            if (fault := fault_of(rule))
        ]
        for seen in [api.config.error] if api.config.error else faults:
            place, affected = (
                f"ConfigMap {name_of(api.config.config_map)}",
                state.affected_by(_users_of(state, api.group)),
            )
            age_s = state.clock.last_change_age_s(api.config.config_map)
            yield CheckResult(ADAPTER_RULE_WRONG, place, seen, affected, age_s)


def _users_of(state: State, group: str) -> list[AutoscalerState]:
    """Autoscalers with a metric of an API."""
    return [
        autoscaler for autoscaler in state.autoscalers if any(metric.group == group for metric in autoscaler.metrics)
    ]


def _query_of(rule: object) -> str:
    return str(rule.get("seriesQuery", "")) if isinstance(rule, dict) else str(rule)


ADAPTER_NOT_RESTARTED = _METRICS_API.error(
    "ADAPTER_NOT_RESTARTED",
    cause="the adapter reads its rules only when it starts, and they have changed since then",
    fix="kubectl -n {namespace} rollout restart deployment {name}; the chart's checksum/config annotation does it "
    "automatically",
    grace_s=_START_GRACE_S,
    is_consequence=True,
)


@check(
    "the adapter uses its current rules",
    ADAPTER_NOT_RESTARTED,
    needs=("apis", "adapter_config", "metrics", "component_pods"),
)
def adapter_restarted(state: State) -> Iterator[CheckResult]:
    """Only if a metric is missing, because labels of the ConfigMap may change without a restart."""
    for api in state.apis:
        pods = [pod for pod in api.pods if not pod["metadata"].get("deletionTimestamp")]
        users = [
            autoscaler
            for autoscaler in _users_of(state, api.group)
            if any(
                metric.group == api.group and metric.missing_in_api and not metric.values
                for metric in autoscaler.metrics
            )
        ]
        if api.config is None or api.listed is None or not pods or not users:
            continue
        written_s = _written_s(api.config.config_map)
        started_s = max(map(_started_s, pods))
        if written_s > started_s:
            adapter = api.adapter or api.config.config_map
            yield CheckResult(
                ADAPTER_NOT_RESTARTED,
                f"Deployment {name_of(adapter)}",
                f"ConfigMap {name_of(api.config.config_map)} was written at {clock(written_s)}, the adapter's newest "
                f"pod has run since {clock(started_s)}",
                state.affected_by(users),
                youngest([state.now_s - written_s, *(state.readable_s(user.ready_pods) for user in users)]),
                2 * api.relist_s + max(user.lag_s for user in users),
                place_of(adapter),
            )


def _written_s(config_map: Manifest) -> float:
    """Unix seconds of the last change of its data; of its creation if it has no managedFields."""
    times = [
        unix(entry.get("time")) or 0.0
        for entry in config_map["metadata"].get("managedFields") or ()
        if "f:data" in (entry.get("fieldsV1") or {})
    ]
    return max([made_s(config_map), *times])


def _started_s(pod: Manifest) -> float:
    """Start in Unix seconds. A restarted container reads its files again."""
    times = [unix(((status.get("state") or {}).get("running") or {}).get("startedAt")) for status in statuses(pod)]
    return max([made_s(pod), *filter(None, times)])


ADAPTER_OVERLOADED = _METRICS_API.warning(
    "ADAPTER_OVERLOADED",
    cause="the adapter runs out of memory. Its rules, for example the chart's default rules, repeatedly list nearly "
    "all series of the cluster",
    fix="set rules.default: false in the chart's values, as the prometheus_adapter role does, or raise its memory "
    "limit",
)


@check(
    "the adapter has enough memory for its rules",
    ADAPTER_OVERLOADED,
    needs=("apis", "adapter_config", "metrics", "component_pods"),
)
def adapter_load(state: State) -> Iterator[CheckResult]:
    """The chart's default rules are common, and harmless in a small cluster."""
    for api in state.apis:
        rules = [rule for rule in api.config.rules if takes_all(rule)] if api.config else []
        for pod in api.pods if rules else ():
            killed, age_s = _out_of_memory(state, pod)
            if killed:
                yield CheckResult(
                    ADAPTER_OVERLOADED,
                    f"Deployment {name_of(api.adapter or pod)}",
                    f"pod {name_of(pod)}: {killed}; {len(rules)} rules match series of any name, the first by "
                    f"{quote(_query_of(rules[0]))}; {len(api.listed or ())} metrics are listed",
                    age_s=age_s,
                )


def _out_of_memory(state: State, pod: Manifest) -> tuple[str, float | None]:
    """How and when a container was recently killed for lack of memory."""
    for status in statuses(pod):
        ended = (status.get("lastState") or {}).get("terminated") or {}
        age_s = state.clock.seconds_since(ended.get("finishedAt"))
        if ended.get("reason") == "OOMKilled" and age_s is not None and age_s < _RECENT_S:
            return f"OOMKilled {age_s / 60:.0f} minutes ago, {status.get('restartCount')} restarts", age_s
    return "", None


METRICS_API_MISSING = _METRICS_API.error(
    "METRICS_API_MISSING",
    cause="no server is registered for {group}",
    fix="run the prometheus_adapter role; for external metrics with prometheus_adapter_external_metrics: true, or "
    "run the role keda; or use metric_type Pods",
    before="await",
)
METRICS_API_UNAVAILABLE = _METRICS_API.error(
    "METRICS_API_UNAVAILABLE",
    cause="the control plane does not reach the server of {group}",
    fix="kubectl describe apiservice v1beta1.{group}; check the pods of {owner}",
    grace_s=_START_GRACE_S,
    explained_by=(Hop.NODE,),
    evidence=(
        Evidence(
            r"x509|certificate|tls:",
            "the API server does not accept the certificate of {owner}",
            "renew the certificate, and set its CA as spec.caBundle of APIService v1beta1.{group}. KEDA's operator "
            "does both, unless certificates.autoGenerated of its chart is false or a GitOps tool reverts caBundle",
        ),
        Evidence(
            r"\b40[13]\b|forbidden|unauthorized",
            "{owner} rejects requests of the API server",
            "bind the ClusterRole system:auth-delegator and the Role extension-apiserver-authentication-reader to the "
            "service account of {owner}, as its chart does",
        ),
        Evidence(
            r"ServiceNotFound|ServicePortError|ServiceAccessError",
            "the Service of {group} is missing, or has another port",
            "run the role {role} again; kubectl describe apiservice v1beta1.{group}",
        ),
        Evidence(
            r"EndpointsNotFound|MissingEndpoints|no endpoints",
            "no pod of {owner} is ready",
            "kubectl describe the pods of {owner}, and check their log",
        ),
        Evidence(
            r"timeout|deadline|connection refused|no route|i/o|dial tcp|context canceled",
            "the control plane cannot connect to {owner}: a firewall blocks it, or its pods hang",
            "open the pods' port (6443 by default, not the Service's 443) from the control plane to the nodes; check "
            "the log of {owner}",
        ),
    ),
    before="warn",
)


@check("the metrics APIs are served", METRICS_API_MISSING, METRICS_API_UNAVAILABLE, needs=("apis",))
def apis_are_served(state: State) -> Iterator[CheckResult]:
    for api in state.apis:
        role = "keda" if api.is_keda else "prometheus_adapter"
        template_vars = {"group": api.group, "owner": api.owner, "role": role}
        affected, name = state.affected_by(_users_of(state, api.group)), f"APIService v1beta1.{api.group}"
        if api.service is None:
            yield CheckResult(METRICS_API_MISSING, name, "not found", affected, template_vars=template_vars)
        elif api.unavailable or api.listed is None:
            yield CheckResult(
                METRICS_API_UNAVAILABLE,
                name,
                f"not Available: {api.unavailable}" if api.unavailable else f"{api.owner} does not answer{api.silence}",
                affected,
                state.clock.condition_age_s(api.service, "Available")
                if api.unavailable
                else _adapter_age_s(state, api),
                template_vars=template_vars,
                is_cut_off=state.are_cut_off(api.pods),
            )


def _adapter_age_s(state: State, api: ApiState) -> float | None:
    return youngest(state.clock.condition_age_s(pod, "Ready") for pod in api.pods)


METRICS_API_OF_ANOTHER = _METRICS_API.error(
    "METRICS_API_OF_ANOTHER",
    cause="{group} is served by {owner}, which does not serve these metrics. A cluster has one server of that API",
    fix="remove that server and run the {role} role, or scale on a metric that it serves",
    grace_s=_START_GRACE_S,
    before="refuse",
)


@check("their server serves recorded series", METRICS_API_OF_ANOTHER, needs=("apis", "metrics"))
def api_knows_series(state: State) -> Iterator[CheckResult]:
    """Another server is fine if it has the metrics, which is so if it has any value."""
    for api in state.apis:
        lacking = [
            (autoscaler, metric)
            for autoscaler in _users_of(state, api.group)
            for metric in autoscaler.metrics
            if metric.group == api.group
            and (metric.backend not in api.backends if metric.series else _is_of_keda(autoscaler, api))
            and (metric.expected_objects or state.is_before)
            and not (metric.values or metric.listed)
        ]
        is_judged = state.is_before or not api.unavailable
        if lacking and api.service is not None and is_judged:
            users = list(dict.fromkeys(str(autoscaler) for autoscaler, _metric in lacking))
            is_kedas = lacking[0][1].backend == KEDA or served_for(lacking[0][0].hpa)
            role = "keda" if is_kedas else "prometheus_adapter"
            ages = [state.missing_for_s(autoscaler, metric.missing_in_api) for autoscaler, metric in lacking]
            yield CheckResult(
                METRICS_API_OF_ANOTHER,
                f"APIService v1beta1.{api.group}",
                f"{api.owner} does not serve the metrics of {enumeration(users)}",
                state.affected_by(autoscaler for autoscaler, _metric in lacking),
                youngest([_adapter_age_s(state, api), max((age for age in ages if age is not None), default=None)]),
                template_vars={"group": api.group, "owner": api.owner, "role": role},
            )


def _is_of_keda(autoscaler: AutoscalerState, api: ApiState) -> bool:
    """Whether KEDA made the HPA, for metrics that only KEDA serves, and another server has the API."""
    return not api.is_keda and bool(served_for(autoscaler.hpa))


ADAPTER_WRONG_URL = _METRICS_API.error(
    "ADAPTER_WRONG_URL",
    cause="prometheus-adapter queries a Prometheus that does not exist: {why}",
    fix="set prometheus_adapter_prometheus_url and prometheus_adapter_prometheus_port",
)
ADAPTER_LISTS_NOTHING = _METRICS_API.error(
    "ADAPTER_LISTS_NOTHING",
    cause="the adapter runs, but lists no metric at all: its Prometheus has none of the series, or one of its rules is "
    "invalid and blocks all metrics",
    fix="check its log for `unable to update list of all metrics`, and --prometheus-url of its Deployment",
    grace_s=_START_GRACE_S,
    is_consequence=True,
)


@check("the adapter finds Prometheus and lists metrics", ADAPTER_WRONG_URL, ADAPTER_LISTS_NOTHING, needs=("apis",))
def adapter_lists(state: State) -> Iterator[CheckResult]:
    for api in state.apis:
        affected = state.affected_by(_users_of(state, api.group))
        name = f"Deployment {name_of(api.adapter)}" if api.adapter else api.owner
        if api.is_prometheus_adapter and not api.listed and (why := _wrong_url(state, api)):
            age_s = state.clock.last_change_age_s(api.adapter) if api.adapter else None
            yield CheckResult(ADAPTER_WRONG_URL, name, why, affected, age_s, template_vars={"why": why})
        if api.is_prometheus_adapter and api.listed is not None and not api.listed and not api.unavailable:
            ready_pods = [pod for autoscaler in state.autoscalers for pod in autoscaler.ready_pods]
            series_age_s = state.clock.longest_ready_s(ready_pods) or 0.0
            yield CheckResult(
                ADAPTER_LISTS_NOTHING,
                name,
                f"GET /apis/{api.group}/v1beta1: resources is empty",
                affected | {ALL},
                youngest([_adapter_age_s(state, api), state.prometheus_age_s, series_age_s]),
                more_grace_s=2 * api.relist_s,
            )


def _wrong_url(state: State, api: ApiState) -> str:
    """The error in an address of a Service; empty for other addresses."""
    url = api.option("--prometheus-url")
    match = _URL.fullmatch(url)
    if not match:
        return f"--prometheus-url is {url}, which is not a URL" if url else ""
    port = int(match["port"] or (443 if url.startswith("https") else 80))
    name, *rest = match["host"].split(".")
    is_of_service = not rest[1:] or rest[1] == "svc"
    if "services" in state.unavailable or not is_of_service or not name or name.isdigit():
        return ""
    namespace = rest[0] if rest else (api.adapter or {"metadata": {"namespace": ""}})["metadata"]["namespace"]
    service = next((service for service in state.services if name_of(service) == f"{namespace}/{name}"), None)
    if service is None:
        return f"--prometheus-url is {url}, and there is no Service {namespace}/{name}"
    ports = [entry["port"] for entry in service["spec"].get("ports") or ()]
    if port in ports:
        return ""
    return f"--prometheus-url is {url}, Service {namespace}/{name} has {enumeration(list(map(str, ports)))}"


ADAPTER_FORGETS = _METRICS_API.warning(
    "ADAPTER_FORGETS",
    cause="--metrics-max-age is shorter than two evaluation intervals, so metrics appear and disappear",
    fix="set --metrics-max-age to twice the slowest interval (prometheus_adapter_relist_interval sets both)",
)


@check("the adapter's look-back time is long enough", ADAPTER_FORGETS, needs=("apis", "prometheus"))
def adapter_memory(state: State) -> Iterator[CheckResult]:
    for api in state.apis:
        if not api.is_prometheus_adapter or not api.adapter:
            continue
        kept_s = seconds(api.option("--metrics-max-age")) or api.relist_s
        series = {metric.series for autoscaler in _users_of(state, api.group) for metric in autoscaler.metrics}
        slowest_s = max((_rule_interval_s(state, name) for name in series - {""}), default=0)
        if kept_s < slowest_s:
            seen = f"it looks back {kept_s:g} s, the slowest rule is evaluated every {slowest_s:g} s"
            age_s = state.clock.last_change_age_s(api.adapter)
            yield CheckResult(ADAPTER_FORGETS, f"Deployment {name_of(api.adapter)}", seen, age_s=age_s)


def _rule_interval_s(state: State, series: str) -> float:
    """The longest interval of the rules that record a series; 0 if unknown."""
    intervals = [seconds(rule.get("interval")) for rule in (state.prometheus.rules or {}).get(series, ())]
    return max((interval for interval in intervals if interval), default=0)


ADAPTER_THROTTLED = _METRICS_API.warning(
    "ADAPTER_THROTTLED",
    cause="the adapter lists the pods for each Pods metric in the API server. It is limited to {qps} requests per "
    "second, so HPAs are evaluated less often than their sync period",
    fix="set the adapter's flags --client-qps=200 and --client-burst=300, as the role prometheus_adapter does, or "
    "raise "
    "kubernetes_hpa_sync_period",
)


@check("the adapter's request rate is high enough", ADAPTER_THROTTLED, needs=("apis", "hpas", "metrics"))
def adapter_rate(state: State) -> Iterator[CheckResult]:
    """Uses the rate of one replica, because the control plane keeps its connection, so one may get all requests."""
    for api in state.apis:
        users = [user for user in _users_of(state, api.group) if (user.budget or {}).get("sync_s")]
        asked = sum(metric.type == "Pods" for user in users for metric in user.metrics)
        if not api.is_prometheus_adapter or not api.adapter or not asked:
            continue
        sync_s = min((user.budget or {})["sync_s"] for user in users)
        qps = _number(api.option("--client-qps")) or _STOCK_QPS
        if asked > qps * sync_s:
            seen = f"{asked} Pods metrics every {sync_s:g} s, --client-qps is {qps:g}"
            age_s = state.clock.last_change_age_s(api.adapter)
            name = f"Deployment {name_of(api.adapter)}"
            yield CheckResult(ADAPTER_THROTTLED, name, seen, age_s=age_s, template_vars={"qps": f"{qps:g}"})


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def summary(state: State) -> str:
    return ", ".join(f"{api.group} by {api.owner}" for api in state.apis)


def nothing(state: State) -> str:
    return "" if state.apis else "no autoscaler uses a metrics API"
