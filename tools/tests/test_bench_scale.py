"""What tools/bench/bench_scale.py feeds to Prometheus and computes from what it reads."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import pytest
from bench_report import verdicts
from bench_scale import GROWING, TARGETS, Bench, Figures, plot, sizes
from collection import ROOT
from doctor_cluster import Size
from fleet_exporter import GPUS_PER_NODE, XID, Answers, Fleet, counted, load
from rich.console import Console
from scale_cluster import Settings, relabelings
from scale_figures import HPA_CONTROLLER, between, by_user, metric_requests, periods, quantile

ANSWERS = ROOT / "tests" / "unit" / "doctor" / "answers" / "lab.json"
EXPORTER_TEST = ROOT / "lab" / "programs" / "nvidia" / "dcgm-exporter" / "output_test.go"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
# What a ServiceMonitor adds to each row of a target.
OF_TARGET = {"endpoint", "instance", "job", "service"}
SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)$")
LABEL = re.compile(r'(\w+)="([^"]*)"')


def pod(name: str, *, gpus: int = 1, node: str | None = "gpu-0001", app: str = "chat", **status: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}}
    spec: dict[str, Any] = {"containers": [container], **({"nodeName": node} if node else {})}
    return {"metadata": {"namespace": "ml", "name": name, "labels": {"app": app}}, "spec": spec, "status": status}


def fleet(*pods: dict[str, Any]) -> Fleet:
    made = Fleet(counted())
    for pod in pods:
        made.saw("ADDED", pod)
    return made


def rows(page: str) -> list[tuple[str, dict[str, str], float]]:
    found = [SAMPLE.match(line) for line in page.splitlines() if not line.startswith("#")]
    assert all(found), page
    return [(row[1], dict(LABEL.findall(row[2])), float(row[3])) for row in found]


def test_a_row_of_an_idle_gpu_has_the_labels_that_a_lab_has_recorded() -> None:
    """As its Prometheus had them, in the answers that the doctor's tests are about."""
    text = ANSWERS.read_text().replace('\\"', "'")
    recorded = {
        frozenset(re.findall(r'"(\w+)": "', labels)) - {"__name__"} - OF_TARGET
        for labels in re.findall(r'"metric": (\{[^{}]*"pci_bus_id"[^{}]*\})', text)
    }
    shown = {frozenset(labels) for name, labels, _value in rows(fleet().page("gpu-0001")) if name != XID}
    assert shown == recorded


@pytest.mark.parametrize(
    ("test", "field"), [("held", "DCGM_FI_DEV_GPU_UTIL"), ("idle", "DCGM_FI_DEV_GPU_UTIL"), ("error", XID)]
)
def test_labels_have_the_order_of_the_exporter(test: str, field: str) -> None:
    """Of the lab's exporter, whose own test says it."""
    text = EXPORTER_TEST.read_text()
    identity = re.search(r"const identityText = `(.*)`", text)[1]
    [said] = re.findall(rf'^\t\t"{test}": .*?\n?.*?`?\{{` \+ identityText \+ `(.*?)\}}', text, re.MULTILINE)
    expected = [name for name, _value in LABEL.findall(identity + said)]
    page = rows(fleet(*[pod("chat-0")] * (test != "idle")).page("gpu-0001"))
    assert next(list(labels) for name, labels, _value in page if name == field) == expected


def test_each_counter_has_a_row_for_each_gpu() -> None:
    page = fleet(pod("chat-0")).page("gpu-0001")
    names = [counter.field for counter in counted()]
    assert [name for name, _labels, _value in rows(page)] == [name for name in names for _gpu in range(GPUS_PER_NODE)]
    assert [line.split(" ")[2] for line in page.splitlines() if line.startswith("# TYPE")] == names
    assert "Share of time in which a kernel ran (in %)." in page


def test_a_pod_holds_its_gpus_until_it_is_gone() -> None:
    made = fleet(pod("chat-0"), pod("train-0", gpus=4, app="train"), pod("cpu-0", gpus=0), pod("chat-1", node=None))

    def holders() -> list[str]:
        page = rows(made.page("gpu-0001"))
        return [labels.get("pod", "") for name, labels, _value in page if name == "DCGM_FI_DEV_GPU_UTIL"]

    assert holders() == ["chat-0", *["train-0"] * 4, "", "", ""]
    made.saw("DELETED", pod("chat-0"))
    made.saw("MODIFIED", pod("chat-1"))
    assert holders() == ["chat-1", *["train-0"] * 4, "", "", ""]
    made.saw("MODIFIED", pod("train-0", gpus=4, app="train", phase="Failed"))
    assert holders() == ["chat-1", *[""] * 7]
    made.keep([])
    assert holders() == [""] * 8


def test_replicas_share_the_load_of_their_workload() -> None:
    at_s = next(at for at in range(600) if load("ml/chat", at) > 1.2 and abs(load("ml/chat", at) - 1.4) < 0.1)

    def busy(*pods: dict[str, Any]) -> list[float]:
        made = fleet(*pods)
        page = rows(made.node("gpu-0001").page(at_s, made.replicas))
        return [value for name, labels, value in page if name == "DCGM_FI_PROF_GR_ENGINE_ACTIVE" and "pod" in labels]

    assert busy(pod("chat-0")) == [1.0]
    assert busy(pod("chat-0"), pod("chat-1")) == pytest.approx([0.7, 0.7], abs=0.08)
    assert busy(pod("train-0", gpus=4, app="train")) == pytest.approx([0.9] * 4, abs=0.03)


def test_the_load_rises_and_falls() -> None:
    seen = [load("ml/chat", at) for at in range(600)]
    assert (min(seen), max(seen)) == pytest.approx((0.3, 3), abs=0.01)
    assert load("ml/chat", 0) != load("ml/other", 0)


def test_requests_on_one_connection_are_answered_in_order() -> None:
    written: list[bytes] = []

    class Transport:
        write = staticmethod(written.append)

    answers = Answers(fleet(pod("chat-0")))
    answers.connection_made(Transport())
    answers.data_received(b"GET /gpu-0001/metrics HTTP/1.1\r\nHost: a\r\n")
    assert written == []
    answers.data_received(b"\r\nGET /gpu-0002/metrics HTTP/1.1\r\n\r\n")
    heads, bodies = zip(*(request.split(b"\r\n\r\n", 1) for request in written), strict=True)
    assert [re.search(rb'hostname="([^"]*)"', body)[1] for body in bodies] == [b"gpu-0001", b"gpu-0002"]
    assert [int(re.search(rb"Content-Length: (\d+)", head)[1]) for head in heads] == [len(body) for body in bodies]


def test_the_relabeling_is_the_roles() -> None:
    found = list(relabelings())
    assert found[0]["regex"] == "monitoring;dcgm-exporter-[a-z0-9]+;exporter"
    assert not any("{{" in rule["regex"] for rule in found)


def event(
    at_s: float, *, of: str = "chat", user: str = HPA_CONTROLLER, took_s: float = 0.01, code: int = 200
) -> dict[str, Any]:
    path = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/ml/pods/%2A/gpu"
    moments = {
        name: (BEGIN + timedelta(seconds=at)).isoformat().replace("+00:00", "Z")
        for name, at in (("requestReceivedTimestamp", at_s), ("stageTimestamp", at_s + took_s))
    }
    uri = f"{path}?labelSelector=app%3D{of}" if of else "/apis/custom.metrics.k8s.io/v1beta1"
    return {"requestURI": uri, "user": {"username": user}, "responseStatus": {"code": code}, **moments}


def test_periods_are_those_of_one_hpa() -> None:
    events = [
        event(0), event(1, of="other"), event(12), event(5), event(7, of="other"),
        event(6, user="bench"), event(6, of=""), event(8, of=""),
    ]  # fmt: skip
    assert sorted(periods(metric_requests(events))) == pytest.approx([5, 6, 7])


def test_a_request_says_how_long_it_took_and_whether_it_failed() -> None:
    [good, bad] = metric_requests([event(0, took_s=0.25), event(5, code=504)])
    assert (good.took_s, good.ok, bad.ok) == (pytest.approx(0.25), True, False)


@pytest.mark.parametrize(("percent", "expected"), [(50, 50.5), (99, 99.01)])
def test_quantiles(percent: int, expected: float) -> None:
    assert quantile(range(1, 101), percent) == pytest.approx(expected)
    assert quantile([1.0], percent) is None


def test_requests_are_counted_by_who_asks_in_the_window() -> None:
    events = [event(at, user=user) for at, user in ((0, "a"), (10, "a"), (20, "system:b"), (70, "a"))]
    inside = between(events, BEGIN + timedelta(seconds=5), BEGIN + timedelta(seconds=125))
    assert by_user(inside, minutes=2) == {"a": 1.0, "b": 0.5}


FIGURES = Figures(
    **{name: 1.0 for name in Figures.__annotations__ if name not in ("size", "findings", "requests_of", "processors")},
    size=Size(100, 50), findings=[], requests_of={}, processors={},
)  # fmt: skip


def bench(*changes: dict[str, Any]) -> Bench:
    seen = [
        replace(FIGURES, size=Size(nodes, nodes // 2), **change)
        for nodes, change in zip((100, 1000), changes, strict=False)
    ]
    return Bench({"processors": 2, "model": ""}, Settings(evaluate_s=2, period_s=5), 120, 0, seen)


@pytest.mark.parametrize(
    ("what", "good", "bad"),
    [
        ("rule", {"rule_s": 0.19}, {"rule_s": 0.21}),
        ("period", {"period_p99_s": 9.9}, {"period_p99_s": 10.1}),
        ("growth", {"doctor_s": 10.0}, {"doctor_s": 14.0}),
    ],
)
def test_the_largest_size_is_held_to_the_bounds(what: str, good: dict[str, float], bad: dict[str, float]) -> None:
    def verdict(change: dict[str, float]) -> str:
        console = Console(width=130)
        with console.capture() as capture:
            console.print(verdicts(bench({"rule_s": 0.1}, {"rule_s": 0.1} | change), TARGETS))
        [line] = [line for line in capture.get().splitlines() if what in line]
        return line.split("│")[-2].strip()

    assert (verdict(good), verdict(bad)) == ("met", "missed")


def test_growth_needs_two_sizes_and_a_figure() -> None:
    assert bench({}).most_growth() is None
    assert bench({"noop_s": 1.0}, {"noop_s": 10.0}).growth("noop_s") == pytest.approx(1)
    assert bench({"rule_s": None}, {"rule_s": 1.0}).growth("rule_s") is None
    assert bench({}, {}).most_growth() == pytest.approx(0)


def test_the_plot_is_a_picture_of_each_line() -> None:
    text = plot(bench({}, {"doctor_s": 9.0, "rule_s": None}))
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert all(GROWING[name] in text for name in ("doctor_s", "noop_s"))


def test_sizes_are_taken_smallest_first() -> None:
    assert sizes("300x150,100x50") == [Size(100, 50), Size(300, 150)]
