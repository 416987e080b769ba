"""What k6 is told: when stages end, and the request that measures the time to first token."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.k6_plan import k6_plan, probe_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.shapes import stages_of

STAGES = stages_of("step", low=2, high=40, settle_s=30, fall_s=90, hold_s=60)
CHAT = {"model": "m", "prompt": "Hello", "stream": True}


def plan(**options: Any) -> dict[str, Any]:
    return k6_plan({"timeout_s": "3", "most_users": "50", **options}, STAGES)


def test_k6_knows_when_each_stage_ends() -> None:
    assert plan()["stages"] == [{"ends_s": 30}, {"ends_s": 90}, {"ends_s": 180}]


def test_a_stream_is_probed_once_a_second_for_as_long_as_the_test_takes() -> None:
    scenarios = plan(body=json.dumps(CHAT))["scenarios"]
    assert {key: scenarios["probe"][key] for key in ("exec", "rate", "timeUnit", "duration", "maxVUs")} == {
        "exec": "probe",
        "rate": 1,
        "timeUnit": "1s",
        "duration": "180s",
        "maxVUs": 4,  # as many as can wait at a time, and the next one
    }
    assert scenarios["load"] == plan()["scenarios"]["load"]


@pytest.mark.parametrize(
    ("more", "probe"),
    [
        ({}, {"max_tokens": 1}),
        ({"max_tokens": 64}, {"max_tokens": 1}),
        ({"max_completion_tokens": 64}, {"max_completion_tokens": 1}),
        ({"stream_options": {"include_usage": True}, "min_tokens": 16, "ignore_eos": True}, {"max_tokens": 1}),
    ],
)
def test_a_probe_asks_for_one_token_without_a_stream(more: dict[str, Any], probe: dict[str, Any]) -> None:
    """vLLM answers 400 to stream_options without a stream, and to min_tokens above max_tokens."""
    assert json.loads(probe_of(json.dumps(CHAT | more))) == {"model": "m", "prompt": "Hello", "stream": False, **probe}


@pytest.mark.parametrize(
    "body", ["", "no JSON", "[]", "{}", '{"stream": false}', '{"stream": "true"}', '{"messages": [{"stream": true}]}']
)
def test_what_is_no_stream_is_not_probed(body: str) -> None:
    assert plan(body=body)["probe"] == ""
    assert list(plan(body=body)["scenarios"]) == ["load"]
