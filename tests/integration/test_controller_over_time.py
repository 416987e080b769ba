"""Windows, policies and bounds against the HPA controller itself: what it makes of loads that change, look by look.

Its log has each look, with its time and what the metrics ask for. From that and from its looks before, the arithmetic
has to say what it does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from random import Random
from typing import Any, NamedTuple

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.controller import (
    Behavior,
    Controller,
    Decision,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.replicas import desired_replicas_by_total
from control_plane import ControlPlane, eventually
from kubernetes import client
from metric_chain import MetricChain
from test_controller_agrees import in_parallel

NAMESPACE = "controller-over-time"
METRIC = "changing"
SEED = 37
TARGET = 10
AUTOSCALERS = 60
# Each load lasts a few looks, so that windows and policies of some seconds are met in all their states.
LOADS, LOOKS_A_LOAD = 6, 4
DECISIONS = 1000
LOADED_S = 120
# Between a line of the log and the clock that decides, a busy machine may do something else.
CLOCK_S = 0.05

# klog's text: I1122 15:14:08.123456 pid file:line] "words" key="value" key=value
_PROPOSED, _STAYED, _RESCALED = "Proposing desired replicas", "Decided not to scale", "Successfully rescaled"
_LINE = re.compile(
    rf'^I(?P<time>\d{{4}} [\d:.]+) .*?\] "(?P<words>{_PROPOSED}|{_STAYED}|{_RESCALED})"'
    rf' .*?(?:scaleTarget="Deployment/|HPA="){NAMESPACE}/(?P<name>[\w-]+)"'
)
_DESIRED = re.compile(r"desiredReplicas=(\d+)")


class Line(NamedTuple):
    name: str
    time_s: float
    words: str
    desired: int


class Log(NamedTuple):
    """created_s: when the HPAs were not there yet."""

    created_s: float
    lines: list[Line]


class Autoscaler(NamedTuple):
    name: str
    replicas: int
    spec: dict[str, Any]
    loads: tuple[float, ...]


def autoscalers() -> list[Autoscaler]:
    """The same ones each time."""
    random = Random(SEED)
    return [_autoscaler(random, f"autoscaler-{number}") for number in range(AUTOSCALERS)]


def _autoscaler(random: Random, name: str) -> Autoscaler:
    minimum, maximum, replicas = random.randint(1, 3), random.randint(6, 20), random.randint(1, 22)
    behavior = {"scaleUp": _rules(random), "scaleDown": _rules(random)}
    if random.random() < 0.1:  # from one pod, so that the step to four is seen
        minimum, maximum, replicas, behavior = 1, 1000, 1, None
    metric = {
        "metric": {"name": METRIC},
        "describedObject": {"apiVersion": "v1", "kind": "Pod", "name": name},
        "target": {"type": "AverageValue", "averageValue": str(TARGET)},
    }
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": minimum,
        "maxReplicas": maximum,
        "metrics": [{"type": "Object", "object": metric}],
        **({"behavior": behavior} if behavior else {}),
    }
    loads = tuple(round(random.uniform(0, 1.3 * maximum * TARGET), 1) for _ in range(LOADS))
    if not behavior:  # less is asked for long before it is there, so that what was asked for before decides
        loads = (maximum * TARGET, TARGET, *loads[2:])
    return Autoscaler(name, replicas, spec, loads)


def _rules(random: Random) -> dict[str, Any]:
    longest_s = random.choice([2, 8, 20])
    policies = [
        {"type": kind, "value": value, "periodSeconds": random.randint(1, longest_s)}
        for _ in range(random.randint(1, 3))
        for kind, value in [random.choice([("Pods", random.randint(1, 4)), ("Percent", random.randint(10, 150))])]
    ]
    return {
        "stabilizationWindowSeconds": random.choice([0, 0, 1, 3, 6, 9]),
        "selectPolicy": random.choice(["Max", "Max", "Max", "Min", "Min", "Disabled"]),
        "policies": policies,
    }


AUTOSCALED = autoscalers()


@pytest.fixture(scope="module")
def log(plane: tuple[ControlPlane, client.ApiClient], chain: MetricChain) -> Iterator[Log]:
    """What the controller has written while the loads changed."""
    control_plane, kube = plane
    path = control_plane.work / "kube-controller-manager.log"
    core, hpas = client.CoreV1Api(kube), client.AutoscalingV2Api(kube)
    core.create_namespace({"metadata": {"name": NAMESPACE}})
    last = ("custom.metrics.k8s.io", "v1beta1", NAMESPACE, f"pods/{AUTOSCALED[-1].name}", METRIC)

    def served() -> bool:
        try:
            return bool(client.CustomObjectsApi(kube).get_namespaced_custom_object(*last)["items"])
        except client.ApiException:
            return False

    try:
        in_parallel(lambda *autoscaler: _deploy(kube, Autoscaler(*autoscaler)), AUTOSCALED)
        _load(chain, 0)
        eventually(served, "the loads are served", LOADED_S)
        began = path.stat().st_size
        created_s = _unix(datetime.now().strftime("%m%d %H:%M:%S.%f"))
        in_parallel(lambda *autoscaler: _autoscale(hpas, Autoscaler(*autoscaler)), AUTOSCALED)
        for number in range(LOADS):
            _load(chain, number)
            goal = (number + 1) * LOOKS_A_LOAD * AUTOSCALERS
            eventually(lambda goal=goal: _looks(path, began) >= goal, f"{goal} looks", LOADED_S)
        yield Log(created_s, _lines(path, began))
    finally:
        chain.exporter.text = ""
        hpas.delete_collection_namespaced_horizontal_pod_autoscaler(NAMESPACE)
        core.delete_namespace(NAMESPACE)


def _deploy(kube: client.ApiClient, autoscaler: Autoscaler) -> None:
    labels, apps = {"app": autoscaler.name}, client.AppsV1Api(kube)
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "service"}]}}
    spec = {"replicas": autoscaler.replicas, "selector": {"matchLabels": labels}, "template": template}
    apps.create_namespaced_deployment(NAMESPACE, {"metadata": {"name": autoscaler.name}, "spec": spec})


def _autoscale(hpas: client.AutoscalingV2Api, autoscaler: Autoscaler) -> None:
    body = {"metadata": {"name": autoscaler.name}, "spec": autoscaler.spec}
    hpas.create_namespaced_horizontal_pod_autoscaler(NAMESPACE, body)


def _load(chain: MetricChain, number: int) -> None:
    chain.exporter.text = "".join(
        f'namespace_pod:{METRIC}:avg{{namespace="{NAMESPACE}",pod="{autoscaler.name}"}} {autoscaler.loads[number]}\n'
        for autoscaler in AUTOSCALED
    )


def _lines(path: Any, began: int) -> list[Line]:
    """Whole lines only: the last one may still be written."""
    with path.open("rb") as file:
        file.seek(began)
        text = file.read().decode()
    return [
        Line(found["name"], _unix(found["time"]), found["words"], int(_DESIRED.search(line)[1]))
        for line in text.splitlines(keepends=True)
        if line.endswith("\n") and (found := _LINE.match(line))
    ]


def _looks(path: Any, began: int) -> int:
    return sum(line.words != _PROPOSED for line in _lines(path, began))


def _unix(time: str) -> float:
    return datetime.strptime(f"2000{time}", "%Y%m%d %H:%M:%S.%f").timestamp()


class Look(NamedTuple):
    """One sync of the controller: the result of the arithmetic, and the replicas after it.

    about: replicas that it says at that moment, and CLOCK_S before and after: something may just leave a window.
    """

    autoscaler: Autoscaler
    time_s: float
    expected: Decision
    about: frozenset[int]
    after: int


def looks(log: Log, *, late: bool = False) -> Iterator[Look]:
    """late: when the first look begins, at which the controller remembers what there is. Its log has only its end."""
    ordered = sorted(log.lines, key=attrgetter("name"))  # stable: of each in its order
    autoscalers = {autoscaler.name: autoscaler for autoscaler in AUTOSCALED}
    for name, lines in groupby(ordered, key=attrgetter("name")):
        found = list(lines)
        yield from _looks_of(autoscalers[name], found, found[0].time_s if late else log.created_s)


def _looks_of(autoscaler: Autoscaler, lines: list[Line], begin_s: float) -> Iterator[Look]:
    spec = autoscaler.spec
    controller = Controller(spec["minReplicas"], spec["maxReplicas"], Behavior.of_hpa(spec), is_new=False)
    controller.stays(begin_s, autoscaler.replicas)
    current, proposed = autoscaler.replicas, None
    for line in lines:
        if line.words == _PROPOSED:
            proposed = line
            continue
        now_s, wanted = (proposed.time_s, proposed.desired) if proposed else (line.time_s, None)
        around = [deepcopy(controller).weigh(now_s + off_s, current, wanted) for off_s in (-CLOCK_S, CLOCK_S)]
        expected = controller.weigh(now_s, current, wanted)
        about = frozenset(decision.replicas for decision in (expected, *around))
        after = line.desired if line.words == _RESCALED else current
        yield Look(autoscaler, now_s, expected, about, after)
        controller.note(line.time_s, current, after)
        current, proposed = after, None


def test_the_controller_does_what_the_arithmetic_says(log: Log) -> None:
    """Whether its first look began early or late decides some few of them, and its clock some others."""
    found = [(early, early.about | late.about) for early, late in zip(looks(log), looks(log, late=True), strict=True)]
    misses = [(look, expected) for look, expected in found if look.after not in expected]
    assert not misses, f"{len(misses)} of {len(found)}, the first: {misses[0]}"
    assert sum(len(expected) == 1 for _look, expected in found) >= DECISIONS


def test_the_metrics_ask_for_what_the_arithmetic_says(log: Log) -> None:
    """Of whichever load was served at the time."""
    for autoscaler in AUTOSCALED:
        expected = {desired_replicas_by_total(load, TARGET, status_replicas=0) for load in autoscaler.loads}
        asked = {line.desired for line in log.lines if line.name == autoscaler.name and line.words == _PROPOSED}
        assert asked <= expected
        assert len(asked) > 1 or len(expected) == 1


def test_windows_policies_and_bounds_were_all_met(log: Log) -> None:
    """Else the agreement would say little: what kept the controller from what was asked for."""
    decisions = [look.expected for look in looks(log)]
    met = Counter(decision.limit for decision in decisions)
    met["window"] = sum(decision.wanted not in (None, decision.stabilized) for decision in decisions)
    assert all(met[what] >= 10 for what in ("policy", "disabled", "maximum", "minimum", "window")), met
    assert any(decision.wanted and decision.wanted < decision.current < decision.replicas for decision in decisions)
