"""What the rules make of texts that real servers have served. recorded/ has them; each names its version and date."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.answer_times import answer_times_query
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.queues import queues_query
from collection import ROOT
from golden import GOLDEN
from test_rules import HERE, promtool

RECORDED = HERE / "recorded"
POD = 'namespace="ml",pod="chat-0",instance="10.0.0.1:8000",job="ml/chat",container="main",endpoint="http"'
TICK_S, MINUTES = 2, 2
TICKS = MINUTES * 60 // TICK_S
_COUNTERS = re.compile(r"\w+:\w+_(total|tokens_sum|tokens_count)|nv_inference_\w+_us")

Rows = Mapping[str, float]


def recorded(name: str) -> Rows:
    """Values by series, without the labels of a target."""
    lines = (RECORDED / f"{name}.prom").read_text().splitlines()
    rows = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {series: float(value) for series, _space, value in rows}


def of_pod(series: str) -> str:
    """With the labels that a PodMonitor adds."""
    return f"{series[:-1]},{POD}}}" if series.endswith("}") else f"{series}{{{POD}}}"


def played(before: str, state: str, seconds: float) -> dict[str, str]:
    """A server that stays in a state: its counters rise as they did between two recorded texts."""
    first, now = recorded(before), recorded(state)
    values = {}
    for series, value in now.items():
        step = (value - first[series]) / seconds * TICK_S if _COUNTERS.match(series) else 0
        values[of_pod(series)] = f"{first[series] if step else value}+{step}x{TICKS}"
    return values


def check(folder: Path, profile: str, series: Mapping[str, str], expected: Mapping[str, float]) -> None:
    """Raises if the rule records other values. expected: by metric, at the end."""
    tests = [
        {
            "expr": f"round(namespace_pod:{metric}:avg, 0.01)",
            "eval_time": f"{TICKS * TICK_S}s",
            "exp_samples": [{"labels": '{namespace="ml", pod="chat-0"}', "value": value}],
        }
        for metric, value in expected.items()
    ]
    content = {
        "rule_files": [str(GOLDEN / f"{profile}.rules.yaml")],
        "evaluation_interval": f"{TICK_S}s",
        "fuzzy_compare": True,
        "tests": [
            {
                "interval": f"{TICK_S}s",
                "input_series": [
                    {"series": name, "values": values}
                    for name, values in {**series, of_pod("up"): f"1x{TICKS}"}.items()
                ],
                "promql_expr_test": tests,
            }
        ],
    }
    (folder / "recorded_test.yml").write_text(json.dumps(content))
    promtool("test", "rules", "recorded_test.yml", folder=folder)


# What clients held, waiting ones and percent of the KV cache.
VLLM = {
    "idle": (0, 0, 0),
    "busy": (2, 0, 0.2),
    "saturated": (16, 12, 0.39),
    "kv-full": (6, 2, 100),
}


@pytest.mark.parametrize("state", VLLM)
def test_vllm_holds_what_its_clients_sent(state: str, tmp_path: Path) -> None:
    held, waiting, cache = VLLM[state]
    series = played(f"vllm-0.32-{state}", f"vllm-0.32-{state}", 1)
    check(tmp_path, "llm", series, {"llm_requests_waiting": waiting, "llm_kv_cache": cache})
    check(tmp_path, "llm_in_flight", series, {"llm_in_flight": held})


def test_a_vllm_that_rejects_reads_twice_as_full(tmp_path: Path) -> None:
    """20 users; 6 in flight and none waiting, while 99 of 100 requests are rejected."""
    series = played("vllm-0.32-kv-full", "vllm-0.32-queue-capped", 30)
    check(tmp_path, "llm", series, {"llm_requests_waiting": 6, "llm_kv_cache": 77.78})
    check(tmp_path, "llm_in_flight", series, {"llm_in_flight": 12})


def test_few_rejected_requests_add_as_few(tmp_path: Path) -> None:
    """One rejected for ten that are answered: a tenth of those in flight."""
    series = played("vllm-0.32-kv-full", "vllm-0.32-queue-capped", 30)
    rejections = next(name for name in series if 'reason="max_num_queued_reqs"' in name)
    answered = next(name for name in series if 'finished_reason="length"' in name)
    series |= {rejections: f"0+1x{TICKS}", answered: f"0+10x{TICKS}"}
    check(tmp_path, "llm", series, {"llm_requests_waiting": 0.6})
    check(tmp_path, "llm_in_flight", series, {"llm_in_flight": 6.6})


def test_rejections_count_for_each_engine_of_a_server(tmp_path: Path) -> None:
    series = played("vllm-0.32-kv-full", "vllm-0.32-queue-capped", 30)
    more = {name.replace('engine="0"', 'engine="1"'): values for name, values in series.items() if "engine" in name}
    check(tmp_path, "llm_in_flight", series | more, {"llm_in_flight": 24})


# Between two texts: 31 requests of model plain, each 0.2078 s long and one at a time.
PLAIN_S = (137578286 - 131137245) / 1e6
# 12 users of batched and 3 of two, by Little's law on the recorded durations.
BATCHED_S = 735132057 / 1e6 / 12


def test_triton_without_batches(tmp_path: Path) -> None:
    """12 users: one runs, 11 wait."""
    series = played("triton-plain-12-users", "triton-batched-12-two-3", PLAIN_S)
    waiting = recorded("triton-plain-12-users")
    still = {
        of_pod(name): f"{value}x{TICKS}"
        for name, value in waiting.items()
        if 'model="plain"' not in name or "pending" in name
    }
    check(tmp_path, "llm_in_flight", series | still, {"llm_in_flight": 12})


@pytest.mark.parametrize("last", [1, 9], ids=["a batch was taken", "a batch is full"])
def test_triton_with_batches_does_not_swing(last: int, tmp_path: Path) -> None:
    """15 users. The queue was seen between 1 and 9 in all; the sum with those that run between 8.8 and 16.9."""
    series = played("triton-idle", "triton-batched-12-two-3", BATCHED_S)
    series |= {name: f"0x{TICKS}" for name in series if 'model="plain"' in name}
    pending = of_pod('nv_inference_pending_request_count{model="batched",version="1"}')
    series[pending] = " ".join(str(value) for value in _queue(last - 1))
    check(tmp_path, "llm_in_flight", series, {"llm_in_flight": 15.03})


def _queue(last: int) -> Iterator[int]:
    """0, 4 or 8 requests by turns, in the end this many."""
    yield from ((last + 4 * (TICKS - tick)) % 12 for tick in range(TICKS + 1))


WAITED_S, EACH_S = 330, 15


@pytest.mark.parametrize(
    ("state", "others", "waiting"),
    [
        pytest.param("saturated", {}, 12, id="saturated"),
        pytest.param("busy", {}, None, id="busy"),
        pytest.param("saturated", {13: 0}, None, id="empty once"),
        pytest.param("saturated", dict.fromkeys(range(10)), None, id="for a shorter time"),
    ],
)
def test_requests_that_wait_for_minutes_are_seen(
    state: str, others: dict[int, int | None], waiting: int | None, tmp_path: Path
) -> None:
    """What the doctor reads of a queue. others: values at single ticks, None for no sample."""
    read_queue(tmp_path, recorded(f"vllm-0.32-{state}"), others, waiting)


def test_requests_that_are_deferred_wait_for_no_room(tmp_path: Path) -> None:
    rows = recorded("vllm-0.32-saturated")
    deferred = {
        name: rows[name.replace("deferred", "capacity")] if "deferred" in name else 0.0
        for name in rows
        if "waiting_by_reason" in name
    }
    read_queue(tmp_path, {**rows, **deferred}, {}, None)


def read_queue(folder: Path, rows: Rows, others: Mapping[int, int | None], waiting: int | None) -> None:
    series = {}
    for name, value in rows.items():
        ticks = [others.get(tick, value) if "waiting" in name else value for tick in range(WAITED_S // EACH_S + 1)]
        series[of_pod(name)] = " ".join("_" if tick is None else str(tick) for tick in ticks)
    samples = [] if waiting is None else [{"labels": '{namespace="ml", pod="chat-0"}', "value": waiting}]
    test = {
        "interval": f"{EACH_S}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": queues_query(["ml"]), "eval_time": f"{WAITED_S}s", "exp_samples": samples}],
    }
    (folder / "queue_test.yml").write_text(json.dumps({"tests": [test]}))
    promtool("test", "rules", "queue_test.yml", folder=folder)


@pytest.mark.parametrize(
    "histogram",
    [
        "vllm:e2e_request_latency_seconds",
        "sglang:e2e_request_latency_seconds",
        "trtllm_e2e_request_latency_seconds",
        "tgi_request_duration",
    ],
)
def test_the_longest_answers_of_each_server_are_seen(histogram: str, tmp_path: Path) -> None:
    """Half of the answers of each engine take up to 10 s, the others up to 40: the 99th percentile is 39.4 s."""
    buckets = {"10.0": 1, "40.0": 2, "+Inf": 2}
    series = {
        f'{histogram}_bucket{{engine="{engine}",le="{bound}"}}': f"0+{rise}x{TICKS}"
        for engine in "01"
        for bound, rise in buckets.items()
    }
    read_answer_times(tmp_path, series, 39.4)


def test_the_longest_answers_of_triton_are_seen_while_it_reports_quantiles(tmp_path: Path) -> None:
    """It may have been scraped for the last time a moment ago."""
    series = {
        f'nv_inference_request_summary_us{{model="{model}",quantile="{quantile}"}}': values
        for model, quantile, values in (
            ("a", "0.99", f"41e6x{TICKS // 2} _x{TICKS // 2}"),
            ("b", "0.99", f"12e6x{TICKS}"),
            ("a", "0.5", f"90e6x{TICKS}"),
        )
    }
    read_answer_times(tmp_path, series, 41)


def test_a_server_without_requests_has_no_longest_answer(tmp_path: Path) -> None:
    read_answer_times(tmp_path, {'vllm:e2e_request_latency_seconds_bucket{le="+Inf"}': f"7x{TICKS}"}, None)


def read_answer_times(folder: Path, series: Mapping[str, str], seconds: float | None) -> None:
    samples = [] if seconds is None else [{"labels": '{namespace="ml", pod="chat-0"}', "value": seconds}]
    test = {
        "interval": f"{TICK_S}s",
        "input_series": [{"series": of_pod(name), "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": f"round({answer_times_query(['ml'])}, 0.1)", "eval_time": f"{TICKS * TICK_S}s"}
            | {"exp_samples": samples}
        ],
    }
    (folder / "answers_test.yml").write_text(json.dumps({"fuzzy_compare": True, "tests": [test]}))
    promtool("test", "rules", "answers_test.yml", folder=folder)


PAGE = (ROOT / "docs" / "other-metrics.md").read_text()
QUERIES = re.findall(r"^\|[^|`]+\| `(\w+\(.+?)` \|", PAGE, re.MULTILINE)
EPP = 'inference_pool="chat",stage="effective"'


def test_a_gateway_s_total_is_the_one_of_its_route(tmp_path: Path) -> None:
    """Envoy's names, with three and two requests in flight."""
    [query] = [query for query in QUERIES if "envoy" in query]
    [example] = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.+?)```", PAGE, re.DOTALL) if query in block]
    [options] = example["gpu_autoscaling_autoscalers"]
    assert Autoscaler.from_params(options).metric.query == query
    active = {name: 0.0 for name in recorded("envoy-1.40-after-bursts") if "_upstream_rq_active{" in name}
    mine = 'envoy_cluster_upstream_rq_active{envoy_cluster_name="httproute/ml/chat/rule/0"}'
    assert mine in active
    series = active | {mine: 3, mine.replace("/0", "/1"): 2, mine.replace("ml/chat", "ml/chat-large"): 50}
    evaluate(tmp_path, query, series, 5)


_MADE, _PROMPT, _ANSWER = 3117 / 30, 2200 / 30, (3390 + 0.2 * 2100) / 21


@pytest.mark.parametrize(
    ("changed", "load"),
    [
        pytest.param({}, _MADE + 0.2 * _PROMPT, id="nothing waits"),
        pytest.param({"prompt_tokens_cached_total": (0, 30)}, _MADE + 0.2 * (_PROMPT - 30), id="cached"),
        pytest.param({"prompt_tokens_cached_total": None}, _MADE + 0.2 * _PROMPT, id="no cache"),
        pytest.param({"num_requests_waiting": (8, 0)}, _MADE + 0.2 * _PROMPT + 8 * _ANSWER / 30, id="some wait"),
        pytest.param(
            {"num_requests_waiting": (8, 0), "generation_tokens_total": (9, 0), "prompt_tokens_total": (9, 0)},
            8 * _ANSWER / 30,
            id="it hangs",
        ),
        pytest.param(
            {"num_requests_waiting": (8, 0), "request_generation_tokens_count": (0, 0)},
            _MADE + 0.2 * _PROMPT,
            id="no answer yet",
        ),
    ],
)
def test_tokens_count_what_vllm_generates_and_what_waits(
    changed: Mapping[str, tuple[float, float] | None], load: float, tmp_path: Path
) -> None:
    """Of two texts, 30 s apart: 3,117 tokens, 2,200 of prompts, 21 answers. changed: a value and its rise a second."""
    [query] = [
        options["metric"]["query"]
        for block in re.findall(r"```yaml\n(.+?)```", PAGE, re.DOTALL)
        for options in yaml.safe_load(block).get("gpu_autoscaling_autoscalers", [])
        if "tokens" in options["metric"]["query"]
    ]
    series = played("vllm-0.32-kv-full", "vllm-0.32-queue-capped", 30)
    for name, value in changed.items():
        [one] = [known for known in series if known.startswith(f"vllm:{name}{{")]
        series[one] = f"{value[0]}+{value[1] * TICK_S}x{TICKS}" if value else f"_x{TICKS}"
    test = {
        "interval": f"{TICK_S}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f"round({query}, 0.01)",
                "eval_time": f"{TICKS * TICK_S}s",
                "exp_samples": [{"labels": '{namespace="ml", pod="chat-0"}', "value": round(load, 2)}],
            }
        ],
    }
    (tmp_path / "query_test.yml").write_text(json.dumps({"fuzzy_compare": True, "tests": [test]}))
    promtool("test", "rules", "query_test.yml", folder=tmp_path)


@pytest.mark.parametrize(("ready", "saturation"), [(0, None), (2, 0.7)])
def test_an_empty_pool_of_llm_d_has_no_saturation(ready: int, saturation: float | None, tmp_path: Path) -> None:
    """The picker reports 1.0 for it."""
    [query] = [query for query in QUERIES if "saturation" in query]
    series = {
        f"llm_d_epp_flow_control_pool_saturation{{{EPP}}}": 1 if saturation is None else saturation,
        f"llm_d_epp_flow_control_pool_saturation{{{EPP.replace('effective', 'decode')}}}": 1.2,
        'llm_d_epp_ready_endpoints{name="chat"}': ready,
    }
    evaluate(tmp_path, query, series, saturation)


@pytest.mark.parametrize("query", QUERIES)
def test_each_query_of_the_page_is_promql(query: str, tmp_path: Path) -> None:
    evaluate(tmp_path, query, {}, None)


def evaluate(folder: Path, query: str, series: Mapping[str, float], value: float | None) -> None:
    """Raises if the query has another value; None for none."""
    samples = [] if value is None else [{"labels": "{}", "value": value}]
    test = {
        "interval": "2s",
        "input_series": [{"series": name, "values": f"{amount}x5"} for name, amount in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": "10s", "exp_samples": samples}],
    }
    (folder / "query_test.yml").write_text(json.dumps({"tests": [test]}))
    promtool("test", "rules", "query_test.yml", folder=folder)


@pytest.mark.parametrize("profile", ["llm", "llm_in_flight"])
def test_recorded_texts_have_every_name_that_is_read(profile: str) -> None:
    """A name that the servers no longer serve would make these tests pass for nothing."""
    text = (GOLDEN / f"{profile}.rules.yaml").read_text()
    read = set(re.findall(r"\b(?:vllm:|nv_inference_)\w+", text)) - {"vllm:gpu_cache_usage_perc"}
    served = {name.partition("{")[0] for path in RECORDED.glob("*.prom") for name in recorded(path.stem)}
    assert read
    assert read <= served
