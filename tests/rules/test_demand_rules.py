"""Demand: the counters of each source, a cost that grows old, and any load."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.demand import (
    HELD_S,
    LONGEST_INTERVAL_S,
    MOST_COST,
    Demand,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions, workload_rule
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.request_counters import COUNTERS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from hypothesis import given, settings
from hypothesis import strategies as st
from test_recorded_servers import recorded
from test_rules import promtool

LABELS = 'namespace="ml", deployment="chat"'
BUSY = 'namespace_pod:gpu:now{namespace="ml", pod="chat-6d5f8-x7k2p"}'
# What proxies say of requests to ml/chat: some served, as many refused, and those that must not count. Traefik's were
# recorded. The others were written after documentation and public scrapes, without labels that do not matter.
SAMPLES = {
    "istio": {
        "served": 'istio_requests_total{reporter="source", source_workload="door", destination_workload="chat", '
        'destination_service_namespace="ml", destination_service_name="chat", response_code="200"}',
        "refused": 'istio_requests_total{reporter="source", source_workload="door", destination_workload="unknown", '
        'destination_service_namespace="ml", destination_service_name="chat", response_code="503"}',
        "twice": 'istio_requests_total{reporter="destination", source_workload="door", destination_workload="chat", '
        'destination_service_namespace="ml", destination_service_name="chat", response_code="200"}',
        "another": 'istio_requests_total{reporter="source", destination_service_namespace="ml", '
        'destination_service_name="chat-large", response_code="200"}',
    },
    "istio-of-grpc": {
        "served": 'istio_requests_total{reporter="source", destination_service_namespace="ml", '
        'destination_service_name="chat", response_code="200", request_protocol="grpc", grpc_response_status="0"}',
        "refused": 'istio_requests_total{reporter="source", destination_service_namespace="ml", '
        'destination_service_name="chat", response_code="200", request_protocol="grpc", grpc_response_status="14"}',
    },
    "envoy_gateway": {
        "served": 'envoy_cluster_upstream_rq{envoy_response_code="200",envoy_cluster_name="httproute/ml/chat/rule/0"}',
        "refused": 'envoy_cluster_upstream_rq{envoy_response_code="503",envoy_cluster_name="httproute/ml/chat/rule/1"}',
        "error": 'envoy_cluster_upstream_rq{envoy_response_code="404",envoy_cluster_name="httproute/ml/chat/rule/0"}',
        "another": 'envoy_cluster_upstream_rq{envoy_response_code="200",'
        'envoy_cluster_name="httproute/ml/chat-large/rule/0"}',
    },
    "ingress_nginx": {
        "served": 'nginx_ingress_controller_requests{namespace="ingress-nginx", exported_namespace="ml", '
        'ingress="chat", exported_service="chat", status="200"}',
        "refused": 'nginx_ingress_controller_requests{namespace="ml", ingress="chat", service="chat", status="429"}',
        "error": 'nginx_ingress_controller_requests{namespace="ml", ingress="chat", service="chat", status="400"}',
        "another": 'nginx_ingress_controller_requests{namespace="web", ingress="chat", service="chat", status="200"}',
    },
}
# Traefik 3.6.12's own text, by tests/integration/test_traefik.py. Of each way to ml/chat the name that it gives it.
TRAEFIK = (Path(__file__).parent / "traefik.prom").read_text().splitlines()
WAYS = {
    "ingress-by-number": "ml-chat-80@kubernetes",
    "ingress-by-name": "ml-chat-http@kubernetes",
    "http-route": "ml-chat-http-80@kubernetesgateway",
    "ingress-route": "ml-chat-cbee5689997dcef95d48@kubernetescrd",
}
OUTCOMES = {"200": "served", "503": "refused", "404": "missing", "500": "crash"}


def traefik(name: str) -> dict[str, str]:
    """By outcome, and those of the other Service."""
    series = [line.rpartition(" ")[0] for line in TRAEFIK]
    rows = {
        outcome: row
        for row in series
        for code, outcome in OUTCOMES.items()
        if f'"{name}"' in row and f'"{code}"' in row
    }
    return rows | {row: row for row in series if "ml-chat-large" in row}


def by_service_monitor(rows: dict[str, str]) -> dict[str, str]:
    """With the labels of the target before those that Traefik gives."""
    target = '{namespace="traefik",service="traefik-metrics",'
    return {name: row.replace("service=", "exported_service=").replace("{", target, 1) for name, row in rows.items()}


RECORDED = {f"traefik-{way}": traefik(name) for way, name in WAYS.items()}
MONITORED = {f"{way}-by-its-monitor": by_service_monitor(rows) for way, rows in RECORDED.items()}


def rules(interval_s: int = 2, **demand: Any) -> dict[str, Any]:
    """The rules of one workload, as Prometheus reads them."""
    autoscaler = Autoscaler.from_params(
        {"namespace": "ml", "target": {"name": "chat"}, "max_replicas": 8, "demand": demand}
    )
    return workload_rule(autoscaler, RuleOptions(evaluation_interval_s=interval_s))["spec"]


def check(
    folder: Path,
    rule_file: dict[str, Any],
    series: dict[str, str],
    expected: Sequence[tuple[str, int, float | None]],
    interval_s: int = 2,
) -> None:
    """Raises if Prometheus makes something else of it. expected: query, second, value; None for none."""
    (folder / "rules.yml").write_text(json.dumps(rule_file))
    tests = [
        {
            "expr": query,
            "eval_time": f"{at_s}s",
            "exp_samples": [] if value is None else [{"labels": "{}", "value": value}],
        }
        for query, at_s, value in expected
    ]
    content = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": f"{interval_s}s",
        "fuzzy_compare": True,
        "tests": [
            {
                "interval": f"{interval_s}s",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": tests,
            }
        ],
    }
    (folder / "demand_test.yml").write_text(json.dumps(content))
    promtool("test", "rules", "demand_test.yml", folder=folder)


def part(name: str) -> str:
    return f"sum(namespace_workload:gpu_demand:{name}{{{LABELS}}})"


@pytest.mark.parametrize("case", SAMPLES | RECORDED | MONITORED)
def test_a_source_counts_what_wants_the_gpu_and_nothing_else(case: str, tmp_path: Path) -> None:
    wanted, other, source = "0+100x60", "0+1000x60", case.partition("-")[0]
    samples = (SAMPLES | RECORDED | MONITORED)[case]
    series = {sample: wanted if row in ("served", "refused") else other for row, sample in samples.items()}
    expected = [(part("offered"), 120, 100.0), (part("cost"), 120, 0.02), (part("sum"), 120, 200.0)]
    check(tmp_path, rules(source=source), {BUSY: "100x60", **series}, expected)


@pytest.mark.parametrize(
    ("case", "code"),
    [
        *((case, "504") for case in ("istio", "envoy_gateway", "ingress_nginx", "traefik-ingress-by-number")),
        *((case, "499") for case in ("ingress_nginx", "traefik-ingress-by-number")),
        ("istio", "0"),
    ],
)
def test_who_waited_too_long_or_left_took_gpu_time(case: str, code: str, tmp_path: Path) -> None:
    """Half of what a full GPU did. Without these requests the others would cost twice as much."""
    series = (SAMPLES | RECORDED)[case]
    late = series["served"].replace('"200"', f'"{code}"')
    assert late != series["served"]
    rows = {BUSY: "100x60", **dict.fromkeys((series["served"], late), "0+50x60"), series["refused"]: "0+100x60"}
    expected = [(part("cost"), 118, 0.02), (part("sum"), 118, 200.0)]
    check(tmp_path, rules(source=case.partition("-")[0]), rows, expected)


@pytest.mark.parametrize("case", ["istio", "envoy_gateway", "ingress_nginx", "traefik-ingress-by-number"])
def test_dynamo_rejects_with_529(case: str, tmp_path: Path) -> None:
    samples = (SAMPLES | RECORDED)[case]
    rejected = re.sub('"(503|429)"', '"529"', samples["refused"])
    assert rejected != samples["refused"]
    rows = {BUSY: "100x60", samples["served"]: "0+100x60", rejected: "0+100x60"}
    check(tmp_path, rules(source=case.partition("-")[0]), rows, [(part("offered"), 118, 100)])


def test_a_cost_is_held_for_a_day_and_then_the_prior_counts(tmp_path: Path) -> None:
    """At the longest interval at which anything is learned, which is all that is different."""
    day = HELD_S // LONGEST_INTERVAL_S
    rows = {BUSY: f"80x20 0x{day + 40}", "asked_total": f"0+300x20 6000x{day + 40}"}
    selectors = {"offered": "asked_total", "served": "asked_total", "prior_gpu_seconds": 0.5}
    expected = [(part("cost"), HELD_S // 2, 0.08), (part("cost"), HELD_S + 1200, 0.5)]
    check(tmp_path, rules(LONGEST_INTERVAL_S, **selectors), rows, expected, interval_s=LONGEST_INTERVAL_S)


def test_a_cost_cannot_be_learned_at_a_longer_interval() -> None:
    with pytest.raises(HopError, match="evaluation_interval is 31"):
        rules(31, source="istio")


@pytest.mark.parametrize("interval_s", [1, 2])
def test_of_a_step_less_than_half_is_seen_once(interval_s: int, tmp_path: Path) -> None:
    """The load changes between two scrapes: the first rate after it has half of the step, and bounds it from below."""
    before, half, after = (round(rate * interval_s) for rate in (7, 72, 137))
    asked = counter([*[before] * 90, half, *[after] * 30])
    offered = "namespace_workload:gpu_demand:offered"
    partial = f"count_over_time(({offered} > 20 < 130)[{120 * interval_s}s:{interval_s}s])"
    seen = {60: 7, 90: 7, 92: 137, 120: 137}
    expected = [
        (f"sum({offered})", sample * interval_s, round(rate * interval_s) / interval_s) for sample, rate in seen.items()
    ]
    expected += [(f"sum({offered}) >= {half / interval_s}", 91 * interval_s, None)]
    expected += [(f"sum({offered}) > 137", sample * interval_s, None) for sample in range(121)]
    expected.append((f"sum({partial})", 120 * interval_s, 1))
    selectors = {"offered": "asked_total", "served": "asked_total"}
    check(tmp_path, rules(interval_s, **selectors), {BUSY: "100x120", "asked_total": asked}, expected, interval_s)


def test_a_step_of_few_requests_is_seen_before_two_minutes_have_counted_it(tmp_path: Path) -> None:
    """One request in two seconds, then six: from what ten seconds have at least, and thirty."""
    asked = counter([*[1] * 90, *[6] * 90, *[1] * 30])
    selectors = {"offered": "asked_total", "served": "asked_total"}
    offered = "sum(namespace_workload:gpu_demand:offered)"
    at_least = [(12, 1), (18, 1.6), (40, 2.2), (160, 3)]
    expected = [(f"{offered} < {rate}", 180 + after_s, None) for after_s, rate in at_least]
    expected += [(f"{offered} > 3.01", at_s, None) for at_s in range(0, 420, 20)]
    expected += [(offered, 178, 0.5), (f"{offered} > 2.6", 418, None)]
    check(tmp_path, rules(**selectors), {BUSY: "100x210", "asked_total": asked}, expected)


@pytest.mark.parametrize(("per_s", "low_per_s", "seen_per_s"), [(45, 7.5, 26), (22, 3, 12)])
def test_a_step_is_not_seen_later_than_by_a_full_gpu(
    tmp_path: Path, per_s: float, low_per_s: float, seen_per_s: float
) -> None:
    """Enough for a second replica at 20 and 50 ms a request, four seconds after the step."""
    asked = counter([*[round(2 * low_per_s)] * 60, *[round(2 * per_s)] * 60, *[round(2 * low_per_s)] * 30])
    offered = "sum(namespace_workload:gpu_demand:offered)"
    expected = [(f"{offered} < {seen_per_s}", 124, None), (f"{offered} > {1.1 * per_s}", 126, None)]
    expected += [(f"{offered} > {1.01 * per_s}", at_s, None) for at_s in range(0, 300, 10)]
    selectors = {"offered": "asked_total", "served": "asked_total"}
    check(tmp_path, rules(**selectors), {BUSY: "100x150", "asked_total": asked}, expected)


def test_chance_among_few_requests_is_no_step(tmp_path: Path) -> None:
    """Two a second by chance, for forty minutes: what there is at least stays below a tenth more."""
    chance = random.Random(2)
    asked = [sum(chance.random() < 0.05 for _request in range(80)) for _sample in range(1200)]
    selectors = {"offered": "asked_total", "served": "asked_total"}
    least = "namespace_workload:gpu_demand:least"
    above = f"count_over_time((min_over_time({least}[5s]) > 2.2)[2400s:2s])"
    expected = [(f"sum({above})", 2398, None), (f"count({least} > 0)", 2398, 1)]
    check(tmp_path, rules(**selectors), {BUSY: "100x1200", "asked_total": counter(asked)}, expected)


def test_of_many_requests_nothing_but_their_window_counts(tmp_path: Path) -> None:
    """The load falls by half: what thirty seconds had at least would hold it up."""
    asked = counter([*[400] * 60, *[200] * 30])
    selectors = {"offered": "asked_total", "served": "asked_total"}
    expected = [
        ("sum(namespace_workload:gpu_demand:least)", 100, 175),
        ("sum(namespace_workload:gpu_demand:offered)", 118, 200),
        ("sum(namespace_workload:gpu_demand:offered)", 126, 100),
    ]
    check(tmp_path, rules(**selectors), {BUSY: "100x90", "asked_total": asked}, expected)


def test_what_lasts_is_there_however_rarely_it_is_recorded(tmp_path: Path) -> None:
    """Every 20 s here: in a quarter of the time the window has no sample."""
    selectors = {"offered": "asked_total", "served": "asked_total"}
    rows = {BUSY: "40 _x9 40 _x9 90 _x9", "asked_total": "0+20x30"}
    expected = [("sum(namespace_pod:gpu_sustained:avg)", at_s, value) for at_s, value in ((18, 40), (38, 40), (58, 90))]
    check(tmp_path, rules(**selectors), rows, expected)


def test_answers_that_were_held_up_are_no_load(tmp_path: Path) -> None:
    """They come all at once. A rate that swings counts as its least."""
    asked = counter([*[200] * 30, 0, 400, *[200] * 30])
    offered = "namespace_workload:gpu_demand:offered"
    high = f"count_over_time(({offered} > 110)[120s:2s])"
    selectors = {"offered": "asked_total", "served": "asked_total"}
    expected = [(f"sum({offered})", 58, 100), (f"sum({offered})", 66, 100), (f"sum({high})", 120, None)]
    check(tmp_path, rules(**selectors), {BUSY: "100x60", "asked_total": asked}, expected)


def test_full_pods_count_once_they_have_been_full_for_a_while(tmp_path: Path) -> None:
    """Pods that become ready one by one: for a moment the values of all add up to more than there is."""
    first, new = "chat-6d5f8-x7k2p", "chat-6d5f8-q2w4r"
    rows = {
        f'namespace_pod:gpu:now{{namespace="ml", pod="{first}"}}': "15x9 92x2 55x9 92x20",
        f'namespace_pod:gpu:now{{namespace="ml", pod="{new}"}}': "_x9 0 55x10 92x20",
        'namespace_pod:gpu:now{namespace="ml", pod="chat-large-6d5f8-x7k2p"}': "100x40",
        'namespace_pod:gpu:now{namespace="web", pod="chat-6d5f8-x7k2p"}': "100x40",
        "asked_total": "0+10x40",
    }
    sustained = "sum(namespace_pod:gpu_sustained:avg)"
    seen = {16: 15, 20: 15, 38: 110, 42: 110, 54: 110, 64: 184, 78: 184}
    expected = [(sustained, at_s, value) for at_s, value in seen.items()]
    check(tmp_path, rules(offered="asked_total", served="asked_total"), rows, expected)


OWN = {"offered": "asked_total", "served": 'asked_total{code="200"}'}
SERVED, REFUSED = (f'asked_total{{code="{code}"}}' for code in (200, 503))


def expected_of(sums: dict[int, float]) -> list[tuple[str, int, float | None]]:
    """Of the demand: what it is by its second, give or take a twentieth."""
    return [
        row
        for at_s, value in sums.items()
        for row in ((f"{part('sum')} < {0.95 * value}", at_s, None), (f"{part('sum')} > {1.05 * value}", at_s, None))
    ]


def test_a_gpu_that_hangs_makes_no_request_dear(tmp_path: Path) -> None:
    """It is full and answers nearly nothing. Two pods are not a hundred."""
    rows = {
        BUSY: "100x500",
        SERVED: counter([*[100] * 150, *[2] * 350]),
        REFUSED: counter([*[0] * 150, *[98] * 350]),
    }
    check(tmp_path, rules(**OWN), rows, expected_of({290: 100, 400: 100, 480: 100, 600: 100, 800: 100, 990: 100}))


@pytest.mark.parametrize("served_after", [0, 1], ids=["nothing", "nearly nothing"])
def test_clients_that_try_again_while_nothing_is_served_are_no_demand(served_after: int, tmp_path: Path) -> None:
    """A model crashes: its clients ask fifty times as often, and the proxy refuses them."""
    rows = {
        BUSY: "50x150 0x100",
        SERVED: counter([*[40] * 150, *[served_after] * 100]),
        REFUSED: counter([*[0] * 150, *[2000] * 100]),
    }
    high = f"max_over_time(({part('sum')})[190s:2s]) > 50.5"
    check(tmp_path, rules(**OWN), rows, [(part("sum"), 298, 50), (high, 490, None), (part("sum"), 490, 0)])


def test_a_dot_in_a_name_is_a_dot(tmp_path: Path) -> None:
    """Traefik's counters are found by a pattern."""
    other = 'traefik_service_requests_total{code="200",service="ml-chatXv2-80@kubernetes"}'
    mine = other.replace("chatXv2", "chat.v2")
    series = {BUSY: "100x60", mine: "0+100x60", other: "0+1000x60"}
    check(tmp_path, rules(source="traefik", name="chat.v2"), series, [(part("offered"), 118, 50)])


# Envoy 1.40.0's own text of several bursts, by route: requests that are offered and served in each of them.
# chat: 24 answered, 57 with 429 and 3 reset; 404 and 500 do not count. cb: a circuit breaker. retry: Envoy sent 36.
# down and empty: a closed port and no endpoint. slow: 3 timed out; 3 aborted requests are in no code.
BURSTS = {"chat": (84, 24), "cb": (40, 4), "retry": (30, 3), "down": (9, 0), "empty": (8, 0), "slow": (3, 3)}


@pytest.mark.parametrize("route", BURSTS)
def test_envoy_counts_the_requests_of_a_route(route: str, tmp_path: Path) -> None:
    """Ten of the bursts come every two seconds."""
    offered, served = BURSTS[route]
    series = {name: f"0+{10 * value:g}x60" for name, value in recorded("envoy-1.40-after-bursts").items()}
    expected = [
        (part("offered"), 118, 5 * offered),
        (part("cost"), 118, 0.2 / served if served else None),
    ]
    check(tmp_path, rules(source="envoy_gateway", name=route), {BUSY: "100x60", **series}, expected)


def test_envoy_has_no_counter_before_the_first_answer(tmp_path: Path) -> None:
    series = {name: f"{value:g}x60" for name, value in recorded("envoy-1.40-idle").items()}
    expected = [(part("counters"), 118, None), (part("sum"), 118, 100)]
    check(tmp_path, rules(source="envoy_gateway"), {BUSY: "100x60", **series}, expected)


def test_an_httproute_with_a_dot_is_counted_under_another_name() -> None:
    """httproute/ml/echo.a.example.com/rule/0 had six requests."""
    counted = [name for name, value in recorded("envoy-1.40-after-bursts").items() if "_upstream_rq{" in name and value]
    assert [name.partition("{")[0] for name in counted if "ml/echo" in name] == [
        "envoy_cluster_a_example_com_rule_0_upstream_rq"
    ]
    with pytest.raises(HopError, match="an HTTPRoute whose name has a dot"):
        rules(source="envoy_gateway", name="echo.a.example.com")


@pytest.mark.parametrize("source", ["istio", "envoy_gateway", "ingress_nginx", "traefik"])
def test_a_name_is_never_a_part_of_a_query(source: str, tmp_path: Path) -> None:
    """It is refused, and quoted as well."""
    name = 'chat"} or vector(1e6) or up{a="\\'
    with pytest.raises(HopError, match=r"demand\.name"):
        rules(source=source, name=name)
    params = {"namespace": "ml", "target": {"name": "chat"}, "max_replicas": 8, "demand": {"source": source}}
    autoscaler = Autoscaler.from_params(params)
    counter = COUNTERS[source]
    demand = Demand(counter.offered("ml", name), counter.served("ml", name), source=source)
    check(
        tmp_path,
        workload_rule(replace(autoscaler, demand=demand), RuleOptions())["spec"],
        {BUSY: "100x60"},
        [(part("sum"), 118, 100), (part("rate"), 118, None)],
    )


def test_a_selector_may_have_braces_in_its_values(tmp_path: Path) -> None:
    selector = 'asked_total{path="/v1/{id}"}'
    series = {BUSY: "100x60", selector: "0+100x60"}
    check(tmp_path, rules(offered=selector, served=selector), series, [(part("offered"), 118, 50)])


@pytest.mark.parametrize("selector", ['asked_total{a="b"} or up{a="b"}', 'asked_total{a="b}', "asked_total{a='b'}}"])
def test_what_is_more_than_a_selector_is_refused(selector: str) -> None:
    with pytest.raises(HopError, match="which is not a selector"):
        rules(offered=selector, served=selector)


def test_a_prior_does_not_stand_against_what_is_seen(tmp_path: Path) -> None:
    """Full GPUs from the first minute on: a prior is nobody's measurement."""
    rows = {BUSY: "100x100", SERVED: "0+100x100", REFUSED: "0+100x100"}
    check(tmp_path, rules(**OWN, prior_gpu_seconds=0.001), rows, [(part("cost"), 190, 0.02), (part("sum"), 190, 200)])


def test_a_dearer_request_is_learned_while_none_is_refused(tmp_path: Path) -> None:
    rows = {BUSY: "30x150 90x300", SERVED: "0+100x450"}
    check(tmp_path, rules(**OWN), rows, expected_of({290: 30, 700: 90, 890: 90}))


def test_a_proxy_that_is_not_scraped_for_a_while_makes_no_request_dear(tmp_path: Path) -> None:
    """One of two that count alike: gone for six minutes, and back with all that it has counted."""
    gone = [*map(str, range(0, 15_000, 100)), "stale", *["_"] * 179, *map(str, range(33_000, 60_000, 100))]
    rows = {
        BUSY: "100x600",
        'asked_total{code="200", pod="door-a"}': "0+100x600",
        'asked_total{code="200", pod="door-b"}': " ".join(gone),
    }
    expected = expected_of({290: 100, 600: 50, 680: 100, 740: 100, 800: 100, 840: 100, 1190: 100})
    check(tmp_path, rules(**OWN), rows, [*expected, (part("cost"), 600, 0.01)])


def test_gpu_time_without_an_answer_makes_no_request_dear(tmp_path: Path) -> None:
    """Pods that are full for four minutes and answer nothing, then as before."""
    rows = {
        BUSY: "80x200 100x120 80x250",
        SERVED: counter([*[80] * 200, *[0] * 120, *[80] * 250]),
        REFUSED: counter([*[0] * 200, *[80] * 120, *[0] * 250]),
    }
    check(tmp_path, rules(**OWN), rows, expected_of({390: 80, 660: 80, 680: 80, 700: 80, 760: 80, 1100: 80}))


@pytest.mark.parametrize(
    ("busy", "prior", "sums"),
    # The first minute of a counter has nine tenths of its requests.
    [("5x1150", 0.05, {200: 11, 590: 11, 2290: 11}), ("80x150 4x1000", None, {290: 80, 600: 10, 2290: 10})],
    ids=["than the prior", "than what was learned"],
)
def test_a_cheaper_request_is_noticed_on_idle_gpus(
    busy: str, prior: float | None, sums: dict[int, float], tmp_path: Path
) -> None:
    """Below a tenth of a GPU no cost is measured. A hundred requests a second say how much one costs at most."""
    told = OWN if prior is None else {**OWN, "prior_gpu_seconds": prior}
    check(tmp_path, rules(**told), {BUSY: busy, SERVED: "0+200x1150"}, expected_of(sums))


@pytest.mark.parametrize(
    ("busy", "at_s"), [("80x60 5x8 80x8 5x8 80x40", 180), ("5x12 stale _x16 5x16", 88)], ids=["busy", "a gap"]
)
def test_what_is_not_idle_for_a_minute_bounds_no_cost(busy: str, at_s: int, tmp_path: Path) -> None:
    rows = {BUSY: busy, SERVED: "0+200x120"}
    low = f"count_over_time((namespace_workload:gpu_demand:sample{{{LABELS}}} < 0.003)[90s:2s])"
    check(tmp_path, rules(**OWN, prior_gpu_seconds=0.05), rows, [(low, at_s, None)])


def test_pods_of_a_job_with_a_like_name_do_not_count(tmp_path: Path) -> None:
    job = 'namespace_pod:gpu:now{namespace="ml", pod="chat-v2-x7k2p"}'
    check(tmp_path, rules(**OWN), {BUSY: "20x60", job: "100x60", SERVED: "0+20x60"}, [(part("busy"), 110, 20)])


@pytest.mark.parametrize("scraped_s", [2, 10, 30])
def test_a_cost_is_learned_however_often_counters_are_scraped(scraped_s: int, tmp_path: Path) -> None:
    counts = " ".join(str(100 * at) if at % (scraped_s // 2) == 0 else "_" for at in range(300))
    check(tmp_path, rules(**OWN), {BUSY: "80x300", SERVED: counts}, [(part("cost"), 590, 0.016)])


counter_steps = st.lists(
    st.one_of(st.integers(0, 5_000), st.sampled_from([0, 0, 1, -1, 10**9])), min_size=70, max_size=70
)
gpu_values = st.lists(st.one_of(st.integers(0, 100), st.sampled_from([0, 100, None])), min_size=70, max_size=70)


def counter(steps: Sequence[int]) -> str:
    """Values of a counter; a negative step is a restart of what counts."""
    values, total = [], 0
    for step in steps:
        total = 0 if step < 0 else total + step
        values.append(str(total))
    return " ".join(values)


@settings(max_examples=15, deadline=None)
@given(served=counter_steps, refused=counter_steps, busy=gpu_values)
def test_any_demand_is_a_number_and_no_more_than_its_requests_can_cost(
    served: list[int], refused: list[int], busy: list[int | None]
) -> None:
    rows = {
        BUSY: " ".join("stale" if value is None else str(value) for value in busy),
        'asked_total{code="200"}': counter(served),
        'asked_total{code="503"}': counter(refused),
    }
    demand, offered, cost = (f"namespace_workload:gpu_demand:{name}" for name in ("sum", "offered", "cost"))
    count = f"count_over_time(({{query}})[{2 * len(busy)}s:2s])"
    never = [
        f"{demand} < 0",
        f"{demand} == Inf",
        f"{demand} != {demand}",
        f"{cost} > {MOST_COST} or {cost} <= 0",
        f"({demand} > 100 * {MOST_COST} * {offered}) or ({demand} > 100 unless {offered})",
        # The HPA always has a value where a GPU has one.
        f"namespace_workload:gpu_demand:busy unless {demand}",
    ]
    expected = [(f"sum({count.format(query=query)})", 2 * len(busy) - 2, None) for query in never]
    with TemporaryDirectory() as folder:
        check(Path(folder), rules(offered="asked_total", served='asked_total{code="200"}'), rows, expected)
