"""Valid and invalid autoscalers for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

INT32 = 2**31 - 1
_NAMES = st.sampled_from(["chat", "a", "chat.v2", "n" * 63, "n" * 64, "n" * 181, "n" * 253, "0", "x-1"])
_WHOLE = st.sampled_from([1, 2, 3, 15, 30, 60, 1800, 3600, INT32, "2", 4.0]) | st.integers(1, 100)
_VALUES = st.sampled_from([0.001, 1, 55.5, 60, 100, "70", 5e9, 10**12]) | st.floats(0.01, 99)
_POLICY = st.fixed_dictionaries(
    {"type": st.sampled_from(["Pods", "Percent"]), "value": _WHOLE, "period_seconds": st.integers(1, 1800)}
)
_RULES = st.fixed_dictionaries(
    {},
    optional={
        "stabilization_window_seconds": st.integers(0, 3600),
        "select_policy": st.sampled_from(["Max", "Min", "Disabled"]),
        "tolerance": st.sampled_from([0, 0.05, 0.1, 1, "0.2"]),
        "policies": st.lists(_POLICY, min_size=1, max_size=3),
    },
)
_OWN = st.fixed_dictionaries(
    {"name": st.sampled_from(["queue", "a" * 52, "lag_0"]), "query": st.sampled_from(["max(x)", 'sum(y{a="b"})'])},
    optional={"per": st.sampled_from(["pod", "workload"])},
)
_OTHERS = st.fixed_dictionaries(
    {"name": st.sampled_from(["s0-lag", "lag", "b" * 63])},
    optional={
        "selector": st.dictionaries(st.sampled_from(["topic", "a/b"]), st.sampled_from(["x", "", 7]), max_size=2)
    },
)
_PROFILE = st.sampled_from(["gpu", "gpu_util", "gpu_compute", "gpu_memory", "mig", "shared", "llm", "llm_in_flight"])
_TYPE = st.sampled_from(["Pods", "Object", "External"])
_TARGETS = st.dictionaries(st.sampled_from(["gpu", "llm_kv_cache", "queue"]), _VALUES, max_size=1)
_QUANTITY = st.sampled_from(["1", "500m", "2Ki", "1e3", 5, 0.5, "0.1"])
_CPU = st.fixed_dictionaries({"name": st.sampled_from(["cpu", "memory", "nvidia.com/gpu"])}).flatmap(
    lambda resource: st.sampled_from(
        [
            {**resource, "target": {"type": "Utilization", "averageUtilization": 80}},
            {**resource, "target": {"type": "AverageValue", "averageValue": "500m"}},
        ]
    )
)
_SELECTED = st.fixed_dictionaries(
    {"name": st.sampled_from(["requests", "a.b-c"])},
    optional={
        "selector": st.sampled_from(
            [
                {"matchLabels": {"app": "x"}},
                {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]},
                {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
            ]
        )
    },
)
_AVERAGE = st.builds(lambda value: {"type": "AverageValue", "averageValue": value}, _QUANTITY)
_VALUE = st.builds(lambda value: {"type": "Value", "value": value}, _QUANTITY)
_INGRESS = st.fixed_dictionaries(
    {"kind": st.just("Ingress"), "name": _NAMES}, optional={"apiVersion": st.just("networking.k8s.io/v1")}
)
_RAW = st.one_of(
    _CPU.map(lambda resource: {"type": "Resource", "resource": resource}),
    _CPU.map(lambda resource: {"type": "ContainerResource", "containerResource": {**resource, "container": "main"}}),
    st.builds(
        lambda metric, target: {"type": "Pods", "pods": {"metric": metric, "target": target}}, _SELECTED, _AVERAGE
    ),
    st.builds(
        lambda metric, target, described: {
            "type": "Object",
            "object": {"metric": metric, "target": target, "describedObject": described},
        },
        _SELECTED,
        _AVERAGE | _VALUE,
        _INGRESS,
    ),
    st.builds(
        lambda metric, target: {"type": "External", "external": {"metric": metric, "target": target}},
        _SELECTED,
        _AVERAGE | _VALUE,
    ),
)
_EXTRA = st.fixed_dictionaries(
    {"metric": _PROFILE | _OWN}, optional={"metric_type": _TYPE, "target_value": _VALUES, "target_values": _TARGETS}
)
_SELECTORS = st.sampled_from(["a_total", 'a{path="/v1/{id}"}', r'a{b!~"\"x",}', "job:a:b{c='d', e=`f`}", "a { }"])
_DEMAND = st.fixed_dictionaries(
    {"source": st.sampled_from(["istio", "envoy_gateway", "ingress_nginx", "traefik"])},
    optional={"name": _NAMES, "prior_gpu_seconds": st.sampled_from([0.05, "0.5", 1])},
) | st.fixed_dictionaries({"offered": _SELECTORS, "served": _SELECTORS})
_TARGET = st.fixed_dictionaries(
    {"name": _NAMES}, optional={"kind": st.sampled_from(["Deployment", "StatefulSet", "Rollout", "LeaderWorkerSet"])}
) | st.fixed_dictionaries(
    {"kind": st.just("Fleet"), "name": _NAMES, "api_version": st.sampled_from(["example.com/v1", "a.b/v1beta1"])}
)
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "name": _NAMES,
    "namespace": st.sampled_from(["ml", "default", "n" * 63]),
    "metric": _PROFILE | _OWN | _OTHERS,
    "metric_type": _TYPE,
    "target_value": _VALUES,
    "target_values": _TARGETS,
    "min_replicas": _WHOLE,
    "priority": st.sampled_from([0, 10, -1000, "5", 1000]),
    "dead_time_seconds": st.integers(1, 1800),
    "scale_up": _RULES,
    "scale_down": _RULES,
    "demand": _DEMAND,
    "extra_metrics": st.lists(_EXTRA | _RAW, max_size=2),
    "adopt": st.sampled_from([True, False, "yes", "no"]),
}
# Python's own texts, half of a character included, which JSON and YAML can write as \\ud800.
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=5)
_LEAVES = st.one_of(
    st.sampled_from(
        [None, True, False, 0, -1, 1.9, float("nan"), float("inf"), float("-inf"), 1e308, 2**31, 2**63, 10**400]
    ),
    st.sampled_from(
        ["", " ", ".*", 'x"} or vector(1e6) or up{a="', "A", "a_b", "é", "chat\n", "../..", "80%", "1e400", "Inf"]
    ),
    st.sampled_from(["-1", "0", "n" * 254, "\ud800", "{{ x }}", "a{b=~", 'a{b="\\d"}', "1.9", "٣", "1_000"]),
    st.integers(),
    st.floats(),
    st.integers(300, 6000).map(lambda digits: 10**digits),  # as YAML reads hexadecimal
    ANY_TEXT,
)
_KEYS = st.sampled_from(["name", "type", "metric", "target", "a"]) | st.integers(0, 3) | ANY_TEXT | st.none()
# What no text of an option may be.
NO_TEXT = st.one_of(st.booleans(), st.floats(), st.integers(300, 6000).map(lambda digits: -(10**digits))) | (
    st.tuples(ANY_TEXT, st.characters(categories=["Cs"])).map("".join)
)
WRONG = st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_KEYS, inner, max_size=2))


@st.composite
def right(draw: st.DrawFn) -> dict[str, Any]:
    """Options that each may be, though not always together."""
    spec = {"target": draw(_TARGET), "max_replicas": draw(_WHOLE)}
    for option in draw(st.lists(st.sampled_from(sorted(OPTIONS)), max_size=5, unique=True)):
        spec[option] = draw(OPTIONS[option])
    return spec


@st.composite
def some_wrong(draw: st.DrawFn) -> Any:
    """The same, with up to two arbitrary values."""
    spec: Any = draw(right())
    for _ in range(draw(st.sampled_from([0, 1, 1, 2]))):
        spec = _changed(draw, spec)
    return spec


def _changed(draw: st.DrawFn, value: Any) -> Any:
    """A copy with one place in it, or all of it, changed."""
    if isinstance(value, dict) and value and draw(st.sampled_from([True, True, True, False])):
        if draw(st.sampled_from([True, False, False, False])):
            return {**value, draw(_KEYS): draw(WRONG)}
        key = draw(st.sampled_from(sorted(value, key=str)))
        return {**value, key: _changed(draw, value[key])}
    if isinstance(value, list) and value and draw(st.booleans()):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], _changed(draw, value[place]), *value[place + 1 :]]
    return draw(WRONG)
