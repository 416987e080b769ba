# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What prometheus-adapter is configured with: whether its rules can work, whether it has read them and bears them.

Source: kubernetes-sigs/prometheus-adapter pkg/config, pkg/naming/metric_namer.go. Only what is certain is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from ..findings import Check, Symptom
from ..objects import Manifest, clock, containers_of, flag, made_s, name_of, pod_spec, statuses, unix, youngest
from ..state import AdapterConfig, ApiState, AutoscalerState, State
from .prometheus import lag_s
from .queries import quote

_STRING = r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`'
# What may stand after a backslash in PromQL.
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = frozenset("abfnrtv\\'\"xuU01234567")
# Prometheus 3 takes quoted names as well.
_MATCHER = re.compile(rf"\s*(?:(\w+|{_STRING})\s*(=~|!~|!=|=)\s*({_STRING})|({_STRING}))\s*(,|$)", re.DOTALL)
_SELECTOR = re.compile(r"\s*([a-zA-Z_:][\w:]*)?\s*(?:\{(.*)\})?\s*", re.DOTALL)
# The adapter refuses unknown options, so a wrong indentation too.
_KINDS = frozenset({"rules", "externalRules", "resourceRules"})
_OPTIONS = frozenset({"seriesQuery", "seriesFilters", "resources", "name", "metricsQuery", "labelValueReplacements"})
# Python's words for what no kind of regular expression allows; other complaints are Python's own.
_BROKEN = ("missing ), unterminated", "unbalanced parenthesis", "unterminated character set", "nothing to repeat")
# Older restarts have passed.
_RECENT_S = 3600
# Classes of characters, which Python would take for something else.
_ONLY_GO = "[["
_LOOKAROUND = re.compile(r"\(\?<?[=!]")


def config_map_of(adapter: Manifest) -> tuple[str, str] | None:
    """The ConfigMap that has the adapter's --config, and the key in it; None if it is another kind of file."""
    volumes = {each["name"]: each for each in pod_spec(adapter).get("volumes") or ()}
    for container in containers_of(adapter):
        path = flag(container, "--config")
        for mount in container.get("volumeMounts") or ():
            source = volumes.get(mount["name"], {}).get("configMap") or {}
            folder, _, file = path.rpartition("/")
            if source.get("name") and mount["mountPath"].rstrip("/") in (folder, path):
                keys = {item["path"]: item["key"] for item in source.get("items") or ()}
                file = mount.get("subPath") or file
                return source["name"], keys.get(file, file)
    return None


def adapter_config(config_map: Manifest, content: Any) -> AdapterConfig:
    """content: of the file, None if that is empty."""
    content = {} if content is None else content
    if not isinstance(content, Mapping):
        return AdapterConfig(config_map, "it is no list of options")
    if unknown := sorted(map(str, content.keys() - _KINDS)):
        return AdapterConfig(config_map, f"there is no option {unknown[0]}")
    return AdapterConfig(config_map, rules=[*_list(content.get("rules")), *_list(content.get("externalRules"))])


def _list(value: Any) -> list[Any]:
    """What is no list, but should be one, as its only item."""
    return value if isinstance(value, list) else [value] if value else []


def fault_of(rule: Any) -> str:
    """Why the adapter does not start with a rule, or Prometheus refuses its series query; empty if neither is seen."""
    if not isinstance(rule, Mapping):
        return "it is no list of options"
    return next(filter(None, _faults(rule)), "")


def _faults(rule: Mapping[str, Any]) -> Iterator[str]:
    unknown = sorted(map(str, rule.keys() - _OPTIONS))
    yield f"there is no option {unknown[0]}" if unknown else ""
    yield _fault_of_selector(str(rule.get("seriesQuery") or ""))
    for each in _list(rule.get("seriesFilters")):
        yield _fault_of_filter(each)
    yield _fault_of_name(rule.get("name") or {})
    query = str(rule.get("metricsQuery") or "")
    yield f"metricsQuery has `<<` without `>>`: `{query}`" if query.count("<<") != query.count(">>") else ""


def _fault_of_name(name: Any) -> str:
    if not isinstance(name, Mapping):
        return "name is no list of options"
    if unknown := sorted(map(str, name.keys() - {"matches", "as"})):
        return f"there is no option name.{unknown[0]}"
    pattern = str(name.get("matches") or "")
    compiled = _tried(pattern)
    if not name.get("as") and compiled and compiled.groups > 1:
        return f"name.matches `{pattern}` has several groups, and there is no name.as"
    return _fault_of_pattern(pattern)


def name_given(rule: Any) -> str:
    """What a rule calls its metric, if that is written out."""
    name = rule.get("name") if isinstance(rule, Mapping) else None
    return str(name.get("as") or "") if isinstance(name, Mapping) else ""


def _fault_of_filter(each: Any) -> str:
    given = [key for key in ("is", "isNot") if isinstance(each, Mapping) and each.get(key)]
    if len(given) != 1:
        return "a filter of seriesFilters needs `is` or `isNot`, and not both"
    return _fault_of_pattern(str(each[given[0]]))


def _fault_of_selector(text: str) -> str:
    """Prometheus asks for a selector with a matcher that does not fit everything."""
    matchers = _matchers(text)
    if not text.strip():
        return "seriesQuery is empty"
    if matchers is None:
        return 'seriesQuery is no selector, which is `series{label="value"}` and nothing else'
    for literal in re.findall(_STRING, text):
        escaped = next((each for each in _ESCAPE.findall(literal) if each not in _ESCAPED), "")
        if escaped and literal[0] != "`":
            return f"seriesQuery has `\\{escaped}` in {literal}: a backslash is written twice there"
    broken = next(filter(None, (_fault_of_pattern(value) for _label, kind, value in matchers if "~" in kind)), "")
    if not broken and all(_fits_nothing(kind, value) for _label, kind, value in matchers):
        return "each matcher of seriesQuery fits the empty string as well, which Prometheus refuses"
    return broken


def _matchers(text: str) -> list[tuple[str, str, str]] | None:
    """Label, operator and value of each matcher of a selector, its name as __name__; None if it is no selector."""
    found = _SELECTOR.fullmatch(text)
    if not found:
        return None
    name, rest = found.groups()
    matchers = [("__name__", "=", name)] if name else []
    place = 0
    rest = (rest or "").strip()
    while place < len(rest):
        one = _MATCHER.match(rest, place)
        if not one:
            return None
        label, kind, value, quoted = one.groups()[:4]
        matchers.append(("__name__", "=", _text(quoted)) if quoted else (_text(label), kind, _text(value)))
        place = one.end()
    return matchers


def _text(literal: str) -> str:
    return literal[1:-1].replace("\\\\", "\\") if literal[0] in "\"'`" else literal


def _fits_nothing(kind: str, value: str) -> bool:
    """Whether a matcher holds for a label that is not there."""
    if "~" not in kind:
        return (value == "") != kind.startswith("!")
    compiled = _tried(value)
    return compiled is not None and bool(compiled.fullmatch("")) != kind.startswith("!")


def _fault_of_pattern(pattern: str) -> str:
    """Go's regular expressions have no lookaround."""
    if _LOOKAROUND.search(pattern):
        return f"the regular expression `{pattern}` looks around, which Go's cannot"
    try:
        _compiled(pattern)
    except re.error as err:
        return f"the regular expression `{pattern}` is wrong: {err.msg}" if err.msg.startswith(_BROKEN) else ""
    return ""


def _compiled(pattern: str) -> re.Pattern[str] | None:
    return None if _ONLY_GO in pattern else re.compile(pattern)


def _tried(pattern: str) -> re.Pattern[str] | None:
    """None for what only Go understands."""
    with suppress(re.error):
        return _compiled(pattern)
    return None


def takes_all(rule: Any) -> bool:
    """Whether a rule asks for series of any name, as the chart's default rules do."""
    matchers = _matchers(str(rule.get("seriesQuery") or "")) if isinstance(rule, Mapping) else None
    names = [(kind, value) for label, kind, value in matchers or () if label == "__name__"]
    return bool(matchers) and not any(
        kind == "=" or (kind == "=~" and value not in (".*", ".+", "^.*", "^.+")) for kind, value in names
    )


def _users(state: State, api: ApiState) -> list[AutoscalerState]:
    return [each for each in state.autoscalers if any(metric.group == api.group for metric in each.metrics)]


def _adapter_rules(state: State) -> Iterator[Symptom]:
    """Only where nothing is listed: the adapter cannot have started, or cannot list, with such a rule."""
    for api in state.apis:
        if api.config is None or api.listed or api.service is None:
            continue
        faults = [
            f"rule {number} of {len(api.config.rules)}, for {quote(_query_of(rule))}: {fault}"
            for number, rule in enumerate(api.config.rules, 1)
            if (fault := fault_of(rule))
        ]
        for why in [api.config.error] if api.config.error else faults:
            place = f"ConfigMap {name_of(api.config.config_map)}"
            yield Symptom("ADAPTER_RULE_WRONG", place, why, state.of(_users(state, api)))


def _query_of(rule: object) -> str:
    return str(rule.get("seriesQuery", "")) if isinstance(rule, dict) else str(rule)


def _adapter_restarted(state: State) -> Iterator[Symptom]:
    """Only where a metric is missing: labels of the ConfigMap may change without a restart."""
    for api in state.apis:
        pods = [pod for pod in api.pods if not pod["metadata"].get("deletionTimestamp")]
        users = [
            each
            for each in _users(state, api)
            if any(metric.group == api.group and metric.silent and not metric.values for metric in each.metrics)
        ]
        if api.config is None or api.listed is None or not pods or not users:
            continue
        written_s = _written(api.config.config_map)
        started_s = max(_started(pod) for pod in pods)
        if written_s > started_s:
            yield Symptom(
                "ADAPTER_NOT_RESTARTED",
                f"Deployment {name_of(api.adapter or api.config.config_map)}",
                f"ConfigMap {name_of(api.config.config_map)} was written at {clock(written_s)}, the adapter's newest "
                f"pod has run since {clock(started_s)}",
                state.of(users),
                youngest([state.now_s - written_s, *(state.read_s(each.ready_pods) for each in users)]),
                2 * api.relist_s + max(map(lag_s, users)),
                _place(api),
            )


def _place(api: ApiState) -> dict[str, str]:
    metadata = (api.adapter or {"metadata": {"namespace": "", "name": ""}})["metadata"]
    return {"namespace": metadata["namespace"], "name": metadata["name"]}


def _written(config_map: Manifest) -> float:
    """When its data last changed; of an object without managedFields when it was made."""
    times = [
        unix(entry.get("time")) or 0.0
        for entry in config_map["metadata"].get("managedFields") or ()
        if "f:data" in (entry.get("fieldsV1") or {})
    ]
    return max([made_s(config_map), *times])


def _started(pod: Manifest) -> float:
    """A container that is restarted reads its files again."""
    times = [unix(((each.get("state") or {}).get("running") or {}).get("startedAt")) for each in statuses(pod)]
    return max([made_s(pod), *filter(None, times)])


def _adapter_load(state: State) -> Iterator[Symptom]:
    """The chart's default rules are common, and harm nobody in a small cluster."""
    for api in state.apis:
        rules = [each for each in api.config.rules if takes_all(each)] if api.config else []
        for pod in api.pods if rules else ():
            if killed := _killed(state, pod):
                yield Symptom(
                    "ADAPTER_OVERLOADED",
                    f"Deployment {name_of(api.adapter or pod)}",
                    f"pod {name_of(pod)}: {killed}; {len(rules)} rules take series of any name, the first by "
                    f"{quote(_query_of(rules[0]))}; {len(api.listed or ())} metrics are listed",
                )


def _killed(state: State, pod: Manifest) -> str:
    """How a container was lately ended for want of memory."""
    for status in statuses(pod):
        ended = (status.get("lastState") or {}).get("terminated") or {}
        age = state.age(ended.get("finishedAt"))
        if ended.get("reason") == "OOMKilled" and age is not None and age < _RECENT_S:
            return f"OOMKilled {age / 60:.0f} minutes ago, {status.get('restartCount')} restarts"
    return ""


_CONFIG = ("apis", "adapter_config", "metrics")
_PODS = (*_CONFIG, "component_pods")

ADAPTER_CHECKS = (
    Check("metrics_api", "the adapter's rules can work", _adapter_rules, _CONFIG),
    Check("metrics_api", "the adapter runs with its present rules", _adapter_restarted, _PODS),
    Check("metrics_api", "the adapter bears its rules", _adapter_load, _PODS),
)
